//! Types for identifiers and numbers on the wire.

use core::fmt;

/// A packet sequence number: 24 bits, wrapping (IBTA 9.7.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// Half of the number space. A PSN less than this ahead is new; the others are old.
    const HALF: u32 = 1 << 23;
    const MASK: u32 = (1 << 24) - 1;

    /// Returns the PSN with this number, or `None` if it exceeds 24 bits.
    #[inline]
    pub const fn new(number: u32) -> Option<Psn> {
        if number <= Self::MASK { Some(Psn(number)) } else { None }
    }

    /// Returns the PSN of the low 24 bits of `number`.
    #[inline]
    pub const fn truncate(number: u32) -> Psn {
        Psn(number & Self::MASK)
    }

    /// Returns the number.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the PSN that is `packets` later.
    #[must_use]
    #[inline]
    pub const fn add(self, packets: u32) -> Psn {
        Psn(self.0.wrapping_add(packets) & Self::MASK)
    }

    /// Returns how far `self` is ahead of `other`, from -2^23 to 2^23 - 1.
    #[inline]
    pub const fn distance(self, other: Psn) -> i32 {
        let ahead = self.0.wrapping_sub(other.0) & Self::MASK;
        if ahead < Self::HALF { ahead as i32 } else { ahead as i32 - (Self::MASK as i32 + 1) }
    }
}

/// A queue pair number: 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(u32);

impl Qpn {
    /// The general services QP.
    pub const GSI: Qpn = Qpn(1);
    /// Destination of datagrams to all members of a multicast group (IBTA 9.6.1.4).
    pub const MULTICAST: Qpn = Qpn(0xff_ffff);

    /// Returns the QPN with this number, or `None` if it exceeds 24 bits.
    #[inline]
    pub const fn new(number: u32) -> Option<Qpn> {
        if number < 1 << 24 { Some(Qpn(number)) } else { None }
    }

    /// Returns the QPN of the low 24 bits of `number`.
    #[inline]
    pub const fn truncate(number: u32) -> Qpn {
        Qpn(number & 0xff_ffff)
    }

    /// Returns the number.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The number of a shared receive queue in XRC requests: 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Srqn(u32);

impl Srqn {
    /// Returns the SRQN with this number, or `None` if it exceeds 24 bits.
    #[inline]
    pub const fn new(number: u32) -> Option<Srqn> {
        if number < 1 << 24 { Some(Srqn(number)) } else { None }
    }

    /// Returns the SRQN of the low 24 bits of `number`.
    #[inline]
    pub const fn truncate(number: u32) -> Srqn {
        Srqn(number & 0xff_ffff)
    }

    /// Returns the number.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A message sequence number: 24 bits, wrapping (IBTA 9.7.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AethMsn(u32);

impl AethMsn {
    /// Returns the MSN of the low 24 bits of `number`.
    #[inline]
    pub const fn truncate(number: u32) -> AethMsn {
        AethMsn(number & 0xff_ffff)
    }

    /// Returns the number.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the next MSN.
    #[must_use]
    #[inline]
    pub const fn next(self) -> AethMsn {
        AethMsn::truncate(self.0 + 1)
    }
}

/// A partition key (IBTA 10.9.1). The high bit means full membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pkey(pub u16);

impl Pkey {
    /// Full member of the default partition, the one that RoCE has.
    pub const DEFAULT: Pkey = Pkey(0xffff);

    /// Returns whether ports with these P_Keys may communicate (IBTA 10.9.3).
    ///
    /// They must be of one partition, which is not 0, and not both limited members of it.
    #[inline]
    pub const fn matches(self, other: Pkey) -> bool {
        const FULL: u16 = 1 << 15;
        self.0 & !FULL != 0 && (self.0 ^ other.0) & !FULL == 0 && (self.0 | other.0) & FULL != 0
    }
}

impl Default for Pkey {
    fn default() -> Pkey {
        Pkey::DEFAULT
    }
}

/// A flow label of IPv6: 20 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowLabel(u32);

impl FlowLabel {
    /// Returns the flow label of the low 20 bits of `number`.
    #[inline]
    pub const fn truncate(number: u32) -> FlowLabel {
        FlowLabel(number & 0xf_ffff)
    }

    /// Returns the number.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A VLAN's number: 0 (no VLAN, priority only) to 4094.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VlanId(u16);

impl VlanId {
    /// VLAN of frames without a tag, and of frames whose tag has only a priority (IEEE 802.1Q
    /// 6.9.1).
    pub const UNTAGGED: VlanId = VlanId(0);

    /// Returns the VLAN of a frame with this tag, or without a tag.
    #[inline]
    pub const fn of(tag: Option<VlanTag>) -> VlanId {
        match tag {
            Some(tag) => tag.id(),
            None => VlanId::UNTAGGED,
        }
    }

    /// Returns the VLAN of this number, or `None` for a reserved number (IEEE 802.1Q).
    #[inline]
    pub const fn new(number: u16) -> Option<VlanId> {
        if number < 0xfff { Some(VlanId(number)) } else { None }
    }

    /// Returns the number.
    #[inline]
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// The tag control information of 802.1Q: priority (3 bits), drop eligible (1 bit), VLAN (12 bits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VlanTag(pub u16);

impl VlanTag {
    /// Returns a tag with this VLAN and priority. Only the low 3 bits of the priority count.
    #[inline]
    pub const fn new(id: VlanId, priority: u8) -> VlanTag {
        VlanTag((priority as u16 & 7) << 13 | id.0)
    }

    /// Returns the tag of a packet in this VLAN, with this priority. Returns `None` outside VLANs.
    #[inline]
    pub const fn in_vlan(id: VlanId, priority: u8) -> Option<VlanTag> {
        if id.0 == VlanId::UNTAGGED.0 { None } else { Some(VlanTag::new(id, priority)) }
    }

    /// Returns the number of the tag's VLAN, or `None` for a tag with only a priority.
    #[inline]
    pub fn named(self) -> Option<u16> {
        Some(self.id().number()).filter(|&number| number != VlanId::UNTAGGED.number())
    }

    /// Returns the VLAN. The reserved number 0xfff is returned unchanged.
    #[inline]
    pub const fn id(self) -> VlanId {
        VlanId(self.0 & 0xfff)
    }

    /// Returns the priority, 0 to 7.
    #[inline]
    pub const fn priority(self) -> u8 {
        (self.0 >> 13) as u8
    }
}

/// A remote key: peers name a memory region by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rkey(pub u32);

/// A local key: the owner names a memory region by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lkey(pub u32);

/// A Q_Key of unreliable datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Qkey(pub u32);

/// Immediate data: 4 bytes that go unchanged from a request to the peer's completion.
///
/// They are one word, not an array. Loading a word whose bytes were stored one by one stalls the
/// processor until its store buffer has drained. On the data path that costs more than everything
/// else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Imm(u32);

impl Imm {
    /// Converts from bytes in the order of a request or packet.
    #[inline]
    pub const fn from_bytes(bytes: [u8; 4]) -> Imm {
        Imm(u32::from_ne_bytes(bytes))
    }

    /// Returns the bytes in the order of a request or packet.
    #[inline]
    pub const fn to_bytes(self) -> [u8; 4] {
        self.0.to_ne_bytes()
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Returns whether a NIC may have this address as its own: not a group address, not zero.
    #[inline]
    pub const fn is_unicast(self) -> bool {
        let [a, b, c, d, e, f] = self.0;
        a & 1 == 0 && (a | b | c | d | e | f) != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A global identifier, in network byte order.
///
/// For RoCE it is an IPv6 address, or an IPv4 address mapped into one.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The empty GID.
    pub const ZERO: Gid = Gid([0; 16]);

    /// Returns the GID of an IPv4 address: `::ffff:a.b.c.d` (IBTA annex A17).
    #[inline]
    pub const fn from_ipv4([a, b, c, d]: [u8; 4]) -> Gid {
        Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }

    /// Returns the IPv4 address, if this is the GID of one.
    #[inline]
    pub const fn ipv4(self) -> Option<[u8; 4]> {
        // Compare as one number: compilers need many more steps to compare the bytes.
        let address = u128::from_be_bytes(self.0);
        if address >> 32 == 0xffff { Some((address as u32).to_be_bytes()) } else { None }
    }

    /// Returns whether it is the empty GID.
    #[inline]
    pub fn is_zero(self) -> bool {
        self == Gid::ZERO
    }

    /// Returns the Ethernet address of a multicast group (RFC 1112, 6.4; RFC 2464, 7).
    ///
    /// It contains the last bytes of the group's address.
    #[inline]
    pub const fn group_mac(self) -> Mac {
        let [.., a, b, c, d] = self.0;
        match self.ipv4() {
            Some(_) => Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d]),
            None => Mac([0x33, 0x33, a, b, c, d]),
        }
    }

    /// Returns whether it is a multicast address, of IPv6 or of IPv4.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        match self.ipv4() {
            Some([first, ..]) => first & 0xf0 == 0xe0,
            None => self.0[0] == 0xff,
        }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::net::Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A path MTU: the largest payload of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mtu {
    /// 256 bytes.
    #[default]
    M256 = 1,
    /// 512 bytes.
    M512 = 2,
    /// 1024 bytes.
    M1024 = 3,
    /// 2048 bytes.
    M2048 = 4,
    /// 4096 bytes.
    M4096 = 5,
}

impl Mtu {
    /// Returns the MTU of a code of IBTA 9.4.3 and enum ibv_mtu: 1 to 5.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Mtu> {
        Some(match code {
            1 => Mtu::M256,
            2 => Mtu::M512,
            3 => Mtu::M1024,
            4 => Mtu::M2048,
            5 => Mtu::M4096,
            _ => return None,
        })
    }

    /// Returns the code.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the MTU in bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// Returns the number of packets of a message of `length` bytes: at least one.
    #[inline]
    pub const fn packets(self, length: u32) -> u32 {
        let shift = 7 + self as u32;
        if length == 0 { 1 } else { ((length - 1) >> shift) + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_of_more_than_24_bits_are_refused() {
        assert!(Psn::new(0xff_ffff).is_some() && Psn::new(0x100_0000).is_none());
        assert!(Qpn::new(0xff_ffff).is_some() && Qpn::new(0x100_0000).is_none());
        assert!(Srqn::new(0xff_ffff).is_some() && Srqn::new(0x100_0000).is_none());
    }

    #[test]
    fn psn_wraps() {
        let last = Psn::truncate(0xff_ffff);
        assert_eq!(last.add(1).number(), 0);
        assert_eq!(last.add(1).distance(last), 1);
        assert_eq!(last.distance(last.add(1)), -1);
        assert_eq!(last.add(1 << 23).distance(last), -(1 << 23));
    }

    #[test]
    fn p_keys_match_by_partition_if_one_is_a_full_member() {
        let full = Pkey::DEFAULT;
        for (key, other, matches) in [
            (0xffff, full, true),
            (0x7fff, full, true),
            (0x7ffe, full, false),
            (0xfffe, full, false),
            (0x0000, full, false),
            (0x8000, full, false),
            (0x7fff, Pkey(0x7fff), false),
            (0x8001, Pkey(0x0001), true),
            (0x8000, Pkey(0x8000), false),
            (0x8000, Pkey(0x0000), false),
        ] {
            assert_eq!(Pkey(key).matches(other), matches, "{key:#x} {other:?}");
            assert_eq!(other.matches(Pkey(key)), matches, "{other:?} {key:#x}");
        }
    }

    #[test]
    fn packets_round_up() {
        for (length, packets) in [(0, 1), (1, 1), (1024, 1), (1025, 2), (1 << 31, 1 << 21)] {
            assert_eq!(Mtu::M1024.packets(length), packets, "{length}");
        }
        assert_eq!((1..=5).map(|c| Mtu::from_code(c).unwrap().bytes()).sum::<u32>(), 256 * 31);
        assert!(Mtu::from_code(0).is_none() && Mtu::from_code(6).is_none());
    }

    proptest! {
        #[test]
        fn distance_inverts_add(start in 0u32..1 << 24, step in -(1i32 << 23)..1 << 23) {
            let psn = Psn::truncate(start);
            prop_assert_eq!(psn.add(step as u32).distance(psn), step);
        }
    }
}
