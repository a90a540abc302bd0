//! A guest: the keys of `[[guest]]` and of `--guest`.

use super::words::{self, HostAddress, list, numbers, word};
use super::{Tcp, User};
use crate::allowed::{AllowedGid, Vlans};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use vrdma_wire::num::{Gid, Mac, VlanId};

/// A guest. A key that takes several values has two names, for one and for many.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GuestConfig {
    /// Name in messages and counters.
    pub name: String,
    /// Socket to which its VMM connects for the RDMA function; without one it has none.
    pub socket: Option<PathBuf>,
    /// Socket to which its VMM connects for a second RDMA function, which is of iWARP; with
    /// `transport = "both"`.
    #[serde(default)]
    pub iwarp: Option<PathBuf>,
    /// Socket to which its VMM connects for the Ethernet function; without one it has none.
    pub net: Option<PathBuf>,
    /// Users whose processes may connect to its sockets; if empty, all whom the sockets' mode lets
    /// in.
    #[serde(default, with = "list", alias = "user")]
    pub users: Vec<User>,
    /// Its MAC address.
    #[serde(with = "word")]
    pub mac: Mac,
    /// What its RDMA function's connections are made of.
    #[serde(default)]
    pub transport: Transport,
    /// Whose TCP iWARP goes over.
    #[serde(default)]
    pub tcp: Option<Tcp>,
    /// Addresses of this host that are its own, for `transport = "iwarp"` over the kernel's TCP.
    #[serde(default, with = "list", alias = "host_address")]
    pub host_addresses: Vec<HostAddress>,
    /// Addresses that it may use as GIDs, beside the link-local one of its MAC address. Only the
    /// one guest of a host may leave them out, and then it may use any.
    #[serde(default, with = "list", alias = "gid")]
    pub gids: Vec<AllowedGid>,
    /// It may use any address that is not among the `gids` of another guest.
    #[serde(default)]
    pub any_gid: bool,
    /// VLANs of which it is a member, 1 to 4094.
    #[serde(default, deserialize_with = "numbers", alias = "vlan")]
    pub vlans: Vec<u16>,
    /// It may use frames without a tag.
    #[serde(default = "yes")]
    pub untagged: bool,
    /// It is a member of every VLAN, and its frames may have several tags.
    #[serde(default)]
    pub any_vlan: bool,
    /// The worker that serves it, from 0 on; one with few guests if not given.
    #[serde(default)]
    pub worker: Option<u16>,
    /// Other addresses from which its Ethernet function may send.
    #[serde(default, with = "list", alias = "extra_mac")]
    pub extra_macs: Vec<Mac>,
    /// Its Ethernet function may send from any address that is no other guest's.
    #[serde(default)]
    pub any_mac: bool,
    /// It stands for the second RDMA function of the guest before it ([`GuestConfig::functions`]).
    #[serde(skip)]
    pub is_beside: bool,
}

/// What connections of an RDMA function are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// RoCE version 2.
    #[default]
    Roce,
    /// iWARP.
    Iwarp,
    /// Each by a function of its own.
    Both,
}

fn yes() -> bool {
    true
}

impl GuestConfig {
    /// One for each of its RDMA functions, the first with all that the guest has beside. Only these
    /// have a transport that is one.
    pub fn functions(self) -> Vec<GuestConfig> {
        if self.transport != Transport::Both {
            return vec![self];
        }
        let second = GuestConfig {
            name: self.iwarp_name(),
            socket: self.iwarp.clone(),
            iwarp: None,
            net: None,
            transport: Transport::Iwarp,
            is_beside: true,
            ..self.clone()
        };
        vec![GuestConfig { transport: Transport::Roce, iwarp: None, ..self }, second]
    }

    /// What its second RDMA function is called in messages and counters.
    pub(super) fn iwarp_name(&self) -> String {
        format!("{}-iwarp", self.name)
    }

    /// Whether its connections go over our own TCP, as far as it says whose.
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

    /// The addresses that it may use; any if empty.
    pub fn allowed_gids(&self) -> Vec<AllowedGid> {
        if self.gids.is_empty() {
            return Vec::new();
        }
        self.gids.iter().copied().chain([AllowedGid::link_local(self.mac)]).collect()
    }

    /// The VLANs that it may use.
    pub fn member_of(&self) -> Vlans {
        if self.any_vlan {
            return Vlans::any();
        }
        let untagged = self.untagged.then_some(VlanId::UNTAGGED);
        self.vlans.iter().copied().filter_map(VlanId::new).chain(untagged).collect()
    }
}

/// `name=NAME,mac=MAC,socket=PATH,gid=ADDRESS,gid=ADDRESS`: the keys of the file.
impl FromStr for GuestConfig {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<GuestConfig> {
        words::from_keys(text)
    }
}

/// Reads all guests, and says what `[guest]` should have been.
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
