//! One direction of a faulty wire.

use super::super::Frame;
use super::bottleneck::{Bottleneck, Fate};
use super::config::FaultsConfig;
use super::script::Script;
use std::collections::VecDeque;
use std::time::Duration;

/// The most frames that overtake a reordered frame.
const MAX_PASSED: u64 = 4;

/// One direction.
///
/// A frame waits at the bottleneck, if there is one. Behind it, the other faults happen.
#[derive(Debug)]
pub(super) struct FaultyWire {
    config: FaultsConfig,
    random: fastrand::Rng,
    /// The random numbers of marks. How many are drawn depends on time.
    random_marks: fastrand::Rng,
    bottleneck: Option<Bottleneck>,
    script: Script,
    /// Whether the last frame was lost, if losses come in bursts.
    in_burst: bool,
    /// Frames that can go on at once.
    pub ready: VecDeque<Frame>,
    held: Vec<DelayedFrame>,
    /// The number of frames that went on so far.
    passed: u64,
    counters: Counters,
}

#[derive(Debug)]
struct DelayedFrame {
    /// The frame goes on when `passed` has this value, or at the time `at`.
    after: u64,
    at: Duration,
    frame: Frame,
}

/// Number of counters of a direction.
pub(super) const COUNTERS: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    lost: u64,
    dropped: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
    delayed: u64,
    overflowed: u64,
    marked: u64,
}

impl FaultyWire {
    pub(super) fn new(config: FaultsConfig, seed: u64) -> FaultyWire {
        let FaultsConfig { rate, queue, ecn_min, ecn_max, .. } = config;
        FaultyWire {
            random: fastrand::Rng::with_seed(seed),
            random_marks: fastrand::Rng::with_seed(seed.rotate_left(32)),
            bottleneck: (rate != 0).then(|| Bottleneck::new(rate, queue, (ecn_min, ecn_max))),
            script: Script::new(config.drop.clone()),
            config,
            in_burst: false,
            ready: VecDeque::new(),
            held: Vec::new(),
            passed: 0,
            counters: Counters::default(),
        }
    }

    /// Takes a frame.
    pub(super) fn accept(&mut self, frame: Frame, now: Duration) {
        // What has left the bottleneck by now does not wait there.
        self.release(now);
        match &mut self.bottleneck {
            None => {
                self.suffer(frame, now);
                self.release(now);
            }
            Some(bottleneck) => match bottleneck.accept(bytes_of(&frame), now, self.random_marks.f64()) {
                Fate::Queued => {}
                Fate::Marked => self.counters.marked += 1,
                Fate::Lost => self.counters.overflowed += 1,
            },
        }
    }

    /// Lets the faults happen to a frame.
    fn suffer(&mut self, mut frame: Frame, now: Duration) {
        // All numbers are drawn for each frame. So one rate does not change what another rate
        // causes.
        let [loss, dup, reorder, corrupt, delay] = std::array::from_fn(|_| self.random.f64());
        let (bit, passed) = (self.random.u64(..), 1 + self.random.u64(..MAX_PASSED));
        if self.is_dropped(&frame) {
            self.counters.dropped += 1;
            return;
        }
        if self.is_lost(loss) {
            self.counters.lost += 1;
            return;
        }
        let config = &self.config;
        if corrupt < config.corrupt {
            frame = spoil(&frame, bit);
            self.counters.corrupted += 1;
        }
        let twin = (dup < config.dup).then(|| frame.to_heap());
        if delay < config.delay {
            self.counters.delayed += 1;
            let at = now + config.delay();
            self.held.push(DelayedFrame { after: u64::MAX, at, frame: frame.to_heap() });
        } else if reorder < config.reorder {
            self.counters.reordered += 1;
            let (after, at) = (self.passed + passed, now + config.patience());
            self.held.push(DelayedFrame { after, at, frame: frame.to_heap() });
        } else {
            self.pass(frame);
        }
        if let Some(twin) = twin {
            self.counters.duplicated += 1;
            self.pass(twin);
        }
    }

    /// Returns whether the plan wants a frame to be lost.
    fn is_dropped(&mut self, frame: &Frame) -> bool {
        if self.script.is_empty() {
            return false;
        }
        self.script.drops(&bytes_of(frame))
    }

    /// Returns whether the next frame is lost. `random` is from 0 to 1.
    ///
    /// Bursts are those of Gilbert's model: a state in which all is lost, and one in which nothing
    /// is, with constant probabilities of a change at each frame.
    fn is_lost(&mut self, random: f64) -> bool {
        let FaultsConfig { loss, burst, .. } = self.config;
        if burst == 1. {
            return random < loss;
        }
        self.in_burst = match self.in_burst {
            true => random >= 1. / burst,
            false => random < loss / (burst * (1. - loss)),
        };
        self.in_burst
    }

    fn pass(&mut self, frame: Frame) {
        self.passed += 1;
        self.ready.push_back(frame);
    }

    /// Lets frames go on that waited long enough, in the order of their arrival.
    pub(super) fn release(&mut self, now: Duration) {
        while let Some((at, frame)) = self.bottleneck.as_mut().and_then(|bottleneck| bottleneck.leave(now)) {
            self.suffer(frame, at);
        }
        let passed = self.passed;
        let due = |held: &DelayedFrame| held.after <= passed || held.at <= now;
        if !self.held.iter().any(due) {
            return;
        }
        for held in std::mem::take(&mut self.held) {
            if due(&held) { self.pass(held.frame) } else { self.held.push(held) }
        }
    }

    /// Returns when the next frame that waits is due.
    pub(super) fn next(&self) -> Option<Duration> {
        let waits = self.bottleneck.as_ref().and_then(Bottleneck::next);
        self.held.iter().map(|held| held.at).chain(waits).min()
    }

    /// Passes the counters on, under these names.
    pub(super) fn count(&self, names: [&'static str; COUNTERS], count: &mut dyn FnMut(&'static str, u64)) {
        let c = &self.counters;
        let faults = [c.lost, c.dropped, c.duplicated, c.reordered, c.corrupted, c.delayed];
        let values = faults.into_iter().chain([c.overflowed, c.marked]);
        names.into_iter().zip(values).for_each(|(name, value)| count(name, value));
    }
}

/// Returns the bytes of all pieces of a frame.
fn bytes_of(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(frame.total_len());
    frame.copy_to(&mut bytes);
    bytes
}

/// Returns a copy of the frame with one flipped bit.
fn spoil(frame: &Frame, bit: u64) -> Frame {
    let mut bytes = bytes_of(frame);
    if !bytes.is_empty() {
        let bit = (bit % (bytes.len() as u64 * 8)) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    Frame::new(bytes)
}
