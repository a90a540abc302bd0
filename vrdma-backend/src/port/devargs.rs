//! Uplink devices, named as DPDK's EAL names them.

use crate::nearest::nearest;
use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A device and its parameters.
///
/// Examples are `net_af_packet0,iface=eth1`, and a PCI address: `0000:01:00.0`. A PCI address may
/// have parameters too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UplinkDevice {
    /// The PCI address, or the name of a virtual device.
    pub name: String,
    /// Keys and values, in the order in which they were given.
    pub parameters: Vec<(String, String)>,
}

/// Virtual drivers that are known here, each with the parameters that are known.
///
/// The list helps to find typing errors. Third parties may have other drivers and parameters.
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
    /// Guesses which name or parameter was mistyped, and what was meant.
    ///
    /// The caller has found an error already, because unknown drivers and parameters may exist.
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

    /// Whether it is a PCI device. Its address has the form `[DOMAIN:]BUS:DEVICE.FUNCTION`.
    pub fn is_pci(&self) -> bool {
        let mut parts = self.name.rsplit(':');
        let hex = |text: &str, len| text.len() == len && text.bytes().all(|b| b.is_ascii_hexdigit());
        let slot = parts.next().and_then(|last| last.split_once('.'));
        slot.is_some_and(|(device, function)| hex(device, 2) && hex(function, 1))
            && parts.next().is_some_and(|bus| hex(bus, 2))
            && parts.next().is_none_or(|domain| (4..=8).contains(&domain.len()) && hex(domain, domain.len()))
            && parts.next().is_none()
    }

    /// Returns the name of the virtual driver: `net_ring` for `net_ring0`.
    pub fn driver(&self) -> &str {
        // Some drivers have older names, which begin with `eth_` instead.
        self.name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_')
    }

    /// Returns the value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.parameters.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// Returns the name of the host's network interface that the device shares with the kernel.
    pub fn interface(&self) -> Option<&str> {
        if self.shares_interface() { self.get("iface") } else { None }
    }

    /// Checks what does not depend on the host.
    ///
    /// # Errors
    /// The device makes no sense on any host. The error says what to write instead.
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

    /// Checks whether the device makes sense on this host.
    ///
    /// # Errors
    /// It does not. The error says what to write or do instead.
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

    /// Whether it is a memif client. Its server may be absent.
    pub fn is_memif_client(&self) -> bool {
        self.driver() == "net_memif" && !matches!(self.get("role"), Some("server" | "master"))
    }

    /// Whether the device uses an interface that the kernel also uses.
    fn shares_interface(&self) -> bool {
        self.is_packet() || self.is_af_packet() || self.is_af_xdp()
    }

    /// Whether it is a packet socket that this crate drives. DPDK does not know this driver.
    pub fn is_packet(&self) -> bool {
        self.driver() == "net_packet"
    }

    /// Whether it is a packet socket that DPDK drives.
    pub fn is_af_packet(&self) -> bool {
        matches!(self.driver(), "net_af_packet" | "eth_af_packet")
    }

    /// Whether it is an XDP socket.
    pub fn is_af_xdp(&self) -> bool {
        matches!(self.driver(), "net_af_xdp" | "eth_af_xdp")
    }

    /// Whether its driver reads frames in place, with a processor that runs this process.
    ///
    /// Such frames may carry memory that neither an IOMMU nor another process knows. Drivers that
    /// copy each frame themselves (packet sockets, memif, vhost, pcap) gain nothing from that. A
    /// payload that is not copied into its frame is copied anyway, to compute its ICRC.
    pub fn takes_in_place(&self) -> bool {
        ["net_ring", "net_null", "net_tap"].contains(&self.driver())
    }

    /// Whether several queue pairs may be requested. (For a memif or vhost device, the peer decides
    /// which queue pairs are used.)
    pub fn takes_queues(&self) -> bool {
        self.is_pci() || self.is_af_packet() || self.driver() == "net_tap"
    }

    /// Whether the device takes frames of any length, although its driver reports the usual limit
    /// (1518 bytes).
    pub fn is_modest(&self) -> bool {
        self.is_af_packet() || self.driver() == "net_memif"
    }

    /// Returns the device with the parameters that its driver needs for frames of `max_frame`
    /// bytes.
    ///
    /// Parameters that were given are kept.
    pub fn with_rings_for(&self, max_frame: usize) -> UplinkDevice {
        let mut device = self.clone();
        if self.is_af_packet() {
            device.add_packet_rings(max_frame);
        } else if self.driver() == "net_memif" && self.get("bsize").is_none() {
            // DPDK 22.11 overruns the ring if a frame needs several buffers and too few are free.
            let buffer = (max_frame + 1).next_multiple_of(64).max(2048);
            device.parameters.push(("bsize".into(), buffer.to_string()));
        }
        device
    }

    /// Adds the ring parameters of DPDK's packet sockets.
    ///
    /// The driver puts frame `i` at `i * framesz`. So `blocksz` has to be a multiple of `framesz`,
    /// and of the page size for the kernel. `framecnt` has to be a multiple of the number of frames
    /// in a block. The kernel's header (`tpacket2_hdr`) takes up to 80 bytes of each frame.
    fn add_packet_rings(&mut self, max_frame: usize) {
        if ["framesz", "blocksz", "framecnt"].iter().any(|key| self.get(key).is_some()) {
            return;
        }
        let frame = (max_frame + Self::AF_PACKET_HEADER + 1).next_power_of_two().max(2048);
        for (key, value) in [("framesz", frame), ("blocksz", frame.max(65536)), ("framecnt", 1024)] {
            self.parameters.push((key.into(), value.to_string()));
        }
    }

    /// The most bytes that the kernel's header takes in a frame of a packet socket's ring.
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

    /// Checks the rules of the driver and the kernel. [`UplinkDevice::with_rings_for`] obeys them.
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
