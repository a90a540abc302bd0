//! Faults in the bytes of a peer.

use super::cause::Cause;
use core::fmt;

macro_rules! faults {
    ($($(#[$doc:meta])* $variant:ident $name:literal $cause:ident,)*) => {
        /// A fault in the bytes of a peer that is visible without any state.
        ///
        /// Each fault ends the connection, and has a counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[$doc])* $variant,)*
        }

        impl Fault {
            /// All faults, in the order of their declaration: `ALL[fault as usize] == fault`.
            pub const ALL: &[Fault] = &[$(Fault::$variant,)*];

            /// Returns the stable name of this fault's counter.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Fault::$variant => $name,)*
                }
            }

            /// Returns the cause of the TERMINATE for this fault.
            ///
            /// Before full operation no TERMINATE can be sent, and the connection is closed.
            pub const fn cause(self) -> Cause {
                match self {
                    $(Fault::$variant => Cause::$cause,)*
                }
            }
        }
    };
}

faults! {
    /// Not a request or reply: the key of one is missing at its beginning (RFC 5044, 7.1.1).
    Key "mpa_key" MpaSetUp,
    /// A request or reply of a revision other than 1 and 2.
    Revision "mpa_revision" MpaSetUp,
    /// Private data of more than 512 bytes.
    PrivateDataLength "mpa_private_data_length" MpaSetUp,
    /// The flag of the enhanced set-up without room for its IRD and ORD (RFC 6581).
    EnhancedLength "mpa_enhanced_length" MpaSetUp,
    /// A marker that does not point to the beginning of its FPDU (RFC 5044, 4.3). Also an FPDU that
    /// does not end where the next FPDU is known to begin, at a TCP segment of the peer.
    Marker "mpa_marker" MpaMarker,
    /// A wrong CRC (RFC 5044, 4.4).
    Crc "mpa_crc" MpaCrc,
    /// An FPDU that is longer than the receiver's buffer for one.
    FpduTooLong "mpa_fpdu_too_long" MpaCatastrophic,
    /// A segment that ends within its header. The RFCs have no own code for it.
    SegmentLength "ddp_segment_length" DdpCatastrophic,
    /// A tagged segment of a DDP version other than 1.
    TaggedVersion "ddp_tagged_version" TaggedVersion,
    /// An untagged segment of a DDP version other than 1.
    UntaggedVersion "ddp_untagged_version" UntaggedVersion,
    /// A tagged segment that goes beyond the last tagged offset.
    TaggedOffsetWrap "ddp_tagged_offset_wrap" TaggedOffsetWrap,
    /// A queue that RDMAP does not have, or the wrong queue for the message.
    Queue "ddp_queue" UntaggedQueue,
    /// A message offset in a message that has only one segment, or beyond the greatest length of a
    /// message.
    MessageOffset "ddp_message_offset" UntaggedOffset,
    /// A message that is longer than its kind allows.
    MessageTooLong "ddp_message_too_long" UntaggedTooLong,
    /// An RDMAP version other than 1.
    RdmapVersion "rdmap_version" RdmapVersion,
    /// An opcode that RDMAP does not have. Also a tagged opcode in an untagged segment, or the
    /// reverse.
    Opcode "rdmap_opcode" RdmapOpcode,
    /// A message that is shorter than its kind allows. The RFCs have no own code for it.
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
