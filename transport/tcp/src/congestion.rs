//! The congestion window: CUBIC (RFC 9438) with slow start (RFC 5681), in bytes.

use crate::time::Instant;
use serde::{Deserialize, Serialize};

/// Beta of CUBIC in tenths: the part of the window that is kept after a loss.
const BETA: u64 = 7;
/// Maximum number of segments that one ACK counts for in slow start, which is not paced (RFC 9406,
/// 4.2).
const MOST_COUNTED: u64 = 8;

/// The values before a loss, to be restored if there was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Before {
    window: u64,
    threshold: u64,
    plateau: u64,
}

/// A period of congestion avoidance without a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Epoch {
    began: Instant,
    /// K: nanoseconds until the window has its size before the loss again.
    plateau_after: u64,
    /// W_est: the window that Reno would have.
    reno: u64,
    /// Fractions of bytes by which the windows grew, in units of 1/cwnd.
    reno_part: u64,
    part: u64,
}

/// The congestion window of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Congestion {
    /// cwnd in bytes. Within a recovery, proportional rate reduction sets it.
    pub window: u64,
    /// ssthresh in bytes.
    pub threshold: u64,
    /// W_max: the window before the last loss, or less (4.7).
    plateau: u64,
    epoch: Option<Epoch>,
    before: Option<Before>,
}

impl Congestion {
    pub fn new(window: u64) -> Congestion {
        Congestion { window, threshold: u64::MAX, plateau: 0, epoch: None, before: None }
    }

    /// Grows the window for bytes that arrived while the window was the limit.
    pub fn acknowledged(&mut self, bytes: u64, mss: u64, rtt: u64, now: Instant) {
        if self.in_slow_start() {
            self.window += bytes.min(MOST_COUNTED * mss).min(self.threshold - self.window);
            return;
        }
        self.avoid(bytes, mss, rtt, now);
    }

    /// Returns whether the window is below ssthresh.
    pub fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Grows the window in congestion avoidance (RFC 9438, 4.2 to 4.5).
    fn avoid(&mut self, bytes: u64, mss: u64, rtt: u64, now: Instant) {
        let window = self.window;
        // The curve begins at the present window if nothing was lost at it yet.
        self.plateau = if self.epoch.is_none() { self.plateau.max(window) } else { self.plateau };
        let plateau = self.plateau;
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            began: now,
            plateau_after: plateau_after(plateau - window, mss),
            reno: window,
            reno_part: 0,
            part: 0,
        });
        let elapsed = now.since(epoch.began);
        // Alpha is 3 (1 - beta) / (1 + beta) = 9/17 until the window has its former size, then 1.
        // The former size is cwnd_prior, and ssthresh is beta times that.
        let prior = self.threshold / BETA * 10;
        let (numerator, denominator) = if epoch.reno < prior { (9, 17) } else { (1, 1) };
        epoch.reno_part += bytes.min(window) * mss * numerator / denominator;
        epoch.reno += epoch.reno_part / window;
        epoch.reno_part %= window;
        if cubic(elapsed, epoch.plateau_after, plateau, mss) < epoch.reno {
            self.window = window.max(epoch.reno);
            return;
        }
        let target = cubic(elapsed.saturating_add(rtt), epoch.plateau_after, plateau, mss);
        let target = target.clamp(window, window + window / 2);
        epoch.part += (target - window) * bytes.min(window);
        self.window += epoch.part / window;
        epoch.part %= window;
    }

    /// Ends the growth because less was sent than the window allows. That time does not count.
    pub fn not_used(&mut self) {
        self.epoch = None;
    }

    /// Reduces ssthresh after a loss (4.6, 4.7).
    pub fn lost(&mut self, mss: u64) {
        let (window, threshold, plateau) = (self.window, self.threshold, self.plateau);
        self.before = Some(Before { window, threshold, plateau });
        self.plateau = if window < plateau { window / 20 * 17 } else { window };
        self.threshold = (window * BETA / 10).max(2 * mss);
        self.epoch = None;
    }

    /// Reduces the window to one segment after a retransmission timeout (4.8).
    ///
    /// The caller calls `lost` for the first timeout of a series only.
    pub fn timed_out(&mut self, mss: u64) {
        self.window = mss;
        self.epoch = None;
    }

    /// Sets the window at the end of a recovery.
    pub fn recovered(&mut self, mss: u64) {
        self.window = self.threshold.max(mss);
    }

    /// Restores the values before the last loss, because segments were only late.
    pub fn undo(&mut self) {
        if let Some(before) = self.before.take() {
            self.window = self.window.max(before.window);
            self.threshold = before.threshold;
            self.plateau = before.plateau;
            self.epoch = None;
        }
    }

    /// Returns whether windows are small enough for computations not to overflow.
    pub fn is_sane(&self) -> bool {
        let most = 1 << 40;
        let epoch =
            self.epoch.is_none_or(|epoch| epoch.reno < most && epoch.reno_part < most && epoch.part < most);
        let before = self.before.is_none_or(|before| before.window < most && before.plateau < most);
        (1..most).contains(&self.window) && self.plateau < most && epoch && before
    }

    /// Returns whether the last loss can still be undone.
    pub fn may_undo(&self) -> bool {
        self.before.is_some()
    }

    /// Restarts the window after a long idle time (RFC 5681, 4.1).
    pub fn restart(&mut self, initial: u64) {
        // Slow start may reach again what was reached once.
        self.threshold = self.threshold.max(self.window / 4 * 3);
        self.window = self.window.min(initial);
        self.epoch = None;
    }
}

/// Returns K in nanoseconds: the cube root of `below` over C, where C is 0.4 segments per cubic
/// second.
fn plateau_after(below: u64, mss: u64) -> u64 {
    // Cubic nanoseconds would not fit: cubic microseconds do.
    let cubed = u128::from(below) * 10 * 1_000_000_000_000_000_000 / (4 * u128::from(mss));
    cube_root(cubed) * 1000
}

/// Returns W_cubic after this many nanoseconds.
fn cubic(elapsed: u64, plateau_after: u64, plateau: u64, mss: u64) -> u64 {
    // Beyond a quarter of an hour it is larger than any window.
    let distance = u128::from(elapsed.abs_diff(plateau_after) / 1000).min(1 << 30);
    let change = 4 * u128::from(mss) * distance.pow(3) / (10 * 1_000_000_000_000_000_000);
    let change = u64::try_from(change).unwrap_or(u64::MAX);
    if elapsed < plateau_after { plateau.saturating_sub(change) } else { plateau.saturating_add(change) }
}

/// Returns the integer part of a cube root.
fn cube_root(of: u128) -> u64 {
    let mut root = 0_u128;
    for bit in (0..42).rev() {
        let more = root | 1 << bit;
        if more * more * more <= of {
            root = more;
        }
    }
    root as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;
    const S: u64 = 1_000_000_000;

    #[test]
    fn cube_roots() {
        for (of, root) in
            [(0, 0), (1, 1), (7, 1), (8, 2), (26, 2), (27, 3), (10_u128.pow(36), 10_u64.pow(12))]
        {
            assert_eq!(cube_root(of), root, "{of}");
        }
    }

    #[test]
    fn slow_start_doubles_in_a_round_trip() {
        let mut congestion = Congestion::new(10 * MSS);
        for _ in 0..10 {
            congestion.acknowledged(MSS, MSS, S / 10, Instant(0));
        }
        assert_eq!(congestion.window, 20 * MSS);
        // One ACK of everything does not cause an equally large burst.
        congestion.acknowledged(100 * MSS, MSS, S / 10, Instant(0));
        assert_eq!(congestion.window, 28 * MSS);
    }

    #[test]
    fn a_loss_takes_three_tenths_and_growth_slows_where_it_was() {
        let mut congestion = Congestion::new(100 * MSS);
        congestion.lost(MSS);
        assert_eq!(congestion.threshold, 70 * MSS);
        congestion.recovered(MSS);
        assert_eq!(congestion.window, 70 * MSS);
        // K = cbrt(30 / 0.4) = 4.217 s.
        assert_eq!(plateau_after(30 * MSS, MSS) / 1_000_000, 4217);
        let (rtt, mut now, mut after) = (S / 10, 0, Vec::new());
        while now < 9 * S {
            let acknowledges = congestion.window / MSS;
            for n in 0..acknowledges {
                congestion.acknowledged(MSS, MSS, rtt, Instant(now + n * rtt / acknowledges));
            }
            now += rtt;
            after.push(congestion.window / MSS);
        }
        let at = |seconds: f64| after[(seconds * 10.0) as usize];
        // Growth is fast at first, flat around the window that lost, then faster and faster.
        assert!((88..=96).contains(&at(2.0)), "{}", at(2.0));
        assert!((98..=101).contains(&at(4.2)), "{}", at(4.2));
        assert!((99..=103).contains(&at(5.0)), "{}", at(5.0));
        assert!(at(8.5) > 125, "{}", at(8.5));
        assert!(after.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn reno_is_never_faster() {
        // Inside a rack K is thousands of round trips, so Reno's window counts.
        let mut congestion = Congestion::new(20 * MSS);
        congestion.lost(MSS);
        congestion.recovered(MSS);
        let (rtt, mut now) = (S / 10_000, 0);
        for _ in 0..20 {
            for _ in 0..congestion.window / MSS {
                congestion.acknowledged(MSS, MSS, rtt, Instant(now));
            }
            now += rtt;
        }
        // 9/17 of a segment per round trip up to the former 20, then one: 11 and 9 round trips.
        assert!((27..=29).contains(&(congestion.window / MSS)), "{}", congestion.window);
    }

    #[test]
    fn growth_is_slow_up_to_the_window_that_lost_whatever_the_plateau() {
        let mut congestion = Congestion::new(20 * MSS);
        for _ in 0..2 {
            congestion.lost(MSS);
            congestion.recovered(MSS);
        }
        // The plateau is 17/20 of 14 segments, but the former window was 14.
        assert!(congestion.plateau < 12 * MSS);
        let (rtt, mut now) = (S / 10_000, 0);
        for _ in 0..8 {
            for _ in 0..congestion.window / MSS {
                congestion.acknowledged(MSS, MSS, rtt, Instant(now));
            }
            now += rtt;
        }
        // 9.8 segments, and eight times 9/17.
        assert!((13 * MSS..=14 * MSS).contains(&congestion.window), "{}", congestion.window);
    }

    #[test]
    fn what_was_no_loss_is_given_back() {
        let mut congestion = Congestion::new(50 * MSS);
        congestion.lost(MSS);
        congestion.window = 3 * MSS;
        congestion.undo();
        assert_eq!((congestion.window, congestion.threshold), (50 * MSS, u64::MAX));
    }

    #[test]
    fn windows_that_fall_make_room_for_others() {
        let mut congestion = Congestion::new(100 * MSS);
        congestion.lost(MSS);
        congestion.recovered(MSS);
        congestion.lost(MSS);
        // Below the old plateau: 17/20 of it.
        assert_eq!(congestion.plateau, 70 * MSS / 20 * 17);
    }
}
