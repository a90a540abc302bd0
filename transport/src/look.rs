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
use std::collections::{BTreeMap, VecDeque};
use vrdma_wire::roce::{MAX_FRAME, Packet};

/// Have receives for QPs of this owner been posted that the engine does not know of? See [`Engine::poll_question`].
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Question {
    /// The device that a message came to.
    pub device: DeviceId,
    /// The owner of the QP that has no receive for it.
    pub owner: OwnerId,
}

/// Frames of a device that may wait for an answer, each of at most [`MAX_FRAME`] bytes.
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

/// Questions about one device that the caller has at once: those beyond wait until it has answered some.
pub(crate) const UNDER_WAY: u32 = 16;

/// Askers that one answer serves: those beyond ask again.
pub(crate) const SERVED: usize = MAX_HELD as usize;

/// Those who ask about one owner.
#[derive(Default)]
struct Look {
    /// They asked before the caller began to look,
    asked: VecDeque<Asker>,
    /// and they since: they are the next question.
    later: VecDeque<Asker>,
    under_way: bool,
}

/// Questions about one device.
#[derive(Default)]
struct DeviceLooks {
    /// The owners in those that the caller has not taken.
    fresh: VecDeque<OwnerId>,
    /// How many it has taken and not answered.
    under_way: u32,
    /// It is in [`Looks::round`].
    listed: bool,
}

/// All questions. Devices take turns, so that nobody waits because many ask about another device.
#[derive(Default)]
pub(crate) struct Looks {
    open: BTreeMap<Question, Look>,
    /// By the device's index.
    devices: Vec<DeviceLooks>,
    /// Devices with a question for the caller, in the order of their turns.
    round: VecDeque<u32>,
    last: u32,
}

impl Looks {
    fn ask(&mut self, question: Question, asker: Asker) {
        let look = self.open.entry(question).or_default();
        if look.under_way {
            return look.later.push_back(asker);
        }
        let is_new = look.asked.is_empty();
        look.asked.push_back(asker);
        if is_new {
            self.pose(question);
        }
    }

    fn device(&mut self, index: u32) -> &mut DeviceLooks {
        let at = index as usize;
        if at >= self.devices.len() {
            self.devices.resize_with(at + 1, DeviceLooks::default);
        }
        &mut self.devices[at]
    }

    /// A question is open that the caller has not taken.
    fn pose(&mut self, question: Question) {
        self.device(question.device.0).fresh.push_back(question.owner);
        self.list(question.device.0);
    }

    /// Gives a device its place in the round if it has something for the caller.
    fn list(&mut self, index: u32) {
        let device = self.device(index);
        if !device.listed && !device.fresh.is_empty() && device.under_way < UNDER_WAY {
            device.listed = true;
            self.round.push_back(index);
        }
    }

    /// The next question, which the caller takes.
    fn take(&mut self) -> Option<Question> {
        let index = self.round.pop_front()?;
        let device = self.device(index);
        device.listed = false;
        device.under_way += 1;
        let owner = device.fresh.pop_front().expect("a device in the round has a question");
        self.list(index);
        let question = Question { device: DeviceId(index), owner };
        self.open.get_mut(&question).expect("a question that is posed is open").under_way = true;
        Some(question)
    }

    /// Whether the caller has a question to take.
    pub(crate) fn any(&self) -> bool {
        !self.round.is_empty()
    }

    /// Those who are served by this answer. The others who waited for it are the next question, with those who asked since.
    fn answered(&mut self, question: Question) -> Vec<Asker> {
        let Some(look) = self.open.get_mut(&question).filter(|look| look.under_way) else {
            return Vec::new();
        };
        look.under_way = false;
        let served = look.serve(SERVED);
        let is_over = look.asked.is_empty();
        self.device(question.device.0).under_way -= 1;
        match is_over {
            true => drop(self.open.remove(&question)),
            false => self.pose(question),
        }
        self.list(question.device.0);
        served
    }

    /// The caller has no question about a device any more, and frames for it are dropped; returns up to `most` of those who asked and are
    /// served thereby. The others ask again.
    fn forget(&mut self, device: DeviceId, most: usize) -> Vec<Asker> {
        *self.device(device.0) = DeviceLooks::default();
        self.round.retain(|&index| index != device.0);
        let [first, last] = [0, u32::MAX].map(|owner| Question { device, owner: OwnerId(owner) });
        let questions: Vec<_> = self.open.range(first..=last).map(|(&question, _)| question).collect();
        let mut served = Vec::new();
        for question in questions {
            let look = self.open.get_mut(&question).expect("it was found just now");
            look.under_way = false;
            look.asked.append(&mut look.later);
            look.asked.retain(|asker| matches!(asker, Asker::Send(..)));
            served.append(&mut look.serve(most - served.len()));
            match look.asked.is_empty() {
                true => drop(self.open.remove(&question)),
                false => self.pose(question),
            }
        }
        served
    }
}

impl Look {
    /// Takes up to `most` of those who asked first.
    fn serve(&mut self, most: usize) -> Vec<Asker> {
        let count = self.asked.len().min(most);
        let served = self.asked.drain(..count).collect();
        self.asked.append(&mut self.later);
        served
    }
}

impl<R: Region> Engine<R> {
    /// Takes the next question, which the caller owes an [answer](Engine::answer): a message has no receive, and waits. The caller is to
    /// hand in everything that this owner (and [`OwnerId::KERNEL`], who may post for all) has posted up to now. Questions about different
    /// devices come in turn, and of those about one device only so many as the caller does not owe too many answers.
    pub fn poll_question(&mut self) -> Option<Question> {
        self.looks.take()
    }

    /// Whether [`Engine::poll_question`] has one.
    #[inline]
    pub fn has_questions(&self) -> bool {
        self.looks.any()
    }

    /// What had been posted when the question was taken is handed in: what waited goes on. If very much waited, some of it asks again. An
    /// answer to a question that is not open any more (its device was reset) has no effect; a caller drops such questions, for the same may be asked again.
    pub fn answer(&mut self, now: Instant, question: Question, sink: &mut impl Sink) {
        for asker in self.looks.answered(question) {
            match asker {
                Asker::Send(place, number) => self.looked_for(place, number),
                Asker::Frame(place, frame) => self.handle_held(now, place, &frame, sink),
            }
        }
    }

    /// A device has forgotten everything: those who asked about its receives find that it has no QP any more. `most` of them do so at once.
    pub(crate) fn forget_questions(&mut self, device: DeviceId, most: usize) {
        for asker in self.looks.forget(device, most) {
            if let Asker::Send(place, number) = asker {
                self.looked_for(place, number);
            }
        }
    }

    /// The first request of the QP at `place` waits until the caller has looked for receives of `peer`.
    #[cold]
    pub(crate) fn ask(&mut self, place: Place, peer: Place) {
        let (device, qp) = self.devices.known(peer);
        let owner = device.owner_of_receives(qp);
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
        if device.held >= MAX_HELD || frame.len() > MAX_FRAME {
            device.counters.drop_held += 1;
            return;
        }
        device.held += 1;
        qp.held += 1;
        let (device, qp) = self.devices.known(place);
        let question = Question { device: place.id(), owner: device.owner_of_receives(qp) };
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

#[cfg(test)]
mod tests;
