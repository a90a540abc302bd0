//! Why a frame is dropped.

use core::fmt;

macro_rules! drops {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// Why a frame is no packet that anybody could take. The fault is the sender's or the
        /// wire's; each is worth a counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Drop {
            $($(#[$doc])* $variant,)*
        }

        impl Drop {
            /// Every reason, in the order of their declaration: `ALL[reason as usize] == reason`.
            pub const ALL: &[Drop] = &[$(Drop::$variant,)*];
            /// How many reasons there are.
            pub const COUNT: usize = Drop::ALL.len();

            /// The name of this reason's counter; it stays.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Drop::$variant => $name,)*
                }
            }
        }
    };
}

drops! {
    /// It ends before a header or length of it says.
    Truncated "truncated",
    /// Not UDP over IP to port 4791.
    NotRoce "not_roce",
    /// The IP header is not of the version that the EtherType says.
    IpVersion "ip_version",
    /// An IPv4 header with options (annex A17 knows none), or shorter than a header is.
    IpHeaderLength "ip_header_length",
    /// The IPv4 header's checksum is wrong.
    IpChecksum "ip_checksum",
    /// The IPv4 total length leaves no room for the header itself.
    IpLength "ip_length",
    /// A fragment: RoCE packets are never fragmented.
    Fragment "fragment",
    /// An IPv4-mapped address in an IPv6 header: it would pass for the GID of an IPv4 host.
    MappedAddress "mapped_address",
    /// The UDP length is not what the IP header leaves.
    UdpLength "udp_length",
    /// A transport header version other than 0 (IBTA 9.2.5).
    BthVersion "bth_version",
    /// An opcode of no service that is spoken here (IBTA 9.2.1).
    UnknownOpcode "unknown_opcode",
    /// The payload with its padding is no multiple of 4 bytes, or less than the padding.
    Pad "pad",
    /// A payload where the opcode has none, or another length than it has.
    PayloadLength "payload_length",
    /// An AETH syndrome without a meaning (IBTA 9.7.5.1).
    Syndrome "syndrome",
    /// The invariant CRC is wrong.
    Icrc "icrc",
}

impl fmt::Display for Drop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Drop {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_in_order_and_have_names_of_their_own() {
        for (i, a) in Drop::ALL.iter().enumerate() {
            assert_eq!(*a as usize, i);
            assert!(a.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{a}");
            assert!(Drop::ALL[..i].iter().all(|b| b.name() != a.name()), "{a}");
        }
    }
}
