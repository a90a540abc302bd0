//! Limits of a device, and counts of its objects.

use crate::verbs::request::{MAX_INLINE, MAX_SGE};
use vrdma_wire::num::Mtu;

/// Most receives of a shared queue that a QP claims.
///
/// It claims more than one only for messages that arrive out of order in a stream, and for the
/// messages before those.
pub(crate) const CLAIMED: u32 = 64;

/// Limits of a device.
///
/// [`Engine::add_device`](crate::Engine::add_device) lowers values that exceed what the engine can
/// do. [`Engine::limits`](crate::Engine::limits) returns the result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most PDs, at most 2^20.
    pub max_pd: u32,
    /// Most MRs and memory windows together, less than 2^24.
    pub max_mr: u32,
    /// Number of QP indices: a power of two from 4 to 2^16. The indices 0 and 1 are not for
    /// ordinary QPs.
    pub max_qp: u32,
    /// Most requests of one queue, at most 2^15.
    pub max_qp_wr: u32,
    /// Most shared receive queues, at most 2^16. Their receives have the same limits as those of
    /// QPs.
    pub max_srq: u32,
    /// Most XRC domains, at most 2^16.
    pub max_xrcd: u32,
    /// Most elements of a send, at most [`MAX_SGE`].
    pub max_send_sge: u32,
    /// Most elements of a receive, at most [`MAX_SGE`].
    pub max_recv_sge: u32,
    /// Most bytes of inline data, at most [`MAX_INLINE`].
    pub max_inline: u32,
    /// Most READs and atomics outstanding of a QP as requester, at most 255.
    pub max_rd_atomic: u32,
    /// Most READs and atomics outstanding of a QP as responder, at most 255.
    pub max_dest_rd_atomic: u32,
    /// Entries of the GID table, at most 256.
    pub gid_table_len: u32,
    /// Most multicast groups with members, at most 2^12.
    pub max_mcast_grp: u32,
    /// Most QPs of one multicast group, at most 2^12.
    pub max_mcast_qp_attach: u32,
    /// Most QPs of all multicast groups together, at most 2^16.
    pub max_total_mcast_qp_attach: u32,
    /// Path MTU of the port. No QP may have a larger one, and no datagram may be longer.
    pub max_mtu: Mtu,
    /// Most bytes that the pending requests of all QPs may take in the engine if all queues are
    /// full. At most 2^36.
    ///
    /// (Queues take no memory until something waits in them. A QP is refused if its queues could
    /// exceed this.)
    pub max_request_memory: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_pd: 16384,
            max_mr: 65536,
            max_qp: 16384,
            max_qp_wr: 16384,
            max_srq: 16384,
            max_xrcd: 4096,
            max_send_sge: 30,
            max_recv_sge: 30,
            max_inline: 480,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            gid_table_len: 16,
            max_mcast_grp: 1024,
            max_mcast_qp_attach: 1024,
            max_total_mcast_qp_attach: 16384,
            max_mtu: Mtu::M4096,
            max_request_memory: 4 << 30,
        }
    }
}

impl Limits {
    /// Returns these limits, lowered to what the engine can do.
    pub(crate) fn lowered(&self) -> Limits {
        let power = self.max_qp.clamp(4, 1 << 16);
        Limits {
            max_pd: self.max_pd.min(1 << 20),
            max_mr: self.max_mr.min((1 << 24) - 1),
            max_qp: 1 << power.ilog2(),
            max_qp_wr: self.max_qp_wr.min(1 << 15),
            max_srq: self.max_srq.min(1 << 16),
            max_xrcd: self.max_xrcd.min(1 << 16),
            max_send_sge: self.max_send_sge.min(MAX_SGE as u32),
            max_recv_sge: self.max_recv_sge.min(MAX_SGE as u32),
            max_inline: self.max_inline.min(MAX_INLINE as u32),
            max_rd_atomic: self.max_rd_atomic.min(255),
            max_dest_rd_atomic: self.max_dest_rd_atomic.min(255),
            gid_table_len: self.gid_table_len.min(256),
            max_mcast_grp: self.max_mcast_grp.min(1 << 12),
            max_mcast_qp_attach: self.max_mcast_qp_attach.min(1 << 12),
            max_total_mcast_qp_attach: self.max_total_mcast_qp_attach.min(1 << 16),
            max_mtu: self.max_mtu,
            max_request_memory: self.max_request_memory.min(1 << 36),
        }
    }
}

/// Counts of a device's objects.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectCounts {
    /// Protection domains.
    pub pds: u32,
    /// Memory regions.
    pub mrs: u32,
    /// Memory windows.
    pub mws: u32,
    /// Queue pairs.
    pub qps: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// XRC domains.
    pub xrcds: u32,
    /// Entries of the GID table that are set.
    pub gids: u32,
    /// QPs of all multicast groups together.
    pub mcast_attached: u32,
    /// Sends that have not ended.
    pub pending_sends: u64,
    /// Receives that have not ended.
    pub pending_receives: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_limits_are_lowered() {
        let silly =
            Limits { max_qp: u32::MAX, max_mr: u32::MAX, max_send_sge: u32::MAX, ..Limits::default() };
        let lowered = silly.lowered();
        assert_eq!((lowered.max_qp, lowered.max_mr, lowered.max_send_sge), (1 << 16, (1 << 24) - 1, 32));
        assert_eq!(Limits { max_qp: 0, ..Limits::default() }.lowered().max_qp, 4);
        assert_eq!(Limits { max_qp: 1000, ..Limits::default() }.lowered().max_qp, 512);
        assert_eq!(Limits::default().lowered(), Limits::default());
    }
}
