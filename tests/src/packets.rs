//! IP packets for Ethernet functions.
//!
//! A library that shares nothing with the daemon makes and checks them.

use crate::net::{GSO_TCPV4, GSO_TCPV6, Header, NEEDS_CSUM, mac};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};

/// A TCP or UDP packet to build.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Guest that sends it, and guest that receives it.
    pub hosts: (u8, u8),
    /// Over IPv6 if true, else over IPv4.
    pub v6: bool,
    /// TCP if true, else UDP.
    pub tcp: bool,
    /// VLAN of its 802.1Q tag, if it has one.
    pub vlan: Option<u16>,
}

/// TCP sequence number of these packets, which wraps soon.
pub const SEQ: u32 = 0xffff_f000;
/// IPv4 identification of these packets.
pub const ID: u16 = 0xfffe;

impl Packet {
    /// Builds the frame with all checksums correct. A TCP segment has FIN, PSH, CWR and ACK.
    pub fn frame(&self, payload: &[u8]) -> Vec<u8> {
        let (src, dst) = self.hosts;
        let ethernet = PacketBuilder::ethernet2(mac(src), mac(dst));
        let mut ip =
            etherparse::Ipv4Header::new(0, 64, 6u8.into(), [10, 0, 0, src], [10, 0, 0, dst]).expect("short");
        (ip.identification, ip.dont_fragment) = (ID, true);
        let address = |host| [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
        let v6 = etherparse::Ipv6Header {
            source: address(src),
            destination: address(dst),
            hop_limit: 64,
            ..Default::default()
        };
        let ip = match self.v6 {
            true => etherparse::IpHeaders::Ipv6(v6, Default::default()),
            false => etherparse::IpHeaders::Ipv4(ip, Default::default()),
        };
        let builder = match self.vlan {
            Some(id) => ethernet.single_vlan(id.try_into().expect("12 bits")).ip(ip),
            None => ethernet.ip(ip),
        };
        let mut frame = Vec::new();
        if self.tcp {
            let builder = builder.tcp(5001, 5002, SEQ, 1024).ack(77).fin().psh().cwr();
            let builder = builder.options(&[etherparse::TcpOptionElement::Timestamp(1, 2)]).expect("fits");
            builder.write(&mut frame, payload).expect("a vector takes all");
        } else {
            builder.udp(5001, 5002).write(&mut frame, payload).expect("a vector takes all");
        }
        frame
    }

    /// Builds the frame with an incomplete checksum, and the header that requests its completion.
    ///
    /// A driver passes such a frame to a device that completes checksums.
    pub fn unfinished(&self, payload: &[u8]) -> (Header, Vec<u8>) {
        let mut frame = self.frame(payload);
        let ip = if self.vlan.is_some() { 18 } else { 14 };
        let (start, addresses) =
            if self.v6 { (ip + 40, ip + 8..ip + 40) } else { (ip + 20, ip + 12..ip + 20) };
        let (protocol, offset) = if self.tcp { (6, 16) } else { (17, 6) };
        let length = (frame.len() - start) as u32;
        let words = frame[addresses].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let mut sum = words.sum::<u32>() + protocol + length;
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        frame[start + offset..][..2].copy_from_slice(&(sum as u16).to_be_bytes());
        let (csum_start, csum_offset) = (start as u16, offset as u16);
        (Header { flags: NEEDS_CSUM, csum_start, csum_offset, ..Header::default() }, frame)
    }

    /// Builds a frame whose TCP payload the device has to cut into segments of `size` bytes.
    ///
    /// Its checksum is incomplete too.
    pub fn uncut(&self, payload: &[u8], size: u16) -> (Header, Vec<u8>) {
        let (header, frame) = self.unfinished(payload);
        let gso_type = if self.v6 { GSO_TCPV6 } else { GSO_TCPV4 };
        let hdr_len = (frame.len() - payload.len()) as u16;
        (Header { gso_type, gso_size: size, hdr_len, ..header }, frame)
    }
}

/// Fields of a checked packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// TCP sequence number.
    pub seq: u32,
    /// IPv4 identification.
    pub id: u16,
    /// TCP's FIN, PSH and CWR.
    pub flags: [bool; 3],
    /// The payload.
    pub payload: Vec<u8>,
}

/// Parses a packet. Panics if a length or checksum is wrong.
pub fn check(frame: &[u8]) -> Checked {
    let sliced = SlicedPacket::from_ethernet(frame).expect("a packet");
    let net = sliced.net.expect("an IP packet");
    let transport = sliced.transport.expect("TCP or UDP");
    let (mut id, total) = match &net {
        NetSlice::Ipv4(v4) => {
            let header = v4.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum(), "IPv4 header checksum");
            (header.identification, usize::from(header.total_len))
        }
        NetSlice::Ipv6(v6) => (0, usize::from(v6.header().payload_length()) + 40),
        NetSlice::Arp(_) => panic!("ARP"),
    };
    let ip = frame.len() - total;
    assert!(ip == 14 || ip == 18, "{total} bytes of IP in a frame of {}", frame.len());
    let (found, wanted, seq, flags, payload) = match &transport {
        TransportSlice::Tcp(tcp) => {
            let wanted = match &net {
                NetSlice::Ipv4(v4) => tcp.calc_checksum_ipv4(v4.header().source(), v4.header().destination()),
                NetSlice::Ipv6(v6) => tcp.calc_checksum_ipv6(v6.header().source(), v6.header().destination()),
                NetSlice::Arp(_) => unreachable!("no ARP"),
            };
            let flags = [tcp.fin(), tcp.psh(), tcp.cwr()];
            (tcp.checksum(), wanted.expect("fits"), tcp.sequence_number(), flags, tcp.payload())
        }
        TransportSlice::Udp(udp) => {
            id = 0;
            let (header, payload) = (udp.to_header(), udp.payload());
            let wanted = match &net {
                NetSlice::Ipv4(v4) => {
                    header.calc_checksum_ipv4_raw(v4.header().source(), v4.header().destination(), payload)
                }
                NetSlice::Ipv6(v6) => {
                    header.calc_checksum_ipv6_raw(v6.header().source(), v6.header().destination(), payload)
                }
                NetSlice::Arp(_) => unreachable!("no ARP"),
            };
            (udp.checksum(), wanted.expect("fits"), 0, [false; 3], payload)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(found, wanted, "checksum");
    Checked { seq, id, flags, payload: payload.to_vec() }
}
