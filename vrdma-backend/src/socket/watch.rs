//! Binds sockets again after their files were deleted.

use super::Listener;
use crate::jail;
use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// Seconds between attempts to bind a file again that fails, for instance because its directory is
/// gone.
const AGAIN: i64 = 1;

/// Nanoseconds to wait after a file was deleted.
///
/// Whoever deletes it may want to delete its directory too. A socket bound in between would prevent
/// that.
const PAUSE: i64 = 100_000_000;

/// A thread that waits for file deletions in the directories of the sockets. It ends when this is
/// dropped.
#[derive(Debug)]
pub struct SocketWatch {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl SocketWatch {
    /// Starts the thread.
    ///
    /// # Errors
    /// A system resource is exhausted.
    pub fn start(listeners: Vec<Weak<Listener>>) -> Result<SocketWatch> {
        let stop = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).context("inotify")?;
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("sockets".into());
        let thread = thread.spawn(move || {
            jail::confine(jail::Kind::Sockets);
            run(&events, &stopped, &listeners);
        })?;
        Ok(SocketWatch { stop, thread: Some(thread) })
    }
}

impl Drop for SocketWatch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(events: &OwnedFd, stopped: &OwnedFd, listeners: &[Weak<Listener>]) {
    let flags = WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR;
    loop {
        let all: Vec<Arc<Listener>> = listeners.iter().filter_map(Weak::upgrade).collect();
        // Watching starts before the check, so that later deletions are reported. Adding an
        // existing watch changes nothing.
        let directories: BTreeSet<_> = all.iter().filter_map(|listener| listener.directory()).collect();
        let watched =
            directories.into_iter().filter(|at| inotify::add_watch(events, *at, flags).is_ok()).count();
        let missing = all.iter().filter(|listener| !listener.mend()).count();
        drop(all);
        let time = Timespec { tv_sec: AGAIN, tv_nsec: 0 };
        let time = (missing != 0 || watched == 0).then_some(&time);
        let mut fds = [PollFd::new(stopped, PollFlags::IN), PollFd::new(events, PollFlags::IN)];
        match poll(&mut fds, time) {
            Ok(_) if fds[0].revents().is_empty() => {}
            Err(Errno::INTR) => {}
            _ => return,
        }
        if missing == 0 {
            let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE };
            match poll(&mut [PollFd::new(stopped, PollFlags::IN)], Some(&pause)) {
                Ok(0) | Err(Errno::INTR) => {}
                _ => return,
            }
        }
        let mut buffer = [const { std::mem::MaybeUninit::uninit() }; 4096];
        let mut reader = inotify::Reader::new(events, &mut buffer);
        while reader.next().is_ok() {}
    }
}
