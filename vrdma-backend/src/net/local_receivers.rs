//! Destinations of frames that are not for a netdev: the RDMA engine, and the guests' own TCP.

use vrdma_wire::head::Head;
use vrdma_wire::num::{Gid, Mac, VlanId};

/// The RDMA engine and the guests' own TCP, as the switch uses them.
///
/// A closure is an engine without any TCP.
pub trait LocalReceivers {
    /// Takes a RoCE packet.
    fn packet(&mut self, headers: &Head, packet: &[u8]);

    /// Whether a segment to a guest is for its own TCP in this process.
    fn takes(&self, _guest: usize, _headers: &Head) -> bool {
        false
    }

    /// Returns the MAC address of the guest of this process that has a GID in a VLAN.
    fn holder(&mut self, _vlan: VlanId, _gid: Gid) -> Option<Mac> {
        None
    }

    /// Takes a segment that is for a guest's own TCP.
    fn segment(&mut self, _guest: usize, _headers: &Head, _frame: &[u8]) {}

    /// Passes on a frame that may report that a segment of a guest's own TCP was too long for a
    /// router.
    ///
    /// The guest's netdev gets the frame, too.
    fn too_long(&mut self, _guest: usize, _frame: &[u8]) {}
}

impl<F: FnMut(&[u8])> LocalReceivers for F {
    fn packet(&mut self, _headers: &Head, packet: &[u8]) {
        self(packet);
    }
}
