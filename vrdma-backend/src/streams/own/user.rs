//! What the user of a connection of our own TCP does with it.

use super::end::User;
use super::node::{Node, Ready, note};
use super::receive::Came;
use crate::streams::handle::Handle;
use crate::streams::output::Taken;
use vmm_sys_util::epoll::EventSet;
use vrdma_tcp::ConnectionId;

impl Node {
    /// What the user of a connection is to be told now.
    pub fn events(&mut self, id: ConnectionId) -> EventSet {
        let Some(end) = self.ends.get_mut(&id) else { return EventSet::empty() };
        end.is_queued = false;
        end.events(&self.budget)
    }

    /// Says what the user of a connection wants to be told of.
    pub fn watch(&mut self, id: ConnectionId, user: Handle, wants: Option<EventSet>, ready: &mut Ready) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        (end.user, end.wants) = (User::Connection(user), wants);
        note(end, &self.budget, ready);
    }

    /// Puts in what a connection has to send.
    pub fn send(&mut self, id: ConnectionId, mut taken: Taken, cut: usize) {
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

    /// Reads of a connection; its peer is told of the room.
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

    /// So many bytes of memory are taken by what its user has read, or will send.
    pub fn set_pending(&mut self, id: ConnectionId, bytes: u64) {
        if let Some(end) = self.ends.get_mut(&id) {
            end.input.set_pending(bytes);
            end.charge(&mut self.budget);
        }
    }

    /// No more is put in: a FIN follows.
    pub fn finish(&mut self, id: ConnectionId, ready: &mut Ready) {
        self.stack.change(id, vrdma_tcp::Connection::close);
        self.follow(ready);
    }

    /// Gives a connection up: a RST.
    pub fn reset(&mut self, id: ConnectionId, ready: &mut Ready) {
        self.leave(id);
        self.stack.change(id, vrdma_tcp::Connection::abort);
        self.follow(ready);
    }

    /// Its user is gone: what was put in is still sent, and then the connection ends by itself, at
    /// the latest after half a minute.
    pub fn leave(&mut self, id: ConnectionId) {
        let Some(end) = self.ends.get_mut(&id) else { return };
        (end.user, end.wants) = (User::Nobody, None);
        end.input.clear();
        end.charge(&mut self.budget);
        if end.closed.is_some() {
            self.forget(id);
        } else {
            self.stack.change(id, vrdma_tcp::Connection::leave);
        }
    }
}
