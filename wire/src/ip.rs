//! IPv4 and IPv6 headers, as far as RoCE and TCP need them.

use crate::DropReason;
use crate::eth;
use crate::num::{FlowLabel, Gid};
use crate::rw::{Reader, Writer};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Protocol number of UDP.
pub(crate) const UDP: u8 = 17;
pub(crate) const V4_LEN: usize = 20;
pub(crate) const V6_LEN: usize = 40;

/// An IPv4 header without options (RFC 791, 3.1).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawV4 {
    version_ihl: u8,
    tos: u8,
    total_length: U16,
    identification: U16,
    flags_offset: U16,
    ttl: u8,
    protocol: u8,
    checksum: U16,
    src: [u8; 4],
    dst: [u8; 4],
}

const DONT_FRAGMENT: u16 = 0x4000;
/// "More fragments" and the fragment offset. A packet with any of these bits is a fragment.
const FRAGMENT: u16 = 0x3fff;

/// An IPv6 header (RFC 8200, 3).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawV6 {
    version_class_label: U32,
    payload_length: U16,
    next_header: u8,
    hop_limit: u8,
    src: [u8; 16],
    dst: [u8; 16],
}

/// An IP header of either version, without its lengths.
pub(crate) struct Ip {
    /// IPv4 addresses are mapped. Both addresses are of one version.
    pub src: Gid,
    pub dst: Gid,
    pub traffic_class: u8,
    /// 0 in IPv4.
    pub flow_label: FlowLabel,
    pub hop_limit: u8,
}

/// Returns the protocol in the first header of an IP packet, without further checks.
///
/// Returns `None` for anything else.
#[inline]
pub(crate) fn protocol_of(ethertype: u16, packet: &[u8]) -> Option<u8> {
    match ethertype {
        eth::IPV4 => Some(RawV4::ref_from_prefix(packet).ok()?.0.protocol),
        eth::IPV6 => Some(RawV6::ref_from_prefix(packet).ok()?.0.next_header),
        _ => None,
    }
}

/// Returns the bytes behind the IP header, if the packet is an unfragmented UDP packet.
///
/// `packet` begins behind the Ethernet header.
pub(crate) fn udp_of(ethertype: u16, packet: &[u8]) -> Option<&[u8]> {
    match ethertype {
        eth::IPV4 => {
            let (raw, _) = RawV4::ref_from_prefix(packet).ok()?;
            let udp = raw.protocol == UDP && raw.flags_offset.get() & FRAGMENT == 0;
            let header = 4 * usize::from(raw.version_ihl & 0xf);
            if udp { packet.get(header..) } else { None }
        }
        eth::IPV6 => {
            let (raw, rest) = RawV6::ref_from_prefix(packet).ok()?;
            (raw.next_header == UDP).then_some(rest)
        }
        _ => None,
    }
}

/// Returns the addresses of a plain packet of this protocol, and the bytes behind its IP header.
///
/// A plain packet is not fragmented, and its IP header has neither options nor extension headers.
/// Other fields are not checked.
pub(crate) fn plain_of(ethertype: u16, packet: &[u8], protocol: u8) -> Option<(Gid, Gid, &[u8])> {
    match ethertype {
        eth::IPV4 => {
            let (raw, rest) = RawV4::ref_from_prefix(packet).ok()?;
            let is_plain = raw.version_ihl == 0x45 && raw.flags_offset.get() & FRAGMENT == 0;
            let addresses = (Gid::from_ipv4(raw.src), Gid::from_ipv4(raw.dst));
            (is_plain && raw.protocol == protocol).then_some((addresses.0, addresses.1, rest))
        }
        eth::IPV6 => {
            let (raw, rest) = RawV6::ref_from_prefix(packet).ok()?;
            let (src, dst) = (Gid(raw.src), Gid(raw.dst));
            let is_plain =
                raw.version_class_label.get() >> 28 == 6 && src.ipv4().is_none() && dst.ipv4().is_none();
            (is_plain && raw.next_header == protocol).then_some((src, dst, rest))
        }
        _ => None,
    }
}

impl Ip {
    /// Reads an IP header that is followed by this protocol. Returns the header, and its payload.
    ///
    /// The payload has the length that the header names, without the padding of short Ethernet
    /// frames.
    #[inline]
    pub fn parse(ethertype: u16, packet: &[u8], protocol: u8) -> Result<(Ip, &[u8]), DropReason> {
        match ethertype {
            eth::IPV4 => Ip::parse_v4(packet, protocol),
            eth::IPV6 => Ip::parse_v6(packet, protocol),
            _ => Err(DropReason::NotRoce),
        }
    }

    #[inline]
    fn parse_v4(packet: &[u8], protocol: u8) -> Result<(Ip, &[u8]), DropReason> {
        let raw: &RawV4 = Reader(packet).take()?;
        if raw.version_ihl >> 4 != 4 {
            return Err(DropReason::IpVersion);
        }
        if raw.protocol != protocol {
            return Err(DropReason::NotRoce);
        }
        if raw.version_ihl & 0xf != 5 {
            return Err(DropReason::IpHeaderLength);
        }
        // The sum of a header, its checksum included, is all ones (RFC 1071).
        if checksum(raw) != 0 {
            return Err(DropReason::IpChecksum);
        }
        if raw.flags_offset.get() & FRAGMENT != 0 {
            return Err(DropReason::Fragment);
        }
        let total = usize::from(raw.total_length.get());
        if total < V4_LEN {
            return Err(DropReason::IpLength);
        }
        let payload = packet.get(V4_LEN..total).ok_or(DropReason::Truncated)?;
        let ip = Ip {
            src: Gid::from_ipv4(raw.src),
            dst: Gid::from_ipv4(raw.dst),
            traffic_class: raw.tos,
            flow_label: FlowLabel::default(),
            hop_limit: raw.ttl,
        };
        Ok((ip, payload))
    }

    #[inline]
    fn parse_v6(packet: &[u8], protocol: u8) -> Result<(Ip, &[u8]), DropReason> {
        let mut reader = Reader(packet);
        let raw: &RawV6 = reader.take()?;
        let word = raw.version_class_label.get();
        if word >> 28 != 6 {
            return Err(DropReason::IpVersion);
        }
        if raw.next_header != protocol {
            return Err(DropReason::NotRoce);
        }
        let (src, dst) = (Gid(raw.src), Gid(raw.dst));
        if src.ipv4().is_some() || dst.ipv4().is_some() {
            return Err(DropReason::MappedAddress);
        }
        let payload = reader.0.get(..usize::from(raw.payload_length.get())).ok_or(DropReason::Truncated)?;
        let ip = Ip {
            src,
            dst,
            traffic_class: (word >> 20) as u8,
            flow_label: FlowLabel::truncate(word),
            hop_limit: raw.hop_limit,
        };
        Ok((ip, payload))
    }

    /// Returns whether a packet with these addresses is written as IPv4: both are IPv4's.
    #[inline]
    pub fn is_v4(src: Gid, dst: Gid) -> bool {
        src.ipv4().is_some() && dst.ipv4().is_some()
    }

    /// Returns the checksum of the IPv4 header, computed from the fields.
    ///
    /// Reading the header back right after it was stored, in words of another size, would take
    /// longer.
    #[inline]
    fn checksum(&self, total: u16, protocol: u8, src: [u8; 4], dst: [u8; 4]) -> u16 {
        let halves = |bytes: [u8; 4]| {
            let word = u32::from_be_bytes(bytes);
            (word >> 16) + (word & 0xffff)
        };
        let first = u32::from(u16::from_be_bytes([0x45, self.traffic_class]));
        let fourth = u32::from(u16::from_be_bytes([self.hop_limit, protocol]));
        inverted(first + u32::from(total) + u32::from(DONT_FRAGMENT) + fourth + halves(src) + halves(dst))
    }

    /// Writes the header of a packet with `payload` bytes of this protocol.
    #[inline]
    pub fn put(&self, payload: u16, protocol: u8, writer: &mut Writer<'_>) {
        if let (Some(src), Some(dst)) = (self.src.ipv4(), self.dst.ipv4()) {
            let total = V4_LEN as u16 + payload;
            let raw = RawV4 {
                version_ihl: 0x45,
                tos: self.traffic_class,
                total_length: total.into(),
                // Any value is allowed if the packet is never fragmented (RFC 6864, 4.1).
                identification: U16::ZERO,
                flags_offset: DONT_FRAGMENT.into(),
                ttl: self.hop_limit,
                protocol,
                checksum: self.checksum(total, protocol, src, dst).into(),
                src,
                dst,
            };
            writer.put(&raw);
        } else {
            let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label.number();
            writer.put(&RawV6 {
                version_class_label: word.into(),
                payload_length: payload.into(),
                next_header: protocol,
                hop_limit: self.hop_limit,
                src: self.src.0,
                dst: self.dst.0,
            });
        }
    }
}

/// Returns the inverted ones' complement sum of a header (RFC 1071). It is zero if the header's
/// checksum is correct.
#[inline]
fn checksum(header: &RawV4) -> u16 {
    let words = header.as_bytes().chunks_exact(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]])));
    inverted(words.sum())
}

/// The bits of a traffic class that tell of congestion (RFC 3168, 5). Both mean that it was met.
const ECN: u8 = 3;

/// Marks a packet as one that met congestion, if its ends understand that. Returns whether they do.
///
/// `packet` begins behind the Ethernet header.
pub(crate) fn mark(ethertype: u16, packet: &mut [u8]) -> bool {
    match ethertype {
        eth::IPV4 => {
            let Ok((raw, _)) = RawV4::mut_from_prefix(packet) else { return false };
            let before = u16::from_be_bytes([raw.version_ihl, raw.tos]);
            let is_capable = raw.tos & ECN != 0;
            if is_capable {
                raw.tos |= ECN;
                let after = u16::from_be_bytes([raw.version_ihl, raw.tos]);
                // The header may have options, so the checksum is changed, not made (RFC 1624, 3).
                let sum = u32::from(!raw.checksum.get()) + u32::from(!before) + u32::from(after);
                raw.checksum = inverted(sum).into();
            }
            is_capable
        }
        eth::IPV6 => {
            let Ok((raw, _)) = RawV6::mut_from_prefix(packet) else { return false };
            let word = raw.version_class_label.get();
            let is_capable = (word >> 20) as u8 & ECN != 0;
            if is_capable {
                raw.version_class_label = (word | u32::from(ECN) << 20).into();
            }
            is_capable
        }
        _ => false,
    }
}

/// Returns the complement of a folded sum of 16-bit words.
#[inline]
fn inverted(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum + (sum >> 16)) as u16
}
