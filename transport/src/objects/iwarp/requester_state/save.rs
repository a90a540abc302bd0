//! The requester's state, in the record.

use super::StreamRequester;
use crate::objects::outstanding::Requests;
use crate::objects::qp::Qp;
use crate::save::{Violation, record};
use crate::verbs::op::Answer;
use vrdma_wire::iwarp::num::Msn;

impl StreamRequester {
    /// Returns the record of a QP's requester state.
    pub(crate) fn save(&self, qp: &Qp, requests: &Requests) -> record::TcpRequester {
        let StreamRequester {
            cursor,
            sent,
            begun,
            // Restore counts the requests before the cursor again.
            behind: _,
            reads: _,
            first_answer: _,
            answered,
            send_msn,
            request_msn,
            response_msn,
            ready_awaited,
        } = *self;
        record::TcpRequester {
            cursor: requests.send_position(&qp.requester.queue, cursor),
            sent: begun.then_some(sent),
            answered,
            send_msn: send_msn.0,
            request_msn: request_msn.0,
            response_msn: response_msn.0,
            ready_awaited,
        }
    }

    /// Restores the requester's state, for a QP with its send queue.
    pub(crate) fn restore(
        record: &record::TcpRequester,
        qp: &Qp,
        requests: &Requests,
    ) -> Result<StreamRequester, Violation> {
        let queue = &qp.requester.queue;
        let record::TcpRequester { cursor: behind, answered, ready_awaited, .. } = *record;
        if behind > queue.len() || behind == queue.len() && record.sent.is_some() {
            return Err(Violation::Cursor);
        }
        let mut reads = 0;
        for (index, work) in (0..).zip(requests.sends(queue)) {
            let row = work.row;
            let was_sent = index < behind || index == behind && record.sent.is_some();
            if was_sent && (work.error.is_some() || row.alone || !work.op.is_of_iwarp()) {
                return Err(Violation::Cursor);
            }
            // A request that has begun was not sent in full. Only the immediate data of a WRITE may
            // be left.
            let all_but_imm = work.op.imm().is_some();
            let is_part = |sent| sent < work.length || sent == work.length && all_but_imm;
            let is_right = match index {
                0 if behind > 0 => {
                    row.has_response()
                        && (answered == 0 || row.answer == Answer::Data && answered < work.length)
                }
                _ if index == behind => record.sent.is_none_or(|sent| is_part(sent) && !row.has_response()),
                _ => true,
            };
            if !is_right {
                return Err(Violation::Cursor);
            }
            reads += u32::from(index < behind && row.has_response());
        }
        if behind == 0 && answered > 0 {
            return Err(Violation::Cursor);
        }
        let request_msn = Msn(record.request_msn);
        Ok(StreamRequester {
            cursor: requests.send_at_position(queue, behind),
            sent: record.sent.unwrap_or(0),
            begun: record.sent.is_some(),
            behind,
            reads,
            first_answer: request_msn.add(reads.wrapping_neg()),
            answered,
            send_msn: Msn(record.send_msn),
            request_msn,
            response_msn: Msn(record.response_msn),
            ready_awaited,
        })
    }
}
