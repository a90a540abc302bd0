//! Questions for receives that have been posted but not handed in yet, and what waits for their
//! answers.

use crate::agenda::look::{Asker, Fate, PostedReceives, Question};
use crate::base::carrier::Carrier;
use crate::base::id::DeviceId;
use crate::base::memory::Region;
use crate::base::place::Place;
use crate::base::time::Instant;
use crate::carrier::roce::looked_near;
use crate::engine::Engine;
use crate::objects::qp::entry::QpEntry;
use crate::objects::qp::requester::Wait;
use crate::verbs::completion::{NoSink, Sink};
use vrdma_wire::num::Qpn;
use vrdma_wire::roce::Packet;

impl<R: Region> Engine<R> {
    /// Takes the next question, which the caller owes an [answer](Engine::answer): a message has no
    /// receive, and waits. The caller is to hand in everything that this owner (and
    /// [`OwnerId::KERNEL`](crate::OwnerId::KERNEL), who may post for all) has posted up to now.
    /// Questions about different devices come in turn, and of those about one device only so many
    /// as the caller does not owe too many answers.
    pub fn poll_question(&mut self) -> Option<Question> {
        self.core.looks.take()
    }

    /// Whether [`Engine::poll_question`] has one.
    #[inline]
    pub fn has_questions(&self) -> bool {
        self.core.looks.any()
    }

    /// Whether a QP has a request that can go on, or be sent, at once, or whose peer's receive is
    /// looked for: more completions of its sends are about to come.
    pub fn is_sending(&self, device: DeviceId, qpn: Qpn) -> bool {
        let qp = self.core.devices.get(device.0).and_then(|device| device.qp(qpn));
        qp.is_some_and(|qp| qp.requester.ready || qp.turn_due || qp.requester.wait == Wait::Look)
    }

    /// What had been posted when the question was taken is handed in: what waited goes on. If very
    /// much waited, some of it asks again. An answer to a question that is not open any more (its
    /// device was reset) has no effect; a caller drops such questions, for the same may be asked
    /// again.
    pub fn answer(&mut self, now: Instant, question: Question, sink: &mut impl Sink) {
        for asker in self.core.looks.answered(question) {
            match asker {
                Asker::Send(place, number) => self.looked_for(place, number),
                Asker::Frame(place, frame) => self.handle_held(now, place, &frame, sink),
                Asker::Near(place) => self.looked_near(place, sink),
                Asker::Stream(place, number) => self.handle_waiting(place, number, sink),
            }
        }
    }

    /// A device has forgotten everything: those who asked about its receives find that it has no QP
    /// any more. `most` of them do so at once.
    pub(crate) fn forget_questions(&mut self, device: DeviceId, most: usize) {
        for asker in self.core.looks.forget(device, most) {
            if let Asker::Send(place, number) = asker {
                self.looked_for(place, number);
            }
        }
    }

    fn looked_for(&mut self, place: Place, number: u32) {
        let no_sink = &mut NoSink;
        // It may have been destroyed since it asked.
        let Some(mut borrowed) = self.core.borrow(place, no_sink) else { return };
        if borrowed.qp.requester.wait == Wait::Look && borrowed.qp.question == number {
            borrowed.qp.requester.wait = match borrowed.qp.carrier {
                Carrier::Local => Wait::Looked,
                Carrier::Roce | Carrier::Tcp => Wait::No,
            };
            borrowed.make_ready();
        }
    }

    fn looked_near(&mut self, place: Place, sink: &mut impl Sink) {
        // It may have been destroyed since it asked.
        if let Some(borrowed) = self.core.borrow(place, sink) {
            looked_near(borrowed);
        }
    }

    /// The caller has looked: what the QP has no receive for now, it has none for.
    fn handle_held(&mut self, now: Instant, place: Place, frame: &[u8], sink: &mut impl Sink) {
        // A device that goes takes the frames with it that are held for it.
        let device = self.core.devices.known_device(place.device);
        device.held -= 1;
        if let Some(QpEntry { qp, .. }) = device.qps.get_mut(place.qpn.number()) {
            // QP1 has its number again when it was destroyed and created meanwhile.
            qp.held = qp.held.saturating_sub(1);
        }
        // Its ICRC was checked, too; of one from a record both again.
        let parsed = Packet::parse(frame).expect("a frame that is held was parsed when it came");
        let fate = self.deliver(now, place, &parsed, PostedReceives::AllTaken, sink);
        debug_assert_eq!(fate, Fate::Done, "who has looked does not ask");
    }
}
