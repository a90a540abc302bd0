//! The operations of a connection's user, on vrdma's own TCP.

use super::end::EndUser;
use super::node::{Node, ReadyList, note};
use super::receive::Came;
use crate::streams::handle::Handle;
use crate::streams::output::TakenOutput;
use vmm_sys_util::epoll::EventSet;
use vrdma_tcp::ConnectionId;

impl Node {
    /// Returns the pending events of a connection.
    pub fn events(&mut self, id: ConnectionId) -> EventSet {
        let Some(end) = self.ends.get_mut(&id) else { return EventSet::empty() };
        end.is_queued = false;
        end.events(&self.budget)
    }

    /// Sets the events that the user of a connection wants.
    pub fn watch(&mut self, id: ConnectionId, user: Handle, wants: Option<EventSet>, ready: &mut ReadyList) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        (end.user, end.wants) = (EndUser::Connection(user), wants);
        note(end, &self.budget, ready);
    }

    /// Adds output to a connection.
    pub fn send(&mut self, id: ConnectionId, mut taken: TakenOutput, cut: usize) {
        if let Some(end) = self.ends.get_mut(&id) {
            if self.budget.is_short() {
                // A long buffer may have few bytes.
                taken.bytes.truncate(taken.pieces.iter().sum());
                taken.bytes.shrink_to_fit();
            }
            end.output.put(taken, cut, &mut self.outgoing);
            end.charge(&mut self.budget);
            self.stack.post(id);
        }
    }

    /// Reads from a connection. The peer is told of the new room.
    pub fn read(&mut self, id: ConnectionId, buffer: &mut Vec<u8>) -> std::io::Result<Came> {
        let most = self.window();
        let end = self.ends.get_mut(&id).expect("it is there until its user leaves it");
        let result = end.read(buffer, &mut self.incoming);
        end.charge(&mut self.budget);
        if let Some(window) = end.input.window(most) {
            self.stack.change(id, |connection| connection.set_window(window));
        }
        result
    }

    /// Sets the bytes of memory that the user needs, for data that it has read or is to send.
    pub fn set_pending(&mut self, id: ConnectionId, bytes: u64) {
        if let Some(end) = self.ends.get_mut(&id) {
            end.input.set_pending(bytes);
            end.charge(&mut self.budget);
        }
    }

    /// Ends the outgoing stream with a FIN.
    pub fn finish(&mut self, id: ConnectionId, ready: &mut ReadyList) {
        self.stack.change(id, vrdma_tcp::Connection::close);
        self.follow(ready);
    }

    /// Aborts a connection with a RST.
    pub fn reset(&mut self, id: ConnectionId, ready: &mut ReadyList) {
        self.leave(id);
        self.stack.change(id, vrdma_tcp::Connection::abort);
        self.follow(ready);
    }

    /// Releases a connection. Queued output is still sent, then the connection ends by itself.
    ///
    /// That takes half a minute at most.
    pub fn leave(&mut self, id: ConnectionId) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        (end.user, end.wants) = (EndUser::Nobody, None);
        end.input.clear();
        end.charge(&mut self.budget);
        if end.closed.is_some() {
            self.forget(id);
        } else {
            self.stack.change(id, vrdma_tcp::Connection::leave);
        }
    }
}
