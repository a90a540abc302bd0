//! Parameters of DCQCN, the congestion control of RoCEv2, and of a sender that watches delays.
//!
//! Source: Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015. Names are
//! those of mlx5's parameters, which operators know.

use core::time::Duration;

/// The unit of fractions: what stays of alpha, and the first alpha.
pub const DCQCN_UNIT: u16 = 1024;

/// Parameters of DCQCN. Those that begin with `rp` are of senders, those with `np` of receivers.
///
/// Rates are in bytes a second. They count frames with all headers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Dcqcn {
    /// The rate of a QP at the first notification, and the highest rate: that of the link.
    pub rp_max_rate: u64,
    /// The lowest rate. Notifications, forged ones included, cannot make a QP slower.
    pub rp_min_rate: u64,
    /// By how much the target rate grows in a step of additive increase.
    pub rp_ai_rate: u64,
    /// By how much the target rate grows in a step of hyper increase.
    pub rp_hai_rate: u64,
    /// Time after which a rate grows by a step.
    pub rp_time_reset: Duration,
    /// Bytes after which a rate grows by a step.
    pub rp_byte_reset: u64,
    /// Steps of fast recovery, before a rate grows beyond what it was at the last notification.
    pub rp_threshold: u16,
    /// What stays of alpha in each period, in units of 1/[`DCQCN_UNIT`].
    pub rp_dce_tcp_g: u16,
    /// The period in which alpha falls, if no notification comes.
    pub rp_dce_tcp_rtt: Duration,
    /// The first alpha, in units of 1/[`DCQCN_UNIT`]. A rate falls by half of alpha.
    pub rp_initial_alpha_value: u16,
    /// The shortest time between two decreases of a rate.
    pub rp_rate_reduce_monitor_period: Duration,
    /// The shortest time between two notifications that a QP sends.
    pub np_min_time_between_cnps: Duration,
    /// Differentiated services code point of notifications, 0 to 63 (RFC 2474).
    pub np_cnp_dscp: u8,
    /// The longest round-trip time of a path without congestion. A longer one slows a QP down whose
    /// path has no switch that marks. `None`: round-trip times mean nothing.
    pub rp_delay_target: Option<Duration>,
}

/// Returns a rate of so many megabits a second in bytes a second.
const fn megabits(rate: u64) -> u64 {
    rate * 125_000
}

impl Default for Dcqcn {
    /// Returns the parameters of the paper, except that alpha follows faster, that a rate grows
    /// every 300 us, in steps of 40 and 400 Mb/s, and that it does not fall below 10 Mb/s.
    fn default() -> Dcqcn {
        Dcqcn {
            rp_max_rate: megabits(100_000),
            rp_min_rate: megabits(10),
            rp_ai_rate: megabits(40),
            rp_hai_rate: megabits(400),
            rp_time_reset: Duration::from_micros(300),
            rp_byte_reset: 10_000_000,
            rp_threshold: 5,
            rp_dce_tcp_g: DCQCN_UNIT - DCQCN_UNIT / 64,
            rp_dce_tcp_rtt: Duration::from_micros(55),
            rp_initial_alpha_value: DCQCN_UNIT,
            rp_rate_reduce_monitor_period: Duration::from_micros(50),
            np_min_time_between_cnps: Duration::from_micros(50),
            np_cnp_dscp: 48,
            rp_delay_target: None,
        }
    }
}

impl Dcqcn {
    /// Whether each parameter has a value with which rates fall, grow, and stay within their
    /// limits.
    pub fn is_valid(&self) -> bool {
        let rates = [self.rp_min_rate, self.rp_ai_rate, self.rp_hai_rate];
        let times = [self.rp_time_reset, self.rp_dce_tcp_rtt, self.rp_rate_reduce_monitor_period];
        let fractions = [self.rp_dce_tcp_g, self.rp_initial_alpha_value];
        rates.iter().all(|rate| (Self::LOWEST_RATE..=self.rp_max_rate).contains(rate))
            && self.rp_max_rate <= Self::HIGHEST_RATE
            && times.iter().all(|time| (Self::SHORTEST..=Self::LONGEST).contains(time))
            && self.np_min_time_between_cnps <= Self::LONGEST
            && fractions.iter().all(|part| *part <= DCQCN_UNIT)
            && self.rp_dce_tcp_g < DCQCN_UNIT
            && (1..=1000).contains(&self.rp_threshold)
            && self.rp_byte_reset >= 1000
            && self.np_cnp_dscp < 64
            && self.rp_delay_target.is_none_or(|time| (Self::SHORTEST..=Self::LONGEST).contains(&time))
    }

    /// The lowest rate that a parameter may be: 1 Mb/s.
    pub const LOWEST_RATE: u64 = megabits(1);
    /// The highest rate that a parameter may be: 1.6 Tb/s.
    pub const HIGHEST_RATE: u64 = megabits(1_600_000);
    /// The shortest time that a parameter may be, except the time between notifications.
    pub const SHORTEST: Duration = Duration::from_micros(1);
    /// The longest time that a parameter may be.
    pub const LONGEST: Duration = Duration::from_secs(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_impossible_values_are_not() {
        let good = Dcqcn::default();
        assert!(good.is_valid());
        let spoil: [fn(&mut Dcqcn); 11] = [
            |it| it.rp_min_rate = 0,
            |it| it.rp_min_rate = it.rp_max_rate + 1,
            |it| it.rp_max_rate = u64::MAX,
            |it| it.rp_hai_rate = u64::MAX,
            |it| it.rp_time_reset = Duration::ZERO,
            |it| it.rp_dce_tcp_rtt = Duration::from_secs(2),
            |it| it.rp_dce_tcp_g = DCQCN_UNIT,
            |it| it.rp_initial_alpha_value = DCQCN_UNIT + 1,
            |it| it.rp_threshold = 0,
            |it| it.np_cnp_dscp = 64,
            |it| it.rp_delay_target = Some(Duration::ZERO),
        ];
        for (which, spoil) in spoil.iter().enumerate() {
            let mut bad = good;
            spoil(&mut bad);
            assert!(!bad.is_valid(), "{which}");
        }
    }
}
