//! How often a path loses packets, in the record.

use super::{LONGEST, LossInterval};
use crate::save::{Violation, record, to_psn};

impl LossInterval {
    /// Returns the record of the interval.
    pub(crate) fn save(&self) -> record::LossInterval {
        let LossInterval { since, interval } = *self;
        record::LossInterval { since: since.number(), interval }
    }

    /// Restores the interval.
    pub(crate) fn restore(record: &record::LossInterval) -> Result<LossInterval, Violation> {
        let record::LossInterval { since, interval } = *record;
        if interval > LONGEST {
            return Err(Violation::Losses);
        }
        Ok(LossInterval { since: to_psn(since)?, interval })
    }
}
