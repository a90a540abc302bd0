//! Proportional rate reduction (RFC 9937, before RFC 6937): how much is sent for each acknowledge
//! of a recovery, so that its window ends at ssthresh.

use serde::{Deserialize, Serialize};

/// What a recovery has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Prr {
    /// RecoverFS: what was in flight when it began.
    flight: u64,
    delivered: u64,
    out: u64,
}

impl Prr {
    pub fn new(flight: u64) -> Prr {
        Prr { flight: flight.max(1), delivered: 0, out: 0 }
    }

    /// So many bytes were sent.
    pub fn sent(&mut self, bytes: u64) {
        self.out += bytes;
    }

    /// The window after an acknowledge that delivered so much. It is good if it acknowledges
    /// something new and shows no further loss (RFC 9937: then the window may grow as in slow
    /// start).
    pub fn window(&mut self, delivered: u64, pipe: u64, threshold: u64, mss: u64, is_good: bool) -> u64 {
        self.delivered += delivered;
        let mut quota = if pipe > threshold {
            let due = u128::from(self.delivered) * u128::from(threshold);
            (due.div_ceil(u128::from(self.flight)) as u64).saturating_sub(self.out)
        } else {
            // What was delivered now may be replaced, whatever was sent before: else nothing would
            // follow a retransmission in a small window, and only a timeout would show that it was
            // lost too.
            let limit = self.delivered.saturating_sub(self.out).max(delivered);
            (if is_good { limit + mss } else { limit }).min(threshold - pipe)
        };
        if self.out == 0 {
            // The retransmission with which it begins.
            quota = quota.max(mss);
        }
        pipe + quota
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first example of RFC 6937, 3.1: 20 segments in flight, one lost, ssthresh 10. (There
    /// with Reno's half.)
    #[test]
    fn every_other_acknowledge_sends_a_segment() {
        let mut prr = Prr::new(20);
        let (mut pipe, mut sent) = (19, Vec::new());
        // The first is lost; each of 19 SACKs delivers one.
        for _ in 0..19 {
            pipe -= 1;
            let quota = prr.window(1, pipe, 10, 1, false) - pipe;
            sent.push(quota);
            prr.sent(quota);
            pipe += quota;
        }
        assert_eq!(sent.iter().sum::<u64>(), 10);
        assert!(sent.iter().all(|quota| *quota <= 1), "{sent:?}");
        assert_eq!(pipe, 10);
    }

    /// Two are on their way and the first is lost: what the other delivers lets another one go,
    /// behind the retransmission.
    #[test]
    fn something_follows_a_retransmission_in_a_small_window() {
        let mut prr = Prr::new(2);
        prr.sent(1);
        let pipe = 1;
        assert_eq!(prr.window(1, pipe, 2, 1, false), pipe + 1);
    }

    /// The second: 15 of 20 are lost. The window goes down to what is left, and comes up again as
    /// what is sent arrives.
    #[test]
    fn after_many_losses_it_grows_as_in_slow_start() {
        let mut prr = Prr::new(20);
        let pipe = 4;
        assert_eq!(prr.window(1, pipe, 10, 1, false), pipe + 1);
        prr.sent(1);
        assert_eq!(prr.window(1, pipe, 10, 1, false), pipe + 1);
        prr.sent(1);
        assert_eq!(prr.window(1, pipe, 10, 1, true), pipe + 2);
    }
}
