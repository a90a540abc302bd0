//! Proportional rate reduction (RFC 9937, formerly RFC 6937).
//!
//! It decides how much each ACK of a recovery lets out, so that the window ends at ssthresh.

use serde::{Deserialize, Serialize};

/// The counts of one recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Prr {
    /// RecoverFS: the bytes in flight when the recovery began.
    flight: u64,
    delivered: u64,
    out: u64,
}

impl Prr {
    pub fn new(flight: u64) -> Prr {
        Prr { flight: flight.max(1), delivered: 0, out: 0 }
    }

    /// Counts sent bytes.
    pub fn sent(&mut self, bytes: u64) {
        self.out += bytes;
    }

    /// Returns the window after an ACK that delivered this many bytes.
    ///
    /// An ACK is good if it acknowledges something new and shows no further loss. Then the window
    /// may grow as in slow start (RFC 9937).
    pub fn window(&mut self, delivered: u64, pipe: u64, threshold: u64, mss: u64, is_good: bool) -> u64 {
        self.delivered += delivered;
        let mut quota = if pipe > threshold {
            let due = u128::from(self.delivered) * u128::from(threshold);
            (due.div_ceil(u128::from(self.flight)) as u64).saturating_sub(self.out)
        } else {
            // Delivered bytes may always be replaced, whatever was sent before. Otherwise nothing
            // would follow a retransmission in a small window, and only a timeout would show that
            // it was lost too.
            let limit = self.delivered.saturating_sub(self.out).max(delivered);
            (if is_good { limit + mss } else { limit }).min(threshold - pipe)
        };
        if self.out == 0 {
            // The retransmission that begins the recovery.
            quota = quota.max(mss);
        }
        pipe + quota
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first example of RFC 6937, 3.1, which halves the window as Reno does: 20 segments in
    /// flight, one lost, ssthresh 10.
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

    /// Of two segments in flight the first is lost. The delivery of the second lets out another
    /// segment after the retransmission.
    #[test]
    fn something_follows_a_retransmission_in_a_small_window() {
        let mut prr = Prr::new(2);
        prr.sent(1);
        let pipe = 1;
        assert_eq!(prr.window(1, pipe, 2, 1, false), pipe + 1);
    }

    /// The second example of RFC 6937, 3.1: 15 of 20 segments are lost.
    ///
    /// The window shrinks to what is left, and grows again as sent segments arrive.
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
