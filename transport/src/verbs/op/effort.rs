//! Counters and cost of operations.

use super::SendOp;
use crate::verbs::counters::Counters;
use crate::verbs::fast::Registration;

impl SendOp {
    /// Counts the bytes that a request moved, and returns the counter of executed requests of its
    /// kind.
    #[inline]
    pub(crate) fn moved<'a>(&self, counters: &'a mut Counters, bytes: u64) -> &'a mut u64 {
        match self {
            SendOp::Send { .. } | SendOp::SendInvalidate { .. } => {
                counters.bytes_out += bytes;
                &mut counters.sends
            }
            SendOp::Write { .. } => {
                counters.bytes_out += bytes;
                &mut counters.writes
            }
            SendOp::Read { .. } => {
                counters.bytes_read += bytes;
                &mut counters.reads
            }
            SendOp::CompareSwap { .. } => &mut counters.compare_swaps,
            SendOp::FetchAdd { .. } => &mut counters.fetch_adds,
            SendOp::Flush { .. } => &mut counters.flush_requests,
            SendOp::AtomicWrite { .. } => {
                counters.bytes_out += bytes;
                &mut counters.atomic_writes
            }
            SendOp::BindMw(_) => &mut counters.binds,
            SendOp::LocalInvalidate { .. } => &mut counters.invalidations,
            SendOp::RegMr { .. } => &mut counters.registrations,
        }
    }

    /// Returns the fast registration of the operation.
    pub(crate) fn registration(&self) -> Option<Registration> {
        match *self {
            SendOp::RegMr { key, access, iova, length, list, page_shift } => {
                Some(Registration { key, access, iova, length, list, page_shift })
            }
            _ => None,
        }
    }

    /// Returns the cost of the operation in its turn beside its payload, as bytes of payload.
    #[inline]
    pub(crate) fn extra_cost(&self) -> u32 {
        /// Cost of reading an entry of a page list and looking up the page.
        const PAGE: u32 = 128;
        match self {
            SendOp::RegMr { .. } => {
                let list = self.registration().and_then(|registration| registration.page_list());
                list.map_or(0, |list| list.pages * PAGE)
            }
            _ => 0,
        }
    }
}
