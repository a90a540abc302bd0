//! Conversion between operations and iWARP segments. No other module knows both.

use crate::objects::iwarp::requester_state::StreamRequester;
use crate::verbs::op::{Atomic, Remote, SendOp};
use crate::verbs::work::Work;
use vrdma_wire::iwarp::ddp::{TAGGED_LEN, UNTAGGED_LEN};
use vrdma_wire::iwarp::num::{Msn, Stag};
use vrdma_wire::iwarp::rdmap::{IMMEDIATE_LEN, Segment, SendPart, Tagged};
use vrdma_wire::iwarp::request::{AtomicOp, AtomicRequest, ReadRequest};
use vrdma_wire::num::{Imm, Rkey};

/// Returns the bytes of headers before the payload that `op` has in its segments.
pub(crate) fn headers_before_payload(op: &SendOp) -> usize {
    if let SendOp::Write { .. } = op { TAGGED_LEN } else { UNTAGGED_LEN }
}

/// Returns the next segment of `work`. An operation without payload is a message of one segment.
// Inlined, so that the segment stays where it is made. A move would wait for its narrow fields.
#[inline(always)]
pub(crate) fn segment_of(work: &Work<'_>, state: &StreamRequester, last: bool) -> Segment {
    let (msn, offset) = (state.send_msn, state.sent);
    let part = SendPart { msn, offset, last };
    let solicited = work.flags.solicited();
    match *work.op {
        SendOp::Send { .. } => Segment::Send { part, solicited, invalidate: None },
        SendOp::SendInvalidate { key } => Segment::Send { part, solicited, invalidate: Some(Stag(key.0)) },
        SendOp::Write { remote, .. } => {
            // A sum that wraps is for the responder to refuse.
            let offset = remote.addr.wrapping_add(offset.into());
            Segment::Write(Tagged { stag: Stag(remote.rkey.0), offset, last })
        }
        SendOp::Read { remote: Remote { addr, rkey } } => Segment::ReadRequest(
            state.request_msn,
            ReadRequest {
                sink: Stag(state.next_token()),
                sink_offset: 0,
                length: work.length,
                source: Stag(rkey.0),
                source_offset: addr,
            },
        ),
        SendOp::Atomic { addr, rkey, op: Atomic::CompareSwap { compare, swap } } => {
            let op = AtomicOp::CompareSwap { swap, mask: !0, compare, compare_mask: !0 };
            atomic(state, addr, rkey, op)
        }
        SendOp::Atomic { addr, rkey, op: Atomic::FetchAdd { add } } => {
            atomic(state, addr, rkey, AtomicOp::FetchAdd { add, mask: 0 })
        }
        _ => unreachable!("its row says that iWARP lacks it, or that no message comes of it"),
    }
}

fn atomic(state: &StreamRequester, offset: u64, rkey: Rkey, op: AtomicOp) -> Segment {
    let request = AtomicRequest { id: state.next_token(), stag: Stag(rkey.0), offset, op };
    Segment::AtomicRequest(state.request_msn, request)
}

/// Returns the immediate data of a WRITE: the first 4 of 8 bytes, as in other RNICs.
pub(crate) fn immediate(msn: Msn, solicited: bool, imm: Imm) -> Segment {
    let [a, b, c, d] = imm.to_bytes();
    let data = [a, b, c, d, 0, 0, 0, 0];
    Segment::Immediate { msn, solicited, data }
}

/// Returns the immediate data of a message.
pub(crate) fn imm_of(data: [u8; IMMEDIATE_LEN]) -> Imm {
    Imm::from_bytes([data[0], data[1], data[2], data[3]])
}

/// Returns the operation of an atomic request, if the engine has it.
pub(crate) fn atomic_of(request: &AtomicRequest) -> Option<SendOp> {
    let remote = Remote { addr: request.offset, rkey: Rkey(request.stag.0) };
    let op = match request.op {
        // The carry of the highest bit is lost anyway.
        AtomicOp::FetchAdd { add, mask } if mask & !(1 << 63) == 0 => Atomic::FetchAdd { add },
        AtomicOp::CompareSwap { swap, mask: u64::MAX, compare, compare_mask: u64::MAX } => {
            Atomic::CompareSwap { compare, swap }
        }
        AtomicOp::FetchAdd { .. } | AtomicOp::Swap { .. } | AtomicOp::CompareSwap { .. } => return None,
    };
    Some(SendOp::atomic(remote, op))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::op::tests::ALL;
    use crate::verbs::work::Flags;

    #[test]
    fn what_the_table_calls_iwarps_has_a_segment() {
        let (state, flags) = (StreamRequester::new(), Flags::new(false, false, false));
        let mut atomics = 0;
        for op in ALL.iter().filter(|op| op.is_of_iwarp() && !op.row().alone) {
            let segment = segment_of(&Work::plain(op, 1, flags), &state, true);
            if let Segment::AtomicRequest(_, request) = segment {
                assert_eq!(atomic_of(&request), Some(*op));
                atomics += 1;
            }
        }
        assert_ne!(atomics, 0, "iWARP has atomics");
    }
}
