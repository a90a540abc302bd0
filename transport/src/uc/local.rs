//! Unreliable connections between two QPs of this engine: no packets, one copy.

use crate::completion::{Sink, WcStatus};
use crate::engine::Engine;
use crate::engine::pair::Pair;
use crate::engine::step::Step;
use crate::memory::Region;
use crate::message::effect::{Failure, LocalBuffer, execute};
use crate::message::reason::Reason;
use crate::message::segment::Segment;
use crate::message::stretch::{local_buffer, stretch};
use crate::message::verdict::Refusal;
use crate::mr::Mrs;
use crate::place::Place;
use crate::qp::Qp;
use crate::qp::attr::QpType;
use crate::qp::requester::Wait;
use crate::request::Payload;
use crate::uc::responder::accept;
use crate::work::Work;

/// What became of a segment.
enum UcDelivery {
    /// It arrived; more of the message is to come.
    Part,
    /// It arrived, and with it the message: the request has ended.
    All,
    /// The peer is not where it was found last.
    Elsewhere,
    /// It, and so the rest of its message, never arrives. The receiver, if it is named, has to go to ERR.
    Lost(Option<(Place, Refusal)>),
    /// The request fails.
    Failed(WcStatus),
    /// There is no receive so far; the caller is asked to look for it.
    Asked,
}

impl<R: Region> Engine<R> {
    /// One stretch of at most `limit` bytes of `work`, the first request of a QP that may send. (It need not be in the
    /// queue yet, if that is empty.) `peer` is where its peer was found last.
    pub(crate) fn step_uc(
        &mut self,
        (place, peer): (Place, Place),
        work: &Work<'_>,
        payload: Payload<'_>,
        limit: u32,
        sink: &mut impl Sink,
    ) -> Step {
        if work.row.alone {
            self.known(place, sink).change_key(work);
            return Step::Ended;
        }
        let mut delivery = self.deliver_uc((place, peer), work, payload, limit, sink);
        if let UcDelivery::Elsewhere = delivery {
            delivery = match self.seek_uc_peer(place, work, payload) {
                Ok(found) => self.deliver_uc((place, found), work, payload, limit, sink),
                Err(delivery) => delivery,
            };
        }
        match delivery {
            UcDelivery::All => Step::Ended,
            UcDelivery::Part => Step::More,
            UcDelivery::Asked => Step::Waits,
            UcDelivery::Failed(status) => {
                self.known(place, sink).fail(&work.again(), status);
                Step::Ended
            }
            UcDelivery::Elsewhere => unreachable!("it was found where it is"),
            UcDelivery::Lost(broken) => {
                let ended = self.skip_rest(place, &work.again(), limit, sink);
                // After the request: it may be the same QP.
                if let Some((peer, refusal)) = broken {
                    self.known(peer, sink).placement_failed(refusal);
                }
                if ended { Step::Ended } else { Step::More }
            }
        }
    }

    /// Carries the next segment to the peer.
    #[inline]
    fn deliver_uc(
        &mut self,
        (place, peer): (Place, Place),
        work: &Work<'_>,
        payload: Payload<'_>,
        limit: u32,
        sink: &mut impl Sink,
    ) -> UcDelivery {
        let Some(mut pair) = self.pair(place, peer, sink) else { return UcDelivery::Elsewhere };
        let segment = stretch(pair.ends.qp(), work, limit);
        if !pair.ends.receiver().qp.responder.is_in_step(&segment) {
            // A request that fails here does not show there.
            if let Err(status) = buffer(pair.ends.mrs(), pair.ends.qp(), work, payload) {
                return UcDelivery::Failed(status);
            }
            pair.peer().resync(&segment);
        }
        let Pair { ends, common } = &mut pair;
        let local = match buffer(ends.mrs(), ends.qp(), work, payload) {
            Ok(local) => local,
            Err(status) => return UcDelivery::Failed(status),
        };
        let receiver = ends.receiver();
        let moved = match accept(&receiver, &segment) {
            Ok(target) => execute(&receiver, &segment, target, local, common.recv_scratch),
            Err(reason) => {
                let qp = ends.qp();
                if reason == Reason::NoReceive && qp.requester.wait != Wait::Looked {
                    self.ask(place, peer);
                    return UcDelivery::Asked;
                }
                let rest = qp.path_mtu.packets(segment.message - segment.offset);
                pair.peer().drop_message(reason, segment.psn.add(rest));
                return UcDelivery::Lost(None);
            }
        };
        match moved {
            Ok(_) => {
                pair.peer().arrived(place.qpn, &segment);
                let mut own = pair.own();
                own.qp.set_route(peer.device);
                if own.departed(work, &segment) { UcDelivery::All } else { UcDelivery::Part }
            }
            Err(Failure::Local) => UcDelivery::Failed(WcStatus::LocProt),
            Err(Failure::Remote(refusal)) => UcDelivery::Lost(Some((peer, refusal))),
        }
    }

    /// The peer of a request that is not where it was found last; or what becomes of the request, which may fail before it leaves.
    #[cold]
    fn seek_uc_peer(
        &mut self,
        place: Place,
        work: &Work<'_>,
        payload: Payload<'_>,
    ) -> Result<Place, UcDelivery> {
        let (device, qp) = self.devices.known(place);
        if let Err(status) = buffer(&device.mrs, qp, work, payload) {
            return Err(UcDelivery::Failed(status));
        }
        self.search_peer(place).ok_or(UcDelivery::Lost(None))
    }

    /// A segment got lost: the rest of its message need not be sent, but the sender sees it leave.
    #[cold]
    fn skip_rest(&mut self, place: Place, work: &Work<'_>, limit: u32, sink: &mut impl Sink) -> bool {
        let mut borrowed = self.known(place, sink);
        let segment = stretch(borrowed.qp, work, limit);
        let length = work.length.saturating_sub(segment.offset);
        let rest = Segment { last: true, length, packets: borrowed.qp.path_mtu.packets(length), ..segment };
        borrowed.departed(work, &rest)
    }
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
