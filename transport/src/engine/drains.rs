//! Questions whether receives have been posted but not delivered to the engine, and the work that
//! waits for answers.

use crate::agenda::drains::{DrainRequest, Fate, PostedReceives, Waiter};
use crate::base::id::DeviceId;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::base::transport_kind::TransportKind;
use crate::engine::Engine;
use crate::objects::qp::entry::QpEntry;
use crate::objects::qp::requester::Wait;
use crate::protocol::roce::looked_near;
use crate::verbs::completion::{NoSink, Sink};
use vrdma_wire::num::Qpn;
use vrdma_wire::roce::Packet;

impl<R: Region> Engine<R> {
    /// Takes the next question, which the caller has to [answer](Engine::answer): a message has no
    /// receive, and waits.
    ///
    /// First the caller delivers everything that this owner has posted up to now.
    /// [`OwnerId::KERNEL`](crate::OwnerId::KERNEL) may post for all, so its posts are delivered
    /// too.
    ///
    /// Devices take turns. The number of questions about one device without an answer is limited.
    pub fn poll_question(&mut self) -> Option<DrainRequest> {
        self.core.looks.take()
    }

    /// Whether [`Engine::poll_question`] has a question.
    #[inline]
    pub fn has_questions(&self) -> bool {
        self.core.looks.any()
    }

    /// Whether more completions of a QP's sends are about to come.
    ///
    /// Its first request can go on or be sent at once, or the caller has to drain posts for it.
    pub fn is_sending(&self, device: DeviceId, qpn: Qpn) -> bool {
        let qp = self.core.devices.get(device.0).and_then(|device| device.qp(qpn));
        qp.is_some_and(|qp| qp.requester.ready || qp.turn_due || qp.requester.wait == Wait::Drain)
    }

    /// Resumes what waited for the answer to a question.
    ///
    /// The caller has delivered everything that had been posted when it took the question. If very
    /// much waited, some of it asks again.
    ///
    /// An answer to a question that is not open any more (its device was reset) has no effect. A
    /// caller drops such questions, because an equal one may be asked again.
    pub fn answer(&mut self, now: Instant, question: DrainRequest, sink: &mut impl Sink) {
        for asker in self.core.looks.answered(question) {
            match asker {
                Waiter::Send(place, number) => self.looked_for(place, number),
                Waiter::Frame(place, frame) => self.handle_held(now, place, &frame, sink),
                Waiter::Near(place) => self.looked_near(place, sink),
                Waiter::Stream(place, number) => self.handle_waiting(place, number, sink),
            }
        }
    }

    /// Handles the questions about a device that has forgotten everything.
    ///
    /// The requests that asked find that its QPs do not exist any more. At most `most` of them do
    /// so at once.
    pub(crate) fn forget_questions(&mut self, device: DeviceId, most: usize) {
        for asker in self.core.looks.forget(device, most) {
            if let Waiter::Send(place, number) = asker {
                self.looked_for(place, number);
            }
        }
    }

    fn looked_for(&mut self, place: QpRef, number: u32) {
        let no_sink = &mut NoSink;
        // The QP may have been destroyed since it asked.
        let Some(mut borrowed) = self.core.borrow(place, no_sink) else { return };
        if borrowed.qp.requester.wait == Wait::Drain && borrowed.qp.question == number {
            borrowed.qp.requester.wait = match borrowed.qp.transport {
                TransportKind::Local => Wait::Drained,
                TransportKind::Roce | TransportKind::Tcp => Wait::No,
            };
            borrowed.make_ready();
        }
    }

    fn looked_near(&mut self, place: QpRef, sink: &mut impl Sink) {
        // The QP may have been destroyed since it asked.
        if let Some(borrowed) = self.core.borrow(place, sink) {
            looked_near(borrowed);
        }
    }

    /// Delivers a queued frame, because the caller has drained the posts. A missing receive does
    /// not exist.
    fn handle_held(&mut self, now: Instant, place: QpRef, frame: &[u8], sink: &mut impl Sink) {
        // The queued frames of a device disappear with it, so the device exists.
        let device = self.core.devices.known_device(place.device);
        device.held -= 1;
        if let Some(QpEntry { qp, .. }) = device.qps.get_mut(place.qpn.number()) {
            // A QP1 that was destroyed and created again has the same number, but no queued frames.
            qp.held = qp.held.saturating_sub(1);
        }
        // Its ICRC was checked too. For a frame from a record, both were checked again.
        let parsed = Packet::parse(frame).expect("a frame that is held was parsed when it came");
        match self.deliver(now, place, &parsed, PostedReceives::AllTaken, sink) {
            Fate::Done => {}
            Fate::Early => self.hold_early(now, place, &parsed, frame, sink),
            Fate::NeedsDrain => unreachable!("who has looked does not ask"),
        }
        // What waited kept what is held from being executed.
        self.look_at_early(place, sink);
    }
}
