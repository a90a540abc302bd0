//! What streams know of a guest: its entries, and what its driver was not told yet.

use super::cm::CmEvent;
use super::handle::Handle;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsRawFd;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vrdma_transport::DeviceId;

/// See the module.
#[derive(Default)]
pub(super) struct Guest {
    /// Connections and listeners, those of which its driver knows nothing included.
    pub(super) entries: BTreeSet<Handle>,
    /// Sockets of its listeners beside one for each.
    pub(super) more_sockets: u32,
    /// In order, by numbers that are used once. Each is of a connection that is there, which has at
    /// most four.
    events: BTreeMap<u64, CmEvent>,
    /// That of the next event.
    next: u64,
    /// It is paused: nothing touches its memory, so no QP of it may change.
    pub(super) is_suspended: bool,
    /// Watches the sockets of its entries; it is watched by the worker's. None while there are no
    /// entries.
    epoll: Option<Epoll>,
    /// Connections from before it was reset that are still to be closed.
    pub(super) leaving: u32,
}

/// The events of one connection that its driver was told, or is to be.
#[derive(Debug, Default)]
pub(super) struct Told(Vec<u64>);

impl Guest {
    /// What watches its sockets, which `all` watches under the guest's number.
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

    /// Which of its sockets have something.
    pub(super) fn wait(&self, events: &mut [EpollEvent]) -> usize {
        self.epoll.as_ref().map_or(0, |epoll| wait(epoll, events))
    }

    /// Connections and sockets of listeners: what has a descriptor, or would over the host's TCP.
    pub(super) fn count(&self) -> u32 {
        self.entries.len() as u32 + self.more_sockets + self.leaving
    }

    /// Its driver is to be told this.
    pub(super) fn tell(&mut self, told: &mut Told, event: CmEvent) {
        // A request, that it is established, that it ends, and that it is over; or the reply and
        // the last two.
        assert!(told.0.len() < 4, "each happens once to a connection");
        told.0.push(self.next);
        self.events.insert(self.next, event);
        self.next += 1;
    }

    /// Its driver asks what happened.
    pub(super) fn next_event(&mut self) -> Option<CmEvent> {
        self.events.pop_first().map(|(_, event)| event)
    }

    /// Whether the driver has not asked for any event of a connection yet.
    pub(super) fn has_first_of(&self, told: &Told) -> bool {
        told.0.first().is_some_and(|number| self.events.contains_key(number))
    }

    /// Forgets what of a connection was not told.
    pub(super) fn forget(&mut self, told: &mut Told) {
        for number in told.0.drain(..) {
            self.events.remove(&number);
        }
    }

    /// An entry is gone. With the last goes what watches their sockets: a guest without any holds
    /// no descriptor.
    pub(super) fn remove(&mut self, handle: Handle) {
        self.entries.remove(&handle);
        if self.entries.is_empty() {
            self.epoll = None;
        }
    }

    /// Whether something watches its sockets.
    #[cfg(test)]
    pub(super) fn is_watched(&self) -> bool {
        self.epoll.is_some()
    }

    /// Its driver begins anew.
    pub(super) fn reset(&mut self) -> BTreeSet<Handle> {
        self.events.clear();
        self.more_sockets = 0;
        // Those of its sockets that are still to be closed tell nobody.
        self.epoll = None;
        std::mem::take(&mut self.entries)
    }
}

/// What is ready, which is as many as there is room for at most.
pub(super) fn wait(epoll: &Epoll, events: &mut [EpollEvent]) -> usize {
    match epoll.wait(0, events) {
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
        Err(error) => panic!("epoll_wait fails only for arguments that are wrong: {error}"),
    }
}
