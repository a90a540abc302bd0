//! The configuration of a connection.

use core::time::Duration;
use serde::{Deserialize, Serialize};

/// How to probe whether a silent peer is alive (RFC 9293, 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepAlive {
    /// How long the peer is silent before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// The number of unanswered probes that ends the connection.
    pub probes: u8,
}

/// The configuration of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Maximum data of a segment without options, as announced to the peer: the MTU less 40 bytes
    /// with IPv4, less 60 with IPv6 (RFC 6691).
    pub mss: u16,
    /// Minimum segment size of path MTU discovery, and the MSS of a peer that announces none: 536
    /// with IPv4, 1220 with IPv6.
    pub min_mss: u16,
    /// The receive window in bytes, up to 1 GiB. It is constant, because no buffer stands behind
    /// it.
    pub window: u32,
    /// Maximum number of separate ranges of data beyond the first gap.
    ///
    /// Data that would add one more range is not taken. A full queue may lose every second segment.
    /// The limit exists because each arriving segment searches all ranges.
    pub max_kept: u16,
    /// Maximum number of outstanding segments. At this number nothing new is sent until some are
    /// acknowledged. An ACK may have to visit each of them, and the peer decides how short they
    /// are.
    #[serde(default = "max_outstanding")]
    pub max_outstanding: u16,
    /// Whether SACKs are offered and accepted (RFC 2018).
    pub sack: bool,
    /// Whether timestamps are offered and accepted (RFC 7323).
    pub timestamps: bool,
    /// Whether segments say that they are whole FPDUs, if both ends know the option
    /// ([`Arrival::is_whole`](crate::Arrival::is_whole)).
    #[serde(default)]
    pub fpdus: bool,
    /// The DS field of the connection's IP packets (RFC 2474). The two ECN bits are zero, because
    /// the connection is not ECN-capable (RFC 3168).
    #[serde(default)]
    pub traffic_class: u8,
    /// The initial congestion window in segments (RFC 6928).
    pub initial_window: u8,
    /// Whether a congestion window that was unused for an RTO restarts as the initial one (RFC
    /// 5681, 4.1).
    pub restart_after_idle: bool,
    /// Minimum retransmission timeout. RFC 6298 has 1 s, most hosts 200 ms; inside a rack 1 ms
    /// fits.
    pub min_rto: Duration,
    /// Maximum retransmission timeout, with its back-off (RFC 6298, 2.5).
    pub max_rto: Duration,
    /// The retransmission timeout before the first measurement (RFC 6298, 2.1).
    pub initial_rto: Duration,
    /// Maximum time that the peer delays an ACK (RFC 8985, 7.2).
    pub peer_ack_delay: Duration,
    /// Additional delay of tail loss probes after two round trips, for a peer that is not always
    /// awake. Linux has two ticks, RFC 8985 has none.
    pub probe_slack: Duration,
    /// Maximum delay of an ACK of this end, below 500 ms; zero for none (RFC 9293, 3.8.6.3).
    pub ack_delay: Duration,
    /// The number of unacknowledged segments at which an ACK is sent at once: 1 or 2.
    pub ack_every: u8,
    /// The connection ends if its data, or a probe of a closed window, has no answer for this time
    /// (R2 of RFC 9293, 3.8.3).
    pub timeout: Duration,
    /// The connection ends if it is not set up and has no answer for this time.
    pub connect_timeout: Duration,
    /// Whether and how a silent peer is probed.
    pub keep_alive: Option<KeepAlive>,
    /// The time in TIME-WAIT: twice the maximum segment lifetime.
    pub time_wait: Duration,
    /// Maximum silence of the peer in FIN-WAIT-2. A peer that never closes could otherwise hold the
    /// connection.
    pub fin_wait: Duration,
}

/// The daemon has at most 1 MiB unacknowledged. That is 740 segments with an MTU of 1500.
fn max_outstanding() -> u16 {
    768
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mss: 1460,
            min_mss: 536,
            window: 1 << 20,
            max_kept: 256,
            max_outstanding: max_outstanding(),
            sack: true,
            timestamps: true,
            fpdus: false,
            traffic_class: 0,
            initial_window: 10,
            restart_after_idle: true,
            min_rto: Duration::from_millis(200),
            max_rto: Duration::from_secs(60),
            initial_rto: Duration::from_secs(1),
            peer_ack_delay: Duration::from_millis(200),
            probe_slack: Duration::from_millis(2),
            ack_delay: Duration::from_millis(40),
            ack_every: 2,
            timeout: Duration::from_secs(100),
            connect_timeout: Duration::from_secs(180),
            keep_alive: None,
            time_wait: Duration::from_secs(60),
            fin_wait: Duration::from_secs(60),
        }
    }
}

impl Config {
    /// Returns the shift of the windows that this end announces (RFC 7323, 2.2).
    pub(crate) fn window_scale(&self) -> u8 {
        (0..14).find(|shift| self.window >> shift <= 0xffff).unwrap_or(14)
    }

    /// Returns the receive window that can be announced: at most 1 GiB.
    pub(crate) fn receive_window(&self) -> u64 {
        u64::from(self.window.min(1 << 30))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_scaled_as_little_as_possible() {
        let scale = |window| Config { window, ..Config::default() }.window_scale();
        assert_eq!(scale(0xffff), 0);
        assert_eq!(scale(0x1_0000), 1);
        assert_eq!(scale(1 << 20), 5);
        assert_eq!(scale(u32::MAX), 14);
    }
}
