//! How long a peer takes to answer (RFC 6298). Pure state, without a clock.

mod save;

use crate::base::time::Instant;
use crate::objects::roce::psn::ahead;
use crate::objects::roce::selective::Ahead;
use core::time::Duration;
use vrdma_wire::num::{Gid, Psn};

/// An estimate of the time between a packet and its answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Estimate {
    /// The smoothed round-trip time, in nanoseconds (RFC 6298, 2: SRTT).
    srtt: u32,
    /// How far times differ from it, in nanoseconds (RFC 6298, 2: RTTVAR).
    variation: u32,
}

/// The round-trip time of a QP's packets.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    estimate: Option<Estimate>,
    /// The packet that is timed. It was sent once (Karn's rule).
    timed: Option<Timed>,
    /// The last time that tells of the way of requests, in nanoseconds.
    last: Option<u32>,
    /// Number of measured times, modulo 256.
    samples: u8,
    /// The shortest time, in nanoseconds. It grows slowly, because the path may have changed.
    least: Option<u32>,
}

/// A measured round-trip time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sample {
    /// The time until the answer, in nanoseconds.
    nanos: u32,
    /// The shorter one of this time and the one before it; 0 if there was none, or if the time tells
    /// nothing of the way of requests.
    least: u32,
    /// The packet that was timed.
    psn: Psn,
    /// The number of packets that were answered in that time, up to the one that was timed.
    packets: u32,
}

/// A packet that is timed.
#[derive(Copy, Clone, Debug)]
struct Timed {
    psn: Psn,
    /// When it was sent.
    at: Instant,
    /// The oldest PSN without an answer at that time. `None` if the answer waits for data of a READ,
    /// and so tells nothing of the way of requests.
    una: Option<Psn>,
}

/// What a device knows of its peers on other hosts. New QPs begin with that.
///
/// A peer has one place, by its address. It takes the place of another peer there.
#[derive(Debug, Default)]
pub(crate) struct Peers(Vec<Option<(Gid, Known)>>);

/// What is known of a peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Known {
    /// How long it takes to answer.
    pub(crate) estimate: Option<Estimate>,
    /// What it does with packets that come ahead of a gap.
    pub(crate) ahead: Ahead,
}

/// Most peers that a device remembers.
const PEERS: usize = 64;

/// A QP reports its estimate to its device after one in this number of samples.
const REPORT_EVERY: u8 = 16;

/// With each sample, the shortest time grows by this fraction of it.
const LEAST_GROWS: u32 = 256;

/// More than this beyond the shortest time is a queue, in nanoseconds. A host that is busy takes as
/// long.
const QUEUED: u32 = 50_000;

/// The shortest time in which an answer is expected.
const LEAST: Duration = Duration::from_micros(100);

/// The probe timeout of a QP whose round-trip time is not known.
const UNKNOWN: Duration = Duration::from_millis(4);

impl Estimate {
    /// Returns the estimate after a first sample (RFC 6298, 2.2).
    fn first(sample: u32) -> Estimate {
        Estimate { srtt: sample, variation: sample / 2 }
    }

    /// Takes one more sample (RFC 6298, 2.3).
    fn take(&mut self, sample: u32) {
        let (srtt, variation) = (u64::from(self.srtt), u64::from(self.variation));
        let off = srtt.abs_diff(sample.into());
        // Both are averages of values of 32 bits.
        self.variation = ((3 * variation + off) / 4) as u32;
        self.srtt = ((7 * srtt + u64::from(sample)) / 8) as u32;
    }

    /// Returns the smoothed round-trip time.
    pub(crate) fn srtt(self) -> Duration {
        Duration::from_nanos(self.srtt.into())
    }

    /// Returns the time in which most answers come.
    fn most(self) -> Duration {
        Duration::from_nanos(u64::from(self.srtt) + 4 * u64::from(self.variation))
    }
}

impl Sample {
    /// Returns the time until the answer, or that of the sample before if it is shorter.
    ///
    /// One answer may be late by chance. A queue delays several.
    pub(crate) fn time(self) -> Duration {
        Duration::from_nanos(self.least.into())
    }

    /// Returns the bytes a second that the path carried at most, for packets of at most `longest`
    /// bytes. `next` is the next PSN to be sent for the first time.
    ///
    /// Packets before the timed one got through in that time. So did about as many as were sent
    /// after it.
    pub(crate) fn carried(self, next: Psn, longest: u64) -> u64 {
        let packets = self.packets.max(ahead(next, self.psn));
        let bytes = u128::from(packets) * u128::from(longest);
        u64::try_from(bytes * 1_000_000_000 / u128::from(self.nanos)).unwrap_or(u64::MAX)
    }
}

impl RoundTrip {
    pub(crate) fn estimate(&self) -> Option<Estimate> {
        self.estimate
    }

    /// Begins with what the device knows of the peer, if nothing was measured so far.
    pub(crate) fn begin_with(&mut self, known: Option<Estimate>) {
        self.estimate = self.estimate.or(known);
    }

    /// Records that a packet was sent for the first time, and that the peer is to answer it. `una`
    /// is the oldest PSN without an answer, or `None` if the answer waits for data of a READ.
    #[inline]
    pub(crate) fn sent(&mut self, psn: Psn, una: Option<Psn>, now: Instant) {
        if self.timed.is_none() {
            self.timed = Some(Timed { psn, at: now, una });
        }
    }

    /// Records that everything outstanding is sent again. An answer does not tell to which packet
    /// it is.
    pub(crate) fn all_sent_again(&mut self) {
        self.timed = None;
    }

    /// Records that one packet was sent again.
    pub(crate) fn sent_again(&mut self, psn: Psn) {
        self.timed = self.timed.filter(|timed| timed.psn != psn);
    }

    /// Records that all PSNs before `una` were answered. Returns the time that was measured, if one
    /// was.
    #[inline]
    pub(crate) fn answered(&mut self, una: Psn, now: Instant) -> Option<Sample> {
        let timed = self.timed?;
        if una.distance(timed.psn) <= 0 {
            return None;
        }
        self.timed = None;
        let sample = now.0.saturating_sub(timed.at.0).clamp(1, u32::MAX.into()) as u32;
        match &mut self.estimate {
            Some(estimate) => estimate.take(sample),
            none => *none = Some(Estimate::first(sample)),
        }
        self.samples = self.samples.wrapping_add(1);
        let least = self.least.map_or(sample, |least| least.saturating_add(least / LEAST_GROWS + 1));
        self.least = Some(least.min(sample));
        let mut taken = Sample { nanos: sample, least: 0, psn: timed.psn, packets: 0 };
        if let Some(oldest) = timed.una {
            taken.least = self.last.map_or(0, |last| last.min(sample));
            taken.packets = ahead(timed.psn, oldest) + 1;
            self.last = Some(sample);
        }
        Some(taken)
    }

    /// Whether the packet that is timed takes longer than this already, unless its answer waits for
    /// data of a READ.
    pub(crate) fn takes_longer(&self, than: Duration, now: Instant) -> bool {
        self.timed.is_some_and(|timed| timed.una.is_some() && now > timed.at + than)
    }

    /// Returns the estimate after a time was measured, if the device is to know it.
    #[inline]
    pub(crate) fn report(&self) -> Option<Estimate> {
        self.estimate.filter(|_| self.samples % REPORT_EVERY == 1)
    }

    /// Whether packets wait in queues on the way: they take far longer than the shortest time.
    pub(crate) fn is_queued(&self) -> bool {
        let (Some(estimate), Some(least)) = (self.estimate, self.least) else { return false };
        estimate.srtt > least.saturating_add(least.max(QUEUED))
    }

    /// Returns how long an answer is waited for before a probe is sent.
    ///
    /// It is the time in which most answers come, or twice the usual one. Peers acknowledge several
    /// packets at once, and do other work.
    pub(crate) fn probe_timeout(&self) -> Duration {
        self.estimate.map_or(UNKNOWN, |estimate| estimate.most().max(2 * estimate.srtt()).max(LEAST))
    }

    /// Returns the time after which an answer can be expected to be there.
    pub(crate) fn answer_time(&self) -> Duration {
        self.estimate.map_or(UNKNOWN, |estimate| estimate.most().max(LEAST))
    }
}

impl Peers {
    /// Returns what is known of a peer.
    pub(crate) fn get(&self, peer: Gid) -> Known {
        let there = self.0.get(place(peer)).copied().flatten();
        there.filter(|there| there.0 == peer).map(|there| there.1).unwrap_or_default()
    }

    /// Records how long a peer takes to answer.
    pub(crate) fn took(&mut self, peer: Gid, estimate: Estimate) {
        self.change(peer).estimate = Some(estimate);
    }

    /// Records what a peer does with packets that come ahead of a gap.
    pub(crate) fn does(&mut self, peer: Gid, ahead: Ahead) {
        self.change(peer).ahead = ahead;
    }

    fn change(&mut self, peer: Gid) -> &mut Known {
        if self.0.is_empty() {
            self.0 = vec![None; PEERS];
        }
        let there = &mut self.0[place(peer)];
        if there.is_none_or(|there| there.0 != peer) {
            *there = None;
        }
        &mut there.get_or_insert((peer, Known::default())).1
    }
}

/// Returns the place of a peer. Addresses of a subnet differ in their last bytes.
fn place(peer: Gid) -> usize {
    let sum = peer.0.iter().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
    usize::from(sum) % PEERS
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: u64 = 1000;

    fn psn(number: u32) -> Psn {
        Psn::truncate(number)
    }

    #[test]
    fn a_time_that_stays_equal_is_the_estimate_and_one_that_changes_is_followed() {
        let mut round_trip = RoundTrip::default();
        assert_eq!(round_trip.probe_timeout(), UNKNOWN);
        let mut now = 0;
        let mut answer = |round_trip: &mut RoundTrip, took| {
            round_trip.sent(psn(7), Some(psn(0)), Instant(now));
            now += took;
            round_trip.answered(psn(8), Instant(now));
        };
        answer(&mut round_trip, 80 * MICRO);
        // RFC 6298, 2.2: RTTVAR is half of the first sample.
        assert_eq!(round_trip.estimate, Some(Estimate { srtt: 80_000, variation: 40_000 }));
        assert_eq!(round_trip.probe_timeout(), Duration::from_micros(80 + 160));
        (0..100).for_each(|_| answer(&mut round_trip, 80 * MICRO));
        assert_eq!(round_trip.estimate.unwrap().srtt, 80_000);
        assert!(round_trip.probe_timeout() < Duration::from_micros(161));
        (0..100).for_each(|_| answer(&mut round_trip, 10 * MICRO));
        assert_eq!(round_trip.probe_timeout(), LEAST);
        answer(&mut round_trip, 90 * MICRO);
        // RFC 6298, 2.3, with 10 us before: SRTT grows by an eighth, RTTVAR by a fourth.
        let Estimate { srtt, variation } = round_trip.estimate.unwrap();
        assert!(srtt.abs_diff(20_000) < 100 && variation.abs_diff(20_000) < 100, "{srtt} {variation}");
    }

    #[test]
    fn one_packet_is_timed_and_none_once_something_was_sent_again() {
        let mut round_trip = RoundTrip::default();
        round_trip.sent(psn(0xff_ffff), Some(psn(0)), Instant(0));
        round_trip.sent(psn(5), Some(psn(0)), Instant(100));
        assert_eq!(round_trip.answered(psn(0xff_ffff), Instant(200)), None, "it is not answered");
        assert!(round_trip.timed.is_some());
        round_trip.answered(psn(0), Instant(300));
        assert_eq!(round_trip.estimate, Some(Estimate::first(300)));
        round_trip.sent(psn(6), Some(psn(0)), Instant(400));
        round_trip.all_sent_again();
        round_trip.answered(psn(7), Instant(9000));
        assert_eq!(round_trip.estimate, Some(Estimate::first(300)));
        round_trip.sent(psn(8), Some(psn(5)), Instant(9000));
        round_trip.sent_again(psn(7));
        let sample = Sample { nanos: 300, least: 300, psn: psn(8), packets: 4 };
        assert_eq!(round_trip.answered(psn(9), Instant(9300)), Some(sample), "another was sent again");
        assert_eq!(round_trip.estimate.unwrap().srtt, 300);
        round_trip.sent(psn(9), Some(psn(0)), Instant(9300));
        round_trip.sent_again(psn(9));
        assert_eq!(round_trip.answered(psn(10), Instant(99_999)), None);
    }

    #[test]
    fn what_was_carried_follows_from_the_packets_before_and_behind_the_timed_one() {
        let mut round_trip = RoundTrip::default();
        let mut carried = |una: Option<u32>, took: u64, next: u32| {
            round_trip.sent(psn(9), una.map(psn), Instant(0));
            let sample = round_trip.answered(psn(10), Instant(took)).unwrap();
            (sample.time().as_nanos(), sample.carried(psn(next), 4096))
        };
        assert_eq!(carried(Some(0), 40_960, 10), (0, 1_000_000_000), "the first time");
        assert_eq!(carried(Some(9), 4_096_000, 10), (40_960, 1_000_000), "the one before was shorter");
        assert_eq!(carried(None, 9, 10).0, 0, "it waited for a READ");
        assert_eq!(carried(Some(9), 8_192_000, 10), (4_096_000, 500_000));
        assert_eq!(carried(Some(9), 8_192_000, 13), (8_192_000, 2_000_000), "four came behind it");
        assert_eq!(carried(Some(10), 1, 10), (1, u64::MAX), "as many as there are PSNs");
    }

    #[test]
    fn times_far_above_the_shortest_show_a_queue() {
        let mut round_trip = RoundTrip::default();
        let mut answer = |took: u64, count: u32| {
            for _ in 0..count {
                round_trip.sent(psn(7), Some(psn(0)), Instant(0));
                round_trip.answered(psn(8), Instant(took));
            }
            round_trip.is_queued()
        };
        assert!(!answer(20 * MICRO, 1));
        assert!(!answer(65 * MICRO, 100), "a busy host");
        assert!(answer(300 * MICRO, 8));
        assert!(!answer(300 * MICRO, 2000), "it is the path's time by now");
        assert!(!answer(20 * MICRO, 100));
        assert!(answer(80 * MICRO, 50));
    }

    #[test]
    fn the_longest_time_is_kept() {
        let mut round_trip = RoundTrip::default();
        for _ in 0..3 {
            round_trip.sent(psn(1), Some(psn(0)), Instant(0));
            round_trip.answered(psn(2), Instant(u64::MAX));
        }
        assert_eq!(round_trip.estimate.unwrap().srtt, u32::MAX);
        assert!(round_trip.probe_timeout() > Duration::from_secs(8));
    }

    #[test]
    fn a_device_remembers_some_peers() {
        let mut peers = Peers::default();
        let gid = |n: u32| Gid::from_ipv4([10, 0, (n >> 8) as u8, n as u8]);
        assert_eq!(peers.get(gid(0)), Known::default());
        (0..1000).for_each(|n| peers.took(gid(n), Estimate::first(n)));
        let known: Vec<u32> = (0..1000).filter(|&n| peers.get(gid(n)) != Known::default()).collect();
        assert_eq!(known.len(), PEERS);
        peers.does(gid(999), Ahead::Held);
        for &n in &known {
            let ahead = if n == 999 { Ahead::Held } else { Ahead::Unknown };
            assert_eq!(peers.get(gid(n)), Known { estimate: Some(Estimate::first(n)), ahead });
        }
        peers.does(gid(999 - 256), Ahead::Dropped);
        assert_eq!(peers.get(gid(999 - 256)), Known { estimate: None, ahead: Ahead::Dropped });
        assert_eq!(peers.get(gid(999)).estimate.is_some(), place(gid(999)) != place(gid(999 - 256)));
        assert!(known.iter().all(|&n| n >= 1000 - 128), "the last ones are remembered: {known:?}");
    }

    #[test]
    fn a_new_connection_begins_with_what_is_known_and_goes_on_from_there() {
        let mut round_trip = RoundTrip::default();
        round_trip.begin_with(None);
        assert_eq!(round_trip.estimate, None);
        round_trip.begin_with(Some(Estimate::first(8000)));
        round_trip.begin_with(Some(Estimate::first(1)));
        assert_eq!(round_trip.estimate, Some(Estimate::first(8000)));
        round_trip.sent(psn(1), Some(psn(0)), Instant(0));
        assert!(round_trip.answered(psn(2), Instant(16_000)).is_some());
        assert_eq!(round_trip.report(), Some(Estimate { srtt: 9000, variation: 5000 }));
        for n in 1..600 {
            round_trip.sent(psn(1), Some(psn(0)), Instant(0));
            assert!(round_trip.answered(psn(2), Instant(16_000)).is_some());
            assert_eq!(round_trip.report().is_some(), n % u32::from(REPORT_EVERY) == 0, "{n}");
        }
    }
}
