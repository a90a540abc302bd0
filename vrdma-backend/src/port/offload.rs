//! Checksums that a port fills in.

/// Kinds of checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksums {
    /// The checksum of the IPv4 header.
    pub ipv4: bool,
    /// The UDP checksum.
    pub udp: bool,
    /// The TCP checksum.
    pub tcp: bool,
}

/// A request that the port fill in checksums of kinds that it supports.
///
/// The checksum fields of UDP and TCP hold the sum of the pseudo header, as in virtio-net.
#[derive(Clone, Copy, Debug)]
pub struct Offload {
    /// The checksums to fill in.
    pub fill: Checksums,
    /// Whether the packet is IPv6, not IPv4.
    pub ipv6: bool,
    /// The number of bytes before the IP header.
    pub l2_len: u16,
    /// The number of bytes in the IP header.
    pub l3_len: u16,
}

impl Offload {
    /// Builds the request to fill in a UDP or TCP checksum.
    ///
    /// The checksum covers all bytes of `frame` from `start` on, and is stored at `start + offset`.
    /// `None` if it is neither of UDP nor of TCP, or if the port does not support it.
    pub fn of(frame: &[u8], start: u16, offset: u16, can: Checksums) -> Option<Offload> {
        let fill = match offset {
            6 => Checksums { udp: true, ..Checksums::default() },
            16 => Checksums { tcp: true, ..Checksums::default() },
            _ => return None,
        };
        let able = (!fill.udp || can.udp) && (!fill.tcp || can.tcp);
        let at = |place: usize| Some(u16::from_be_bytes([*frame.get(place)?, *frame.get(place + 1)?]));
        let (kind, l2_len) = match at(12)? {
            0x8100 => (at(16)?, 18),
            kind => (kind, 14),
        };
        let l3_len = start.checked_sub(l2_len)?;
        let ipv6 = kind == 0x86dd;
        let header = frame.get(usize::from(l2_len)..usize::from(start))?;
        // Extension headers are excluded, because not every device knows them.
        let plain = match kind {
            0x0800 => {
                header.len() >= 20 && header[0] >> 4 == 4 && usize::from(header[0] & 15) * 4 == header.len()
            }
            0x86dd => header.len() == 40,
            _ => false,
        };
        let protocol = header.get(if ipv6 { 6 } else { 9 })?;
        let right = *protocol == if fill.udp { 17 } else { 6 };
        (able && plain && right).then_some(Offload { fill, ipv6, l2_len, l3_len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Checksums = Checksums { ipv4: true, udp: true, tcp: true };

    /// Returns a frame with these bytes from the EtherType on, and 60 more bytes.
    fn frame(rest: &[u8]) -> Vec<u8> {
        [&[2; 12], rest, &[0; 60]].concat()
    }

    fn ipv4(protocol: u8) -> Vec<u8> {
        frame(&[8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol])
    }

    #[test]
    fn udp_and_tcp_are_told_apart() {
        let udp = Offload::of(&ipv4(17), 34, 6, ALL).unwrap();
        assert!(udp.fill.udp && !udp.fill.tcp && !udp.ipv6 && (udp.l2_len, udp.l3_len) == (14, 20));
        let tcp = frame(&[0x81, 0, 0, 5, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 6]);
        let tcp = Offload::of(&tcp, 58, 16, ALL).unwrap();
        assert!(tcp.fill.tcp && !tcp.fill.udp && tcp.ipv6 && (tcp.l2_len, tcp.l3_len) == (18, 40));
    }

    #[test]
    fn what_is_neither_or_beyond_the_port_is_not_left_to_it() {
        let none = Checksums::default();
        let six = frame(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17]);
        for (frame, start, offset, can) in [
            (&ipv4(17), 34, 6, none),
            (&ipv4(6), 34, 16, Checksums { udp: true, ..none }),
            (&ipv4(17), 34, 16, ALL),
            (&ipv4(6), 34, 6, ALL),
            (&ipv4(1), 34, 2, ALL),
            (&ipv4(17), 38, 6, ALL),
            (&ipv4(17), 13, 6, ALL),
            (&ipv4(17), 1000, 6, ALL),
            (&ipv4(17), 0, 6, ALL),
            (&six, 62, 6, ALL),
            (&vec![0; 13], 34, 6, ALL),
            (&vec![], 0, 6, ALL),
        ] {
            assert!(Offload::of(frame, start, offset, can).is_none(), "{start} {offset} {can:?} {frame:x?}");
        }
    }
}
