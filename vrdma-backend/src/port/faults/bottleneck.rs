//! A bottleneck: a link with a rate, a queue before it, and marks of congestion.

use super::super::Frame;
use std::collections::VecDeque;
use std::time::Duration;
use vrdma_wire::ecn;

/// What became of a frame that came to the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It waits.
    Queued,
    /// It waits, and is marked.
    Marked,
    /// It is lost, because the queue is full.
    Lost,
}

/// A bottleneck. Frames leave it in the order in which they came.
#[derive(Debug)]
pub(super) struct Bottleneck {
    /// Bytes a second.
    rate: u64,
    /// Most bytes that wait.
    room: u64,
    /// Bytes that wait when marks begin, and when each frame is marked.
    marks: (u64, u64),
    /// Frames that wait, each with the time at which its last byte has left.
    queue: VecDeque<(Duration, Frame)>,
    /// Bytes of these frames.
    bytes: u64,
    /// When the last frame of the queue has left.
    busy_until: Duration,
    /// What is left of the division of its time by the rate.
    rest: u128,
}

impl Bottleneck {
    /// Returns a bottleneck that sends `rate` bytes a second, which is not 0.
    pub(super) fn new(rate: u64, room: u64, marks: (u64, u64)) -> Bottleneck {
        Bottleneck {
            rate,
            room,
            marks,
            queue: VecDeque::new(),
            bytes: 0,
            busy_until: Duration::ZERO,
            rest: 0,
        }
    }

    /// Takes the bytes of a frame. `random` is from 0 to 1 and decides about a mark.
    pub(super) fn accept(&mut self, mut frame: Vec<u8>, now: Duration, random: f64) -> Fate {
        let length = frame.len() as u64;
        // A frame that is longer than the queue goes through if nothing waits.
        if self.bytes + length > self.room && !self.queue.is_empty() {
            return Fate::Lost;
        }
        let is_marked = random < self.share() && ecn::mark(&mut frame);
        let (work, rate) = (u128::from(length) * 1_000_000_000 + self.rest, u128::from(self.rate));
        self.rest = work % rate;
        let time = Duration::from_nanos(u64::try_from(work / rate).unwrap_or(u64::MAX));
        self.busy_until = self.busy_until.max(now).saturating_add(time);
        self.bytes += length;
        self.queue.push_back((self.busy_until, Frame::new(frame)));
        if is_marked { Fate::Marked } else { Fate::Queued }
    }

    /// Returns the share of frames that are marked at the present length of the queue.
    fn share(&self) -> f64 {
        let (min, max) = self.marks;
        if max == 0 || self.bytes < min {
            0.
        } else if self.bytes >= max {
            1.
        } else {
            (self.bytes - min) as f64 / (max - min) as f64
        }
    }

    /// Returns the next frame that has left, and when it did.
    pub(super) fn leave(&mut self, now: Duration) -> Option<(Duration, Frame)> {
        self.next().filter(|at| *at <= now)?;
        let (at, frame) = self.queue.pop_front()?;
        self.bytes -= frame.total_len() as u64;
        Some((at, frame))
    }

    /// Returns when the next frame leaves.
    pub(super) fn next(&self) -> Option<Duration> {
        self.queue.front().map(|(at, _)| *at)
    }
}
