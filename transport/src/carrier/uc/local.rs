//! Unreliable connections between two QPs of this engine: no packets, one copy.

use crate::base::memory::Region;
use crate::base::place::Place;
use crate::carrier::uc::responder::{UcRejection, accept, drop_message, placement_failed, resync};
use crate::message::accept::SegmentData;
use crate::message::core::Core;
use crate::message::effect::LocalBuffer;
use crate::message::pair::Pair;
use crate::message::step::Step;
use crate::message::stretch::{local_buffer, stretch};
use crate::message::verdict::Refusal;
use crate::objects::mr::Mrs;
use crate::objects::qp::Qp;
use crate::objects::qp::requester::Wait;
use crate::verbs::attr::QpType;
use crate::verbs::completion::{Sink, WcStatus};
use crate::verbs::reason::Reason;
use crate::verbs::request::Payload;
use crate::verbs::segment::Segment;
use crate::verbs::work::Work;

/// What became of a segment.
enum UcDelivery {
    /// It arrived; more of the message is to come.
    Part,
    /// It arrived, and with it the message: the request has ended.
    All,
    /// The peer is not where it was found last.
    Elsewhere,
    /// It, and so the rest of its message, never arrives. The receiver, if it is named, has to go
    /// to ERR.
    Lost(Option<(Place, Refusal)>),
    /// The request fails.
    Failed(WcStatus),
    /// There is no receive so far; the caller is asked to look for it.
    Asked,
}

/// One stretch of at most `limit` bytes of `work`, the first request of a QP that may send. (It
/// need not be in the queue yet, if that is empty.) `peer` is where its peer was found last.
pub(crate) fn step_uc<R: Region>(
    core: &mut Core<R>,
    (place, peer): (Place, Place),
    work: &Work<'_>,
    payload: Payload<'_>,
    limit: u32,
    sink: &mut impl Sink,
) -> Step {
    if work.row.alone {
        core.known(place, sink).change_key(work);
        return Step::Ended;
    }
    let mut delivery = deliver_uc(core, (place, peer), work, payload, limit, sink);
    if let UcDelivery::Elsewhere = delivery {
        delivery = match seek_uc_peer(core, place, work, payload) {
            Ok(found) => deliver_uc(core, (place, found), work, payload, limit, sink),
            Err(delivery) => delivery,
        };
    }
    match delivery {
        UcDelivery::All => Step::Ended,
        UcDelivery::Part => Step::More,
        UcDelivery::Asked => Step::Waits,
        UcDelivery::Failed(status) => {
            core.known(place, sink).fail(&work.again(), status);
            Step::Ended
        }
        UcDelivery::Elsewhere => unreachable!("it was found where it is"),
        UcDelivery::Lost(broken) => {
            let ended = skip_rest(core, place, &work.again(), limit, sink);
            // After the request: it may be the same QP.
            if let Some((peer, refusal)) = broken {
                placement_failed(&mut core.known(peer, sink), refusal);
            }
            if ended { Step::Ended } else { Step::More }
        }
    }
}

/// Carries the next segment to the peer.
#[inline]
fn deliver_uc<R: Region>(
    core: &mut Core<R>,
    (place, peer): (Place, Place),
    work: &Work<'_>,
    payload: Payload<'_>,
    limit: u32,
    sink: &mut impl Sink,
) -> UcDelivery {
    let Some(mut pair) = core.pair(place, peer, sink) else { return UcDelivery::Elsewhere };
    let segment = stretch(pair.ends.qp(), work, limit);
    if !pair.ends.receiver().qp.responder.is_in_step(&segment) {
        // A request that fails here does not show there.
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
            pair.peer().arrived(place.qpn, &segment);
            let mut own = pair.own();
            own.qp.set_route(peer.device);
            if own.departed(work, &segment) { UcDelivery::All } else { UcDelivery::Part }
        }
        Err(UcRejection::Dropped(reason)) => {
            let qp = ends.qp();
            if reason == Reason::NoReceive && qp.requester.wait != Wait::Looked {
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

/// The peer of a request that is not where it was found last; or what becomes of the request, which
/// may fail before it leaves.
#[cold]
fn seek_uc_peer<R: Region>(
    core: &mut Core<R>,
    place: Place,
    work: &Work<'_>,
    payload: Payload<'_>,
) -> Result<Place, UcDelivery> {
    let (device, qp) = core.devices.known(place);
    if let Err(status) = buffer(&device.mrs, qp, work, payload) {
        return Err(UcDelivery::Failed(status));
    }
    core.search_peer(place).ok_or(UcDelivery::Lost(None))
}

/// A segment got lost: the rest of its message need not be sent, but the sender sees it leave.
#[cold]
fn skip_rest<R: Region>(
    core: &mut Core<R>,
    place: Place,
    work: &Work<'_>,
    limit: u32,
    sink: &mut impl Sink,
) -> bool {
    let mut borrowed = core.known(place, sink);
    let segment = stretch(borrowed.qp, work, limit);
    let length = work.length.saturating_sub(segment.offset);
    let rest = Segment { last: true, length, packets: borrowed.qp.path_mtu.packets(length), ..segment };
    borrowed.departed(work, &rest)
}

/// The buffer of a request whose next stretch is about to leave, or how it ends here.
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
