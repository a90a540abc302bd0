//! Posts to the send queues of datagram QPs.

use crate::agenda::schedule::WITHIN_POSTS;
use crate::base::id::{DeviceId, OwnerId};
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::engine::Engine;
use crate::message::outlet::NoOutlet;
use crate::message::step::Step;
use crate::objects::device::PostTarget;
use crate::protocol::ud::send::send_datagram;
use crate::verbs::attr::QpState;
use crate::verbs::completion::Sink;
use crate::verbs::request::{Destination, PostError, Queue, SendRequest};
use crate::verbs::work::Work;
use vrdma_wire::num::Qpn;

impl<R: Region> Engine<R> {
    /// Whether sends of a QP are posted by [`Engine::post_datagram`].
    #[inline]
    pub fn is_datagram(&self, device: DeviceId, qpn: Qpn) -> bool {
        let qp = self.core.devices.get(device.0).and_then(|device| device.qp(qpn));
        qp.is_some_and(|qp| qp.service().is_datagram())
    }

    /// Posts to the send queue of a datagram QP, as [`Engine::post_send`] does to that of a
    /// connection.
    ///
    /// A request ends as `LocQpOp` if its address handle is of another PD or its operation is not
    /// SEND. It also ends so if its source GID is out of range, or not in the VLAN that it names. A
    /// message longer than the [active MTU](crate::Engine::set_active_mtu) ends as `LocLen`. The QP
    /// then goes to SQE.
    #[expect(clippy::too_many_arguments, reason = "the same as of the other posts")]
    pub fn post_datagram(
        &mut self,
        now: Instant,
        device: DeviceId,
        owner: OwnerId,
        qpn: Qpn,
        request: &SendRequest<'_>,
        to: &Destination,
        sink: &mut impl Sink,
    ) -> Result<(), PostError> {
        let place = QpRef { device: device.0, qpn };
        let limited = self.core.schedule.rates.any() && self.may_be_limited(now, place, place);
        let enough_left = !limited && self.core.schedule.local.may_carry(device.0, WITHIN_POSTS);
        let PostTarget { qp, suspended, .. } = self.posted(place, owner)?;
        if !qp.service().is_datagram() {
            return self.post_invalid(now, device, owner, qpn, request.id, Queue::Send, sink);
        }
        let work = Work::new(request, &qp.caps);
        let idle = qp.state == QpState::Rts && qp.requester.queue.is_empty() && qp.caps.send_wr > 0;
        // A datagram to a group is sent in turns.
        if idle && enough_left && !suspended && !to.dgid.is_multicast() {
            let sent =
                send_datagram(&mut self.core, place, &work, Some(to), request.payload, &mut NoOutlet, sink);
            let moved = if sent.step == Step::Ended { work.length } else { 0 };
            self.core.schedule.local.carry(device.0, moved);
            if sent.step == Step::Ended {
                return Ok(());
            }
        }
        self.enqueue_send(place, &work, Some(to), request.payload, sink)
    }
}
