//! Devices as EAL names them.

use crate::nearest::nearest;
use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A device and its parameters: `net_af_packet0,iface=eth1`, or a PCI address, `0000:01:00.0`, with
/// parameters or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UplinkDevice {
    /// Address or name.
    pub name: String,
    /// Keys and values, in their order.
    pub parameters: Vec<(String, String)>,
}

/// Virtual drivers, and parameters of them: a mistyped name is told from one that others have made.
const DRIVERS: [(&str, &[&str]); 13] = [
    ("net_packet", &["iface"]),
    ("net_af_packet", &["iface", "qpairs", "blocksz", "framesz", "framecnt", "qdisc_bypass", "fanout_mode"]),
    (
        "net_af_xdp",
        &["iface", "start_queue", "queue_count", "shared_umem", "xdp_prog", "busy_budget", "force_copy"],
    ),
    (
        "net_memif",
        &["role", "id", "bsize", "rsize", "socket", "socket-abstract", "mac", "secret", "zero-copy"],
    ),
    (
        "net_virtio_user",
        &["path", "mac", "cq", "queue_size", "queues", "iface", "server", "mrg_rxbuf", "in_order", "speed"],
    ),
    ("net_vhost", &["iface", "queues", "client", "tso", "legacy-ol-flags"]),
    ("net_tap", &["iface", "remote", "mac", "persist"]),
    ("net_pcap", &["rx_pcap", "tx_pcap", "rx_iface", "tx_iface", "iface", "phy_mac", "infinite_rx"]),
    ("net_null", &["size", "copy", "no-rx"]),
    ("net_ring", &["nodeaction"]),
    ("net_bonding", &["mode", "slave", "member", "primary", "mac"]),
    ("net_tun", &["iface"]),
    ("net_failsafe", &["mac", "hotplug_poll"]),
];

impl UplinkDevice {
    /// What may be mistyped of it, and the name that is nearest; for who found that something is
    /// wrong, as there may be drivers and parameters of which we do not know.
    pub fn typo(&self) -> Option<String> {
        let driver = self.driver();
        if self.is_pci() {
            return None;
        }
        let Some((_, known)) = DRIVERS.iter().find(|(name, _)| *name == driver) else {
            let meant = nearest(driver, DRIVERS.iter().map(|(name, _)| *name))?;
            return Some(format!("there is no driver {driver}: did you mean {meant}?"));
        };
        let mut unknown = self.parameters.iter().filter(|(key, _)| !known.contains(&key.as_str()));
        unknown.find_map(|(key, _)| {
            let meant = nearest(key, known.iter().copied())?;
            Some(format!("{driver} has no parameter {key}: did you mean {meant}?"))
        })
    }

    /// Whether it is a PCI device, by its address: `[DOMAIN:]BUS:DEVICE.FUNCTION`.
    pub fn is_pci(&self) -> bool {
        let mut parts = self.name.rsplit(':');
        let hex = |text: &str, len| text.len() == len && text.bytes().all(|b| b.is_ascii_hexdigit());
        let slot = parts.next().and_then(|last| last.split_once('.'));
        slot.is_some_and(|(device, function)| hex(device, 2) && hex(function, 1))
            && parts.next().is_some_and(|bus| hex(bus, 2))
            && parts.next().is_none_or(|domain| (4..=8).contains(&domain.len()) && hex(domain, domain.len()))
            && parts.next().is_none()
    }

    /// The virtual driver's name: `net_ring` of `net_ring0`.
    pub fn driver(&self) -> &str {
        // Old names of drivers begin with `eth_` instead.
        self.name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_')
    }

    /// The value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.parameters.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// The network interface of this host that it drives along with the kernel.
    pub fn interface(&self) -> Option<&str> {
        if self.shares_interface() { self.get("iface") } else { None }
    }

    /// What makes no sense on any host.
    ///
    /// # Errors
    /// Says what to write instead.
    pub fn check(&self) -> Result<()> {
        if self.shares_interface() && self.interface().is_none() {
            match self.typo() {
                Some(typo) => bail!("uplink = {self}: {typo}"),
                None => bail!(
                    "uplink = {self}: the parameter iface is missing: write {},iface=INTERFACE",
                    self.name
                ),
            }
        }
        let other = self.parameters.iter().find(|(key, _)| key != "iface");
        if let Some((key, _)) = other.filter(|_| self.is_packet()) {
            bail!("uplink = {self}: {} has no parameter {key}: it has iface alone", self.driver());
        }
        Ok(())
    }

    /// What makes no sense on this host.
    ///
    /// # Errors
    /// Says what to write or do instead.
    pub fn check_host(&self) -> Result<()> {
        self.check()?;
        let name = &self.name;
        ensure!(
            !is_interface(name),
            "{name} is an interface of the kernel, not a device of DPDK: write net_packet0,iface={name}"
        );
        if self.shares_interface() {
            let socket = rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, None);
            ensure!(
                !matches!(socket, Err(Errno::PERM)),
                "{name}: packet sockets need CAP_NET_RAW: start the daemon as root or with that capability"
            );
        }
        Ok(())
    }

    /// Whether it connects to a memif server, which is there or not.
    pub fn is_memif_client(&self) -> bool {
        self.driver() == "net_memif" && !matches!(self.get("role"), Some("server" | "master"))
    }

    /// Whether it is an interface that the kernel keeps.
    fn shares_interface(&self) -> bool {
        self.is_packet() || self.is_af_packet() || self.is_af_xdp()
    }

    /// Whether it is a packet socket of ours, of which DPDK does not know.
    pub fn is_packet(&self) -> bool {
        self.driver() == "net_packet"
    }

    /// Whether it is a packet socket of DPDK's.
    pub fn is_af_packet(&self) -> bool {
        matches!(self.driver(), "net_af_packet" | "eth_af_packet")
    }

    /// Whether it is an XDP socket.
    pub fn is_af_xdp(&self) -> bool {
        matches!(self.driver(), "net_af_xdp" | "eth_af_xdp")
    }

    /// Whether its driver takes frames where they lie, with this process's own processor: then they
    /// may carry memory that neither an IOMMU nor another process knows. Drivers that copy each
    /// frame by themselves (packet sockets, memif, vhost, pcap) gain nothing by it: a payload that
    /// is not copied into its frame is copied to take its ICRC.
    pub fn takes_in_place(&self) -> bool {
        ["net_ring", "net_null", "net_tap"].contains(&self.driver())
    }

    /// Whether it may be asked for several queue pairs. (Of a memif or vhost device the peer
    /// decides which are used.)
    pub fn takes_queues(&self) -> bool {
        self.is_pci() || self.is_af_packet() || self.driver() == "net_tap"
    }

    /// Whether it takes frames of any length, although its driver claims to take the usual ones
    /// only (1518 bytes).
    pub fn is_modest(&self) -> bool {
        self.is_af_packet() || self.driver() == "net_memif"
    }

    /// This device, with what its driver needs for frames of `max_frame` bytes where nothing was
    /// said.
    pub fn with_rings_for(&self, max_frame: usize) -> UplinkDevice {
        let mut device = self.clone();
        if self.is_af_packet() {
            device.add_packet_rings(max_frame);
        } else if self.driver() == "net_memif" && self.get("bsize").is_none() {
            // DPDK 22.11 overruns the ring with a frame that goes through several buffers and finds
            // too few of them free.
            let buffer = (max_frame + 1).next_multiple_of(64).max(2048);
            device.parameters.push(("bsize".into(), buffer.to_string()));
        }
        device
    }

    /// The driver of packet sockets lays frame `i` at `i * framesz`, so `blocksz` has to be a
    /// multiple of `framesz` (and of the page size, for the kernel), and `framecnt` one of the
    /// frames of a block. A frame loses up to 80 bytes to the kernel's header (tpacket2_hdr).
    fn add_packet_rings(&mut self, max_frame: usize) {
        if ["framesz", "blocksz", "framecnt"].iter().any(|key| self.get(key).is_some()) {
            return;
        }
        let frame = (max_frame + Self::AF_PACKET_HEADER + 1).next_power_of_two().max(2048);
        for (key, value) in [("framesz", frame), ("blocksz", frame.max(65536)), ("framecnt", 1024)] {
            self.parameters.push((key.into(), value.to_string()));
        }
    }

    /// Bytes that the kernel's header takes of a frame of a packet socket's ring, at most.
    pub const AF_PACKET_HEADER: usize = 80;
}

/// Whether the kernel has an interface of this name.
fn is_interface(name: &str) -> bool {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None);
    socket.is_ok_and(|socket| rustix::net::netdevice::name_to_index(socket, name).is_ok())
}

impl FromStr for UplinkDevice {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<UplinkDevice> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default().trim().to_owned();
        ensure!(
            !name.is_empty(),
            "uplink: no device is named: give a PCI address, or a driver like net_packet0,iface=eth1"
        );
        let parameters = parts.filter(|part| !part.is_empty()).map(|part| {
            let (key, value) = part.split_once('=').with_context(|| format!("'{part}' is not KEY=VALUE"))?;
            Ok((key.to_owned(), value.to_owned()))
        });
        Ok(UplinkDevice { name, parameters: parameters.collect::<Result<_>>()? })
    }
}

impl fmt::Display for UplinkDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.parameters.iter().try_for_each(|(key, value)| write!(f, ",{key}={value}"))
    }
}

impl Serialize for UplinkDevice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UplinkDevice {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<UplinkDevice, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(text: &str) -> UplinkDevice {
        text.parse().unwrap()
    }

    #[test]
    fn pci_addresses_are_told_from_names() {
        for yes in ["0000:01:00.0", "01:00.1", "0000:ff:1f.7,txq=1", "10000:e1:00.0"] {
            assert!(device(yes).is_pci(), "{yes}");
        }
        for no in [
            "net_ring0",
            "net_af_packet0,iface=eth0",
            "1:00.0",
            "00:00",
            "0000:01:00",
            "x:01:00.0",
            "0:0000:01:00.0",
        ] {
            assert!(!device(no).is_pci(), "{no}");
        }
        assert!("".parse::<UplinkDevice>().is_err() && "net_ring0,what".parse::<UplinkDevice>().is_err());
    }

    #[test]
    fn what_was_said_stays() {
        let text = "net_af_packet0,iface=veth0,qpairs=1";
        let plain = device(text);
        assert_eq!((plain.driver(), plain.interface()), ("net_af_packet", Some("veth0")));
        assert_eq!(plain.to_string(), text);
        assert_eq!(
            plain.with_rings_for(9018).to_string(),
            format!("{text},framesz=16384,blocksz=65536,framecnt=1024")
        );
        let said = device("net_af_packet0,iface=veth0,framesz=4096");
        assert_eq!(said.with_rings_for(9018), said);
        let memif = device("net_memif0,role=client");
        assert_eq!(memif.with_rings_for(1518).get("bsize"), Some("2048"));
        assert_eq!(memif.with_rings_for(9018).get("bsize"), Some("9024"));
        let said = device("net_memif0,bsize=1024");
        assert_eq!(said.with_rings_for(9018), said);
        let other = device("net_ring_7");
        assert_eq!(
            (other.driver(), other.interface(), other.with_rings_for(9018)),
            ("net_ring", None, other.clone())
        );
    }

    /// The rules of the driver and of the kernel: see [`UplinkDevice::with_rings_for`].
    #[test]
    fn rings_obey_the_rules_for_every_frame() {
        for max_frame in 64..=9216 {
            let device = device("net_af_packet0,iface=x").with_rings_for(max_frame);
            let number = |key| device.get(key).unwrap().parse::<usize>().unwrap();
            let (frame, block, count) = (number("framesz"), number("blocksz"), number("framecnt"));
            assert!(
                frame - UplinkDevice::AF_PACKET_HEADER > max_frame && frame.is_multiple_of(16),
                "{max_frame}"
            );
            assert!(block.is_multiple_of(frame) && block.is_multiple_of(4096), "{max_frame}");
            assert!(count.is_multiple_of(block / frame), "{max_frame}");
        }
    }
}
