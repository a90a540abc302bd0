//! Congestion control: the keys of `[congestion]`.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use vrdma_transport::Dcqcn;

/// A megabit a second in bytes a second.
pub(super) const MEGABIT: u64 = 125_000;

/// How RoCE connections react to congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CongestionMode {
    /// Packets say that their ends understand marks of switches. Marks slow the sender down.
    #[default]
    Dcqcn,
    /// As before. Where no switch marks, long round-trip times slow the sender down.
    Delay,
    /// They do not react, and packets have the marks that guests ask for.
    Off,
}

/// Congestion control: the keys of `[congestion]`, by the names of mlx5's parameters.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, rename = "Congestion")]
pub struct Congestion {
    /// How connections react.
    pub mode: CongestionMode,
    /// Highest rate of a queue pair, and its rate at the first notification, in Mb/s; 0: that of
    /// the uplink.
    pub rp_max_rate: u64,
    /// Lowest rate in Mb/s.
    pub rp_min_rate: u64,
    /// Step of additive increase in Mb/s.
    pub rp_ai_rate: u64,
    /// Step of hyper increase in Mb/s.
    pub rp_hai_rate: u64,
    /// Microseconds between two steps.
    pub rp_time_reset: u64,
    /// Bytes between two steps.
    pub rp_byte_reset: u64,
    /// Steps of fast recovery.
    pub rp_threshold: u16,
    /// What stays of alpha in a period, in 1/1024.
    pub rp_dce_tcp_g: u16,
    /// The period of alpha in microseconds.
    pub rp_dce_tcp_rtt: u64,
    /// The first alpha, in 1/1024.
    pub rp_initial_alpha_value: u16,
    /// Shortest time between two decreases in microseconds.
    pub rp_rate_reduce_monitor_period: u64,
    /// Round-trip time beyond which the path counts as congested, in microseconds, with `mode =
    /// "delay"`.
    pub rp_delay_target: u64,
    /// Shortest time between two notifications of a queue pair in microseconds.
    pub np_min_time_between_cnps: u64,
    /// DSCP of notifications.
    pub np_cnp_dscp: u8,
}

impl Default for Congestion {
    fn default() -> Self {
        let usual = Dcqcn::default();
        let micros = |time: Duration| time.as_micros() as u64;
        Congestion {
            mode: CongestionMode::default(),
            rp_max_rate: 0,
            rp_min_rate: usual.rp_min_rate / MEGABIT,
            rp_ai_rate: usual.rp_ai_rate / MEGABIT,
            rp_hai_rate: usual.rp_hai_rate / MEGABIT,
            rp_time_reset: micros(usual.rp_time_reset),
            rp_byte_reset: usual.rp_byte_reset,
            rp_threshold: usual.rp_threshold,
            rp_dce_tcp_g: usual.rp_dce_tcp_g,
            rp_dce_tcp_rtt: micros(usual.rp_dce_tcp_rtt),
            rp_initial_alpha_value: usual.rp_initial_alpha_value,
            rp_rate_reduce_monitor_period: micros(usual.rp_rate_reduce_monitor_period),
            rp_delay_target: 500,
            np_min_time_between_cnps: micros(usual.np_min_time_between_cnps),
            np_cnp_dscp: usual.np_cnp_dscp,
        }
    }
}

impl Congestion {
    /// Returns the parameters for a link of this speed in Mb/s; `None` if congestion control is
    /// off.
    ///
    /// A link that is slower than the lowest rate counts as one of the lowest rate.
    pub fn parameters(&self, speed: u32) -> Option<Dcqcn> {
        if self.mode == CongestionMode::Off {
            return None;
        }
        let highest = if self.rp_max_rate == 0 { u64::from(speed) } else { self.rp_max_rate };
        let highest = highest.clamp(self.rp_min_rate, Dcqcn::HIGHEST_RATE / MEGABIT);
        let step = |rate: u64| rate.min(highest) * MEGABIT;
        Some(Dcqcn {
            rp_max_rate: highest * MEGABIT,
            rp_min_rate: self.rp_min_rate * MEGABIT,
            rp_ai_rate: step(self.rp_ai_rate),
            rp_hai_rate: step(self.rp_hai_rate),
            rp_time_reset: Duration::from_micros(self.rp_time_reset),
            rp_byte_reset: self.rp_byte_reset,
            rp_threshold: self.rp_threshold,
            rp_dce_tcp_g: self.rp_dce_tcp_g,
            rp_dce_tcp_rtt: Duration::from_micros(self.rp_dce_tcp_rtt),
            rp_initial_alpha_value: self.rp_initial_alpha_value,
            rp_rate_reduce_monitor_period: Duration::from_micros(self.rp_rate_reduce_monitor_period),
            np_min_time_between_cnps: Duration::from_micros(self.np_min_time_between_cnps),
            np_cnp_dscp: self.np_cnp_dscp,
            rp_delay_target: (self.mode == CongestionMode::Delay)
                .then(|| Duration::from_micros(self.rp_delay_target)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_engine_and_follow_the_speed_of_the_link() {
        let usual = Congestion::default();
        assert_eq!(usual.parameters(100_000), Some(Dcqcn::default()));
        for speed in [0, 1, 10, 100, 10_000, 400_000, u32::MAX] {
            let parameters = usual.parameters(speed).unwrap();
            assert!(parameters.is_valid(), "{speed}: {parameters:?}");
            let expected = u64::from(speed).clamp(10, 1_600_000) * MEGABIT;
            assert_eq!(parameters.rp_max_rate, expected);
        }
        let fixed = Congestion { rp_max_rate: 25_000, ..usual.clone() };
        assert_eq!(fixed.parameters(10).unwrap().rp_max_rate, 25_000 * MEGABIT);
        let delay = Congestion { mode: CongestionMode::Delay, ..usual.clone() }.parameters(100_000);
        let target = Some(Duration::from_micros(500));
        assert_eq!(delay, Some(Dcqcn { rp_delay_target: target, ..Dcqcn::default() }));
        assert_eq!(Congestion { mode: CongestionMode::Off, ..usual }.parameters(10_000), None);
    }
}
