//! Probes in the record.

use super::{Due, Probes};
use crate::base::time::Instant;
use crate::save::{Violation, deadline, record, to_deadline, to_psn};
use core::time::Duration;
use vrdma_wire::num::Psn;

impl Probes {
    /// Returns the record of a QP's probes.
    pub(crate) fn save(&self) -> record::Probes {
        let Probes {
            at,
            went_back,
            answered_at,
            progress_at,
            tried_at,
            pause,
            end,
            backoff,
            naks,
            is_asked,
            due,
        } = *self;
        record::Probes {
            at: deadline(at),
            went_back: went_back.0,
            answered_at: answered_at.0,
            progress_at: progress_at.0,
            tried_at: tried_at.0,
            pause: pause.as_nanos() as u64,
            end: end.map(Psn::number),
            backoff,
            naks,
            is_asked,
            is_due: due == Due::Probe,
            is_repeat_due: due == Due::Repeat,
        }
    }

    /// Restores a QP's probes.
    pub(crate) fn restore(record: &record::Probes) -> Result<Probes, Violation> {
        let record::Probes {
            at,
            went_back,
            answered_at,
            progress_at,
            tried_at,
            pause,
            end,
            backoff,
            naks,
            is_asked,
            is_due,
            is_repeat_due,
        } = *record;
        let due = match (is_due, is_repeat_due) {
            (false, false) => Due::Nothing,
            (true, false) => Due::Probe,
            (false, true) => Due::Repeat,
            (true, true) => return Err(Violation::Probe),
        };
        Ok(Probes {
            at: to_deadline(at)?,
            went_back: Instant(went_back),
            answered_at: Instant(answered_at),
            progress_at: Instant(progress_at),
            tried_at: Instant(tried_at),
            pause: Duration::from_nanos(pause),
            end: end.map(to_psn).transpose()?,
            backoff,
            naks,
            is_asked,
            due,
        })
    }
}
