//! A queue pair in its device's table.

use crate::base::id::PdId;
use crate::collections::table::{Numbered, Numbering, Table};
use crate::objects::qp::Qp;
use crate::objects::service::Service;
use crate::objects::srq::life::SrqRef;
use crate::verbs::attr::QpInit;
use core::mem::offset_of;
use vrdma_wire::num::Qpn;

/// The cache lines of a queue pair that most requests access. To be prefetched, not read: the QP
/// may be gone.
pub type QpLines = *const [u8; 128];
/// All cache lines of a queue pair. To be prefetched, not read: the QP may be gone.
///
/// A QP whose peer is reached by a stream has each of its lines accessed.
pub type WholeQpLines = *const [u8; 256];

/// A queue pair in its device's table, with the state of its service.
#[repr(C, align(64))]
pub(crate) struct QpEntry {
    pub(crate) qp: Qp,
    pub(crate) service: Service,
}

impl QpEntry {
    pub(crate) fn new(qpn: Qpn, init: QpInit, shared: Option<(SrqRef, PdId)>) -> QpEntry {
        QpEntry { qp: Qp::new(qpn, init, shared), service: Service::new(init.qp_type) }
    }

    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut Qp, &mut Service) {
        (&mut self.qp, &mut self.service)
    }

    /// Resets the QP to its state after creation. (Its entries in the schedule and its waiting
    /// frames stay.)
    pub(crate) fn reset(&mut self) {
        let Qp { timer, turn_due, answer_due, held, question, qpn, .. } = self.qp;
        let ready = self.qp.requester.ready;
        *self = QpEntry::new(qpn, self.qp.init(), self.qp.shared());
        let qp = &mut self.qp;
        (qp.timer, qp.turn_due, qp.answer_due, qp.held, qp.question) =
            (timer, turn_due, answer_due, held, question);
        qp.requester.ready = ready;
    }
}

/// Size of a cache line.
const LINE: usize = 64;
const _: () = assert!(
    offset_of!(QpEntry, qp) == 0 && offset_of!(Qp, requester) == LINE && offset_of!(Qp, attr) == 2 * LINE
);

impl Numbered for QpEntry {
    #[inline]
    fn number(&self) -> u32 {
        self.qp.qpn.number()
    }
}

/// The queue pairs of a device.
pub(crate) type Qps = Table<QpEntry>;

impl Qps {
    /// Returns a QP that was found before in the same call of the engine.
    #[inline]
    pub(crate) fn known(&mut self, qpn: Qpn) -> &mut QpEntry {
        self.get_mut(qpn.number()).expect("no QP goes within a call of the engine")
    }
}

/// Returns the numbering of QPNs: a generation above an index.
///
/// A QPN modulo `max_qp` (a power of two) is unique among existing QPs.
pub(crate) fn numbering(max_qp: u32) -> Numbering {
    let bits = max_qp.ilog2();
    Numbering { index_shift: 0, index_bits: bits, tag_shift: bits, tag_bits: 24 - bits }
}

/// Returns the generation after `last`, which is 0 if the index had none. The result is then near
/// `first`.
///
/// No generation has all bits set. With the last index it would be [`Qpn::MULTICAST`], which is no
/// QP's number.
pub(crate) fn next_generation(max_qp: u32, last: u16, first: u16) -> u16 {
    let after = |generation: u16| generation.wrapping_add(1).max(1);
    let next = if last == 0 { first } else { after(last) };
    let all = Qpn::MULTICAST.number() >> max_qp.ilog2();
    if u32::from(next) & all == all { after(next) } else { next }
}

/// Indices of QP0 and QP1.
pub(crate) const SPECIAL_QPS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_generation_of_any_index_makes_the_number_that_means_multicast() {
        for max_qp in (2..=16).map(|bits| 1 << bits) {
            let numbering = numbering(max_qp);
            let number = |tag| numbering.number(max_qp - 1, tag);
            let mut seen = BTreeSet::new();
            for first in [1, 0xff, 0x7fff, 0xffff] {
                let mut last = next_generation(max_qp, 0, first);
                for _ in 0..1 << 16 {
                    assert!(last != 0 && number(last) != Qpn::MULTICAST.number());
                    seen.insert(last);
                    last = next_generation(max_qp, last, first);
                }
            }
            let not_multicast = |tag: &u16| *tag != 0 && number(*tag) != Qpn::MULTICAST.number();
            assert!(seen.into_iter().eq((0..=u16::MAX).filter(not_multicast)), "all others are used");
        }
    }

    #[test]
    fn a_queue_pair_is_small() {
        assert!(size_of::<Option<QpEntry>>() <= 4 * LINE, "{}", size_of::<Option<QpEntry>>());
        assert_eq!(size_of::<Option<QpEntry>>(), size_of::<QpEntry>());
    }
}
