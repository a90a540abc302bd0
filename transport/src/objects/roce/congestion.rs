//! What a QP knows of congestion on the path to its peer, in both directions. Pure state.
//!
//! As a receiver it owes notifications for marked packets: DCQCN's notification point. As a sender
//! it has a rate: the [`ReactionPoint`]. Notifications lower it, or long round-trip times.

mod save;

use crate::base::dcqcn::Dcqcn;
use crate::base::time::Instant;
use crate::objects::qp::Direction;
use crate::objects::roce::reaction_point::ReactionPoint;
use core::time::Duration;

/// A path from which a notification came in this time has a switch that marks.
const MARKING: Duration = Duration::from_secs(1);

/// The state of a QP that met congestion. Most QPs never do.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Congestion {
    /// Whether a notification is to be sent.
    cnp_due: bool,
    /// When the last notification became due.
    last_cnp: Option<Instant>,
    /// When the last notification came.
    notified_at: Option<Instant>,
    /// Its rate, if it has one.
    pub(crate) point: Option<ReactionPoint>,
    /// The direction that used the rate last.
    pub(crate) last: Option<Direction>,
}

impl Congestion {
    /// Takes note of a marked packet.
    ///
    /// Returns whether a notification is due now that was not due before. There is at most one in
    /// each interval.
    pub(crate) fn marked(&mut self, now: Instant, parameters: &Dcqcn) -> bool {
        let interval = parameters.np_min_time_between_cnps;
        if self.cnp_due || self.last_cnp.is_some_and(|last| last <= now && now < last + interval) {
            return false;
        }
        (self.cnp_due, self.last_cnp) = (true, Some(now));
        true
    }

    /// Takes a notification. `through` is the number of bytes that got through to the peer so far.
    pub(crate) fn notified(&mut self, now: Instant, through: u64, parameters: &Dcqcn) {
        let is_first = self.point.is_none();
        self.notified_at = Some(now);
        let point = self.rate(now, through, parameters);
        match is_first {
            true => point.first_notified(now, parameters),
            false => point.notified(now, through, parameters),
        }
    }

    /// Takes a round-trip time beyond the target, in which `carried` bytes a second got through at
    /// most. `through` is the number of bytes that got through to the peer so far.
    ///
    /// Returns whether the time counts. It does not if notifications come: marks of a switch tell
    /// more.
    pub(crate) fn delayed(
        &mut self,
        now: Instant,
        round_trip: Duration,
        (carried, through): (u64, u64),
        parameters: &Dcqcn,
    ) -> bool {
        // A record of another clock may have a later time.
        if self.notified_at.is_some_and(|last| last <= now && now < last + MARKING) {
            return false;
        }
        self.rate(now, through, parameters).delayed(now, round_trip, (carried, through), parameters);
        true
    }

    /// Returns the rate. A QP without one gets that of the link.
    fn rate(&mut self, now: Instant, through: u64, parameters: &Dcqcn) -> &mut ReactionPoint {
        self.point.get_or_insert_with(|| ReactionPoint::new(now, through, parameters))
    }

    /// Whether a notification is to be sent.
    pub(crate) fn cnp_is_due(&self) -> bool {
        self.cnp_due
    }

    /// Takes the notification that is to be sent, if there is one.
    pub(crate) fn take_cnp(&mut self) -> bool {
        core::mem::take(&mut self.cnp_due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_cause_one_notification_in_each_interval() {
        let parameters = Dcqcn::default();
        let mut congestion = Congestion::default();
        let mut sent = Vec::new();
        for micros in 1..=200 {
            congestion.marked(Instant(micros * 1000), &parameters);
            if congestion.take_cnp() {
                sent.push(micros);
            }
        }
        assert_eq!(sent, [1, 51, 101, 151]);
        // One that could not be sent yet stays due, and does not become two.
        assert!(congestion.marked(Instant(300_000), &parameters));
        assert!(!congestion.marked(Instant(900_000), &parameters));
        assert!(congestion.take_cnp() && !congestion.take_cnp());
    }
}
