//! The sending half of a QP in the record.

use super::{FOR_EVER, Requester, Wait};
use crate::base::qp_ref::QpRef;
use crate::collections::pool::List;
use crate::objects::outstanding::Requests;
use crate::objects::qp::Qp;
use crate::save::{Violation, record, same_names, to_psn};

same_names!(Wait { No, Receive, Answer, Drain, Drained, Woken });

impl Requester {
    /// Returns the record of the sending half.
    ///
    /// `question` is the number with which it asked last. `served` is the last member that a
    /// datagram to a multicast group has reached, now or in an earlier datagram.
    pub(in crate::objects::qp) fn save(
        &self,
        (question, served): (u32, Option<QpRef>),
        requests: &Requests,
    ) -> record::Requester {
        let Requester {
            psn,
            ref queue,
            offset,
            started,
            wait,
            retries,
            rnr_retries,
            // Follows from the turns.
            ready: _,
            notify_drained,
            // Follow from the attributes.
            retry_cnt: _,
            rnr_retry: _,
        } = *self;
        record::Requester {
            psn: psn.number(),
            offset,
            started,
            served: served.filter(|_| started).map(record::Place::from),
            wait: wait.into(),
            retries,
            rnr_retries,
            notify_drained,
            question,
            queue: requests.save_sends(queue),
        }
    }

    /// Restores the sending half, for `qp` with its attributes.
    pub(in crate::objects::qp) fn restore(
        record: &record::Requester,
        qp: &Qp,
        requests: &mut Requests,
    ) -> Result<Requester, Violation> {
        if record.queue.len() > usize::from(qp.caps.send_wr) {
            return Err(Violation::Queue);
        }
        if record.retries > FOR_EVER || record.rnr_retries > FOR_EVER {
            return Err(Violation::Retries);
        }
        let mut queue = List::EMPTY;
        for send in &record.queue {
            if send.destination.is_some() && !qp.service().is_datagram() {
                return Err(Violation::Request);
            }
            requests.restore_send(&mut queue, send, qp.service(), &qp.caps)?;
        }
        let record::Requester { offset, started, notify_drained, retries, rnr_retries, .. } = *record;
        // Segments of a message in progress are whole packets, except the last segment of a
        // message.
        let length = requests.first_send(&queue).map_or(0, |first| first.work().length);
        let in_progress = started
            && !qp.service().is_datagram()
            && offset < length
            && offset.is_multiple_of(qp.path_mtu.bytes());
        if started && queue.is_empty() || offset > 0 && !in_progress {
            return Err(Violation::Progress);
        }
        Ok(Requester {
            psn: to_psn(record.psn)?,
            queue,
            offset,
            started,
            wait: record.wait.into(),
            retries,
            rnr_retries,
            notify_drained,
            ..Requester::new()
        })
    }
}
