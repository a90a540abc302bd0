//! What joins a backend to a wire.

/// The driver of backends' uplinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Uplink {
    /// Packet sockets by DPDK's driver.
    #[default]
    #[value(name = "net_af_packet")]
    AfPacket,
    /// Packet sockets by ours, over which segments of TCP go together.
    #[value(name = "net_packet")]
    Packet,
}

impl Uplink {
    /// The device over an interface, as `--uplink` takes it.
    pub fn over(self, interface: &str) -> String {
        match self {
            Self::AfPacket => format!("net_af_packet0,iface={interface}"),
            Self::Packet => format!("net_packet0,iface={interface}"),
        }
    }
}
