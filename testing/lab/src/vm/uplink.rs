//! The device by which a backend is attached to a wire.

/// The driver of backends' uplinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Uplink {
    /// Packet sockets, by DPDK's driver.
    #[default]
    #[value(name = "net_af_packet")]
    AfPacket,
    /// Packet sockets, by vrdma's own driver, which merges segments of TCP.
    #[value(name = "net_packet")]
    Packet,
}

impl Uplink {
    /// Returns the device on an interface, as an argument of `--uplink`.
    pub fn over(self, interface: &str) -> String {
        match self {
            Self::AfPacket => format!("net_af_packet0,iface={interface}"),
            Self::Packet => format!("net_packet0,iface={interface}"),
        }
    }
}
