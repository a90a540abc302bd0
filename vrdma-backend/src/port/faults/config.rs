//! Keys of the faults.

use super::script::PlannedLoss;
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The largest integer of TOML.
const MOST: u64 = i64::MAX as u64;

/// How often each fault happens. Rates are from 0 to 1 and apply to each direction.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultsConfig {
    /// Rate of frames that are lost.
    pub loss: f64,
    /// Mean number of frames that are lost one after the other.
    ///
    /// The rate of all losses stays [`FaultsConfig::loss`]. With 1, each frame is lost or not,
    /// whatever happened to the one before.
    pub burst: f64,
    /// Frames that are lost by plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drop: Vec<PlannedLoss>,
    /// Rate of frames that arrive twice.
    pub dup: f64,
    /// Rate of frames that later ones overtake.
    pub reorder: f64,
    /// Longest time that such a frame waits for others to overtake it, in microseconds.
    pub reorder_us: u64,
    /// Rate of frames with one flipped bit.
    pub corrupt: f64,
    /// Rate of frames that arrive later by [`FaultsConfig::delay_us`].
    pub delay: f64,
    /// The delay of those frames, in microseconds.
    pub delay_us: u64,
    /// Bytes that the bottleneck sends in a second; 0 if there is none.
    pub rate: u64,
    /// Bytes that wait at the bottleneck before further frames are lost.
    pub queue: u64,
    /// Bytes that wait at the bottleneck before frames are marked; see [`FaultsConfig::ecn_max`].
    pub ecn_min: u64,
    /// Bytes that wait at the bottleneck when each frame is marked; 0: none is.
    ///
    /// In between, the share of marked frames grows with the queue. Only frames whose IP header
    /// says ECT or CE are marked (RFC 3168).
    pub ecn_max: u64,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The direction in which faults happen.
    pub dir: Direction,
}

/// The frames that have faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Received frames.
    Rx,
    /// Sent frames.
    Tx,
    /// All frames.
    Both,
}

impl Default for FaultsConfig {
    fn default() -> FaultsConfig {
        FaultsConfig {
            loss: 0.,
            burst: 1.,
            drop: Vec::new(),
            dup: 0.,
            reorder: 0.,
            reorder_us: 2000,
            corrupt: 0.,
            delay: 0.,
            delay_us: 1000,
            rate: 0,
            queue: 1 << 18,
            ecn_min: 0,
            ecn_max: 0,
            seed: 1,
            dir: Direction::Both,
        }
    }
}

impl FaultsConfig {
    /// Checks that all rates are rates, that other numbers fit into a configuration file, and that
    /// keys that belong together do not contradict each other.
    ///
    /// # Errors
    /// One does not. The error names it.
    pub fn check(&self) -> Result<()> {
        let rates = [
            ("loss", self.loss),
            ("dup", self.dup),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
            ("delay", self.delay),
        ];
        for (name, rate) in rates {
            ensure!((0. ..=1.).contains(&rate), "faults.{name} = {rate}: this is no rate from 0 to 1");
        }
        for (name, number) in [
            ("reorder_us", self.reorder_us),
            ("delay_us", self.delay_us),
            ("rate", self.rate),
            ("queue", self.queue),
            ("ecn_min", self.ecn_min),
            ("ecn_max", self.ecn_max),
            ("seed", self.seed),
        ] {
            ensure!(number <= MOST, "faults.{name} = {number}: give a number from 0 to {MOST}");
        }
        let burst = self.burst;
        ensure!((1. ..=1e6).contains(&burst), "faults.burst = {burst}: give a number from 1 to 1000000");
        // More cannot be lost if a frame between two bursts arrives.
        let most = burst / (burst + 1.);
        ensure!(
            burst == 1. || self.loss <= most,
            "faults.loss = {}: with bursts of {burst} frames, at most {most:.3} of all are lost",
            self.loss
        );
        let Self { ecn_min, ecn_max, .. } = self;
        ensure!(ecn_min <= ecn_max, "faults.ecn_min = {ecn_min}: it is more than ecn_max, {ecn_max}");
        ensure!(
            *ecn_max == 0 || self.rate != 0,
            "faults.ecn_max = {ecn_max}: without a bottleneck nothing waits; give its rate, too"
        );
        Ok(())
    }

    /// Returns the delay of late frames.
    pub(super) fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us)
    }

    /// Returns how long a reordered frame waits at most.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_micros(self.reorder_us)
    }
}
