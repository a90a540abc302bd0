//! Binds sockets again after their files were deleted.

use super::Listener;
use crate::jail;
use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::JoinHandle;

/// Seconds between attempts to bind a file again that fails, for instance because its directory is
/// gone.
const AGAIN: i64 = 1;

/// Nanoseconds to wait after a file was deleted.
///
/// Whoever deletes it may want to delete its directory too. A socket bound in between would prevent
/// that.
const PAUSE: i64 = 100_000_000;

/// What is watched in a directory.
const WATCHED: WatchFlags = WatchFlags::DELETE
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// A thread that waits for file deletions in the directories of the sockets. It ends when this is
/// dropped.
#[derive(Debug)]
pub struct SocketWatch {
    sockets: WatchedSockets,
    thread: Option<JoinHandle<()>>,
}

/// The sockets that are watched. Clones are one list.
#[derive(Clone, Debug)]
pub struct WatchedSockets(Arc<Watched>);

#[derive(Debug)]
struct Watched {
    listeners: Mutex<Vec<Weak<Listener>>>,
    /// Wakes the thread, because a socket is new or the thread is to end.
    wake: OwnedFd,
    is_over: AtomicBool,
}

impl WatchedSockets {
    /// Watches another socket, if its file was made here. It is forgotten with its last user.
    pub fn add(&self, listener: &Arc<Listener>) {
        if listener.directory().is_some() {
            self.listeners().push(Arc::downgrade(listener));
            self.wake();
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Weak<Listener>>> {
        self.0.listeners.lock().expect("no thread panics with it")
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes());
    }
}

impl SocketWatch {
    /// Starts the thread.
    ///
    /// # Errors
    /// A system resource is exhausted.
    pub fn start() -> Result<SocketWatch> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let (listeners, is_over) = (Mutex::default(), AtomicBool::new(false));
        let sockets = WatchedSockets(Arc::new(Watched { listeners, wake, is_over }));
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).context("inotify")?;
        let watched = sockets.clone();
        let thread = std::thread::Builder::new().name("sockets".into());
        let thread = thread.spawn(move || {
            jail::confine(jail::Kind::Sockets);
            run(&events, &watched);
        })?;
        Ok(SocketWatch { sockets, thread: Some(thread) })
    }

    /// Returns the list of the sockets that are watched.
    pub fn sockets(&self) -> &WatchedSockets {
        &self.sockets
    }
}

impl Drop for SocketWatch {
    fn drop(&mut self) {
        self.sockets.0.is_over.store(true, Ordering::Release);
        self.sockets.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(events: &OwnedFd, sockets: &WatchedSockets) {
    let Watched { wake, is_over, .. } = &*sockets.0;
    let mut watches = HashMap::new();
    loop {
        let all: Vec<Arc<Listener>> = {
            let mut listeners = sockets.listeners();
            listeners.retain(|listener| listener.strong_count() != 0);
            listeners.iter().filter_map(Weak::upgrade).collect()
        };
        // Watching starts before the check, so that later deletions are reported.
        let directories: BTreeSet<_> = all.iter().filter_map(|listener| listener.directory()).collect();
        let count = directories.len();
        let watched = watch(events, &directories, &mut watches);
        let missing = all.iter().filter(|listener| !listener.mend()).count();
        drop(all);
        let time = Timespec { tv_sec: AGAIN, tv_nsec: 0 };
        let time = (missing != 0 || watched == 0 && count != 0).then_some(&time);
        let mut fds = [PollFd::new(wake, PollFlags::IN), PollFd::new(events, PollFlags::IN)];
        match poll(&mut fds, time) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let is_new = !fds[0].revents().is_empty();
        if !is_new && missing == 0 {
            let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE };
            match poll(&mut [PollFd::new(wake, PollFlags::IN)], Some(&pause)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
        if is_over.load(Ordering::Acquire) {
            return;
        }
        let _ = rustix::io::read(wake, &mut [0; 8]);
        let mut buffer = [const { std::mem::MaybeUninit::uninit() }; 4096];
        let mut reader = inotify::Reader::new(events, &mut buffer);
        while reader.next().is_ok() {}
    }
}

/// Watches these directories, and no others any more. Returns the number of those that it watches.
///
/// Watching a directory anew changes nothing, except if another one is in its place.
fn watch(events: &OwnedFd, directories: &BTreeSet<&Path>, watches: &mut HashMap<PathBuf, i32>) -> usize {
    watches.retain(|at, watch| {
        let is_wanted = directories.contains(at.as_path());
        if !is_wanted {
            // The directory, and the watch with it, may be gone.
            let _ = inotify::remove_watch(events, *watch);
        }
        is_wanted
    });
    for at in directories {
        match inotify::add_watch(events, *at, WATCHED) {
            Ok(watch) => drop(watches.insert(at.to_path_buf(), watch)),
            Err(_) => drop(watches.remove(*at)),
        }
    }
    watches.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// Returns the number of watches as the kernel tells it (proc_pid_fdinfo(5)).
    fn in_kernel(events: &OwnedFd) -> usize {
        let path = format!("/proc/self/fdinfo/{}", events.as_raw_fd());
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().filter(|line| line.starts_with("inotify wd:")).count()
    }

    #[test]
    fn directories_without_sockets_are_not_watched() {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap();
        let directories = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [a, b, gone] = directories.each_ref().map(|directory| directory.path());
        let mut watches = HashMap::new();
        let mut count = |wanted: &[&Path]| {
            let wanted = wanted.iter().copied().collect();
            (watch(&events, &wanted, &mut watches), in_kernel(&events))
        };
        assert_eq!(count(&[a, b, gone]), (3, 3));
        assert_eq!(count(&[a, b, gone]), (3, 3));
        assert_eq!(count(&[b, gone]), (2, 2));
        // One directory by two names has one watch, which stays with the second name.
        let twin = b.join("..").join(b.file_name().unwrap());
        assert_eq!(count(&[b, &twin, gone]), (3, 2));
        assert_eq!(count(&[&twin, gone]), (2, 2));
        std::fs::remove_dir(gone).unwrap();
        assert_eq!(count(&[&twin, gone]), (1, 1));
        std::fs::create_dir(gone).unwrap();
        assert_eq!(count(&[&twin, gone]), (2, 2));
        assert_eq!(count(&[]), (0, 0));
    }
}
