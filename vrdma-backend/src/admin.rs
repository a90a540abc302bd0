//! The admin socket: each request is a line, and each answer is a line.

use crate::jail;
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

/// How long a client may take to send its request and read its answer. After that it is dropped.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum length of a request in bytes.
const MAX_REQUEST: usize = 256;
/// Maximum number of clients served at the same time.
///
/// If one more connects, the oldest client that has not sent its request is dropped. If all have
/// sent theirs, the oldest of all is dropped.
const MAX_CLIENTS: usize = 32;

/// The running admin socket.
#[derive(Debug)]
pub struct Admin {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Starts the thread that answers requests.
    ///
    /// # Errors
    /// The system is out of a resource.
    pub fn start(listener: Arc<Listener>, observer: Observer) -> Result<Admin> {
        let stop = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || {
            jail::confine(jail::Kind::Admin);
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

/// A connected client. It sends a request, then gets an answer. No client waits for another.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    /// When the client is dropped.
    until: Instant,
    request: Vec<u8>,
    /// The rest of the answer that is still to be sent; `None` until the whole request has come.
    answer: Option<Vec<u8>>,
}

fn serve(listener: &Listener, stopped: &OwnedFd, observer: &Observer) -> Result<()> {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        if wait(listener, stopped, &clients)? {
            return Ok(());
        }
        clients.retain_mut(|client| client.step(observer).unwrap_or(false) && Instant::now() < client.until);
        // Accept only after the clients' steps: what had come of a request is read before its
        // client may be dropped.
        match listener.accept().and_then(Client::new) {
            Ok(client) => {
                if clients.len() == MAX_CLIENTS {
                    let silent = clients.iter().position(|client| client.answer.is_none());
                    clients.remove(silent.unwrap_or(0));
                }
                clients.push(client);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Most likely out of file descriptors. `poll` reports the waiting client again at once,
            // so pause.
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Waits until there is something to do. Returns true if the thread is to stop.
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

    /// Continues without blocking. Returns false if the client is finished.
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

/// Calls a non-blocking function. Returns `None` if it would have to wait.
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
