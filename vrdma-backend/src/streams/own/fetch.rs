//! Prefetches connections that are about to be used into the processor's caches.
//!
//! With thousands of connections, each has left the caches when its turn comes. The processor would
//! wait for one cache line after another.

use super::end::{End, User};
use super::node::Node;
use super::taker::Taker;
use crate::memory::fetch_ahead;
use vrdma_tcp::{ConnectionId, Ports, Tuple};
use vrdma_wire::head::Head;

impl Node {
    /// Prefetches the connection of a frame, while the frame's checksum is computed.
    ///
    /// Frames of one connection mostly come in a row. The first one is enough.
    pub(super) fn expect(&mut self, headers: &Head, taker: &mut dyn Taker) {
        let Some(ends) = headers.ends() else { return };
        let ports = Ports { local: ends.dst_port, remote: ends.src_port };
        let tuple = Tuple { local: ends.dst, remote: ends.src, ports };
        if self.expected.replace(tuple) == Some(tuple) {
            return;
        }
        let Some((id, lines)) = self.stack.lines_of(&tuple) else { return };
        fetch_ahead(lines);
        let Some(end) = self.ends.get(&id) else { return };
        fetch_ahead(lines_of(end));
        if let User::Connection(user) = end.user {
            taker.fetch(user);
        }
    }

    /// Prefetches a connection that is about to send.
    pub(super) fn fetch(&self, id: ConnectionId) {
        if let Some(lines) = self.stack.lines(id) {
            fetch_ahead(lines);
        }
        if let Some(end) = self.ends.get(&id) {
            fetch_ahead(lines_of(end));
        }
    }
}

fn lines_of(end: &End) -> *const [u8; size_of::<End>()] {
    std::ptr::from_ref(end).cast()
}
