//! Probes in the record.

use super::Probes;
use crate::base::time::Instant;
use crate::save::{Violation, deadline, record, to_deadline, to_psn};
use vrdma_wire::num::Psn;

impl Probes {
    /// Returns the record of a QP's probes.
    pub(crate) fn save(&self) -> record::Probes {
        let Probes { at, went_back: Instant(went_back), naks, end, sent, is_due } = *self;
        record::Probes { at: deadline(at), went_back, naks, end: end.map(Psn::number), sent, is_due }
    }

    /// Restores a QP's probes.
    pub(crate) fn restore(record: &record::Probes) -> Result<Probes, Violation> {
        let record::Probes { at, went_back, naks, end, sent, is_due } = *record;
        Ok(Probes {
            at: to_deadline(at)?,
            went_back: Instant(went_back),
            naks,
            end: end.map(to_psn).transpose()?,
            sent,
            is_due,
        })
    }
}
