//! From a completion of the engine to a CQE.

use vrdma_abi::cqe::{self, Cqe, flags};
use vrdma_abi::zerocopy::big_endian::U32;
use vrdma_transport::{Completion, WcOpcode, WcStatus};

/// The CQE that tells of a completion; its phase is the ring's to set.
#[inline]
pub fn cqe(completion: &Completion) -> Cqe {
    let recv = matches!(completion.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm);
    let mut bits = if recv { flags::RECV } else { 0 };
    if completion.imm.is_some() {
        bits |= flags::IMM;
    }
    if completion.invalidated.is_some() {
        bits |= flags::INV;
    }
    if completion.solicited {
        bits |= flags::SOLICITED;
    }
    if completion.arrival.is_some() {
        bits |= flags::GRH;
    }
    if completion.srq.is_some() {
        bits |= flags::XRC;
    }
    let source = completion.srq.map_or(completion.src_qpn.number(), |srq| srq.0);
    let imm = match completion.invalidated {
        Some(key) => key.0.into(),
        None => U32::from_bytes(completion.imm.unwrap_or_default().to_bytes()),
    };
    let (smac, vlan) = completion.arrival.map_or(([0; 6], None), |arrival| (arrival.smac.0, arrival.vlan));
    Cqe {
        wqe_id: completion.id.into(),
        qpn: completion.qpn.number().into(),
        byte_len: completion.byte_len.into(),
        imm,
        src_qpn: source.into(),
        smac,
        vlan: vlan.unwrap_or(0xffff).into(),
        opcode: opcode(completion.opcode).0,
        status: status(completion.status).0,
        flags: bits,
        phase: 0,
    }
}

#[inline]
fn opcode(opcode: WcOpcode) -> cqe::WcOpcode {
    match opcode {
        WcOpcode::Send => cqe::WcOpcode::SEND,
        WcOpcode::Write => cqe::WcOpcode::RDMA_WRITE,
        WcOpcode::Read => cqe::WcOpcode::RDMA_READ,
        WcOpcode::CompareSwap => cqe::WcOpcode::COMP_SWAP,
        WcOpcode::FetchAdd => cqe::WcOpcode::FETCH_ADD,
        WcOpcode::AtomicWrite => cqe::WcOpcode::ATOMIC_WRITE,
        WcOpcode::Flush => cqe::WcOpcode::FLUSH,
        WcOpcode::BindMw => cqe::WcOpcode::BIND_MW,
        WcOpcode::LocalInvalidate => cqe::WcOpcode::LOCAL_INV,
        WcOpcode::RegMr => cqe::WcOpcode::REG_MR,
        WcOpcode::Recv => cqe::WcOpcode::RECV,
        WcOpcode::RecvWriteImm => cqe::WcOpcode::RECV_RDMA_WITH_IMM,
    }
}

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
    use vrdma_transport::{Arrival, SrqId};
    use vrdma_wire::num::{Imm, Mac, Qpn, Rkey};

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
