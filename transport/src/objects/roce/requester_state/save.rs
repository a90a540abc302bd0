//! The requester's state in the record.

use super::{Cursor, MIN_WINDOW, RequesterState, USUAL_WINDOW, WINDOW, psns};
use crate::base::transport_kind::TransportKind;
use crate::objects::outstanding::Requests;
use crate::objects::qp::Qp;
use crate::objects::roce::psn::{HALF, ahead};
use crate::save::{Violation, record, to_psn};
use crate::verbs::op::DataDirection;
use vrdma_wire::num::AethMsn;

impl RequesterState {
    /// Returns the record of a QP's requester state.
    pub(crate) fn save(&self, qp: &Qp, requests: &Requests) -> record::RcRequester {
        // Restore counts the READs before the cursor again.
        let RequesterState {
            base,
            ssn,
            una,
            cursor,
            reads: _,
            awaited,
            window,
            acknowledged,
            since_ack_req: unasked,
            is_new,
            retransmitted: went_back,
            limit,
            carried,
        } = *self;
        let ssn = ssn.number();
        if qp.transport != TransportKind::Roce {
            // The state starts anew when RoCE is the transport kind again.
            let unused = record::RcRequester::default();
            return record::RcRequester { ssn, window, acknowledged, went_back, ..unused };
        }
        // The other fields follow from the queue.
        let Cursor { at, sent, first: _, ssn: _ } = cursor;
        record::RcRequester {
            base: base.number(),
            ssn,
            una: una.number(),
            cursor: requests.send_position(&qp.requester.queue, at),
            sent,
            awaited,
            window,
            acknowledged,
            unasked,
            is_new,
            went_back,
            limit: limit.map(AethMsn::number),
            carried,
        }
    }

    /// Restores the requester's state, for a QP with its send queue.
    pub(crate) fn restore(
        record: &record::RcRequester,
        qp: &Qp,
        requests: &Requests,
    ) -> Result<RequesterState, Violation> {
        let (base, una) = (to_psn(record.base)?, to_psn(record.una)?);
        let (ssn, limit) = (to_msn(record.ssn)?, record.limit.map(to_msn).transpose()?);
        let answered = ahead(una, base);
        // Only a window between the usual and the widest one counts acknowledges until it grows.
        let grows = (USUAL_WINDOW..WINDOW).contains(&record.window);
        let most = if grows { record.window - 1 } else { 0 };
        if !(MIN_WINDOW..=WINDOW).contains(&record.window) || record.acknowledged > most {
            return Err(Violation::Window);
        }
        if qp.transport != TransportKind::Roce {
            let record::RcRequester { ssn: number, window, acknowledged, went_back, .. } = *record;
            let unused = record::RcRequester::default();
            let unused = record::RcRequester { ssn: number, window, acknowledged, went_back, ..unused };
            if *record != unused {
                return Err(Violation::Outstanding);
            }
            let new = RequesterState::new();
            return Ok(RequesterState { ssn, window, acknowledged, retransmitted: went_back, ..new });
        }
        let walk = Walk::new(record, answered, qp, requests)?;
        // The sent PSNs end at the cursor or after it, within requests that can be sent.
        let outstanding = walk.to_cursor - u64::from(answered);
        let sent = u64::from(ahead(qp.requester.psn, una));
        if outstanding > sent || sent > HALF.into() || sent > walk.sendable - u64::from(answered) {
            return Err(Violation::Outstanding);
        }
        if u64::from(record.awaited) > outstanding {
            return Err(Violation::Window);
        }
        let to_request = (walk.to_cursor - u64::from(record.sent)) as u32;
        let cursor = Cursor {
            at: requests.send_at_position(&qp.requester.queue, record.cursor),
            first: base.add(to_request),
            sent: record.sent,
            ssn: AethMsn::truncate(ssn.number().wrapping_add(record.cursor)),
        };
        let record::RcRequester { awaited, window, acknowledged, unasked, is_new, went_back, .. } = *record;
        Ok(RequesterState {
            base,
            ssn,
            una,
            cursor,
            reads: walk.reads,
            awaited,
            window,
            acknowledged,
            since_ack_req: unasked,
            is_new,
            retransmitted: went_back,
            limit,
            carried: record.carried,
        })
    }
}

/// The position of the cursor, as it follows from the send queue.
struct Walk {
    /// PSNs from the beginning of the first request to the cursor.
    to_cursor: u64,
    /// PSNs to the end of the last request that can be sent.
    ///
    /// A request that is broken or only concerns own keys has to end before the requests behind it
    /// are sent.
    sendable: u64,
    /// Number of READs and atomics before the cursor.
    reads: u32,
}

impl Walk {
    /// Walks through the send queue. `answered` is the number of answered PSNs of the first
    /// request.
    fn new(
        record: &record::RcRequester,
        answered: u32,
        qp: &Qp,
        requests: &Requests,
    ) -> Result<Walk, Violation> {
        let queue = &qp.requester.queue;
        let (at, sent) = (record.cursor, record.sent);
        if at > queue.len() || at == queue.len() && sent > 0 || queue.is_empty() && answered > 0 {
            return Err(Violation::Cursor);
        }
        let mut walk = Walk { to_cursor: 0, sendable: 0, reads: 0 };
        let mut broken = false;
        for (index, work) in (0..).zip(requests.sends(queue)) {
            // This request cannot be sent. No request behind it is sent before it has ended.
            broken |= work.error.is_some() || work.row.alone;
            let psns = if broken { 0 } else { psns(&work, qp.path_mtu) };
            let row = work.row;
            walk.sendable += u64::from(psns);
            let done = if index == 0 { answered } else { 0 };
            let right = match index {
                // The request was sent in full, and answered in part at most.
                _ if index < at => done < psns,
                // The request was sent at least as far as it was answered. A READ asks for
                // everything unanswered.
                _ if index == at && broken => sent == 0 && done == 0,
                _ if index == at => {
                    sent < psns && done <= sent && (row.data == DataDirection::Out || done == sent)
                }
                _ => true,
            };
            if !right {
                return Err(Violation::Cursor);
            }
            if index < at {
                walk.to_cursor += u64::from(psns);
                walk.reads += u32::from(row.has_response());
            }
        }
        walk.to_cursor += u64::from(sent);
        Ok(walk)
    }
}

fn to_msn(number: u32) -> Result<AethMsn, Violation> {
    to_psn(number).map(|number| AethMsn::truncate(number.number()))
}
