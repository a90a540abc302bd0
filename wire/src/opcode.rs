//! The opcodes of IB packets (IBTA 9.2.1).

macro_rules! opcodes {
    ($($(#[$doc:meta])* $variant:ident $number:literal,)*) => {
        /// The opcode of a packet: service and operation.
        ///
        /// XRC's opcodes are not variants. They have the operations of RC's opcodes (`of_xrc`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])* $variant = $number,)*
        }

        impl Opcode {
            /// All opcodes, in ascending order.
            pub const ALL: &[Opcode] = &[$(Opcode::$variant,)*];

            /// Returns the opcode of this number, or `None` if it is not supported.
            ///
            /// Reserved opcodes, RD, and vendors' own opcodes are not supported.
            pub const fn from_number(number: u8) -> Option<Opcode> {
                Some(match number {
                    $($number => Opcode::$variant,)*
                    _ => return None,
                })
            }
        }
    };
}

opcodes! {
    /// RC SEND First
    RcSendFirst 0x00,
    /// RC SEND Middle
    RcSendMiddle 0x01,
    /// RC SEND Last
    RcSendLast 0x02,
    /// RC SEND Last with Immediate
    RcSendLastImm 0x03,
    /// RC SEND Only
    RcSendOnly 0x04,
    /// RC SEND Only with Immediate
    RcSendOnlyImm 0x05,
    /// RC RDMA WRITE First
    RcWriteFirst 0x06,
    /// RC RDMA WRITE Middle
    RcWriteMiddle 0x07,
    /// RC RDMA WRITE Last
    RcWriteLast 0x08,
    /// RC RDMA WRITE Last with Immediate
    RcWriteLastImm 0x09,
    /// RC RDMA WRITE Only
    RcWriteOnly 0x0a,
    /// RC RDMA WRITE Only with Immediate
    RcWriteOnlyImm 0x0b,
    /// RC RDMA READ Request
    RcReadRequest 0x0c,
    /// RC RDMA READ Response First
    RcReadResponseFirst 0x0d,
    /// RC RDMA READ Response Middle
    RcReadResponseMiddle 0x0e,
    /// RC RDMA READ Response Last
    RcReadResponseLast 0x0f,
    /// RC RDMA READ Response Only
    RcReadResponseOnly 0x10,
    /// RC Acknowledge
    RcAck 0x11,
    /// RC ATOMIC Acknowledge
    RcAtomicAck 0x12,
    /// RC CmpSwap
    RcCompareSwap 0x13,
    /// RC FetchAdd
    RcFetchAdd 0x14,
    /// RC SEND Last with Invalidate
    RcSendLastInvalidate 0x16,
    /// RC SEND Only with Invalidate
    RcSendOnlyInvalidate 0x17,
    /// RC FLUSH
    RcFlush 0x1c,
    /// RC ATOMIC WRITE
    RcAtomicWrite 0x1d,
    /// UC SEND First
    UcSendFirst 0x20,
    /// UC SEND Middle
    UcSendMiddle 0x21,
    /// UC SEND Last
    UcSendLast 0x22,
    /// UC SEND Last with Immediate
    UcSendLastImm 0x23,
    /// UC SEND Only
    UcSendOnly 0x24,
    /// UC SEND Only with Immediate
    UcSendOnlyImm 0x25,
    /// UC RDMA WRITE First
    UcWriteFirst 0x26,
    /// UC RDMA WRITE Middle
    UcWriteMiddle 0x27,
    /// UC RDMA WRITE Last
    UcWriteLast 0x28,
    /// UC RDMA WRITE Last with Immediate
    UcWriteLastImm 0x29,
    /// UC RDMA WRITE Only
    UcWriteOnly 0x2a,
    /// UC RDMA WRITE Only with Immediate
    UcWriteOnlyImm 0x2b,
    /// UD SEND Only
    UdSendOnly 0x64,
    /// UD SEND Only with Immediate
    UdSendOnlyImm 0x65,
    /// Congestion notification packet (annex A17)
    Cnp 0x81,
}

/// The bits of an opcode that name its service: the upper three.
const SERVICE: u8 = 0b1110_0000;
/// The service bits of XRC (annex A14).
const XRC: u8 = 0b1010_0000;

impl Opcode {
    /// Returns the opcode of RC with the operation of the XRC opcode `number`.
    ///
    /// Returns `None` if `number` is not an opcode of XRC.
    pub(crate) const fn of_xrc(number: u8) -> Option<Opcode> {
        if number & SERVICE == XRC { Opcode::from_number(number & !SERVICE) } else { None }
    }

    /// Returns whether RC packets with this opcode go from the responder to the requester.
    pub(crate) const fn is_response(self) -> bool {
        use Opcode as O;
        matches!(
            self,
            O::RcReadResponseFirst
                | O::RcReadResponseMiddle
                | O::RcReadResponseLast
                | O::RcReadResponseOnly
                | O::RcAck
                | O::RcAtomicAck
        )
    }

    /// Returns the number of the XRC opcode with the operation of this RC opcode.
    pub(crate) const fn xrc_number(self) -> u8 {
        XRC | self as u8 & !SERVICE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xrc_has_the_operations_of_rc_and_no_others() {
        for number in 0..=255 {
            let of_rc = (0xa0..=0xbf).contains(&number).then(|| Opcode::from_number(number - 0xa0)).flatten();
            assert_eq!(Opcode::of_xrc(number), of_rc, "{number:#x}");
            assert!(of_rc.is_none_or(|opcode| opcode.xrc_number() == number && (opcode as u8) < 0x20));
        }
    }

    #[test]
    fn numbers_and_opcodes_agree() {
        let known: usize = (0..=255).filter_map(Opcode::from_number).count();
        assert_eq!(known, Opcode::ALL.len());
        assert!(Opcode::ALL.is_sorted());
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::from_number(opcode as u8), Some(opcode));
        }
    }
}
