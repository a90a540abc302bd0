//! What a connection is told to be.

use core::time::Duration;
use serde::{Deserialize, Serialize};

/// How to ask a silent peer whether it is there (RFC 9293, 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepAlive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// So many probes without an answer end the connection.
    pub probes: u8,
}

/// What a connection is told to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Most data of a segment, without any options: the MTU less 40 bytes with IPv4, less 60 with
    /// IPv6 (RFC 6691). It is what the peer is told.
    pub mss: u16,
    /// Least that path MTU discovery may take it to, and what a peer takes that does not say: 536
    /// with IPv4, 1220 with IPv6.
    pub min_mss: u16,
    /// The receive window in bytes, up to 1 GiB. It is as large whatever arrives: no buffer stands
    /// behind it.
    pub window: u32,
    /// Most stretches of data beyond holes; what would be one more is not taken. A full queue may
    /// lose every other segment, and each that arrives looks at all stretches.
    pub max_kept: u16,
    /// Most segments that are outstanding: then nothing new is sent until some are acknowledged. An
    /// acknowledge may have to look at each of them, and a peer says how short they are.
    #[serde(default = "max_outstanding")]
    pub max_outstanding: u16,
    /// Whether SACKs are offered and accepted (RFC 2018).
    pub sack: bool,
    /// Whether timestamps are offered and accepted (RFC 7323).
    pub timestamps: bool,
    /// Whether segments say that they are whole FPDUs, where both ends know of it
    /// ([`Arrival::is_whole`](crate::Arrival::is_whole)).
    #[serde(default)]
    pub fpdus: bool,
    /// The DS field of its IP packets (RFC 2474); the two bits of ECN are zero (RFC 3168: it is not
    /// ECN-capable).
    #[serde(default)]
    pub traffic_class: u8,
    /// Segments of the initial congestion window (RFC 6928).
    pub initial_window: u8,
    /// A congestion window that was not used for an RTO starts again as the initial one (RFC 5681,
    /// 4.1).
    pub restart_after_idle: bool,
    /// Least retransmission timeout. RFC 6298 has 1 s, most hosts 200 ms; inside a rack 1 ms.
    pub min_rto: Duration,
    /// Most of it, with its doublings (RFC 6298, 2.5).
    pub max_rto: Duration,
    /// Retransmission timeout before the first measurement (RFC 6298, 2.1).
    pub initial_rto: Duration,
    /// Longest time that a peer delays an acknowledge (RFC 8985, 7.2).
    pub peer_ack_delay: Duration,
    /// What the tail is probed later than after two round trips, for a peer that is not always
    /// awake. (Linux has two ticks, RFC 8985 has none.)
    pub probe_slack: Duration,
    /// Longest time that an acknowledge is delayed here, below 500 ms; zero for never (RFC 9293,
    /// 3.8.6.3).
    pub ack_delay: Duration,
    /// So many segments are acknowledged at once: 1 or 2.
    pub ack_every: u8,
    /// A connection whose data, or probe of a closed window, has had no answer for so long ends (R2
    /// of RFC 9293, 3.8.3).
    pub timeout: Duration,
    /// The same while it is set up.
    pub connect_timeout: Duration,
    /// Whether and how a silent peer is asked.
    pub keep_alive: Option<KeepAlive>,
    /// Time in TIME-WAIT: twice the maximum segment lifetime.
    pub time_wait: Duration,
    /// Longest silence in FIN-WAIT-2, where a peer that never closes could keep us.
    pub fin_wait: Duration,
}

/// 1 MiB, which the daemon has unacknowledged at most, are 740 of those segments that fit an MTU of
/// 1500.
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
    /// Shift of the windows that this end announces (RFC 7323, 2.2).
    pub(crate) fn window_scale(&self) -> u8 {
        (0..14).find(|shift| self.window >> shift <= 0xffff).unwrap_or(14)
    }

    /// The receive window that can be announced: at most 1 GiB.
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
