//! Translates a completion of the engine to a CQE.

use vrdma_abi::cqe::{self, flags};
use vrdma_transport::{Completion, WcOpcode, WcStatus};

/// A CQE as the four words that a ring stores. The phase bit is 0: the ring sets it.
///
/// The words are assembled in registers. A `Cqe` would be written field by field, and then read in
/// words. Such a read waits until the processor's store buffer has drained, and that buffer is full
/// of lines that guests' processors have cached.
#[derive(Clone, Copy, Debug)]
pub struct CqeWords(pub [u64; 4]);

impl CqeWords {
    /// Lays out the CQE of a completion.
    #[inline(always)]
    pub fn new(completion: &Completion) -> CqeWords {
        let source = completion.srq.map_or(completion.src_qpn.number(), |srq| srq.0);
        // In memory, the 4 bytes are in the order in which the peer posted them.
        let imm = match completion.invalidated {
            Some(key) => key.0.swap_bytes(),
            None => completion.imm.map_or(0, |imm| u32::from_le_bytes(imm.to_bytes())),
        };
        let (smac, vlan) = completion.arrival.map_or((0, NO_VLAN), |arrival| {
            let [a, b, c, d, e, f] = arrival.smac.0;
            (u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), arrival.vlan.unwrap_or(NO_VLAN))
        });
        let last = u64::from(vlan) << 16
            | u64::from(completion.opcode as u8) << 32
            | u64::from(status(completion.status).0) << 40
            | u64::from(flags(completion)) << 48;
        CqeWords([
            pair(completion.id, completion.qpn.number()),
            pair(completion.byte_len, imm),
            u64::from(source) | smac << 32,
            smac >> 32 | last,
        ])
    }
}

/// [`Cqe::vlan`](vrdma_abi::cqe::Cqe::vlan) of messages without a VLAN.
const NO_VLAN: u16 = 0xffff;

#[inline]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline]
fn flags(completion: &Completion) -> u8 {
    let recv = matches!(completion.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm);
    let bit = |is: bool, bit: u8| if is { bit } else { 0 };
    bit(recv, flags::RECV)
        | bit(completion.imm.is_some(), flags::IMM)
        | bit(completion.invalidated.is_some(), flags::INV)
        | bit(completion.solicited, flags::SOLICITED)
        | bit(completion.arrival.is_some(), flags::GRH)
        | bit(completion.srq.is_some(), flags::XRC)
}

/// Returns the number of a status.
///
/// The numbers of opcodes are equal on both sides. If those of statuses were too, the compiler
/// would load both fields of the completion together (see [`Completion`]).
#[inline]
fn status(status: WcStatus) -> cqe::WcStatus {
    match status {
        WcStatus::Success => cqe::WcStatus::SUCCESS,
        WcStatus::LocLen => cqe::WcStatus::LOC_LEN_ERR,
        WcStatus::LocQpOp => cqe::WcStatus::LOC_QP_OP_ERR,
        WcStatus::LocProt => cqe::WcStatus::LOC_PROT_ERR,
        WcStatus::Flush => cqe::WcStatus::WR_FLUSH_ERR,
        WcStatus::MwBind => cqe::WcStatus::MW_BIND_ERR,
        WcStatus::BadResp => cqe::WcStatus::BAD_RESP_ERR,
        WcStatus::LocAccess => cqe::WcStatus::LOC_ACCESS_ERR,
        WcStatus::RemInvReq => cqe::WcStatus::REM_INV_REQ_ERR,
        WcStatus::RemAccess => cqe::WcStatus::REM_ACCESS_ERR,
        WcStatus::RemOp => cqe::WcStatus::REM_OP_ERR,
        WcStatus::RetryExc => cqe::WcStatus::RETRY_EXC_ERR,
        WcStatus::RnrRetryExc => cqe::WcStatus::RNR_RETRY_EXC_ERR,
        WcStatus::General => cqe::WcStatus::GENERAL_ERR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vrdma_abi::cqe::Cqe;
    use vrdma_transport::{Arrival, SrqId};
    use vrdma_wire::num::{Imm, Mac, Qpn, Rkey};

    fn cqe(completion: &Completion) -> Cqe {
        vrdma_abi::zerocopy::transmute!(CqeWords::new(completion).0.map(u64::to_le))
    }

    #[test]
    fn each_field_lands_where_it_belongs() {
        let completion = Completion {
            id: 0x11,
            qpn: Qpn::new(0x22).unwrap(),
            opcode: WcOpcode::RecvWriteImm,
            status: WcStatus::RnrRetryExc,
            byte_len: 0x33,
            imm: Some(Imm::from_bytes([1, 2, 3, 4])),
            invalidated: None,
            src_qpn: Qpn::new(0x44).unwrap(),
            solicited: true,
            srq: None,
            arrival: None,
        };
        let found = cqe(&completion);
        assert_eq!(
            (found.wqe_id.get(), found.qpn.get(), found.byte_len.get(), found.src_qpn.get()),
            (0x11, 0x22, 0x33, 0x44)
        );
        assert_eq!(found.imm.to_bytes(), [1, 2, 3, 4]);
        assert_eq!((found.opcode, found.status), (129, 13));
        assert_eq!(found.flags, flags::RECV | flags::IMM | flags::SOLICITED);
        assert_eq!((found.smac, found.vlan.get()), ([0; 6], 0xffff));
        let arrival = Arrival { smac: Mac([2, 3, 4, 5, 6, 7]), vlan: Some(9) };
        let found = cqe(&Completion { opcode: WcOpcode::Recv, arrival: Some(arrival), ..completion });
        assert_eq!((found.smac, found.vlan.get()), ([2, 3, 4, 5, 6, 7], 9));
        assert_eq!(found.flags, flags::RECV | flags::IMM | flags::SOLICITED | flags::GRH);
        let invalidated = Some(Rkey(0x0102_0304));
        let found = cqe(&Completion { opcode: WcOpcode::Recv, imm: None, invalidated, ..completion });
        assert_eq!(
            (found.imm.get(), found.flags),
            (0x0102_0304, flags::RECV | flags::INV | flags::SOLICITED)
        );
        let found =
            cqe(&Completion { opcode: WcOpcode::Recv, imm: None, srq: Some(SrqId(0x55)), ..completion });
        assert_eq!(
            (found.src_qpn.get(), found.qpn.get(), found.flags),
            (0x55, 0x22, flags::RECV | flags::XRC | flags::SOLICITED)
        );
        assert_eq!(cqe_flags(WcOpcode::Send), 0);
    }

    #[test]
    fn operations_have_the_numbers_of_the_abi() {
        let pairs = [
            (WcOpcode::Send, cqe::WcOpcode::SEND),
            (WcOpcode::Write, cqe::WcOpcode::RDMA_WRITE),
            (WcOpcode::Read, cqe::WcOpcode::RDMA_READ),
            (WcOpcode::CompareSwap, cqe::WcOpcode::COMP_SWAP),
            (WcOpcode::FetchAdd, cqe::WcOpcode::FETCH_ADD),
            (WcOpcode::AtomicWrite, cqe::WcOpcode::ATOMIC_WRITE),
            (WcOpcode::Flush, cqe::WcOpcode::FLUSH),
            (WcOpcode::BindMw, cqe::WcOpcode::BIND_MW),
            (WcOpcode::LocalInvalidate, cqe::WcOpcode::LOCAL_INV),
            (WcOpcode::RegMr, cqe::WcOpcode::REG_MR),
            (WcOpcode::Recv, cqe::WcOpcode::RECV),
            (WcOpcode::RecvWriteImm, cqe::WcOpcode::RECV_RDMA_WITH_IMM),
        ];
        for (engine, abi) in pairs {
            assert_eq!(engine as u8, abi.0, "{engine:?}");
        }
        assert_eq!(pairs.len(), cqe::WcOpcode::INFO.consts.len(), "an operation is missing here");
    }

    fn cqe_flags(opcode: WcOpcode) -> u8 {
        cqe(&Completion {
            id: 0,
            qpn: Qpn::default(),
            opcode,
            status: WcStatus::Success,
            byte_len: 0,
            imm: None,
            invalidated: None,
            src_qpn: Qpn::default(),
            solicited: false,
            srq: None,
            arrival: None,
        })
        .flags
    }
}
