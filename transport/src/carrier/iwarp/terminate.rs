//! How a connection fails: what the peer is told, and what it tells.

use crate::base::memory::Region;
use crate::carrier::iwarp::qp::StreamQp;
use crate::objects::mr::{Holder, Mrs};
use crate::verbs::completion::{Event, Sink, WcStatus};
use vrdma_wire::iwarp::cause::{Cause, Code};
use vrdma_wire::iwarp::num::{Msn, Stag};
use vrdma_wire::iwarp::rdmap::{MAX_HEADERS, Segment, terminate_for};
use vrdma_wire::iwarp::request::ReadRequest;
use vrdma_wire::iwarp::terminate::Terminate;

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// The peer is at fault: it is told why, with the headers of its ULPDU, and the QP goes to ERR.
    #[cold]
    pub(super) fn terminate(&mut self, cause: Cause, ulpdu: &[u8], event: Option<Event>) {
        self.conn.stream.terminate = Some(Box::new(terminate_for(cause, ulpdu)));
        self.enter_error_with(event);
    }

    /// The same with the event of an error that no completion tells.
    #[cold]
    pub(super) fn terminate_fatally(&mut self, cause: Cause, ulpdu: &[u8]) {
        self.terminate(cause, ulpdu, Some(Event::QpFatal(self.place.qpn)));
    }

    /// This end is at fault: the peer is told so once the QP is in ERR, to which the caller takes
    /// it.
    #[cold]
    pub(super) fn terminate_for_own(&mut self, cause: Cause) {
        self.conn.stream.terminate = Some(Box::new(terminate_for(cause, &[])));
    }

    /// A READ that was accepted cannot be answered any more.
    #[cold]
    pub(super) fn terminate_for_read(&mut self, msn: Msn, request: ReadRequest, cause: Cause) {
        let mut ulpdu = [0; MAX_HEADERS];
        let length = Segment::ReadRequest(msn, request).emit(&mut ulpdu);
        let event = match cause {
            Cause::RdmapStreamCatastrophic => Event::QpFatal(self.place.qpn),
            _ => Event::QpAccessError(self.place.qpn),
        };
        self.terminate(cause, &ulpdu[..length], Some(event));
    }

    /// The peer has found something wrong, and is gone. If it was the READ or atomic that waits for
    /// its answer, that one fails.
    #[cold]
    pub(super) fn receive_terminate(&mut self, terminate: &Terminate) {
        self.counters.terminates_in += 1;
        let tcp = &mut *self.conn;
        tcp.stream.terminate = None;
        let segment = terminate.segment.as_ref();
        let is_of_request = segment.is_some_and(|segment| is_untagged_request(segment.ddp()));
        if is_of_request && tcp.requester.reads > 0 {
            return self.fail_first(status_of(terminate.code));
        }
        self.enter_fatal();
    }
}

/// Whether a DDP header is one of queue 1, as far as it goes.
fn is_untagged_request(ddp: &[u8]) -> bool {
    const QUEUE: std::ops::Range<usize> = 6..10;
    ddp.first().is_some_and(|control| control & 0x80 == 0) && ddp.get(QUEUE) == Some(&[0, 0, 0, 1])
}

/// How a request ends that the peer refused so.
fn status_of(code: Code) -> WcStatus {
    match (code.layer, code.etype) {
        (0, 1) | (1, 1) => WcStatus::RemAccess,
        (0, 2) if code != Cause::RdmapOpcode.code() => WcStatus::RemOp,
        (0 | 1, 2) => WcStatus::RemInvReq,
        _ => WcStatus::RemOp,
    }
}

/// What is wrong with a place in memory that a peer names.
enum Wrong {
    /// Nothing has this key.
    Key,
    /// It is of another domain or connection.
    Stranger,
    /// It is not in there.
    Bounds,
    /// It does not give the right.
    Right,
}

fn what_is_wrong<R>(mrs: &Mrs<R>, holder: Holder<'_>, Stag(stag): Stag, addr: u64, length: u64) -> Wrong {
    let Some(key) = mrs.keys.get(stag) else { return Wrong::Key };
    if key.pd != holder.pd {
        return Wrong::Stranger;
    }
    let offset = addr.checked_sub(key.iova);
    match offset.is_some_and(|offset| length <= key.length && offset <= key.length - length) {
        true => Wrong::Right,
        false => Wrong::Bounds,
    }
}

/// Why a WRITE is refused: key and bounds are DDP's, rights RDMAP's.
pub(super) fn refused_write<R>(
    mrs: &Mrs<R>,
    holder: Holder<'_>,
    stag: Stag,
    addr: u64,
    length: u32,
) -> Cause {
    match what_is_wrong(mrs, holder, stag, addr, length.into()) {
        Wrong::Key => Cause::TaggedInvalidStag,
        Wrong::Stranger => Cause::TaggedStagNotAssociated,
        Wrong::Bounds => Cause::TaggedBounds,
        Wrong::Right => Cause::RdmapAccess,
    }
}

/// Why a READ or an atomic is refused: all is RDMAP's.
pub(super) fn refused_read<R>(mrs: &Mrs<R>, holder: Holder<'_>, request: &ReadRequest) -> Cause {
    refused_request(mrs, holder, (request.source, request.source_offset), request.length)
}

/// The same of any request for this place.
pub(super) fn refused_request<R>(
    mrs: &Mrs<R>,
    holder: Holder<'_>,
    (stag, addr): (Stag, u64),
    length: u32,
) -> Cause {
    match what_is_wrong(mrs, holder, stag, addr, length.into()) {
        Wrong::Key => Cause::RdmapInvalidStag,
        Wrong::Stranger => Cause::RdmapStagNotAssociated,
        Wrong::Bounds => Cause::RdmapBounds,
        Wrong::Right => Cause::RdmapAccess,
    }
}
