//! Unreliable connections between two QPs of this engine: one copy, without packets.

use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::message::accept::SegmentData;
use crate::message::core::Core;
use crate::message::effect::LocalBuffer;
use crate::message::mirror::{payload_of, show};
use crate::message::pair::{Ends, Pair};
use crate::message::segmentation::{local_buffer, segment_of};
use crate::message::step::Step;
use crate::message::verdict::Refusal;
use crate::objects::mr::Mrs;
use crate::objects::qp::Qp;
use crate::objects::qp::requester::Wait;
use crate::protocol::uc::responder::{UcRejection, accept, drop_message, placement_failed, resync};
use crate::protocol::uc::roce::packet;
use crate::verbs::attr::QpType;
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::mirror::Mirror;
use crate::verbs::reason::Reason;
use crate::verbs::request::Payload;
use crate::verbs::segment::Segment;
use crate::verbs::work::Work;

/// What became of a segment.
enum UcDelivery {
    /// The segment arrived. More of the message is to come.
    Part,
    /// The segment and the whole message arrived. The request has ended.
    All,
    /// The peer is not where it was found last.
    Elsewhere,
    /// The segment is lost, and with it the rest of the message. The receiver, if it is given, has
    /// to go to ERR.
    Lost(Option<(QpRef, Refusal)>),
    /// The request fails.
    Failed(WcStatus),
    /// There is no receive so far. The caller is asked to drain the posts.
    Asked,
}

/// Executes one segment of at most `limit` bytes of `work`, the first request of a QP that may
/// send.
///
/// The request need not be in the queue yet if the queue is empty. `peer` is where the peer was
/// found last. Returns also whether the segment arrived.
pub(crate) fn step_uc<R: Region>(
    core: &mut Core<R>,
    (place, peer): (QpRef, QpRef),
    work: &Work<'_>,
    payload: Payload<'_>,
    limit: u32,
    sink: &mut impl Sink,
) -> (Step, bool) {
    if work.row.alone {
        core.known(place, sink).change_key(work);
        return (Step::Ended, false);
    }
    let mut delivery = deliver_uc(core, (place, peer), work, payload, limit, sink);
    if let UcDelivery::Elsewhere = delivery {
        delivery = match seek_uc_peer(core, place, work, payload) {
            Ok(found) => deliver_uc(core, (place, found), work, payload, limit, sink),
            Err(delivery) => delivery,
        };
    }
    match delivery {
        UcDelivery::All => (Step::Ended, true),
        UcDelivery::Part => (Step::More, true),
        UcDelivery::Asked => (Step::Waits, false),
        UcDelivery::Failed(status) => {
            core.known(place, sink).fail(&work.again(), status);
            (Step::Ended, false)
        }
        UcDelivery::Elsewhere => unreachable!("it was found where it is"),
        UcDelivery::Lost(broken) => {
            let ended = skip_rest(core, place, &work.again(), limit, sink);
            // This follows the end of the request, because it may be the same QP.
            if let Some((peer, refusal)) = broken {
                placement_failed(&mut core.known(peer, sink), refusal);
            }
            (if ended { Step::Ended } else { Step::More }, false)
        }
    }
}

/// Delivers the next segment to the peer.
#[inline]
fn deliver_uc<R: Region>(
    core: &mut Core<R>,
    (place, peer): (QpRef, QpRef),
    work: &Work<'_>,
    payload: Payload<'_>,
    limit: u32,
    sink: &mut impl Sink,
) -> UcDelivery {
    let Some(mut pair) = core.pair(place, peer, sink) else { return UcDelivery::Elsewhere };
    let segment = segment_of(pair.ends.qp(), work, limit);
    if !pair.ends.receiver().qp.responder.is_in_step(&segment) {
        // A request that fails at the requester must not affect the peer.
        if let Err(status) = buffer(pair.ends.mrs(), pair.ends.qp(), work, payload) {
            return UcDelivery::Failed(status);
        }
        resync(&mut pair.peer(), &segment);
    }
    let Pair { ends, common } = &mut pair;
    let local = match buffer(ends.mrs(), ends.qp(), work, payload) {
        Ok(local) => local,
        Err(status) => return UcDelivery::Failed(status),
    };
    let receiver = ends.receiver();
    match accept(&receiver, &segment, SegmentData::Buffer(local), common.recv_scratch) {
        Ok(()) => {
            if let Some(mirror) = common.sink.mirror() {
                show_uc(mirror, ends, &segment, local);
            }
            pair.peer().arrived(place.qpn, &segment);
            let mut own = pair.own();
            own.qp.set_route(peer.device);
            if own.departed(work, &segment) { UcDelivery::All } else { UcDelivery::Part }
        }
        Err(UcRejection::Dropped(reason)) => {
            let qp = ends.qp();
            if reason == Reason::NoReceive && qp.requester.wait != Wait::Drained {
                core.ask(place, peer);
                return UcDelivery::Asked;
            }
            let rest = qp.path_mtu.packets(segment.message - segment.offset);
            drop_message(&mut pair.peer(), reason, segment.psn.add(rest));
            UcDelivery::Lost(None)
        }
        Err(UcRejection::Source) => UcDelivery::Failed(WcStatus::LocProt),
        Err(UcRejection::Memory(refusal)) => UcDelivery::Lost(Some((peer, refusal))),
    }
}

/// Shows a segment that has arrived as packets.
#[cold]
#[inline(never)]
fn show_uc<R: Region>(
    mirror: &mut dyn Mirror,
    ends: &Ends<'_, R>,
    segment: &Segment<'_>,
    local: LocalBuffer<'_, R>,
) {
    let (between, qp) = (ends.mirrored(), ends.qp());
    if mirror.wants(between)
        && let Some(payload) = payload_of(local, segment)
    {
        let packet = packet(&ends.path(), qp, segment);
        show(mirror, between, &packet, segment.packets, qp.path_mtu, &payload);
    }
}

/// Searches the peer of a request that is not where it was found last.
///
/// Returns what becomes of the request if there is no peer, or if the request fails before it is
/// sent.
#[cold]
fn seek_uc_peer<R: Region>(
    core: &mut Core<R>,
    place: QpRef,
    work: &Work<'_>,
    payload: Payload<'_>,
) -> Result<QpRef, UcDelivery> {
    let (device, qp) = core.devices.known(place);
    if let Err(status) = buffer(&device.mrs, qp, work, payload) {
        return Err(UcDelivery::Failed(status));
    }
    core.search_peer(place).ok_or(UcDelivery::Lost(None))
}

/// Ends the request of a segment that got lost, as if the rest of the message had been sent.
///
/// Returns whether the request has ended.
#[cold]
fn skip_rest<R: Region>(
    core: &mut Core<R>,
    place: QpRef,
    work: &Work<'_>,
    limit: u32,
    sink: &mut impl Sink,
) -> bool {
    let mut borrowed = core.known(place, sink);
    let segment = segment_of(borrowed.qp, work, limit);
    let length = work.length.saturating_sub(segment.offset);
    let rest = Segment { last: true, length, packets: borrowed.qp.path_mtu.packets(length), ..segment };
    borrowed.departed(work, &rest)
}

/// Returns the buffer of a request whose next segment is about to be sent, or the status with which
/// the request ends.
#[inline]
fn buffer<'a, R>(
    mrs: &'a Mrs<R>,
    qp: &Qp,
    work: &Work<'_>,
    payload: Payload<'a>,
) -> Result<LocalBuffer<'a, R>, WcStatus> {
    if !work.row.is_of(QpType::Uc) {
        return Err(work.error.unwrap_or(WcStatus::LocQpOp));
    }
    local_buffer(mrs, qp, work, payload)
}
