//! Which VLANs and IP addresses a guest may use.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use vrdma_wire::eth::{self, Eth};
use vrdma_wire::num::{Gid, Mac, VlanId};

/// EtherTypes of tags other than 802.1Q's own: service tags (IEEE 802.1Q table 9-1), and what was used for them before.
pub const OTHER_TAGS: [u16; 2] = [0x88a8, 0x9100];

/// The VLAN of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameVlan {
    /// That of its only tag; [`VlanId::UNTAGGED`] if it has none, or one with a priority alone.
    One(VlanId),
    /// It has several tags, or one that is not 802.1Q's (0x8100): its VLAN depends on how many of them its reader takes off.
    Stacked,
}

impl FrameVlan {
    /// That of a frame with this header.
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

/// VLANs of which a guest is a member: frames in others neither come from it nor reach it.
#[derive(Clone)]
pub struct Vlans {
    /// A bit for each number; 0 is [`VlanId::UNTAGGED`].
    members: Box<[u64; 64]>,
    stacked: bool,
}

impl Vlans {
    /// Every VLAN, frames without a tag, and frames with several.
    pub fn any() -> Vlans {
        let mut vlans = Vlans { members: Box::new([0; 64]), stacked: true };
        (0..4095).filter_map(VlanId::new).for_each(|vlan| vlans.insert(vlan));
        vlans
    }

    /// Adds a VLAN.
    pub fn insert(&mut self, vlan: VlanId) {
        self.members[usize::from(vlan.number() / 64)] |= 1 << (vlan.number() % 64);
    }

    /// Whether a VLAN is among them.
    pub fn contains(&self, vlan: VlanId) -> bool {
        self.members[usize::from(vlan.number() / 64)] >> (vlan.number() % 64) & 1 != 0
    }

    /// Whether frames in this VLAN may come from the guest, and reach it.
    pub fn admits(&self, vlan: FrameVlan) -> bool {
        match vlan {
            FrameVlan::One(vlan) => self.contains(vlan),
            FrameVlan::Stacked => self.stacked,
        }
    }

    /// A VLAN that is among both.
    pub fn common(&self, other: &Vlans) -> Option<VlanId> {
        (0..4095).filter_map(VlanId::new).find(|&vlan| self.contains(vlan) && other.contains(vlan))
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
        let all = (0..4095).filter_map(VlanId::new).filter(|&vlan| self.contains(vlan));
        f.debug_set().entries(all.map(VlanId::number)).finish()
    }
}

/// An IP address that a guest may use: `ADDRESS` in each of its VLANs, `ADDRESS@VLAN` in that one, `ADDRESS@untagged` in frames without a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedGid {
    /// The address.
    pub address: IpAddr,
    /// Where; `None`: in each VLAN of the guest.
    pub vlan: Option<VlanId>,
}

impl AllowedGid {
    /// The link-local address that a netdev makes of its MAC address (RFC 4291, appendix A). It is the guest's as its MAC address is.
    pub fn link_local(mac: Mac) -> AllowedGid {
        let [a, b, c, d, e, f] = mac.0;
        let address = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f];
        AllowedGid { address: IpAddr::from(address), vlan: None }
    }

    /// The address as a GID; that of IPv4 is mapped (RFC 4291 2.5.5.2).
    pub fn gid(&self) -> Gid {
        match self.address {
            IpAddr::V4(v4) => Gid(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Gid(v6.octets()),
        }
    }

    /// Whether it allows `gid` in one of its guest's VLANs.
    pub fn allows(&self, vlan: VlanId, gid: Gid) -> bool {
        self.vlan.is_none_or(|only| only == vlan) && self.gid() == gid
    }
}

/// A text that is none.
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

/// The VLAN that a text names by its number, from 1 on.
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
        // 4095 is none.
        let tag = vrdma_wire::num::VlanTag(0xfff);
        assert!(!Vlans::any().contains(tag.id()) && !vlans.contains(tag.id()));
        assert!(!vlans.admits(FrameVlan::Stacked) && Vlans::any().admits(FrameVlan::Stacked));
        let other: Vlans = [vlan(9), vlan(4094)].into_iter().collect();
        assert_eq!(vlans.common(&other), Some(vlan(4094)));
        assert_eq!(vlans.common(&[vlan(9)].into_iter().collect()), None);
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
