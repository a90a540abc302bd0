//! The Ethernet header, with at most one 802.1Q tag.

use crate::DropReason;
use crate::num::{Mac, VlanTag};
use crate::rw::{Reader, Writer};
use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// EtherType of an 802.1Q tag.
pub const VLAN: u16 = 0x8100;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// Length of the longest Ethernet header, which has a tag.
pub const MAX_LEN: usize = 18;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEth {
    dst: [u8; 6],
    src: [u8; 6],
    ethertype: U16,
}

/// The bytes that follow the EtherType 0x8100 (IEEE 802.1Q 9.6).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTag {
    tci: U16,
    ethertype: U16,
}

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eth {
    /// Destination.
    pub dst: Mac,
    /// Source.
    pub src: Mac,
    /// The first 802.1Q tag, if there is one.
    pub vlan: Option<VlanTag>,
    /// EtherType after the tag (or a length, below 0x600).
    pub ethertype: u16,
}

impl Eth {
    /// Reads the header at the front of a frame. Returns the header, and the bytes behind it.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Eth, &[u8]), DropReason> {
        let mut reader = Reader(frame);
        let raw: &RawEth = reader.take()?;
        let (mut vlan, mut ethertype) = (None, raw.ethertype.get());
        if ethertype == VLAN {
            let tag: &RawTag = reader.take()?;
            vlan = Some(VlanTag(tag.tci.get()));
            ethertype = tag.ethertype.get();
        }
        Ok((Eth { dst: Mac(raw.dst), src: Mac(raw.src), vlan, ethertype }, reader.0))
    }

    /// Returns the length of the header: 14 or 18.
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    #[inline]
    pub const fn len(&self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }

    /// Writes the header to the front of `buf`, and returns its length.
    ///
    /// # Panics
    /// If `buf` is shorter than the header.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> usize {
        let mut writer = Writer::new(buf);
        self.put(&mut writer);
        writer.len()
    }

    #[inline]
    pub(crate) fn put(&self, writer: &mut Writer<'_>) {
        let outer = if self.vlan.is_some() { VLAN } else { self.ethertype };
        writer.put(&RawEth { dst: self.dst.0, src: self.src.0, ethertype: outer.into() });
        if let Some(tag) = self.vlan {
            writer.put(&RawTag { tci: tag.0.into(), ethertype: self.ethertype.into() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::VlanId;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_come_back(dst: [u8; 6], src: [u8; 6], tag: Option<u16>, ethertype: u16) {
            prop_assume!(ethertype != VLAN);
            let header = Eth { dst: Mac(dst), src: Mac(src), vlan: tag.map(VlanTag), ethertype };
            let mut buf = [0; MAX_LEN];
            let len = header.emit(&mut buf);
            prop_assert_eq!(len, header.len());
            prop_assert_eq!(Eth::parse(&buf[..len]), Ok((header, &[][..])));
            prop_assert_eq!(Eth::parse(&buf[..len - 1]), Err(DropReason::Truncated));
        }
    }

    #[test]
    fn a_tag_has_an_id_and_a_priority() {
        let tag = VlanTag::new(VlanId::new(0xabc).unwrap(), 5);
        assert_eq!((tag.0, tag.id().number(), tag.priority()), (0xaabc, 0xabc, 5));
        assert!(VlanId::new(0xfff).is_none() && VlanId::new(0xffe).is_some());
    }
}
