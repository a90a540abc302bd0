//! What is wrong with bytes of a peer.

use super::cause::Cause;
use core::fmt;

macro_rules! faults {
    ($($(#[$doc:meta])* $variant:ident $name:literal $cause:ident,)*) => {
        /// What is wrong with bytes of a peer, as far as they show it by themselves. Each ends the
        /// connection, and is worth a counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[$doc])* $variant,)*
        }

        impl Fault {
            /// Every fault, in the order of their declaration: `ALL[fault as usize] == fault`.
            pub const ALL: &[Fault] = &[$(Fault::$variant,)*];

            /// The name of this fault's counter; it stays.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Fault::$variant => $name,)*
                }
            }

            /// What a TERMINATE says of it. Before full operation none can be sent: the connection
            /// is closed.
            pub const fn cause(self) -> Cause {
                match self {
                    $(Fault::$variant => Cause::$cause,)*
                }
            }
        }
    };
}

faults! {
    /// No request or reply: it does not begin with the key of one (RFC 5044, 7.1.1).
    Key "mpa_key" MpaSetUp,
    /// A request or reply of a revision other than 1 and 2.
    Revision "mpa_revision" MpaSetUp,
    /// Private data of more than 512 bytes.
    PrivateDataLength "mpa_private_data_length" MpaSetUp,
    /// The enhanced set-up's flag, and no room for its IRD and ORD (RFC 6581).
    EnhancedLength "mpa_enhanced_length" MpaSetUp,
    /// A marker that does not point to the beginning of its FPDU (RFC 5044, 4.3); or an FPDU that
    /// does not end where the peer's next TCP segment is said to begin with another.
    Marker "mpa_marker" MpaMarker,
    /// A wrong CRC (RFC 5044, 4.4).
    Crc "mpa_crc" MpaCrc,
    /// An FPDU that is longer than the receiver's buffer for one.
    FpduTooLong "mpa_fpdu_too_long" MpaCatastrophic,
    /// A segment that ends within its header. The RFCs have no code of its own for it.
    SegmentLength "ddp_segment_length" DdpCatastrophic,
    /// A tagged segment of a DDP version other than 1.
    TaggedVersion "ddp_tagged_version" TaggedVersion,
    /// An untagged segment of a DDP version other than 1.
    UntaggedVersion "ddp_untagged_version" UntaggedVersion,
    /// A tagged segment that goes beyond the last tagged offset.
    TaggedOffsetWrap "ddp_tagged_offset_wrap" TaggedOffsetWrap,
    /// A queue that RDMAP does not have, or not that of the message.
    Queue "ddp_queue" UntaggedQueue,
    /// A message offset where the message has one segment only, or beyond what a message can have.
    MessageOffset "ddp_message_offset" UntaggedOffset,
    /// A message that is longer than one of its kind is.
    MessageTooLong "ddp_message_too_long" UntaggedTooLong,
    /// An RDMAP version other than 1.
    RdmapVersion "rdmap_version" RdmapVersion,
    /// An opcode that RDMAP does not have, or a tagged one untagged, or the other way round.
    Opcode "rdmap_opcode" RdmapOpcode,
    /// A message that is shorter than one of its kind is. The RFCs have no code of its own for it.
    MessageTooShort "rdmap_message_too_short" RdmapOperation,
    /// A READ request whose source or sink goes beyond the last tagged offset.
    ReadOffsetWrap "rdmap_read_offset_wrap" RdmapOffsetWrap,
    /// An atomic operation that RFC 7306 does not have.
    AtomicOpcode "rdmap_atomic_opcode" RdmapOpcode,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_in_order_and_have_names_of_their_own() {
        for (i, a) in Fault::ALL.iter().enumerate() {
            assert_eq!(*a as usize, i);
            assert!(a.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{a}");
            assert!(Fault::ALL[..i].iter().all(|b| b.name() != a.name()), "{a}");
        }
    }

    #[test]
    fn the_name_says_the_layer_that_the_terminate_says() {
        for fault in Fault::ALL {
            let layer = ["rdmap_", "ddp_", "mpa_"].iter().position(|layer| fault.name().starts_with(layer));
            assert_eq!(layer, Some(usize::from(fault.cause().code().layer)), "{fault}");
        }
    }
}
