//! Responses ahead of a missing one, in the record.

use super::{EarlyResponses, Gap, HeldData, HeldResponse, MOST_BYTES, Share};
use crate::base::time::{Instant, NEVER};
use crate::objects::roce::psn::ahead;
use crate::objects::roce::reorder::tolerance::{Lateness, Tolerance};
use crate::save::{Violation, deadline, record, to_deadline, to_psn};
use vrdma_wire::num::{AethMsn, Mtu, Psn};
use vrdma_wire::roce::Credits;

impl HeldResponse {
    fn save(&self, psn: u32) -> record::EarlyResponse {
        let HeldResponse { aeth, data } = self;
        let data = match data {
            HeldData::Read { last, data } => record::EarlyData::Read { last: *last, data: data.to_vec() },
            HeldData::Atomic(before) => record::EarlyData::Atomic(*before),
        };
        let aeth = aeth.map(|(msn, credits)| (msn.number(), credits.code()));
        record::EarlyResponse { psn, aeth, data }
    }

    fn restore(record: &record::EarlyResponse, mtu: Mtu) -> Result<HeldResponse, Violation> {
        let aeth = record.aeth.map(|(msn, credits)| {
            let msn = AethMsn::truncate(to_psn(msn)?.number());
            Ok((msn, Credits::new(credits).ok_or(Violation::Early)?))
        });
        let data = match &record.data {
            record::EarlyData::Read { data, .. } if data.len() > mtu.bytes() as usize => {
                return Err(Violation::Early);
            }
            record::EarlyData::Read { last, data } => {
                HeldData::Read { last: *last, data: data.as_slice().into() }
            }
            record::EarlyData::Atomic(before) => HeldData::Atomic(*before),
        };
        Ok(HeldResponse { aeth: aeth.transpose()?, data })
    }
}

impl EarlyResponses {
    /// Returns the record of the responses.
    pub(crate) fn save(&self) -> record::EarlyResponses {
        let EarlyResponses { held, memory: _, executed, gap, tolerance, suspect, was_late, has_parts } = self;
        let Gap { extent, since, asked, is_part, late_at } = *gap;
        let Tolerance { limit, seen, since: period } = *tolerance;
        record::EarlyResponses {
            held: held.iter().map(|(psn, response)| response.save(*psn)).collect(),
            executed: executed.map(Psn::number),
            extent,
            since: since.0,
            asked: asked.map(Psn::number),
            is_part,
            late_at: deadline(late_at),
            tolerance: limit.save(),
            seen: seen.save(),
            period: period.0,
            suspect: suspect.map(|(psn, late)| (psn.number(), late.save())),
            was_late: *was_late,
            has_parts: *has_parts,
        }
    }

    /// Restores the responses. They are to PSNs between `una` and `next`, in their order.
    pub(crate) fn restore(
        record: &record::EarlyResponses,
        (una, next): (Psn, Psn),
        mtu: Mtu,
    ) -> Result<EarlyResponses, Violation> {
        let record::EarlyResponses { held, executed, extent, since, asked, suspect, .. } = record;
        let [limit, seen] = [record.tolerance, record.seen].map(Lateness::restore);
        let tolerance = Tolerance { limit, seen, since: Instant(record.period) };
        let suspect = suspect.map(|(psn, late)| Ok((to_psn(psn)?, Lateness::restore(late))));
        let suspect = suspect.transpose()?;
        if !tolerance.is_possible() || suspect.is_some_and(|(_, late)| !late.is_possible()) {
            return Err(Violation::Early);
        }
        let mut early = EarlyResponses::new(Instant(0), Share::default());
        let mut least = 0;
        for response in held {
            let psn = to_psn(response.psn)?;
            let is_outstanding = (1..ahead(next, una)).contains(&ahead(psn, una));
            if psn.number() < least || !is_outstanding {
                return Err(Violation::Early);
            }
            least = psn.number() + 1;
            if !early.hold(psn, HeldResponse::restore(response, mtu)?) {
                return Err(Violation::Early);
            }
        }
        debug_assert!(early.memory.bytes <= MOST_BYTES[0], "it has held no more");
        let late_at = to_deadline(record.late_at)?;
        // It is about a gap, and about one that was not asked for again.
        if late_at != NEVER && *extent == 0 {
            return Err(Violation::Early);
        }
        let to_psn_of = |psn: Option<u32>| psn.map(to_psn).transpose();
        early.executed = to_psn_of(*executed)?;
        early.gap = Gap {
            extent: *extent,
            since: Instant(*since),
            asked: to_psn_of(*asked)?,
            is_part: record.is_part,
            late_at,
        };
        (early.tolerance, early.suspect) = (tolerance, suspect);
        (early.was_late, early.has_parts) = (record.was_late, record.has_parts);
        // What is held was executed, and is outstanding. So is what was asked for.
        let outstanding = 1..=ahead(next, una);
        let is_possible = |end: &Psn| outstanding.contains(&ahead(*end, una));
        let furthest = held.iter().map(|held| ahead(Psn::truncate(held.psn), una)).max();
        let executed = early.executed.map(|end| ahead(end, una));
        if !early.executed.iter().chain(&early.gap.asked).all(is_possible) || executed < furthest {
            return Err(Violation::Early);
        }
        Ok(early)
    }
}
