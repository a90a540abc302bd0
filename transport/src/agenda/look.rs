//! Receives that have been posted, but not handed in yet: before a missing receive has
//! consequences, the caller is asked to look.
//!
//! A program that posted a receive may tell another, by any means, to send now. The two requests
//! come by different channels, and the caller may take the send first. So the message waits, the
//! caller takes all that the owner of the receiving QP had posted when the question arose, and
//! answers; only then is a receive that is still missing an RNR or a drop.

mod save;

use crate::base::id::{DeviceId, OwnerId};
use crate::base::place::Place;
use std::collections::{BTreeMap, VecDeque};

/// Have receives for QPs of this owner been posted that the engine does not know of? See
/// [`Engine::poll_question`](crate::Engine::poll_question).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Question {
    /// The device that a message came to.
    pub device: DeviceId,
    /// The owner of the QP that has no receive for it.
    pub owner: OwnerId,
}

/// Frames of a device that may wait for an answer, each of at most
/// [`MAX_FRAME`](vrdma_wire::roce::MAX_FRAME) bytes.
pub(crate) const MAX_HELD: u32 = 256;

/// What the caller has handed in of the receives that were posted before a message came.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum PostedReceives {
    /// Perhaps not all: one that is missing may come yet.
    MayComeYet,
    /// All: one that is missing was not posted.
    AllTaken,
}

/// What a packet needs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Fate {
    /// Nothing more.
    Done,
    /// A receive, and there is none: the caller has to look first. Nothing of the message has
    /// happened. (An XRC target has the queue that it names, which changes nothing when it comes
    /// again.)
    Look,
}

/// What waits for an answer.
pub(crate) enum Asker {
    /// The first request of a send queue; the number is that of the QP's last question.
    Send(Place, u32),
    /// A frame for a QP.
    Frame(Place, Box<[u8]>),
    /// A QP that has dropped a near packet.
    Near(Place),
    /// What a QP's stream goes on with; the number is that of the QP's last question.
    Stream(Place, u32),
}

/// Questions about one device that the caller has at once: those beyond wait until it has answered
/// some.
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
    pub(crate) last: u32,
}

impl Looks {
    pub(crate) fn ask(&mut self, question: Question, asker: Asker) {
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
    pub(crate) fn take(&mut self) -> Option<Question> {
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

    /// Those who are served by this answer. The others who waited for it are the next question,
    /// with those who asked since.
    pub(crate) fn answered(&mut self, question: Question) -> Vec<Asker> {
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

    /// The caller has no question about a device any more, and frames for it are dropped; returns
    /// up to `most` of those who asked and are served thereby. The others ask again.
    pub(crate) fn forget(&mut self, device: DeviceId, most: usize) -> Vec<Asker> {
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

#[cfg(test)]
mod tests;
