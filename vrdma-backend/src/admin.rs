//! The admin socket: a line asks, a line answers.

use crate::session::{PAUSE, retry};
use crate::socket::Listener;
use crate::stats::Observer;
use crate::worker::Stopped;
use anyhow::Result;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A client that has not asked and read its answer by then is left.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most bytes of a request.
const MAX_REQUEST: usize = 256;
/// Clients that are served at a time; for one more the oldest that says nothing is left.
const MAX_CLIENTS: usize = 32;

/// The running admin socket.
#[derive(Debug)]
pub struct Admin {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Starts to answer.
    ///
    /// # Errors
    /// The system is out of something.
    pub fn start(listener: Arc<Listener>, observer: Observer) -> Result<Admin> {
        let stop = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || {
            if let Err(error) = serve(&listener, &stopped, &observer) {
                log::error!("the admin socket ends here: {error:#}");
            }
        })?;
        Ok(Admin { stop, thread: Some(thread) })
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A client: it asks, then it is answered. None waits for another.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    /// When it is left.
    until: Instant,
    request: Vec<u8>,
    /// What of the answer it has still to get, once it has asked.
    answer: Option<Vec<u8>>,
}

fn serve(listener: &Listener, stopped: &OwnedFd, observer: &Observer) -> Result<()> {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        if wait(listener, stopped, &clients)? {
            return Ok(());
        }
        clients.retain_mut(|client| client.step(observer).unwrap_or(false) && Instant::now() < client.until);
        // All that has come of a request was read before its client may be left.
        match listener.accept().and_then(Client::new) {
            Ok(client) => {
                if clients.len() == MAX_CLIENTS {
                    let silent = clients.iter().position(|client| client.answer.is_none());
                    clients.remove(silent.unwrap_or(0));
                }
                clients.push(client);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Out of file descriptors, most likely: who waits to be accepted is seen again at once.
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Waits until there is something to do; true if that is to stop.
fn wait(listener: &Listener, stopped: &OwnedFd, clients: &[Client]) -> Result<bool> {
    let mut fds = vec![PollFd::new(stopped, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
    fds.extend(clients.iter().map(|client| {
        let answered = client.answer.is_some();
        PollFd::new(&client.stream, if answered { PollFlags::OUT } else { PollFlags::IN })
    }));
    let until = clients.iter().map(|client| client.until).min();
    let time = until.map(|until| until.saturating_duration_since(Instant::now()));
    let time = time.map(Timespec::try_from).transpose()?;
    match poll(&mut fds, time.as_ref()) {
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(!fds[0].revents().is_empty()),
    }
}

impl Client {
    fn new(stream: UnixStream) -> io::Result<Client> {
        stream.set_nonblocking(true)?;
        Ok(Client { stream, until: Instant::now() + PATIENCE, request: Vec::new(), answer: None })
    }

    /// Goes on without waiting; false if it is done with.
    fn step(&mut self, observer: &Observer) -> Result<bool> {
        if self.answer.is_none() {
            let mut bytes = [0; MAX_REQUEST];
            let room = MAX_REQUEST - self.request.len();
            let count = match now(|| self.stream.read(&mut bytes[..room]))? {
                Some(count) => count,
                None => return Ok(true),
            };
            self.request.extend_from_slice(&bytes[..count]);
            let whole = self.request.contains(&b'\n') || self.request.len() == MAX_REQUEST;
            if count != 0 && !whole {
                return Ok(true);
            }
            self.answer = Some(answer(&self.request, observer)?.into_bytes());
        }
        let left = self.answer.as_mut().expect("just there");
        while !left.is_empty() {
            match now(|| self.stream.write(left))? {
                Some(count) => drop(left.drain(..count)),
                None => return Ok(true),
            }
        }
        Ok(false)
    }
}

/// What a call that may not wait gives; `None` if it would have to.
fn now<T>(call: impl FnMut() -> io::Result<T>) -> io::Result<Option<T>> {
    match retry(call) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        result => result.map(Some),
    }
}

fn answer(request: &[u8], observer: &Observer) -> Result<String, Stopped> {
    let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let text = match line.trim_ascii() {
        b"stats" => serde_json::to_string(&observer.stats()?).expect("counters are JSON"),
        _ => r#"{"error":"unknown request; known: stats"}"#.to_owned(),
    };
    Ok(text + "\n")
}
