//! Receives that have been posted, but not handed in yet: before a missing receive has consequences, the caller is asked to look.
//!
//! A program that posted a receive may tell another, by any means, to send now. The two requests come by different channels, and the caller
//! may take the send first. So the message waits, the caller takes all that the owner of the receiving QP had posted when the
//! question arose, and answers; only then is a receive that is still missing an RNR or a drop.

mod save;

use crate::carrier::Carrier;
use crate::completion::{NoSink, Sink};
use crate::engine::Engine;
use crate::id::{DeviceId, OwnerId};
use crate::memory::Region;
use crate::qp::QpEntry;
use crate::qp::requester::Wait;
use crate::schedule::Place;
use crate::time::Instant;
use core::mem;
use std::collections::{BTreeMap, VecDeque};
use vrdma_wire::roce::Packet;

/// Have receives for QPs of this owner been posted that the engine does not know of? See [`Engine::poll_question`].
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Question {
    /// The device that a message came to.
    pub device: DeviceId,
    /// The owner of the QP that has no receive for it.
    pub owner: OwnerId,
}

/// Frames of a device that may wait for an answer.
pub(crate) const MAX_HELD: u32 = 256;

/// What a packet needs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Fate {
    /// Nothing more.
    Done,
    /// A receive, and there is none: the caller has to look first. Nothing has changed.
    Look,
}

/// What waits for an answer.
enum Asker {
    /// The first request of a send queue; the number is that of the QP's last question.
    Send(Place, u32),
    /// A frame for a QP.
    Frame(Place, Box<[u8]>),
}

/// Those who ask about one owner.
#[derive(Default)]
struct Look {
    /// They asked before the caller began to look,
    asked: Vec<Asker>,
    /// and they since: they are the next question.
    later: Vec<Asker>,
    under_way: bool,
}

/// All questions.
#[derive(Default)]
pub(crate) struct Looks {
    open: BTreeMap<Question, Look>,
    /// Those that the caller has not taken.
    fresh: VecDeque<Question>,
    last: u32,
}

impl Looks {
    fn ask(&mut self, question: Question, asker: Asker) {
        let look = self.open.entry(question).or_default();
        if look.under_way {
            return look.later.push(asker);
        }
        if look.asked.is_empty() {
            self.fresh.push_back(question);
        }
        look.asked.push(asker);
    }

    /// Whether the caller has a question to take.
    pub(crate) fn any(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Those who waited for this answer.
    fn answered(&mut self, question: Question) -> Vec<Asker> {
        let Some(look) = self.open.get_mut(&question).filter(|look| look.under_way) else {
            return Vec::new();
        };
        look.under_way = false;
        let askers = mem::replace(&mut look.asked, mem::take(&mut look.later));
        if look.asked.is_empty() {
            self.open.remove(&question);
        } else {
            self.fresh.push_back(question);
        }
        askers
    }

    /// Nobody asks any more about what a device has; returns those who did.
    fn forget(&mut self, device: DeviceId) -> Vec<Asker> {
        self.fresh.retain(|question| question.device != device);
        let mut askers = Vec::new();
        self.open.retain(|question, look| {
            let gone = question.device == device;
            if gone {
                askers.extend(look.asked.drain(..).chain(look.later.drain(..)));
            }
            !gone
        });
        askers
    }
}

impl<R: Region> Engine<R> {
    /// Takes the next question, which the caller owes an [answer](Engine::answer): a message has no receive, and waits. The caller is to
    /// hand in everything that this owner (and [`OwnerId::KERNEL`], who may post for all) has posted up to now.
    pub fn poll_question(&mut self) -> Option<Question> {
        let question = self.looks.fresh.pop_front()?;
        if let Some(look) = self.looks.open.get_mut(&question) {
            look.under_way = true;
        }
        Some(question)
    }

    /// Whether [`Engine::poll_question`] has one.
    #[inline]
    pub fn has_questions(&self) -> bool {
        self.looks.any()
    }

    /// What had been posted when the question was taken is handed in: what waited goes on. An answer to a question that is not open
    /// any more (its device was reset) has no effect; a caller drops such questions, for the same may be asked again.
    pub fn answer(&mut self, now: Instant, question: Question, sink: &mut impl Sink) {
        for asker in self.looks.answered(question) {
            match asker {
                Asker::Send(place, number) => self.looked_for(place, number),
                Asker::Frame(place, frame) => self.handle_held(now, place, &frame, sink),
            }
        }
    }

    /// A device has forgotten everything: those who asked about its receives find that it has no QP any more.
    pub(crate) fn forget_questions(&mut self, device: DeviceId) {
        for asker in self.looks.forget(device) {
            match asker {
                Asker::Send(place, number) => self.looked_for(place, number),
                // It was for a QP of that device.
                Asker::Frame(..) => {}
            }
        }
    }

    /// The first request of the QP at `place` waits until the caller has looked for receives of `peer`.
    #[cold]
    pub(crate) fn ask(&mut self, place: Place, peer: Place) {
        let owner = self.devices.known(peer).1.owner;
        let (qp, _) = self.devices.known_mut(place);
        self.looks.last = self.looks.last.wrapping_add(1);
        qp.question = self.looks.last;
        qp.requester.wait = Wait::Look;
        let asker = Asker::Send(place, qp.question);
        self.looks.ask(Question { device: peer.id(), owner }, asker);
    }

    fn looked_for(&mut self, place: Place, number: u32) {
        let no_sink = &mut NoSink;
        // It may have been destroyed since it asked.
        let Some(mut borrowed) = self.borrow(place, no_sink) else { return };
        if borrowed.qp.requester.wait == Wait::Look && borrowed.qp.question == number {
            borrowed.qp.requester.wait = match borrowed.qp.carrier {
                Carrier::Local => Wait::Looked,
                Carrier::Roce => Wait::No,
            };
            borrowed.make_ready();
        }
    }

    /// Keeps a frame for the QP at `place` until the caller has looked for its receives; what comes after it waits behind it.
    #[cold]
    pub(crate) fn hold(&mut self, place: Place, frame: &[u8]) {
        let Some(device) = self.devices.get_mut(place.device) else { return };
        let Some(QpEntry { qp, .. }) = device.qps.get_mut(place.qpn.number()) else { return };
        if device.held >= MAX_HELD {
            device.counters.drop_held += 1;
            return;
        }
        device.held += 1;
        qp.held += 1;
        let question = Question { device: place.id(), owner: qp.owner };
        self.looks.ask(question, Asker::Frame(place, frame.into()));
    }

    /// The caller has looked: what the QP has no receive for now, it has none for.
    fn handle_held(&mut self, now: Instant, place: Place, frame: &[u8], sink: &mut impl Sink) {
        let Some(device) = self.devices.get_mut(place.device) else { return };
        device.held -= 1;
        if let Some(QpEntry { qp, .. }) = device.qps.get_mut(place.qpn.number()) {
            // QP1 has its number again when it was destroyed and created meanwhile.
            qp.held = qp.held.saturating_sub(1);
        }
        // It was parsed and its ICRC checked when it came.
        let Ok(parsed) = Packet::parse(frame) else { return };
        let fate = self.deliver(now, place, &parsed, true, sink);
        debug_assert_eq!(fate, Fate::Done, "who has looked does not ask");
    }
}
