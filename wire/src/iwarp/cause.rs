//! Errors that a TERMINATE can report.
//!
//! Sources: RFC 5040, 4.8; the registry of RFC 6580; RFC 6581 for set-up.

use core::fmt;

/// Layer, error type and error code of a TERMINATE, as on the wire. A peer may send any values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code {
    /// Layer that found the error, 4 bits: 0 RDMAP, 1 DDP, 2 the layer below (MPA).
    pub layer: u8,
    /// Error type, 4 bits. Each layer has its own types.
    pub etype: u8,
    /// Error code within the type.
    pub code: u8,
}

macro_rules! causes {
    ($($(#[$doc:meta])* $variant:ident $layer:literal $etype:literal $code:literal $text:literal,)*) => {
        /// Errors that the RFCs define.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Cause {
            $($(#[$doc])* $variant,)*
        }

        impl Cause {
            /// All causes, in the order of their codes.
            pub const ALL: &[Cause] = &[$(Cause::$variant,)*];

            /// Returns the code of a TERMINATE for this cause.
            pub const fn code(self) -> Code {
                match self {
                    $(Cause::$variant => Code { layer: $layer, etype: $etype, code: $code },)*
                }
            }

            /// Returns the cause of a TERMINATE's code, or `None` if no RFC defines it.
            pub const fn from_code(code: Code) -> Option<Cause> {
                // For RDMAP's local catastrophic errors, the code has no meaning, and any is valid.
                if code.layer == 0 && code.etype == 0 {
                    return Some(Cause::RdmapCatastrophic);
                }
                Some(match (code.layer, code.etype, code.code) {
                    $(($layer, $etype, $code) => Cause::$variant,)*
                    _ => return None,
                })
            }

            const fn text(self) -> &'static str {
                match self {
                    $(Cause::$variant => $text,)*
                }
            }
        }
    };
}

causes! {
    /// RDMAP, local catastrophic error.
    RdmapCatastrophic 0 0 0x00 "RDMAP: local catastrophic error",
    /// RDMAP, remote protection error: no such STag.
    RdmapInvalidStag 0 1 0x00 "RDMAP: invalid STag",
    /// RDMAP, remote protection error: outside the region.
    RdmapBounds 0 1 0x01 "RDMAP: base or bounds violation",
    /// RDMAP, remote protection error: the region does not allow the access.
    RdmapAccess 0 1 0x02 "RDMAP: access rights violation",
    /// RDMAP, remote protection error: the STag belongs to another connection or protection domain.
    RdmapStagNotAssociated 0 1 0x03 "RDMAP: STag not associated with the stream",
    /// RDMAP, remote protection error: beyond the last tagged offset.
    RdmapOffsetWrap 0 1 0x04 "RDMAP: tagged offset wraps",
    /// RDMAP, remote protection error: the STag must not be invalidated.
    RdmapProtectedInvalidate 0 1 0x09 "RDMAP: STag cannot be invalidated (protection)",
    /// RDMAP, remote protection error of another kind.
    RdmapProtection 0 1 0xff "RDMAP: unspecified protection error",
    /// RDMAP, remote operation error: an unsupported version.
    RdmapVersion 0 2 0x05 "RDMAP: invalid version",
    /// RDMAP, remote operation error: an opcode that is unknown or unexpected.
    RdmapOpcode 0 2 0x06 "RDMAP: unexpected opcode",
    /// RDMAP, remote operation error: this connection is lost.
    RdmapStreamCatastrophic 0 2 0x07 "RDMAP: catastrophic error of the stream",
    /// RDMAP, remote operation error: all connections are lost.
    RdmapGlobalCatastrophic 0 2 0x08 "RDMAP: catastrophic error, global",
    /// RDMAP, remote operation error: the STag cannot be invalidated.
    RdmapCannotInvalidate 0 2 0x09 "RDMAP: STag cannot be invalidated",
    /// RDMAP, remote operation error of another kind.
    RdmapOperation 0 2 0xff "RDMAP: unspecified operation error",
    /// DDP, local catastrophic error.
    DdpCatastrophic 1 0 0x00 "DDP: local catastrophic error",
    /// DDP, tagged buffer error: no such STag.
    TaggedInvalidStag 1 1 0x00 "DDP: invalid STag",
    /// DDP, tagged buffer error: outside the region.
    TaggedBounds 1 1 0x01 "DDP: base or bounds violation",
    /// DDP, tagged buffer error: the STag belongs to another connection or protection domain.
    TaggedStagNotAssociated 1 1 0x02 "DDP: STag not associated with the stream",
    /// DDP, tagged buffer error: beyond the last tagged offset.
    TaggedOffsetWrap 1 1 0x03 "DDP: tagged offset wraps",
    /// DDP, tagged buffer error: an unsupported version.
    TaggedVersion 1 1 0x04 "DDP: invalid version of a tagged segment",
    /// DDP, untagged buffer error: no such queue, or the wrong queue for the message.
    UntaggedQueue 1 2 0x01 "DDP: invalid queue number",
    /// DDP, untagged buffer error: no buffer for this message.
    UntaggedNoBuffer 1 2 0x02 "DDP: invalid MSN, no buffer available",
    /// DDP, untagged buffer error: a message out of range.
    UntaggedMsn 1 2 0x03 "DDP: invalid MSN, out of range",
    /// DDP, untagged buffer error: an impossible offset.
    UntaggedOffset 1 2 0x04 "DDP: invalid message offset",
    /// DDP, untagged buffer error: the message is longer than the buffer.
    UntaggedTooLong 1 2 0x05 "DDP: message too long for its buffer",
    /// DDP, untagged buffer error: an unsupported version.
    UntaggedVersion 1 2 0x06 "DDP: invalid version of an untagged segment",
    /// MPA: the TCP connection was closed, reset or lost.
    MpaConnectionLost 2 0 0x01 "MPA: TCP connection closed, terminated or lost",
    /// MPA: a wrong CRC.
    MpaCrc 2 0 0x02 "MPA: CRC error",
    /// MPA: a marker does not point to the length of its FPDU.
    MpaMarker 2 0 0x03 "MPA: marker and ULPDU length do not match",
    /// MPA: no valid request or reply.
    MpaSetUp 2 0 0x04 "MPA: invalid request or reply",
    /// MPA (RFC 6581): local catastrophic error.
    MpaCatastrophic 2 0 0x05 "MPA: local catastrophic error",
    /// MPA (RFC 6581): the responder wants more outstanding READs than the initiator has room for.
    MpaInsufficientIrd 2 0 0x06 "MPA: insufficient IRD resources",
    /// MPA (RFC 6581): the two ends have no kind of ready-to-receive message in common.
    MpaNoMatchingRtr 2 0 0x07 "MPA: no matching RTR option",
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Cause::from_code(*self) {
            Some(cause) => cause.fmt(f),
            None => write!(f, "layer {}, error type {}, code {:#04x}", self.layer, self.etype, self.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_and_codes_agree() {
        for (i, &cause) in Cause::ALL.iter().enumerate() {
            assert_eq!(cause as usize, i);
            assert_eq!(Cause::from_code(cause.code()), Some(cause));
        }
        let triple = |cause: Cause| (cause.code().layer, cause.code().etype, cause.code().code);
        assert!(Cause::ALL.is_sorted_by_key(|&cause| triple(cause)), "each code once, in order");
        assert!(Cause::ALL.windows(2).all(|pair| triple(pair[0]) != triple(pair[1])));
    }

    #[test]
    fn codes_that_no_rfc_knows_are_shown_as_numbers() {
        let code = |layer, etype, code| Code { layer, etype, code };
        assert_eq!(Cause::from_code(code(0, 0, 0x77)), Some(Cause::RdmapCatastrophic));
        for unknown in [code(0, 1, 0x05), code(0, 3, 0), code(1, 3, 0), code(2, 1, 1), code(15, 15, 255)] {
            assert_eq!(Cause::from_code(unknown), None);
        }
        assert_eq!(std::format!("{}", code(2, 1, 1)), "layer 2, error type 1, code 0x01");
        assert_eq!(std::format!("{}", code(2, 0, 2)), "MPA: CRC error");
    }

    extern crate std;
}
