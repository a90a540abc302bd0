//! Reasons to drop a frame.

use core::fmt;

macro_rules! drops {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// Reason why a frame is not a valid packet.
        ///
        /// The sender or the wire is at fault. Each reason has a counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DropReason {
            $($(#[$doc])* $variant,)*
        }

        impl DropReason {
            /// All reasons, in the order of their declaration: `ALL[reason as usize] == reason`.
            pub const ALL: &[DropReason] = &[$(DropReason::$variant,)*];
            /// Number of reasons.
            pub const COUNT: usize = DropReason::ALL.len();

            /// Returns the stable name of this reason's counter.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DropReason::$variant => $name,)*
                }
            }
        }
    };
}

drops! {
    /// The frame ends before the end of a header, or before the end that a length field names.
    Truncated "truncated",
    /// Not UDP over IP to port 4791. For a reader of TCP: not TCP over IP.
    NotRoce "not_roce",
    /// The version of the IP header contradicts the EtherType.
    IpVersion "ip_version",
    /// An IPv4 header with options (annex A17 has none), or with an impossibly small length.
    IpHeaderLength "ip_header_length",
    /// The IPv4 header's checksum is wrong.
    IpChecksum "ip_checksum",
    /// The IPv4 total length leaves no room for the header itself.
    IpLength "ip_length",
    /// A fragment: RoCE packets are never fragmented.
    Fragment "fragment",
    /// An IPv4-mapped address in an IPv6 header: it would pass for the GID of an IPv4 host.
    MappedAddress "mapped_address",
    /// The UDP length contradicts the length of the IP payload.
    UdpLength "udp_length",
    /// A transport header version other than 0 (IBTA 9.2.5).
    BthVersion "bth_version",
    /// An opcode of an unsupported service or operation (IBTA 9.2.1).
    UnknownOpcode "unknown_opcode",
    /// The payload with its padding is not a multiple of 4 bytes, or is shorter than the padding.
    Pad "pad",
    /// The payload's length is not one that the opcode allows.
    PayloadLength "payload_length",
    /// A reserved AETH syndrome (IBTA 9.7.5.1).
    Syndrome "syndrome",
    /// The invariant CRC is wrong.
    Icrc "icrc",
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for DropReason {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_in_order_and_have_names_of_their_own() {
        for (i, a) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*a as usize, i);
            assert!(a.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{a}");
            assert!(DropReason::ALL[..i].iter().all(|b| b.name() != a.name()), "{a}");
        }
    }
}
