//! The quality of service of a guest: how much it gets while others want more, too.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;
use std::time::Duration;
use vrdma_transport::{Marks, RateLimit, RateLimits};

/// The settings of a guest that may change while it runs. Each is the key of
/// [`GuestConfig`](super::GuestConfig) of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is documented in GuestConfig")]
pub struct Qos {
    pub weight: Weight,
    pub tx_bytes: u64,
    pub rx_bytes: u64,
    pub tx_messages: u64,
    pub rx_messages: u64,
    pub burst_ms: u32,
    pub dscp: Option<u8>,
    pub pcp: Option<u8>,
}

impl Default for Qos {
    fn default() -> Qos {
        let weight = Weight::default();
        Qos {
            weight,
            tx_bytes: 0,
            rx_bytes: 0,
            tx_messages: 0,
            rx_messages: 0,
            burst_ms: 10,
            dscp: None,
            pcp: None,
        }
    }
}

impl Qos {
    /// Lowest rate in bytes. The longest piece that moves at once then takes a quarter of a second.
    pub const LEAST_BYTES: u64 = 1_000_000;
    /// Lowest rate in messages.
    pub const LEAST_MESSAGES: u64 = 100;
    /// Highest rate. It is beyond what any host moves.
    pub const MOST: u64 = 1_000_000_000_000;

    /// The keys, as the configuration has them.
    pub const KEYS: [&str; 8] =
        ["weight", "tx_bytes", "rx_bytes", "tx_messages", "rx_messages", "burst_ms", "dscp", "pcp"];

    /// Checks the values.
    ///
    /// # Errors
    /// One is out of range. The message begins with its key.
    pub fn check(&self) -> Result<()> {
        let weight = self.weight.get();
        ensure!(self.weight.is_possible(), "weight = {weight}: give a number from 1 to {}", Weight::MAX);
        for (key, rate, least) in [
            ("tx_bytes", self.tx_bytes, Qos::LEAST_BYTES),
            ("rx_bytes", self.rx_bytes, Qos::LEAST_BYTES),
            ("tx_messages", self.tx_messages, Qos::LEAST_MESSAGES),
            ("rx_messages", self.rx_messages, Qos::LEAST_MESSAGES),
        ] {
            ensure!(
                rate == 0 || (least..=Qos::MOST).contains(&rate),
                "{key} = {rate}: give a number from {least} to {}, or 0 for no limit",
                Qos::MOST
            );
        }
        let burst = self.burst_ms;
        ensure!((1..=1000).contains(&burst), "burst_ms = {burst}: give a number from 1 to 1000");
        for (key, mark, most) in [("dscp", self.dscp, 63), ("pcp", self.pcp, 7)] {
            if let Some(mark) = mark {
                ensure!(mark <= most, "{key} = {mark}: give a number from 0 to {most}");
            }
        }
        Ok(())
    }

    /// Returns the marks of its RoCE packets.
    pub fn marks(&self) -> Marks {
        Marks { dscp: self.dscp, pcp: self.pcp }
    }

    /// Returns the rates, as engine and switch take them.
    pub fn rates(&self) -> RateLimits {
        let limit = |bytes, messages| RateLimit {
            bytes: NonZeroU64::new(bytes),
            messages: NonZeroU64::new(messages),
            burst: Duration::from_millis(self.burst_ms.into()),
        };
        RateLimits { tx: limit(self.tx_bytes, self.tx_messages), rx: limit(self.rx_bytes, self.rx_messages) }
    }
}

/// A guest's part of everything that guests share: 1 to 100.
///
/// A guest of weight 3 gets three times what a guest of weight 1 gets, while both want more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Weight(u32);

impl Weight {
    /// The highest weight.
    pub const MAX: u32 = 100;

    /// Returns a weight, unless the number is out of range.
    pub fn new(weight: u32) -> Option<Weight> {
        let weight = Weight(weight);
        weight.is_possible().then_some(weight)
    }

    /// Returns the number, which [`Weight::is_possible`] once the configuration is checked.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Whether the number is in the range. One that was read from a file may not be.
    pub fn is_possible(self) -> bool {
        (1..=Weight::MAX).contains(&self.0)
    }
}

impl Default for Weight {
    fn default() -> Weight {
        Weight(1)
    }
}
