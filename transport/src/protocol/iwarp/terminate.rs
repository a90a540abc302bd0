//! Failure of a connection, and the TERMINATE messages of both ends.

use crate::base::memory::Region;
use crate::objects::mr::{Holder, Mrs};
use crate::protocol::iwarp::qp::StreamQp;
use crate::verbs::completion::{Event, Sink, WcStatus};
use vrdma_wire::iwarp::cause::{Cause, Code};
use vrdma_wire::iwarp::num::{Msn, Stag};
use vrdma_wire::iwarp::rdmap::{MAX_HEADERS, Segment, terminate_for};
use vrdma_wire::iwarp::request::ReadRequest;
use vrdma_wire::iwarp::terminate::Terminate;

impl<R: Region, S: Sink> StreamQp<'_, R, S> {
    /// Ends the connection because the peer is at fault.
    ///
    /// The peer is told the cause, with the headers of its ULPDU. The QP goes to ERR.
    #[cold]
    pub(super) fn terminate(&mut self, cause: Cause, ulpdu: &[u8], event: Option<Event>) {
        self.conn.stream.terminate = Some(Box::new(terminate_for(cause, ulpdu)));
        self.enter_error_with(event);
    }

    /// Ends the connection because the peer is at fault, with the event of an error that no
    /// completion reports.
    #[cold]
    pub(super) fn terminate_fatally(&mut self, cause: Cause, ulpdu: &[u8]) {
        self.terminate(cause, ulpdu, Some(Event::QpFatal(self.place.qpn)));
    }

    /// Prepares a TERMINATE because this end is at fault.
    ///
    /// The peer is told once the QP is in ERR. The caller takes the QP there.
    #[cold]
    pub(super) fn terminate_for_own(&mut self, cause: Cause) {
        self.conn.stream.terminate = Some(Box::new(terminate_for(cause, &[])));
    }

    /// Ends the connection because a READ that was accepted cannot be answered any more.
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

    /// Handles a TERMINATE: the peer has found an error, and is gone.
    ///
    /// If the error was in a READ or atomic, the first one that waits for its answer fails.
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

/// Whether a DDP header is one of queue 1. The header may be cut off.
fn is_untagged_request(ddp: &[u8]) -> bool {
    const QUEUE: std::ops::Range<usize> = 6..10;
    ddp.first().is_some_and(|control| control & 0x80 == 0) && ddp.get(QUEUE) == Some(&[0, 0, 0, 1])
}

/// Returns the status of a request that the peer refused with this code.
fn status_of(code: Code) -> WcStatus {
    match (code.layer, code.etype) {
        (0, 1) | (1, 1) => WcStatus::RemAccess,
        (0, 2) if code != Cause::RdmapOpcode.code() => WcStatus::RemOp,
        (0 | 1, 2) => WcStatus::RemInvReq,
        _ => WcStatus::RemOp,
    }
}

/// What is wrong with the memory that a peer names.
enum Wrong {
    /// There is no such key.
    Key,
    /// The key is of another protection domain.
    Stranger,
    /// The range is out of bounds.
    Bounds,
    /// The key does not give the right.
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

/// Returns why a WRITE is refused. Errors of key and bounds are DDP's, errors of rights are
/// RDMAP's.
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

/// Returns why a READ is refused. All its errors are RDMAP's.
pub(super) fn refused_read<R>(mrs: &Mrs<R>, holder: Holder<'_>, request: &ReadRequest) -> Cause {
    refused_request(mrs, holder, (request.source, request.source_offset), request.length)
}

/// Returns why a READ or an atomic for this memory is refused. All its errors are RDMAP's.
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
