//! Questions whether receives have been posted that the engine does not have yet.
//!
//! A program that posted a receive may tell another, by any means, to send now. The two requests
//! come by different channels, and the caller may take the send first. Before a missing receive has
//! consequences, the engine therefore asks the caller to drain the posts.
//!
//! The message waits. The caller takes all that the owner of the receiving QP had posted when the
//! question arose, and answers. If a receive is still missing then, the message gets an RNR NAK or
//! is dropped.

mod save;

use crate::base::id::{DeviceId, OwnerId};
use crate::base::qp_ref::QpRef;
use std::collections::{BTreeMap, VecDeque};

/// A question: have receives for QPs of this owner been posted that the engine does not have?
///
/// See [`Engine::poll_question`](crate::Engine::poll_question).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DrainRequest {
    /// The device that a message arrived at.
    pub device: DeviceId,
    /// The owner of the QP that has no receive for the message.
    pub owner: OwnerId,
}

/// Most frames of a device that wait for an answer. Each has at most
/// [`MAX_FRAME`](vrdma_wire::roce::MAX_FRAME) bytes.
pub(crate) const MAX_HELD: u32 = 256;

/// Whether the caller has delivered all receives that were posted before a message arrived.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum PostedReceives {
    /// Perhaps not: a missing receive may still come.
    MayComeYet,
    /// Yes: a missing receive was not posted.
    AllTaken,
}

/// What is left to do for a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Fate {
    /// Nothing.
    Done,
    /// The message needs a receive, and there is none. The caller has to drain the posts first.
    ///
    /// Nothing of the message has been executed. (An XRC target has taken note of the queue that
    /// the message names. That makes no difference when the message is handled again.)
    NeedsDrain,
    /// The packet came ahead of a gap. The caller holds it until the gap is filled.
    ///
    /// Nothing has happened so far, and the packet was not counted.
    Early,
}

/// Work that waits for an answer.
pub(crate) enum Waiter {
    /// The first request of a send queue. The number is that of the QP's last question.
    Send(QpRef, u32),
    /// A frame for a QP.
    Frame(QpRef, Box<[u8]>),
    /// A QP that has dropped an inter-worker packet.
    Near(QpRef),
    /// The next message in a QP's stream. The number is that of the QP's last question.
    Stream(QpRef, u32),
}

/// Most questions about one device that the caller has at once. Others wait until it has answered
/// some.
pub(crate) const UNDER_WAY: u32 = 16;

/// Most askers that one answer serves. Others ask again.
pub(crate) const SERVED: usize = MAX_HELD as usize;

/// The askers of a question about one owner.
#[derive(Default)]
struct PendingDrain {
    /// Askers from before the caller took the question.
    asked: VecDeque<Waiter>,
    /// Askers from after that. They are the next question.
    later: VecDeque<Waiter>,
    under_way: bool,
}

/// The questions about one device.
#[derive(Default)]
struct DeviceDrains {
    /// Owners in questions that the caller has not taken.
    fresh: VecDeque<OwnerId>,
    /// Number of questions that the caller has taken and not answered.
    under_way: u32,
    /// Whether the device is in [`Drains::round`].
    listed: bool,
}

/// All questions. Devices take turns, so that many questions about one device delay no other.
#[derive(Default)]
pub(crate) struct Drains {
    open: BTreeMap<DrainRequest, PendingDrain>,
    /// Questions by the device's index.
    devices: Vec<DeviceDrains>,
    /// Devices with a question for the caller, in the order of their turns.
    round: VecDeque<u32>,
    pub(crate) last: u32,
}

impl Drains {
    pub(crate) fn ask(&mut self, question: DrainRequest, asker: Waiter) {
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

    fn device(&mut self, index: u32) -> &mut DeviceDrains {
        let at = index as usize;
        if at >= self.devices.len() {
            self.devices.resize_with(at + 1, DeviceDrains::default);
        }
        &mut self.devices[at]
    }

    /// Adds an open question for the caller to take.
    fn pose(&mut self, question: DrainRequest) {
        self.device(question.device.0).fresh.push_back(question.owner);
        self.list(question.device.0);
    }

    /// Adds a device to the round if it has something for the caller.
    fn list(&mut self, index: u32) {
        let device = self.device(index);
        if !device.listed && !device.fresh.is_empty() && device.under_way < UNDER_WAY {
            device.listed = true;
            self.round.push_back(index);
        }
    }

    /// Returns the next question, which the caller takes.
    pub(crate) fn take(&mut self) -> Option<DrainRequest> {
        let index = self.round.pop_front()?;
        let device = self.device(index);
        device.listed = false;
        device.under_way += 1;
        let owner = device.fresh.pop_front().expect("a device in the round has a question");
        self.list(index);
        let question = DrainRequest { device: DeviceId(index), owner };
        self.open.get_mut(&question).expect("a question that is posed is open").under_way = true;
        Some(question)
    }

    /// Whether the caller has a question to take.
    pub(crate) fn any(&self) -> bool {
        !self.round.is_empty()
    }

    /// Returns the askers that this answer serves.
    ///
    /// The other askers become the next question, together with those that asked since.
    pub(crate) fn answered(&mut self, question: DrainRequest) -> Vec<Waiter> {
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

    /// Withdraws all questions about a device, and drops the frames that wait for them.
    ///
    /// Returns up to `most` of the sends that asked, which are served by this. The others ask
    /// again.
    pub(crate) fn forget(&mut self, device: DeviceId, most: usize) -> Vec<Waiter> {
        *self.device(device.0) = DeviceDrains::default();
        self.round.retain(|&index| index != device.0);
        let [first, last] = [0, u32::MAX].map(|owner| DrainRequest { device, owner: OwnerId(owner) });
        let questions: Vec<_> = self.open.range(first..=last).map(|(&question, _)| question).collect();
        let mut served = Vec::new();
        for question in questions {
            let look = self.open.get_mut(&question).expect("it was found just now");
            look.under_way = false;
            look.asked.append(&mut look.later);
            look.asked.retain(|asker| matches!(asker, Waiter::Send(..)));
            served.append(&mut look.serve(most - served.len()));
            match look.asked.is_empty() {
                true => drop(self.open.remove(&question)),
                false => self.pose(question),
            }
        }
        served
    }
}

impl PendingDrain {
    /// Removes up to `most` of the first askers, and returns them.
    fn serve(&mut self, most: usize) -> Vec<Waiter> {
        let count = self.asked.len().min(most);
        let served = self.asked.drain(..count).collect();
        self.asked.append(&mut self.later);
        served
    }
}

#[cfg(test)]
mod tests;
