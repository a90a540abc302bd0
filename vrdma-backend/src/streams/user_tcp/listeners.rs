//! Listeners of vrdma's own TCP, and their queues of connections.

use super::node::{ANY, BACKLOG, ListenerEntry, Node, ReadyList};
use crate::streams::handle::Handle;
use crate::tcp::TrafficClass;
use std::collections::VecDeque;
use vrdma_tcp::{ConnectionId, Refused, Tuple};
use vrdma_wire::num::{Gid, VlanId};

impl Node {
    /// Returns the listener for connections to this address, if the guest may use the address.
    pub fn listener_at(&self, vlan: VlanId, gid: Gid, port: u16) -> Option<Handle> {
        let at = |at| self.listeners.iter().find(|(_, entry)| entry.at == at).map(|(&handle, _)| handle);
        // A listener at the address itself takes precedence over one at any address.
        at((gid, port)).or_else(|| at((ANY, port))).filter(|_| self.may_use(vlan, gid))
    }

    /// Starts to listen on a port, at an address or at any address.
    pub fn listen(
        &mut self,
        handle: Handle,
        (gid, port): (Gid, u16),
        traffic_class: TrafficClass,
    ) -> Result<(), Refused> {
        self.stack.listen(gid, port, BACKLOG, self.config(gid, 0, traffic_class))?;
        let entry = ListenerEntry { at: (gid, port), waiting: VecDeque::new(), is_watched: false };
        self.listeners.insert(handle, entry);
        Ok(())
    }

    /// Stops listening, and resets the connections that wait.
    pub fn unlisten(&mut self, handle: Handle, ready: &mut ReadyList) {
        let Some(entry) = self.listeners.remove(&handle) else { return };
        self.stack.unlisten(entry.at.0, entry.at.1);
        entry.waiting.into_iter().for_each(|id| self.reset(id, ready));
    }

    /// Accepts the next connection of a listener.
    pub fn accept(&mut self, handle: Handle) -> Option<(ConnectionId, Tuple)> {
        let entry = self.listeners.get_mut(&handle)?;
        while let Some(id) = entry.waiting.pop_front() {
            if let Some(tuple) = self.stack.tuple(id) {
                return Some((id, tuple));
            }
            // The connection ended before it was accepted.
            if let Some(end) = self.ends.remove(&id) {
                self.budget.change(end.charged, 0);
            }
        }
        None
    }

    /// Sets whether a listener is to be told of connections.
    pub fn watch_listener(&mut self, handle: Handle, is_watched: bool, ready: &mut ReadyList) {
        let Some(entry) = self.listeners.get_mut(&handle) else { return };
        entry.is_watched = is_watched;
        if is_watched && !entry.waiting.is_empty() {
            ready.push_back(handle);
        }
    }
}
