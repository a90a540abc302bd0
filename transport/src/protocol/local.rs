//! Reliable connections between two QPs of this engine: one copy, without packets.
//!
//! A segment is taken from the requester. The responder's rules check and execute it. Then both QPs
//! are updated. This file has no rules of its own for messages.

use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::{Instant, NEVER, rnr_delay};
use crate::message::accept::{SegmentData, accept};
use crate::message::core::Core;
use crate::message::ctx::QpCtx;
use crate::message::mirror::show_segment;
use crate::message::pair::Pair;
use crate::message::segmentation::{local_buffer, segment_of};
use crate::message::step::Step;
use crate::message::verdict::Rejection;
use crate::objects::qp::Qp;
use crate::objects::qp::requester::Wait;
use crate::objects::receiver::Receiver;
use crate::verbs::completion::{Event, Sink, WcStatus};
use crate::verbs::reason::Reason;
use crate::verbs::request::Payload;
use crate::verbs::segment::Segment;
use crate::verbs::work::Work;
use core::time::Duration;
use vrdma_wire::num::Srqn;

/// What became of one segment.
enum RcDelivery {
    /// The segment arrived. More of the message is to come.
    Part,
    /// The segment and the whole message arrived. The request has ended.
    All,
    /// The peer has no receive. The requester has to wait for this time.
    NotReady(Duration),
    /// The peer has no receive so far. The caller is asked to drain the posts.
    Asked,
    /// The peer had a receive, but another message took it. The request waits on.
    StillNotReady,
    /// The peer has selected the shared queue that the request names. The segment is to be tried
    /// again.
    Again,
    /// The peer is not where it was found last.
    Elsewhere,
    /// The segment got lost.
    Lost,
    /// The request fails.
    ///
    /// If the peer's QP refused it, that QP goes to ERR, with an event. It does so after the
    /// request has ended, because it may be the same QP.
    Failed(WcStatus, Option<(QpRef, Option<Event>)>),
}

/// Executes one segment of at most `limit` bytes of `work`, the first request of a QP that may
/// send.
///
/// The request need not be in the queue yet if the queue is empty. `peer` is where the peer was
/// found last.
#[inline(always)]
pub(crate) fn step_rc<R: Region>(
    core: &mut Core<R>,
    now: Instant,
    (place, peer): (QpRef, QpRef),
    work: &Work<'_>,
    payload: Payload<'_>,
    limit: u32,
    sink: &mut impl Sink,
) -> Step {
    if work.row.alone {
        core.known(place, sink).change_key(&work.again());
        return Step::Ended;
    }
    let mut delivery = deliver_rc(core, (place, peer), work, payload, limit, sink);
    if let RcDelivery::Again | RcDelivery::Elsewhere = delivery {
        delivery = deliver_again(core, (place, peer), delivery, &work.again(), payload, limit, sink);
    }
    match delivery {
        RcDelivery::Again | RcDelivery::Elsewhere => unreachable!("it was tried again"),
        RcDelivery::All => Step::Ended,
        RcDelivery::Part => Step::More,
        RcDelivery::Asked | RcDelivery::StillNotReady => Step::Waits,
        RcDelivery::Failed(status, refused) => {
            core.known(place, sink).fail(&work.again(), status);
            if let Some((peer, event)) = refused {
                core.known(peer, sink).enter_error_with(event);
            }
            Step::Ended
        }
        RcDelivery::NotReady(delay) => {
            let mut borrowed = core.known(place, sink);
            match borrowed.qp.requester.not_ready(now, delay) {
                Ok(at) => borrowed.wait_until(at),
                Err(status) => {
                    borrowed.fail(&work.again(), status);
                    return Step::Ended;
                }
            }
            Step::Waits
        }
        RcDelivery::Lost => {
            let mut borrowed = core.known(place, sink);
            let timeout = borrowed.qp.attr().timeout;
            let at = borrowed.qp.requester.lost(now, timeout);
            borrowed.wait_until(at);
            Step::Waits
        }
    }
}

/// Calls [`step_rc`] for any operation, without inlining.
#[inline(never)]
pub(crate) fn step_rc_of_any<R: Region>(
    core: &mut Core<R>,
    now: Instant,
    places: (QpRef, QpRef),
    work: &Work<'_>,
    payload: Payload<'_>,
    limit: u32,
    sink: &mut impl Sink,
) -> Step {
    step_rc(core, now, places, work, payload, limit, sink)
}

/// Delivers the next segment to the peer.
#[inline(always)]
fn deliver_rc<R: Region>(
    core: &mut Core<R>,
    (place, peer): (QpRef, QpRef),
    work: &Work<'_>,
    payload: Payload<'_>,
    limit: u32,
    sink: &mut impl Sink,
) -> RcDelivery {
    let Some(mut pair) = core.pair(place, peer, sink) else { return RcDelivery::Elsewhere };
    let Pair { ends, common } = &mut pair;
    let qp = ends.qp();
    let local = match local_buffer(ends.mrs(), qp, work, payload) {
        Ok(local) => local,
        Err(status) => return RcDelivery::Failed(status, None),
    };
    let segment = segment_of(qp, work, limit);
    let receiver = ends.receiver();
    let Receiver { srqs, qp: peer_qp, .. } = receiver;
    if let Some(srqn) = work.srqn
        && peer_qp.is_receiving()
        && segment.psn == peer_qp.responder.psn
        && !srqs.has_numbered(peer_qp, srqn)
    {
        return choose_queue(core, peer, srqn, sink);
    }
    if !is_in_sequence(peer_qp, &segment) {
        core.devices.count_drop(peer.device, Reason::Psn);
        return RcDelivery::Lost;
    }
    match accept(&receiver, &segment, SegmentData::Buffer(local), common.recv_scratch) {
        Ok(found) => {
            if let Some(mirror) = common.sink.mirror() {
                show_segment(mirror, ends, &work.again(), &segment, (local, found));
            }
            pair.peer().arrived(place.qpn, &segment);
            let mut own = pair.own();
            own.qp.set_route(peer.device);
            if own.departed(work, &segment) { RcDelivery::All } else { RcDelivery::Part }
        }
        Err(&Rejection::Dropped(reason)) => {
            core.devices.count_drop(peer.device, reason);
            RcDelivery::Lost
        }
        Err(Rejection::NoReceive) => find_no_receive(core, place, peer, sink),
        Err(Rejection::Source) => RcDelivery::Failed(WcStatus::LocProt, None),
        Err(&(Rejection::Refused(refusal) | Rejection::Memory(refusal))) => {
            let event = pair.peer().refuse(refusal);
            RcDelivery::Failed(refusal.nak.status(), Some((peer, event)))
        }
    }
}

/// Tries the segment again, until it is neither [`RcDelivery::Again`] nor
/// [`RcDelivery::Elsewhere`].
///
/// `delivery` is one of these.
#[cold]
fn deliver_again<R: Region>(
    core: &mut Core<R>,
    (place, mut peer): (QpRef, QpRef),
    mut delivery: RcDelivery,
    work: &Work<'_>,
    payload: Payload<'_>,
    limit: u32,
    sink: &mut impl Sink,
) -> RcDelivery {
    loop {
        match delivery {
            RcDelivery::Again => {}
            RcDelivery::Elsewhere => match seek_peer(core, place, work, payload) {
                Ok(found) => peer = found,
                Err(delivery) => return delivery,
            },
            other => return other,
        }
        delivery = deliver_rc_of_any(core, (place, peer), work, payload, limit, sink);
    }
}

/// Calls [`deliver_rc`] without inlining, where speed does not matter.
#[inline(never)]
fn deliver_rc_of_any<R: Region>(
    core: &mut Core<R>,
    places: (QpRef, QpRef),
    work: &Work<'_>,
    payload: Payload<'_>,
    limit: u32,
    sink: &mut impl Sink,
) -> RcDelivery {
    deliver_rc(core, places, work, payload, limit, sink)
}

/// Searches the peer of a request that is not where it was found last.
///
/// Returns what becomes of the request if there is no peer, or if the request fails before it is
/// sent.
fn seek_peer<R: Region>(
    core: &mut Core<R>,
    place: QpRef,
    work: &Work<'_>,
    payload: Payload<'_>,
) -> Result<QpRef, RcDelivery> {
    let (device, qp) = core.devices.known(place);
    if let Err(status) = local_buffer(&device.mrs, qp, work, payload) {
        return Err(RcDelivery::Failed(status, None));
    }
    core.search_peer(place).ok_or(RcDelivery::Lost)
}

/// Decides how a sender waits whose peer has no receive.
///
/// The engine asks the caller to drain posts, unless the caller has done so for this request. A
/// sender that was woken in vain waits on until its deadline.
fn find_no_receive<R: Region>(
    core: &mut Core<R>,
    place: QpRef,
    peer: QpRef,
    sink: &mut impl Sink,
) -> RcDelivery {
    core.known(peer, sink).still_no_receive();
    let (_, qp) = core.devices.known(place);
    match qp.requester.wait {
        Wait::Drained => {}
        Wait::Woken if qp.timer != NEVER => {
            core.known(place, sink).qp.requester.wait = Wait::Receive;
            core.known(peer, sink).sender_waits();
            return RcDelivery::StillNotReady;
        }
        _ => {
            core.ask(place, peer);
            return RcDelivery::Asked;
        }
    }
    let (_, peer_qp) = core.devices.known(peer);
    let delay = rnr_delay(peer_qp.attr().min_rnr_timer);
    not_ready(core, place, peer, sink);
    RcDelivery::NotReady(delay)
}

/// Makes the peer, an XRC target, select the shared queue that the request names.
#[cold]
fn choose_queue<R: Region>(core: &mut Core<R>, peer: QpRef, srqn: Srqn, sink: &mut impl Sink) -> RcDelivery {
    let mut borrowed = core.known(peer, sink);
    match borrowed.choose_queue(srqn) {
        Ok(()) => RcDelivery::Again,
        Err(refusal) => {
            let event = borrowed.refuse(refusal);
            RcDelivery::Failed(refusal.nak.status(), Some((peer, event)))
        }
    }
}

/// Records that the peer has no receive. The peer wakes the requester when it gets one.
#[cold]
fn not_ready<R: Region>(core: &mut Core<R>, place: QpRef, peer: QpRef, sink: &mut impl Sink) {
    let mut borrowed = core.known(peer, sink);
    borrowed.counters.rnr_naks_sent += 1;
    borrowed.sender_waits();
    // The wake-up uses this route.
    borrowed.qp.set_route(place.device);
    core.known(place, sink).counters.rnr_naks += 1;
}

/// Handles the end of the wait for the peer.
pub(crate) fn rc_local_timer_expired<R: Region, S: Sink>(ctx: &mut QpCtx<'_, R, S>) {
    if ctx.qp.requester.wait == Wait::Answer {
        ctx.counters.timeouts += 1;
    }
    let timeout = ctx.qp.attr().timeout;
    match ctx.qp.requester.timed_out(timeout) {
        Ok(()) => {
            ctx.counters.retries += 1;
            ctx.make_ready();
        }
        Err(status) => ctx.fail_first(status),
    }
}

/// Whether a segment is the one that its responder expects next.
///
/// Also true if the responder is not receiving: the responder's checks then drop the segment.
#[inline(always)]
fn is_in_sequence(peer: &Qp, segment: &Segment<'_>) -> bool {
    !peer.is_receiving() || segment.psn == peer.responder.psn
}
