//! Descriptors that clients send, and the thread that closes them.
//!
//! Closing may wait: for a server of files, or for a peer of TCP (`SO_LINGER`). So the thread that
//! took a descriptor does not close it.

use crossbeam_channel::{Receiver, Sender};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// If so many descriptors of clients are kept or about to be closed, no more messages are read.
///
/// The last message that is read may have brought more (`SCM_MAX_FD`).
const MOST: usize = 64;

/// A descriptor that a client sent. Dropping it has a thread of captures close it.
#[derive(Debug)]
pub struct SentDescriptor {
    descriptor: Option<OwnedFd>,
    keeper: DescriptorKeeper,
}

/// Counts the descriptors of clients, and passes them to the thread that closes them.
#[derive(Clone, Debug)]
pub struct DescriptorKeeper {
    closer: Sender<OwnedFd>,
    count: Arc<AtomicUsize>,
}

impl DescriptorKeeper {
    /// Returns a keeper, and the descriptors that [`close_all`] closes.
    pub fn new() -> (DescriptorKeeper, Receiver<OwnedFd>) {
        // `count` bounds it.
        let (closer, closed) = crossbeam_channel::unbounded();
        (DescriptorKeeper { closer, count: Arc::default() }, closed)
    }

    /// Whether one more message may be read, with its descriptors.
    ///
    /// If many are about to be closed, closing one of them takes long.
    pub fn has_room(&self) -> bool {
        self.count.load(Ordering::Relaxed) < MOST
    }

    /// Takes a descriptor.
    pub fn keep(&self, descriptor: OwnedFd) -> SentDescriptor {
        self.count.fetch_add(1, Ordering::Relaxed);
        SentDescriptor { descriptor: Some(descriptor), keeper: self.clone() }
    }

    /// Returns what [`close_all`] counts down.
    pub fn count(&self) -> Arc<AtomicUsize> {
        self.count.clone()
    }
}

impl SentDescriptor {
    /// Returns the descriptor, for a thread that may wait when it closes it.
    pub fn into_owned(mut self) -> OwnedFd {
        self.keeper.count.fetch_sub(1, Ordering::Relaxed);
        self.descriptor.take().expect("it is taken here, or when dropped")
    }
}

impl Drop for SentDescriptor {
    fn drop(&mut self) {
        if let Some(descriptor) = self.descriptor.take()
            && let Err(error) = self.keeper.closer.send(descriptor)
        {
            // The thread has ended, and so does the process.
            let _ = error.0.into_raw_fd();
        }
    }
}

/// Closes descriptors, until all keepers are gone.
pub fn close_all(closed: &Receiver<OwnedFd>, count: &AtomicUsize) {
    for descriptor in closed {
        drop(descriptor);
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_dropped_waits_for_its_thread_and_is_bounded() {
        let (keeper, closed) = DescriptorKeeper::new();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut kept: Vec<_> = (0..MOST).map(|_| keeper.keep(writer.try_clone().unwrap().into())).collect();
        assert!(!keeper.has_room());
        drop(kept.pop().unwrap().into_owned());
        assert!(keeper.has_room());
        drop((kept, writer));
        assert_eq!(closed.len(), MOST - 1, "none is closed here");
        let count = keeper.count();
        drop(keeper);
        close_all(&closed, &count);
        assert_eq!((reader.read(&mut [0]).unwrap(), count.load(Ordering::Relaxed)), (0, 0));
    }
}
