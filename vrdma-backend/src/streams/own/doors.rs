//! Listeners of our own TCP, and the connections that wait for them.

use super::node::{ANY, BACKLOG, Door, Node, Ready};
use super::{Own, Socket, address, gid, refused};
use crate::streams::handle::Handle;
use crate::tcp::TrafficClass;
use std::collections::VecDeque;
use std::net::SocketAddr;
use vrdma_tcp::{ConnectionId, Refused, Tuple};
use vrdma_transport::{DeviceId, Error};
use vrdma_wire::num::{Gid, VlanId};

impl Own {
    /// Listens.
    ///
    /// # Errors
    /// `Busy`: there is a listener already.
    pub fn listen(
        &mut self,
        device: DeviceId,
        handle: Handle,
        at: SocketAddr,
        traffic_class: TrafficClass,
    ) -> Result<(), Error> {
        let gid = if at.ip().is_unspecified() { Gid([0; 16]) } else { gid(at.ip()) };
        let node = self.index(device);
        self.nodes[node].listen(handle, (gid, at.port()), traffic_class).map_err(refused)
    }

    /// Listens no more.
    pub fn unlisten(&mut self, device: DeviceId, handle: Handle) {
        let node = self.index(device);
        self.nodes[node].unlisten(handle, &mut self.ready);
    }

    /// The next connection of a listener, with the addresses of both ends.
    pub fn accept(&mut self, device: DeviceId, handle: Handle) -> Option<(Socket, SocketAddr, SocketAddr)> {
        let node = self.index(device);
        let (id, tuple) = self.nodes[node].accept(handle)?;
        let remote = address(tuple.remote, tuple.ports.remote);
        Some((Socket { node, id }, address(tuple.local, tuple.ports.local), remote))
    }

    /// Whether a listener is to be told of connections.
    pub fn watch_listener(&mut self, device: DeviceId, handle: Handle, is_watched: bool) {
        let node = self.index(device);
        self.nodes[node].watch_door(handle, is_watched, &mut self.ready);
    }
}

impl Node {
    /// The listener that takes connections to this address, if the guest may use it.
    pub fn listener_at(&self, vlan: VlanId, gid: Gid, port: u16) -> Option<Handle> {
        let at = |at| self.doors.iter().find(|(_, door)| door.at == at).map(|(&handle, _)| handle);
        // That of the address itself goes before that of any.
        at((gid, port)).or_else(|| at((ANY, port))).filter(|_| self.may_use(vlan, gid))
    }

    /// Takes connections at an address, or at any, and a port.
    pub fn listen(
        &mut self,
        handle: Handle,
        (gid, port): (Gid, u16),
        traffic_class: TrafficClass,
    ) -> Result<(), Refused> {
        self.stack.listen(gid, port, BACKLOG, self.config(gid, 0, traffic_class))?;
        let door = Door { at: (gid, port), waiting: VecDeque::new(), is_watched: false };
        self.doors.insert(handle, door);
        Ok(())
    }

    /// Takes no more, nor those that wait.
    pub fn unlisten(&mut self, handle: Handle, ready: &mut Ready) {
        let Some(door) = self.doors.remove(&handle) else { return };
        self.stack.unlisten(door.at.0, door.at.1);
        door.waiting.into_iter().for_each(|id| self.reset(id, ready));
    }

    /// The next connection of a listener.
    pub fn accept(&mut self, handle: Handle) -> Option<(ConnectionId, Tuple)> {
        let door = self.doors.get_mut(&handle)?;
        while let Some(id) = door.waiting.pop_front() {
            if let Some(tuple) = self.stack.tuple(id) {
                return Some((id, tuple));
            }
            // It is over before anybody has heard of it.
            if let Some(end) = self.ends.remove(&id) {
                self.budget.change(end.charged, 0);
            }
        }
        None
    }

    /// Whether a listener is to be told of connections.
    pub fn watch_door(&mut self, handle: Handle, is_watched: bool, ready: &mut Ready) {
        let Some(door) = self.doors.get_mut(&handle) else { return };
        door.is_watched = is_watched;
        if is_watched && !door.waiting.is_empty() {
            ready.push_back(handle);
        }
    }
}
