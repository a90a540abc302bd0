//! The entries of a guest, and the events that its driver has not fetched.

use super::cm::CmEvent;
use super::handle::Handle;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsRawFd;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vrdma_transport::DeviceId;

/// The streams of a guest.
#[derive(Default)]
pub(super) struct Guest {
    /// Its connections and listeners, including those that its driver does not know.
    pub(super) entries: BTreeSet<Handle>,
    /// Number of listener sockets beyond one for each listener.
    pub(super) more_sockets: u32,
    /// The events in order, by numbers that are never reused.
    ///
    /// Each belongs to an existing connection, which has at most four.
    events: BTreeMap<u64, CmEvent>,
    /// The number of the next event.
    next: u64,
    /// Whether the guest is paused. Nothing touches its memory then, so none of its QPs may change.
    pub(super) is_suspended: bool,
    /// Watches the sockets of its entries. It is watched by [`Streams`](super::Streams). `None`
    /// without entries.
    epoll: Option<Epoll>,
    /// Connections from before a reset that are still to be closed.
    pub(super) leaving: u32,
}

/// The numbers of a connection's events, fetched or not.
#[derive(Debug, Default)]
pub(super) struct Told(Vec<u64>);

impl Guest {
    /// Returns the epoll set of its sockets. `all` watches that set under the guest's number.
    ///
    /// # Errors
    /// The system is out of descriptors or memory.
    pub(super) fn epoll(&mut self, device: DeviceId, all: &Epoll) -> io::Result<&Epoll> {
        let epoll = match self.epoll.take() {
            Some(epoll) => epoll,
            None => {
                let epoll = Epoll::new()?;
                let event = EpollEvent::new(EventSet::IN, device.0.into());
                all.ctl(ControlOperation::Add, epoll.as_raw_fd(), event)?;
                epoll
            }
        };
        Ok(self.epoll.insert(epoll))
    }

    /// Polls which of its sockets have events.
    pub(super) fn wait(&self, events: &mut [EpollEvent]) -> usize {
        self.epoll.as_ref().map_or(0, |epoll| wait(epoll, events))
    }

    /// Returns the number of connections and listener sockets.
    ///
    /// Each has a descriptor, or would have one with the host's TCP.
    pub(super) fn count(&self) -> u32 {
        self.entries.len() as u32 + self.more_sockets + self.leaving
    }

    /// Queues an event for its driver.
    pub(super) fn tell(&mut self, told: &mut Told, event: CmEvent) {
        // The four are: request, established, disconnect, close. Without a request: reply,
        // disconnect, close.
        assert!(told.0.len() < 4, "each happens once to a connection");
        told.0.push(self.next);
        self.events.insert(self.next, event);
        self.next += 1;
    }

    /// Returns the next event for its driver.
    pub(super) fn next_event(&mut self) -> Option<CmEvent> {
        self.events.pop_first().map(|(_, event)| event)
    }

    /// Whether the driver has not fetched any event of a connection yet.
    pub(super) fn has_first_of(&self, told: &Told) -> bool {
        told.0.first().is_some_and(|number| self.events.contains_key(number))
    }

    /// Removes the events of a connection that were not fetched.
    pub(super) fn forget(&mut self, told: &mut Told) {
        for number in told.0.drain(..) {
            self.events.remove(&number);
        }
    }

    /// Removes an entry.
    ///
    /// With the last entry the epoll set is closed, so a guest without entries holds no descriptor.
    pub(super) fn remove(&mut self, handle: Handle) {
        self.entries.remove(&handle);
        if self.entries.is_empty() {
            self.epoll = None;
        }
    }

    /// Whether there is an epoll set for its sockets.
    #[cfg(test)]
    pub(super) fn is_watched(&self) -> bool {
        self.epoll.is_some()
    }

    /// Resets the guest. Returns its entries.
    pub(super) fn reset(&mut self) -> BTreeSet<Handle> {
        self.events.clear();
        self.more_sockets = 0;
        // Sockets that are still to be closed report no more events.
        self.epoll = None;
        std::mem::take(&mut self.entries)
    }
}

/// Polls an epoll set. Returns how many events it wrote, at most as many as fit.
pub(super) fn wait(epoll: &Epoll, events: &mut [EpollEvent]) -> usize {
    match epoll.wait(0, events) {
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
        Err(error) => panic!("epoll_wait fails only for arguments that are wrong: {error}"),
    }
}
