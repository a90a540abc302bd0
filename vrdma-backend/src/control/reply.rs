//! From what a command came to, to the bytes of its reply.

use crate::device::command::{CommandError, Reply};
use crate::translate::{self, cm, counters, gid, limits, port, qp, srq};
use vrdma_abi::control::*;
use vrdma_abi::zerocopy::{FromBytes, IntoBytes};

/// Bytes of a command's reply, its header included: those that there has to be room for, and all.
///
/// # Errors
/// `INVALID`: the request has no header.
pub fn lengths(request: &[u8]) -> Result<(u64, u64), Status> {
    let (header, _) = ReqHeader::read_from_prefix(request).map_err(|_| Status::INVALID)?;
    let opcode = Opcode(header.opcode.get());
    let first = first_size(opcode);
    let size = if opcode == Opcode::QUERY_DEVICE { QueryDeviceExResp::SIZE } else { first };
    let with_header = |size| (RespHeader::SIZE + size) as u64;
    Ok((with_header(first), with_header(size)))
}

/// Size of the first reply structure that the command had.
fn first_size(opcode: Opcode) -> usize {
    match opcode {
        Opcode::QUERY_DEVICE => QueryDeviceResp::SIZE,
        Opcode::QUERY_PORT => QueryPortResp::SIZE,
        Opcode::QUERY_COUNTERS => CountersResp::SIZE,
        Opcode::QUERY_CLOCK => ClockResp::SIZE,
        Opcode::QUERY_GID => QueryGidResp::SIZE,
        Opcode::ALLOC_CONTEXT | Opcode::ALLOC_PD | Opcode::ALLOC_MW | Opcode::ALLOC_XRCD => ObjectResp::SIZE,
        Opcode::CM_LISTEN | Opcode::CM_CONNECT => ObjectResp::SIZE,
        Opcode::CM_GET_EVENT => CmEventResp::SIZE,
        Opcode::CREATE_CQ => CreateCqResp::SIZE,
        Opcode::REG_MR | Opcode::REREG_MR | Opcode::GET_DMA_MR | Opcode::ALLOC_FAST_MR => RegMrResp::SIZE,
        Opcode::CREATE_QP => CreateQpResp::SIZE,
        Opcode::QUERY_QP => QpAttr::SIZE,
        Opcode::CREATE_SRQ => CreateSrqResp::SIZE,
        Opcode::QUERY_SRQ => QuerySrqResp::SIZE,
        _ => 0,
    }
}

/// The reply structure as it goes to the guest.
pub fn bytes(reply: &Reply) -> Vec<u8> {
    // CQs, QPs and shared receive queues have reply structures of the same shape as other objects.
    let object = |number: u32| ObjectResp { object: number.into(), reserved: 0.into() };
    match reply {
        Reply::Done => Vec::new(),
        Reply::Device { limits, mac, transport, wants_next_hop } => {
            limits::response(limits, *mac, *transport, *wants_next_hop).as_bytes().to_vec()
        }
        Reply::Port(attr) => port::response(attr).as_bytes().to_vec(),
        Reply::Counters(counters) => counters::response(&counters.0, &counters.1).as_bytes().to_vec(),
        Reply::Clock(now) => ClockResp { clock: now.0.into() }.as_bytes().to_vec(),
        Reply::Gid(entry) => gid::response(entry).as_bytes().to_vec(),
        Reply::Object(number) => object(*number).as_bytes().to_vec(),
        Reply::Key(key) => RegMrResp { lkey: (*key).into(), rkey: (*key).into() }.as_bytes().to_vec(),
        Reply::Qp(attr) => qp::response(attr).as_bytes().to_vec(),
        Reply::Srq(attr) => srq::response(attr).as_bytes().to_vec(),
        Reply::CmEvent(event) => cm::response(event.as_deref()).as_bytes().to_vec(),
    }
}

/// The status of a command that was refused.
pub fn status(error: CommandError) -> Status {
    match error {
        CommandError::Refused(error) => translate::status::status(error),
        CommandError::Internal => Status::INTERNAL,
    }
}
