//! What frames go to that are for no netdev: the RDMA engine, and guests' own TCP.

use vrdma_wire::head::Head;
use vrdma_wire::num::{Gid, Mac, VlanId};

/// See the module. A closure is an engine without any TCP.
pub trait Inside {
    /// Takes a RoCE packet.
    fn packet(&mut self, headers: &Head, packet: &[u8]);

    /// Whether a segment to a guest is for its TCP in this process.
    fn takes(&self, _guest: usize, _headers: &Head) -> bool {
        false
    }

    /// The guest of this process, by its MAC address, that has an IP address among its GIDs.
    fn holder(&mut self, _vlan: VlanId, _gid: Gid) -> Option<Mac> {
        None
    }

    /// Takes such a segment.
    fn segment(&mut self, _guest: usize, _headers: &Head, _frame: &[u8]) {}

    /// Hears of a frame to a guest with such a TCP that seems to say that a segment was too long
    /// for a router. Its netdev gets it too.
    fn too_long(&mut self, _guest: usize, _frame: &[u8]) {}
}

impl<F: FnMut(&[u8])> Inside for F {
    fn packet(&mut self, _headers: &Head, packet: &[u8]) {
        self(packet);
    }
}
