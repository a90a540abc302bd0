//! Marks of packets, by which switches tell traffic apart.

/// What the packets of a device have instead of what programs ask for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// Differentiated services code point, 0 to 63 (RFC 2474). It replaces the upper six bits of
    /// the traffic class. Higher bits are ignored.
    pub dscp: Option<u8>,
    /// Priority of packets in VLANs, 0 to 7 (IEEE 802.1Q). It replaces the service level. Higher
    /// bits are ignored.
    pub pcp: Option<u8>,
}

impl Marks {
    /// Returns the traffic class of a packet for which a program asks for `asked`.
    #[inline]
    pub(crate) fn traffic_class(self, asked: u8) -> u8 {
        self.dscp.map_or(asked, |dscp| dscp << 2 | asked & 3)
    }

    /// Returns the priority in a VLAN of a packet for which a program asks for `asked`.
    #[inline]
    pub(crate) fn priority(self, asked: u8) -> u8 {
        self.pcp.map_or(asked, |pcp| pcp & 7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_replace_what_programs_ask_for_but_not_the_bits_of_ecn() {
        let marks = Marks { dscp: Some(46), pcp: Some(5) };
        assert_eq!((marks.traffic_class(0b0000_0110), marks.priority(1)), (46 << 2 | 2, 5));
        assert_eq!((Marks::default().traffic_class(0xff), Marks::default().priority(7)), (0xff, 7));
        let wild = Marks { dscp: Some(0xff), pcp: Some(0xff) };
        assert_eq!((wild.traffic_class(0), wild.priority(0)), (0xfc, 7));
    }
}
