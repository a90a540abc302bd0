//! The admin socket: a line asks, a line answers.

use crate::daemon::stats;
use crate::session::{PAUSE, bind, retry};
use crate::worker::WorkerHandle;
use anyhow::Result;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier};

/// A client that says nothing for so long is left.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most bytes of a request.
const MAX_REQUEST: u64 = 256;

/// The running admin socket.
#[derive(Debug)]
pub struct Admin {
    path: PathBuf,
    stop: EventNotifier,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Binds the socket and starts to answer.
    ///
    /// # Errors
    /// The socket cannot be bound.
    pub fn start(path: &Path, worker: WorkerHandle) -> Result<Admin> {
        let listener = bind(path)?;
        let (stopped, stop) = new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC)?;
        let epoll = Epoll::new()?;
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || {
            if let Err(error) = serve(&epoll, &listener, &stopped, &worker) {
                log::error!("admin socket: {error:#}");
            }
        })?;
        Ok(Admin { path: path.to_owned(), stop, thread: Some(thread) })
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        let _ = self.stop.notify();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(
    epoll: &Epoll,
    listener: &UnixListener,
    stopped: &EventConsumer,
    worker: &WorkerHandle,
) -> Result<()> {
    epoll.ctl(ControlOperation::Add, listener.as_raw_fd(), EpollEvent::new(EventSet::IN, 0))?;
    epoll.ctl(ControlOperation::Add, stopped.as_raw_fd(), EpollEvent::new(EventSet::IN, 1))?;
    let mut events = [EpollEvent::default(); 2];
    loop {
        let count = retry(|| epoll.wait(-1, &mut events))?;
        if events[..count].iter().any(|event| event.data() == 1) {
            return Ok(());
        }
        match listener.accept() {
            // A client that goes away or says nothing gets no answer, and nobody else minds.
            Ok((stream, _)) => drop(answer(&stream, worker)),
            // It waits on, and is seen again at once.
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn answer(stream: &UnixStream, worker: &WorkerHandle) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_REQUEST)).read_line(&mut line)?;
    let reply = match line.trim() {
        "stats" => serde_json::to_string(&stats(worker)?)?,
        _ => r#"{"error":"unknown request; known: stats"}"#.to_owned(),
    };
    let mut stream = stream;
    writeln!(stream, "{reply}")?;
    Ok(())
}
