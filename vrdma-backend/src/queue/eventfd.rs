//! Eventfds of front-ends.

use crate::memory::{Backlog, Entry, reap};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

/// An eventfd of the front-end.
///
/// Closing the last descriptor removes it from all epoll instances that watch it. The front-end may
/// have very many of those, so the reaper closes it.
#[derive(Debug)]
pub(super) struct Eventfd(Option<(File, Entry)>);

/// Largest number of open eventfds of a function: two for each of 256 virtqueues, and as many that
/// wait to be closed.
pub(super) const MAX_OPEN: usize = 1024;

impl Eventfd {
    /// Wraps the file, if it is an eventfd. Waits until fewer than [`MAX_OPEN`] are open.
    ///
    /// Without this wait, a front-end could send descriptors faster than the reaper closes them.
    pub(super) fn new(file: File, open: &Arc<Backlog>) -> io::Result<Eventfd> {
        let target = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if target.as_os_str() != "anon_inode:[eventfd]" {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "kick or call descriptor is no eventfd"));
        }
        open.wait_for_less(MAX_OPEN);
        Ok(Eventfd(Some((file, open.enter()))))
    }

    pub(super) fn file(&self) -> &File {
        &self.0.as_ref().expect("there until it is dropped").0
    }
}

impl AsRawFd for Eventfd {
    fn as_raw_fd(&self) -> RawFd {
        self.file().as_raw_fd()
    }
}

impl Drop for Eventfd {
    fn drop(&mut self) {
        reap(self.0.take());
    }
}
