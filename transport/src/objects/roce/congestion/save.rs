//! What a QP knows of congestion, in the record.

use super::Congestion;
use crate::base::time::Instant;
use crate::objects::roce::reaction_point::ReactionPoint;
use crate::save::{Violation, record, to_deadline};

impl Congestion {
    /// Returns the record of the state.
    pub(crate) fn save(&self) -> record::Congestion {
        let Congestion { cnp_due, last_cnp, notified_at, ref point, last: _ } = *self;
        record::Congestion {
            cnp_due,
            last_cnp: last_cnp.map(|at| at.0),
            notified_at: notified_at.map(|at| at.0),
            rate: point.as_ref().map(ReactionPoint::save),
        }
    }

    /// Restores the state.
    pub(crate) fn restore(record: &record::Congestion) -> Result<Congestion, Violation> {
        let record::Congestion { cnp_due, last_cnp, notified_at, ref rate } = *record;
        if cnp_due && last_cnp.is_none() {
            return Err(Violation::Congestion);
        }
        let point = rate.as_ref().map(ReactionPoint::restore).transpose()?;
        let [last_cnp, notified_at] = [last_cnp, notified_at].map(|at| at.map(Instant));
        Ok(Congestion { cnp_due, last_cnp, notified_at, point, last: None })
    }
}

impl ReactionPoint {
    fn save(&self) -> record::Rate {
        let ReactionPoint {
            current,
            target,
            alpha,
            alpha_since,
            fell_at,
            timer_since,
            timer_steps,
            bytes,
            byte_steps,
            next_at,
            delivered,
            measured_at,
            through,
        } = *self;
        record::Rate {
            current,
            target,
            alpha,
            alpha_since: alpha_since.0,
            fell_at: fell_at.0,
            timer_since: timer_since.0,
            timer_steps,
            bytes,
            byte_steps,
            next_at: next_at.0,
            delivered,
            measured_at: measured_at.0,
            through,
        }
    }

    fn restore(record: &record::Rate) -> Result<ReactionPoint, Violation> {
        let record::Rate { current, target, alpha, timer_steps, bytes, byte_steps, .. } = *record;
        let time = |at| to_deadline(Some(at));
        let point = ReactionPoint {
            current,
            target,
            alpha,
            alpha_since: time(record.alpha_since)?,
            fell_at: time(record.fell_at)?,
            timer_since: time(record.timer_since)?,
            timer_steps,
            bytes,
            byte_steps,
            next_at: time(record.next_at)?,
            delivered: record.delivered,
            measured_at: time(record.measured_at)?,
            through: record.through,
        };
        if point.is_possible() { Ok(point) } else { Err(Violation::Congestion) }
    }
}
