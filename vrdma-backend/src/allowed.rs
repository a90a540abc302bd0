//! Which VLANs and IP addresses a guest may use.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use vrdma_wire::eth::{self, Eth};
use vrdma_wire::num::{Gid, Mac, VlanId};

/// EtherTypes of VLAN tags other than 802.1Q's own 0x8100.
///
/// 0x88a8 is the service tag (IEEE 802.1Q table 9-1). 0x9100 is an older type for the same purpose.
pub const OTHER_TAGS: [u16; 2] = [0x88a8, 0x9100];

/// The VLAN of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameVlan {
    /// The VLAN of the frame's only tag.
    ///
    /// It is [`VlanId::UNTAGGED`] if the frame has no tag, or only a priority tag.
    One(VlanId),
    /// The frame has several tags, or a tag that is not 802.1Q's (0x8100). Its VLAN depends on how
    /// many tags the reader removes.
    Stacked,
}

impl FrameVlan {
    /// Returns the VLAN of a frame with this header.
    pub fn of(header: &Eth) -> FrameVlan {
        if header.ethertype == eth::VLAN || OTHER_TAGS.contains(&header.ethertype) {
            FrameVlan::Stacked
        } else {
            FrameVlan::One(VlanId::of(header.vlan))
        }
    }
}

impl fmt::Display for FrameVlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameVlan::One(VlanId::UNTAGGED) => write!(f, "untagged"),
            FrameVlan::One(vlan) => write!(f, "VLAN {}", vlan.number()),
            FrameVlan::Stacked => write!(f, "with several tags"),
        }
    }
}

/// The VLANs that a guest is a member of.
///
/// Frames in other VLANs neither come from the guest nor reach it.
#[derive(Clone)]
pub struct Vlans {
    /// A bit for each VLAN number. Bit 0 is [`VlanId::UNTAGGED`].
    members: Box<[u64; 64]>,
    stacked: bool,
}

impl Vlans {
    /// Returns every VLAN, with untagged frames and frames with several tags.
    pub fn any() -> Vlans {
        let mut vlans = Vlans { members: Box::new([0; 64]), stacked: true };
        (0..4095).filter_map(VlanId::new).for_each(|vlan| vlans.insert(vlan));
        vlans
    }

    /// Adds a VLAN.
    pub fn insert(&mut self, vlan: VlanId) {
        self.members[usize::from(vlan.number() / 64)] |= 1 << (vlan.number() % 64);
    }

    /// Whether these are all VLANs, including frames with several tags.
    pub fn are_all(&self) -> bool {
        self.stacked
    }

    /// Whether a VLAN is a member.
    pub fn contains(&self, vlan: VlanId) -> bool {
        self.members[usize::from(vlan.number() / 64)] >> (vlan.number() % 64) & 1 != 0
    }

    /// Whether frames in this VLAN may come from the guest and reach it.
    pub fn admits(&self, vlan: FrameVlan) -> bool {
        match vlan {
            FrameVlan::One(vlan) => self.contains(vlan),
            FrameVlan::Stacked => self.stacked,
        }
    }

    /// Returns a VLAN that is a member of both sets.
    pub fn common(&self, other: &Vlans) -> Option<VlanId> {
        self.iter().find(|&vlan| other.contains(vlan))
    }

    /// Iterates over the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = VlanId> {
        (0..4095).filter_map(VlanId::new).filter(|&vlan| self.contains(vlan))
    }
}

impl FromIterator<VlanId> for Vlans {
    fn from_iter<T: IntoIterator<Item = VlanId>>(list: T) -> Vlans {
        let mut vlans = Vlans { members: Box::new([0; 64]), stacked: false };
        list.into_iter().for_each(|vlan| vlans.insert(vlan));
        vlans
    }
}

impl fmt::Debug for Vlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(VlanId::number)).finish()
    }
}

/// An IP address that a guest may use.
///
/// As text, `ADDRESS` is allowed in each VLAN of the guest, `ADDRESS@VLAN` in that VLAN only, and
/// `ADDRESS@untagged` in untagged frames only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedGid {
    /// The address.
    pub address: IpAddr,
    /// The VLAN in which it is allowed; `None`: each VLAN of the guest.
    pub vlan: Option<VlanId>,
}

impl AllowedGid {
    /// Returns the link-local address that a netdev derives from its MAC address (RFC 4291,
    /// appendix A). It belongs to the guest, like the MAC address.
    pub fn link_local(mac: Mac) -> AllowedGid {
        let [a, b, c, d, e, f] = mac.0;
        let address = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f];
        AllowedGid { address: IpAddr::from(address), vlan: None }
    }

    /// Returns the address as a GID. An IPv4 address is mapped to IPv6 (RFC 4291 2.5.5.2).
    pub fn gid(&self) -> Gid {
        match self.address {
            IpAddr::V4(v4) => Gid(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Gid(v6.octets()),
        }
    }

    /// Whether this entry allows `gid` in `vlan`, which is one of the guest's VLANs.
    pub fn allows(&self, vlan: VlanId, gid: Gid) -> bool {
        self.vlan.is_none_or(|only| only == vlan) && self.gid() == gid
    }
}

/// The error for a text that is not an [`AllowedGid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAllowedGid;

impl FromStr for AllowedGid {
    type Err = NotAllowedGid;

    fn from_str(text: &str) -> Result<AllowedGid, NotAllowedGid> {
        let (address, vlan) = match text.split_once('@') {
            None => (text, None),
            Some((address, "untagged")) => (address, Some(VlanId::UNTAGGED)),
            Some((address, vlan)) => (address, Some(vlan_id(vlan).ok_or(NotAllowedGid)?)),
        };
        Ok(AllowedGid { address: address.parse().map_err(|_| NotAllowedGid)?, vlan })
    }
}

/// Parses a VLAN number. 0 is not accepted.
fn vlan_id(text: &str) -> Option<VlanId> {
    text.parse().ok().and_then(VlanId::new).filter(|&vlan| vlan != VlanId::UNTAGGED)
}

impl fmt::Display for AllowedGid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.vlan {
            None => write!(f, "{}", self.address),
            Some(VlanId::UNTAGGED) => write!(f, "{}@untagged", self.address),
            Some(vlan) => write!(f, "{}@{}", self.address, vlan.number()),
        }
    }
}

/// The owners of listed addresses by VLAN. A guest is identified by its MAC address.
#[derive(Clone, Debug, Default)]
pub struct Listed(HashMap<Gid, Holders>);

/// The owners of one address.
#[derive(Clone, Debug)]
struct Holders {
    /// The first guest that was listed with it, in whatever VLAN.
    first: Mac,
    /// Whether other guests have it too, in other VLANs.
    several: bool,
    /// The guest that has it in all VLANs.
    everywhere: Option<Mac>,
    /// The guest that has it in a VLAN.
    in_vlan: HashMap<VlanId, Mac>,
}

impl Listed {
    /// Adds the addresses of a guest that uses these VLANs.
    ///
    /// The configuration lists no address twice in a VLAN. If it did, the first guest would own it.
    pub fn insert(&mut self, guest: Mac, gids: &[AllowedGid], vlans: &Vlans) {
        for allowed in gids {
            let holders = self.0.entry(allowed.gid()).or_insert_with(|| Holders {
                first: guest,
                several: false,
                everywhere: None,
                in_vlan: HashMap::new(),
            });
            holders.several |= holders.first != guest;
            match allowed.vlan {
                Some(vlan) => {
                    holders.in_vlan.entry(vlan).or_insert(guest);
                }
                None if vlans.are_all() => {
                    holders.everywhere.get_or_insert(guest);
                }
                None => vlans.iter().for_each(|vlan| {
                    holders.in_vlan.entry(vlan).or_insert(guest);
                }),
            }
        }
    }

    /// Whether no guest has a listed address.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an address in a frame belongs to another guest.
    ///
    /// In a frame with several tags it does if another guest has the address in any VLAN: which
    /// VLAN counts depends on the reader.
    pub fn is_anothers(&self, guest: Mac, vlan: FrameVlan, gid: Gid) -> bool {
        let Some(holders) = self.0.get(&gid) else { return false };
        match vlan {
            FrameVlan::One(vlan) => {
                let owner = holders.in_vlan.get(&vlan).copied().or(holders.everywhere);
                owner.is_some_and(|owner| owner != guest)
            }
            FrameVlan::Stacked => holders.several || holders.first != guest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vlan(number: u16) -> VlanId {
        VlanId::new(number).unwrap()
    }

    #[test]
    fn a_frame_is_in_one_vlan_or_its_tags_are_stacked() {
        let of = |tags: &[u8]| {
            let frame = [&[2; 12], tags, &[0x08, 0x00]].concat();
            FrameVlan::of(&Eth::parse(&frame).unwrap().0)
        };
        assert_eq!(of(&[]), FrameVlan::One(VlanId::UNTAGGED));
        assert_eq!(of(&[0x81, 0x00, 0x00, 0x0a]), FrameVlan::One(vlan(10)));
        assert_eq!(of(&[0x81, 0x00, 0xe0, 0x0a]), FrameVlan::One(vlan(10)), "of a high priority");
        assert_eq!(of(&[0x81, 0x00, 0xe0, 0x00]), FrameVlan::One(VlanId::UNTAGGED), "priority alone");
        for outer in [[0x81, 0x00], [0x88, 0xa8], [0x91, 0x00]] {
            for (id, inner) in [(0, 10), (10, 0), (10, 10), (10, 20)] {
                assert_eq!(of(&[&outer[..], &[0, id, 0x81, 0x00, 0, inner]].concat()), FrameVlan::Stacked);
            }
        }
        assert_eq!(of(&[0x81, 0x00, 0, 10, 0x88, 0xa8, 0, 20]), FrameVlan::Stacked);
        assert_eq!(of(&[0x88, 0xa8, 0, 10]), FrameVlan::Stacked, "one tag, of another kind");
    }

    #[test]
    fn members_are_in_their_vlans_alone() {
        let vlans: Vlans = [vlan(10), vlan(4094)].into_iter().collect();
        for number in 0..4095 {
            assert_eq!(vlans.contains(vlan(number)), [10, 4094].contains(&number));
            assert!(Vlans::any().contains(vlan(number)));
        }
        // 4095 is not a VLAN.
        let tag = vrdma_wire::num::VlanTag(0xfff);
        assert!(!Vlans::any().contains(tag.id()) && !vlans.contains(tag.id()));
        assert!(!vlans.admits(FrameVlan::Stacked) && Vlans::any().admits(FrameVlan::Stacked));
        let other: Vlans = [vlan(9), vlan(4094)].into_iter().collect();
        assert_eq!(vlans.common(&other), Some(vlan(4094)));
        assert_eq!(vlans.common(&[vlan(9)].into_iter().collect()), None);
    }

    #[test]
    fn an_address_is_another_guest_s_where_that_guest_has_it() {
        let macs = [1, 2, 3].map(|last| Mac([0x52, 0x54, 0, 0, 0, last]));
        let parse = |text: &str| text.parse::<AllowedGid>().unwrap();
        let vlans = |numbers: &[u16]| numbers.iter().map(|&number| vlan(number)).collect::<Vlans>();
        let mut listed = Listed::default();
        assert!(listed.is_empty());
        listed.insert(macs[0], &[parse("10.0.0.1@10"), parse("10.0.0.2")], &vlans(&[0, 10]));
        listed.insert(macs[1], &[parse("10.0.0.1")], &vlans(&[20, 30]));
        listed.insert(macs[2], &[parse("10.0.0.3")], &Vlans::any());
        assert!(!listed.is_empty());
        let owners = |last: u8, at: FrameVlan| {
            let gid = Gid::from_ipv4([10, 0, 0, last]);
            macs.map(|mac| !listed.is_anothers(mac, at, gid))
        };
        let one = |number| FrameVlan::One(vlan(number));
        for (last, at, may) in [
            (1, one(10), [true, false, false]),
            (1, one(20), [false, true, false]),
            (1, one(30), [false, true, false]),
            (1, one(0), [true; 3]),
            (1, FrameVlan::Stacked, [false; 3]),
            (2, one(0), [true, false, false]),
            (2, one(10), [true, false, false]),
            (2, one(20), [true; 3]),
            (2, FrameVlan::Stacked, [true, false, false]),
            (3, one(0), [false, false, true]),
            (3, one(4094), [false, false, true]),
            (3, FrameVlan::Stacked, [false, false, true]),
            (4, one(0), [true; 3]),
            (4, FrameVlan::Stacked, [true; 3]),
        ] {
            assert_eq!(owners(last, at), may, "10.0.0.{last}, {at}");
        }
    }

    #[test]
    fn addresses_name_their_vlan() {
        let parse = |text: &str| text.parse::<AllowedGid>();
        let gid = parse("10.0.0.1").unwrap().gid();
        for (text, allowed) in [
            ("10.0.0.1", &[0, 10, 20][..]),
            ("10.0.0.1@10", &[10]),
            ("10.0.0.1@untagged", &[0]),
            ("::ffff:10.0.0.1@20", &[20]),
            ("10.0.0.2", &[]),
        ] {
            let rule = parse(text).unwrap();
            assert_eq!(rule.to_string(), text);
            for number in [0, 10, 20] {
                assert_eq!(rule.allows(vlan(number), gid), allowed.contains(&number), "{text} in {number}");
            }
        }
        for text in ["10.0.0", "", "@10", "10.0.0.1@", "10.0.0.1@0", "10.0.0.1@4095", "10.0.0.1@10@10"] {
            assert_eq!(parse(text), Err(NotAllowedGid), "{text}");
        }
        let mac = Mac([0x52, 0x54, 0, 0x77, 0, 1]);
        assert_eq!(AllowedGid::link_local(mac).to_string(), "fe80::5054:ff:fe77:1");
    }
}
