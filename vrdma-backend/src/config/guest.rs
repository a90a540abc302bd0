//! A guest: the keys of `[[guest]]` and of `--guest`.

use super::own_limits::OwnLimits;
use super::place::{PlaceKey, place_of};
use super::words::{self, HostAddress, list, numbers, word};
use super::{Descriptor, MeetingPlace, Qos, Tcp, User, Weight};
use crate::allowed::{AllowedGid, Vlans};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use vrdma_wire::num::{Gid, Mac, VlanId};

/// A guest. A key that takes several values has two names, in the singular and in the plural.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GuestConfig {
    /// Name in messages and counters.
    pub name: String,
    /// Socket to which its VMM connects for the RDMA function. Without it, `fd` and `connect` there
    /// is no such function.
    pub socket: Option<PathBuf>,
    /// Instead of `socket`: a descriptor that the daemon inherits.
    #[serde(default)]
    pub fd: Option<Descriptor>,
    /// Instead of `socket`: the socket at which its VMM listens.
    #[serde(default)]
    pub connect: Option<PathBuf>,
    /// Socket to which its VMM connects for a second RDMA function, for iWARP.
    ///
    /// It is given with `transport = "both"`.
    #[serde(default)]
    pub iwarp: Option<PathBuf>,
    /// Instead of `iwarp`: a descriptor that the daemon inherits.
    #[serde(default)]
    pub iwarp_fd: Option<Descriptor>,
    /// Instead of `iwarp`: the socket at which its VMM listens.
    #[serde(default)]
    pub iwarp_connect: Option<PathBuf>,
    /// Socket to which its VMM connects for the Ethernet function. Without it, `net_fd` and
    /// `net_connect` there is no such function.
    pub net: Option<PathBuf>,
    /// Instead of `net`: a descriptor that the daemon inherits.
    #[serde(default)]
    pub net_fd: Option<Descriptor>,
    /// Instead of `net`: the socket at which its VMM listens.
    #[serde(default)]
    pub net_connect: Option<PathBuf>,
    /// Users whose processes may connect to its sockets. If empty, the sockets' mode alone decides.
    #[serde(default, with = "list", alias = "user")]
    pub users: Vec<User>,
    /// Its MAC address.
    #[serde(with = "word")]
    pub mac: Mac,
    /// The transport of its RDMA function.
    #[serde(default)]
    pub transport: Transport,
    /// The TCP that iWARP uses.
    #[serde(default)]
    pub tcp: Option<Tcp>,
    /// Addresses of this host that belong to the guest, for iWARP over the kernel's TCP.
    #[serde(default, with = "list", alias = "host_address")]
    pub host_addresses: Vec<HostAddress>,
    /// Addresses that it may use as GIDs, in addition to the link-local one of its MAC address.
    ///
    /// Only a guest that is alone on the host may leave them out, and may then use any address.
    #[serde(default, with = "list", alias = "gid")]
    pub gids: Vec<AllowedGid>,
    /// Whether it may use any address that is not among the `gids` of another guest.
    #[serde(default)]
    pub any_gid: bool,
    /// VLANs of which it is a member, 1 to 4094.
    #[serde(default, deserialize_with = "numbers", alias = "vlan")]
    pub vlans: Vec<u16>,
    /// Whether it may use untagged frames.
    #[serde(default = "yes")]
    pub untagged: bool,
    /// Whether it is a member of every VLAN. Its frames may then have several tags.
    #[serde(default)]
    pub any_vlan: bool,
    /// Number of the worker that serves it, from 0 on. Without it, a worker with few guests is
    /// chosen.
    #[serde(default)]
    pub worker: Option<u16>,
    /// Other MAC addresses from which its Ethernet function may send.
    #[serde(default, with = "list", alias = "extra_mac")]
    pub extra_macs: Vec<Mac>,
    /// Whether its Ethernet function may send from any MAC address that is no other guest's.
    #[serde(default)]
    pub any_mac: bool,
    /// Its part of everything that guests share, beside the weights of others.
    #[serde(default)]
    pub weight: Weight,
    /// Bytes in a second that each of its functions may send; 0: any number.
    #[serde(default)]
    pub tx_bytes: u64,
    /// Bytes in a second that each of its functions may receive; 0: any number.
    #[serde(default)]
    pub rx_bytes: u64,
    /// Messages, or Ethernet frames, in a second that each of its functions may send; 0: any
    /// number.
    #[serde(default)]
    pub tx_messages: u64,
    /// Messages, or Ethernet frames, in a second that each of its functions may receive; 0: any
    /// number.
    #[serde(default)]
    pub rx_messages: u64,
    /// Milliseconds for which it may save up what these rates allow.
    #[serde(default = "burst_ms")]
    pub burst_ms: u32,
    /// DSCP of its RoCE packets, instead of what programs ask for.
    pub dscp: Option<u8>,
    /// Priority of its RoCE packets in VLANs, instead of what programs ask for.
    pub pcp: Option<u8>,
    /// Its own limits, instead of those of `[limits]`.
    #[serde(default, skip_serializing_if = "OwnLimits::is_empty")]
    pub limits: OwnLimits,
    /// Whether this is the second RDMA function of the guest before it
    /// ([`GuestConfig::functions`]).
    #[serde(skip)]
    pub is_beside: bool,
}

/// What the name of a guest's second RDMA function adds to the guest's name.
const BESIDE: &str = "-iwarp";

/// The transport of an RDMA function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// RoCE version 2.
    #[default]
    Roce,
    /// iWARP.
    Iwarp,
    /// RoCE and iWARP, each as a function of its own.
    Both,
}

fn burst_ms() -> u32 {
    Qos::default().burst_ms
}

fn yes() -> bool {
    true
}

impl GuestConfig {
    /// Returns one configuration for each RDMA function, each with one transport.
    ///
    /// The first has everything else of the guest, like the Ethernet function. No returned
    /// configuration has [`Transport::Both`].
    pub fn functions(self) -> Vec<GuestConfig> {
        if self.transport != Transport::Both {
            return vec![self];
        }
        let second = GuestConfig {
            name: self.iwarp_name(),
            socket: self.iwarp.clone(),
            fd: self.iwarp_fd.clone(),
            connect: self.iwarp_connect.clone(),
            iwarp: None,
            iwarp_fd: None,
            iwarp_connect: None,
            net: None,
            net_fd: None,
            net_connect: None,
            transport: Transport::Iwarp,
            is_beside: true,
            ..self.clone()
        };
        let first = GuestConfig {
            transport: Transport::Roce,
            iwarp: None,
            iwarp_fd: None,
            iwarp_connect: None,
            ..self
        };
        vec![first, second]
    }

    /// Returns where its RDMA function meets its front-end, if it has one.
    pub fn rdma_place(&self) -> Option<MeetingPlace<'_>> {
        place_of(self.rdma_keys())
    }

    /// Returns where its second RDMA function meets its front-end, if it has one.
    pub fn iwarp_place(&self) -> Option<MeetingPlace<'_>> {
        place_of(self.iwarp_keys())
    }

    /// Returns where its Ethernet function meets its front-end, if it has one.
    pub fn net_place(&self) -> Option<MeetingPlace<'_>> {
        place_of(self.net_keys())
    }

    pub(super) fn rdma_keys(&self) -> [PlaceKey<'_>; 3] {
        [
            ("socket", MeetingPlace::socket(&self.socket)),
            ("fd", MeetingPlace::descriptor(&self.fd)),
            ("connect", MeetingPlace::connect(&self.connect)),
        ]
    }

    pub(super) fn iwarp_keys(&self) -> [PlaceKey<'_>; 3] {
        [
            ("iwarp", MeetingPlace::socket(&self.iwarp)),
            ("iwarp_fd", MeetingPlace::descriptor(&self.iwarp_fd)),
            ("iwarp_connect", MeetingPlace::connect(&self.iwarp_connect)),
        ]
    }

    pub(super) fn net_keys(&self) -> [PlaceKey<'_>; 3] {
        [
            ("net", MeetingPlace::socket(&self.net)),
            ("net_fd", MeetingPlace::descriptor(&self.net_fd)),
            ("net_connect", MeetingPlace::connect(&self.net_connect)),
        ]
    }

    /// Returns its quality of service.
    pub fn qos(&self) -> Qos {
        Qos {
            weight: self.weight,
            tx_bytes: self.tx_bytes,
            rx_bytes: self.rx_bytes,
            tx_messages: self.tx_messages,
            rx_messages: self.rx_messages,
            burst_ms: self.burst_ms,
            dscp: self.dscp,
            pcp: self.pcp,
        }
    }

    /// Sets its quality of service.
    pub fn set_qos(&mut self, qos: &Qos) {
        let Qos { weight, tx_bytes, rx_bytes, tx_messages, rx_messages, burst_ms, dscp, pcp } = *qos;
        (self.weight, self.burst_ms, self.dscp, self.pcp) = (weight, burst_ms, dscp, pcp);
        (self.tx_bytes, self.rx_bytes) = (tx_bytes, rx_bytes);
        (self.tx_messages, self.rx_messages) = (tx_messages, rx_messages);
    }

    /// Returns the name of its second RDMA function in messages and counters.
    pub(super) fn iwarp_name(&self) -> String {
        format!("{}{BESIDE}", self.name)
    }

    /// Returns the name that the configuration gives the guest. Both its RDMA functions have it.
    pub fn configured_name(&self) -> &str {
        match self.name.strip_suffix(BESIDE) {
            Some(name) if self.is_beside => name,
            _ => &self.name,
        }
    }

    /// Whether its connections are configured to use vrdma's own TCP.
    pub fn has_own_tcp(&self) -> bool {
        self.transport == Transport::Iwarp && self.tcp == Some(Tcp::Own)
    }

    /// Whether the host lets this guest use the GID in this VLAN.
    pub fn allows(&self, vlan: VlanId, gid: Gid) -> bool {
        let gids = self.allowed_gids();
        !gid.is_multicast()
            && self.member_of().contains(vlan)
            && (gids.is_empty() || gids.iter().any(|allowed| allowed.allows(vlan, gid)))
    }

    /// Returns the addresses that it may use. If empty, it may use any.
    pub fn allowed_gids(&self) -> Vec<AllowedGid> {
        if self.gids.is_empty() {
            return Vec::new();
        }
        self.gids.iter().copied().chain([AllowedGid::link_local(self.mac)]).collect()
    }

    /// Returns the VLANs that it may use.
    pub fn member_of(&self) -> Vlans {
        if self.any_vlan {
            return Vlans::any();
        }
        let untagged = self.untagged.then_some(VlanId::UNTAGGED);
        self.vlans.iter().copied().filter_map(VlanId::new).chain(untagged).collect()
    }
}

/// Parses `name=NAME,mac=MAC,socket=PATH,gid=ADDRESS,gid=ADDRESS`, with the keys of the file.
impl FromStr for GuestConfig {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<GuestConfig> {
        words::from_keys(text)
    }
}

/// Reads all guests. For a mistaken `[guest]` section, the error says how to write it.
pub(super) fn guests<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<GuestConfig>, D::Error> {
    struct Guests;

    impl<'de> de::Visitor<'de> for Guests {
        type Value = Vec<GuestConfig>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a section [[guest]] for each guest")
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, guests: A) -> Result<Self::Value, A::Error> {
            Deserialize::deserialize(de::value::SeqAccessDeserializer::new(guests))
        }

        fn visit_map<A: de::MapAccess<'de>>(self, _guest: A) -> Result<Self::Value, A::Error> {
            Err(de::Error::custom("write [[guest]], with two brackets, for each guest"))
        }
    }

    deserializer.deserialize_seq(Guests)
}
