//! Responses ahead of a missing one, in the record.

use super::{EARLY_WINDOW, EarlyResponses, Gap, WORDS, place};
use crate::base::time::Instant;
use crate::objects::roce::psn::ahead;
use crate::objects::roce::reorder::tolerance::{Lateness, Tolerance};
use crate::save::{Violation, record, to_psn};
use vrdma_wire::num::Psn;

impl EarlyResponses {
    /// Returns the record of the responses.
    pub(crate) fn save(&self) -> record::EarlyResponses {
        let EarlyResponses { bits, count: _, executed, gap, tolerance, suspect, has_parts } = self;
        let Gap { extent, since, asked } = *gap;
        let Tolerance { limit, seen, since: period } = *tolerance;
        record::EarlyResponses {
            bits: bits.to_vec(),
            executed: executed.map(Psn::number),
            extent,
            since: since.0,
            asked: asked.map(Psn::number),
            tolerance: limit.save(),
            seen: seen.save(),
            period: period.0,
            suspect: suspect.map(|(psn, late)| (psn.number(), late.save())),
            has_parts: *has_parts,
        }
    }

    /// Restores the responses. They are to PSNs between `una` and `next`.
    pub(crate) fn restore(
        record: &record::EarlyResponses,
        una: Psn,
        next: Psn,
    ) -> Result<EarlyResponses, Violation> {
        let record::EarlyResponses { bits, executed, extent, since, asked, suspect, .. } = record;
        let bits: Box<[u64; WORDS]> =
            bits.clone().into_boxed_slice().try_into().map_err(|_| Violation::Early)?;
        let count = bits.iter().map(|word| word.count_ones()).sum();
        let outstanding = ahead(next, una).min(EARLY_WINDOW);
        let there = (1..outstanding).filter(|&more| {
            let (word, bit) = place(una.add(more));
            bits[word] & bit != 0
        });
        if there.count() != count as usize {
            return Err(Violation::Early);
        }
        let to_psn_of = |psn: Option<u32>| psn.map(to_psn).transpose();
        let [limit, seen] = [record.tolerance, record.seen].map(Lateness::restore);
        let tolerance = Tolerance { limit, seen, since: Instant(record.period) };
        let suspect = suspect.map(|(psn, late)| Ok((to_psn(psn)?, Lateness::restore(late))));
        if !tolerance.is_possible() || record.suspect.is_some_and(|of| !Lateness::restore(of.1).is_possible())
        {
            return Err(Violation::Early);
        }
        Ok(EarlyResponses {
            bits,
            count,
            executed: to_psn_of(*executed)?,
            gap: Gap { extent: *extent, since: Instant(*since), asked: to_psn_of(*asked)? },
            tolerance,
            suspect: suspect.transpose()?,
            has_parts: record.has_parts,
        })
    }
}
