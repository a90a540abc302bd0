//! How often a path loses packets, and how many may therefore be outstanding. Pure state.
//!
//! - When a response is lost, READs behind it have to be executed again. So a loss costs all that
//!   was asked for behind it. A QP that asks for a sixteenth of what comes between two losses
//!   spends a seventeenth of the path on that.
//! - A peer that drops what comes behind a gap costs as much, but a path that is longer needs more.
//! - A peer that holds what comes behind a gap says where the next one is when the first is filled.
//!   So a round trip repairs one loss. More packets than come between losses only have to be held.

mod save;

use crate::objects::roce::psn::{HALF, ahead};
use crate::objects::roce::selective::Ahead;
use vrdma_wire::num::Psn;

/// How many packets come between two losses.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct LossInterval {
    /// The oldest PSN without an answer when something was last lost.
    since: Psn,
    /// PSNs between two losses, on the average.
    interval: u32,
}

/// The interval at the first loss. A sixteenth of it is as much as most paths need.
const FIRST: u32 = 1024;
/// The longest interval, a quarter of all PSNs. It allows more than is ever outstanding.
const LONGEST: u32 = HALF / 2;
/// The fewest responses that are asked for at once.
const FEWEST_RESPONSES: u32 = 16;
/// The fewest requests that may be outstanding. It is twice what may be sent before one asks for an
/// acknowledge.
const FEWEST_REQUESTS: u32 = 64;

impl LossInterval {
    /// Returns the interval at the first loss. `una` is the oldest PSN without an answer.
    pub(crate) fn new(una: Psn) -> LossInterval {
        LossInterval { since: una, interval: FIRST }
    }

    /// Records a loss. What is lost again at one PSN is one loss.
    pub(crate) fn lost(&mut self, una: Psn) {
        if una != self.since {
            let last = ahead(una, self.since).min(LONGEST);
            self.interval = (3 * self.interval + last) / 4;
            self.since = una;
        }
    }

    /// Ends an interval that is so long that PSNs may soon begin again. At most half of all
    /// PSNs are answered between two calls.
    pub(crate) fn refresh(&mut self, una: Psn) {
        let last = ahead(una, self.since);
        if last >= LONGEST {
            (self.since, self.interval) = (una, LONGEST);
        }
    }

    /// Returns the present interval. A long time without a loss counts, though it has not ended.
    fn now(&self, una: Psn) -> u32 {
        self.interval.max(ahead(una, self.since).min(LONGEST))
    }

    /// Returns how many responses may be outstanding before another READ is sent.
    pub(crate) fn most_responses(&self, una: Psn) -> u32 {
        (self.now(una) / 16).max(FEWEST_RESPONSES)
    }

    /// Returns how many request packets may be outstanding to a peer that does this with packets
    /// ahead of a gap.
    pub(crate) fn most_requests(&self, una: Psn, peer: Ahead) -> u32 {
        let most = match peer {
            Ahead::Dropped => self.now(una) / 4,
            Ahead::Unknown | Ahead::Held => self.now(una) * 3 / 2,
        };
        most.max(FEWEST_REQUESTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_may_be_outstanding_as_the_losses_of_the_path_leave() {
        let mut una = Psn::truncate(0xff_ff00);
        let mut losses = LossInterval::new(una);
        assert_eq!(losses.most_responses(una), 64);
        let mut lose = |each: u32| {
            for _ in 0..30 {
                una = una.add(each);
                losses.lost(una);
            }
            let requests = [Ahead::Held, Ahead::Unknown, Ahead::Dropped];
            (losses.most_responses(una), requests.map(|peer| losses.most_requests(una, peer)))
        };
        let (responses, [held, unknown, dropped]) = lose(100);
        assert!((140..=160).contains(&held), "{held}");
        assert_eq!((responses, unknown, dropped), (FEWEST_RESPONSES, held, FEWEST_REQUESTS));
        assert_eq!(lose(3), (FEWEST_RESPONSES, [FEWEST_REQUESTS; 3]));
        let (responses, [held, _, dropped]) = lose(1000);
        assert!((60..=62).contains(&responses) && (1450..=1500).contains(&held), "{responses} {held}");
        assert!((240..=250).contains(&dropped), "{dropped}");
    }

    #[test]
    fn a_path_without_losses_leaves_more() {
        let mut una = Psn::truncate(5);
        let mut losses = LossInterval::new(una);
        for _ in 0..30 {
            una = una.add(1);
            losses.lost(una);
        }
        assert_eq!(losses.most_responses(una), FEWEST_RESPONSES);
        assert_eq!(losses.most_responses(una.add(1000)), 62);
        let mut least = 0;
        for _ in 0..100 {
            una = una.add(HALF / 10);
            losses.refresh(una);
            least = losses.most_responses(una).max(least);
            assert_eq!(losses.most_responses(una), least, "it stays so when PSNs begin again");
        }
        assert_eq!(least, LONGEST / 16);
    }

    #[test]
    fn what_is_lost_again_is_one_loss() {
        let una = Psn::truncate(0xff_ffff);
        let mut losses = LossInterval::new(una);
        (0..30).for_each(|_| losses.lost(una));
        assert_eq!(losses.most_responses(una), 64);
    }

    #[test]
    fn numbers_do_not_overflow() {
        let mut losses = LossInterval { since: Psn::default(), interval: LONGEST };
        assert!(losses.most_requests(Psn::default(), Ahead::Held) > LONGEST);
        losses.lost(Psn::truncate(2 * HALF - 1));
        assert_eq!(losses.interval, LONGEST);
    }
}
