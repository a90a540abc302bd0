//! The reorder buffer in the record.

use super::tolerance::{Lateness, Tolerance};
use super::{Gap, REORDER_BYTES, REORDER_WINDOW, ReorderBuffer, before};
use crate::base::time::NEVER;
use crate::objects::qp::Qp;
use crate::objects::roce::psn::{HALF, ahead};
use crate::save::{Violation, deadline, record, to_deadline, to_psn};
use vrdma_wire::num::Psn;
use vrdma_wire::roce::{MAX_FRAME, Packet};

impl ReorderBuffer {
    /// Returns the record of the buffer.
    pub(crate) fn save(&self) -> record::ReorderBuffer {
        let ReorderBuffer { base, slots, held: _, place, gap, reached, tolerance, .. } = self;
        let ReorderBuffer { suspect, repeats, goes_back, .. } = self;
        let Gap { extent, since, asked, round, again, nak_at } = *gap;
        let Tolerance { limit, seen, since: period } = *tolerance;
        let in_order = (0..REORDER_WINDOW).map(|n| base.add(n));
        let frame = |psn: Psn| slots.get((psn.number() % REORDER_WINDOW) as usize)?.as_deref();
        record::ReorderBuffer {
            base: base.number(),
            frames: in_order.filter_map(frame).map(<[u8]>::to_vec).collect(),
            place: *place,
            extent,
            since: since.0,
            asked,
            round: round.map(Psn::number),
            again,
            nak_at: deadline(nak_at),
            reached: reached.number(),
            tolerance: limit.save(),
            seen: seen.save(),
            period: period.0,
            suspect: suspect.map(|(psn, late)| (psn.number(), late.save())),
            repeats: *repeats,
            goes_back: *goes_back,
        }
    }

    /// Restores the buffer of a QP. All frames are checked like frames from the wire.
    pub(crate) fn restore(record: &record::ReorderBuffer, qp: &Qp) -> Result<ReorderBuffer, Violation> {
        let base = to_psn(record.base)?;
        let period = to_deadline(Some(record.period))?;
        let mut buffer = ReorderBuffer::new(base, period, record.goes_back);
        let mut least = 0;
        for frame in &record.frames {
            let parsed = Packet::parse(frame).and_then(|parsed| parsed.check_icrc().map(|()| parsed));
            let bth = parsed.map_err(|_| Violation::Frame)?.packet.bth;
            let distance = ahead(bth.psn, base);
            if !(least..REORDER_WINDOW).contains(&distance) || bth.dest != qp.qpn || frame.len() > MAX_FRAME {
                return Err(Violation::Frame);
            }
            least = distance + 1;
            buffer.hold(bth.psn, frame);
        }
        if buffer.held.bytes > REORDER_BYTES {
            return Err(Violation::Frame);
        }
        let &record::ReorderBuffer { place, extent, asked, again, repeats, .. } = record;
        let since = to_deadline(Some(record.since))?;
        let round = record.round.map(to_psn).transpose()?;
        buffer.gap = Gap { extent, since, asked, round, again, nak_at: to_deadline(record.nak_at)? };
        let Gap { nak_at, .. } = buffer.gap;
        let is_known = extent > 0;
        // A NAK has a time before the first one, or while the peer repeats what is held.
        if nak_at != NEVER && (!is_known || asked && round.is_none())
            || asked && !is_known
            || is_known && buffer.is_held(base)
        {
            return Err(Violation::Window);
        }
        buffer.reached = to_psn(record.reached)?;
        if ahead(buffer.reached, before(base)) > HALF {
            return Err(Violation::Window);
        }
        let [limit, seen] = [record.tolerance, record.seen].map(Lateness::restore);
        buffer.tolerance = Tolerance { limit, seen, since: period };
        if !buffer.tolerance.is_possible() {
            return Err(Violation::Window);
        }
        let suspect = record.suspect.map(|(psn, late)| Ok((to_psn(psn)?, Lateness::restore(late))));
        buffer.suspect = suspect.transpose()?;
        if buffer.suspect.is_some_and(|(_, late)| !late.is_possible()) {
            return Err(Violation::Window);
        }
        (buffer.place, buffer.repeats) = (place, repeats);
        // Frames are held for a connection that receives by RoCE.
        if !buffer.slots.is_empty() && !qp.is_receiving() || buffer.slots.is_empty() && place != 0 {
            return Err(Violation::Frame);
        }
        Ok(buffer)
    }

    /// Whether a QP that is not suspended has forgotten the buffer.
    ///
    /// A frame may be executed, and the QP has no turn. Or the timer is later than a NAK.
    pub(crate) fn is_forgotten(&self, qp: &Qp) -> bool {
        let waits = qp.answer_due || qp.held > 0;
        self.is_held(qp.responder.psn) && !waits || self.gap.nak_at < qp.timer
    }
}

impl Lateness {
    fn save(self) -> record::Lateness {
        let Lateness { packets, time } = self;
        record::Lateness { packets, time }
    }

    fn restore(record: record::Lateness) -> Lateness {
        let record::Lateness { packets, time } = record;
        Lateness { packets, time }
    }
}
