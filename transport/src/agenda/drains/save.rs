//! Questions in the record.

use super::{DeviceDrains, DrainRequest, Drains, MAX_HELD, PendingDrain, Waiter};
use crate::base::id::{DeviceId, OwnerId};
use crate::base::qp_ref::QpRef;
use crate::objects::device::Devices;
use crate::objects::qp::entry::QpEntry;
use crate::objects::qp::requester::Wait;
use crate::objects::service::Service;
use crate::save::{RestoreError, Violation, record, to_qpn};
use std::collections::{BTreeMap, BTreeSet};
use vrdma_wire::num::Qpn;
use vrdma_wire::roce::{MAX_FRAME, Packet};

impl Drains {
    /// Returns the record of all questions. Questions that the caller has not taken come first, in
    /// their order.
    pub(crate) fn save(&self) -> Vec<record::Question> {
        let Drains { open, devices: _, round: _, last: _ } = self;
        let saved = self.in_order().filter_map(|question| Some(open.get(&question)?.save(&question)));
        // A question that only inter-worker packets asked is void.
        saved.filter(|question: &record::Question| !question.asked.is_empty()).collect()
    }

    /// Iterates over all questions. Questions that the caller has not taken come first.
    fn in_order(&self) -> impl Iterator<Item = DrainRequest> {
        let Drains { open, devices, round, last: _ } = self;
        let others = (0..devices.len() as u32).filter(|&index| !devices[index as usize].listed);
        let fresh = round.iter().copied().chain(others).flat_map(|index| {
            // Restore counts the taken questions again, and lists devices in the round again.
            let DeviceDrains { fresh, under_way: _, listed: _ } = &devices[index as usize];
            fresh.iter().map(move |&owner| DrainRequest { device: DeviceId(index), owner })
        });
        fresh.chain(open.iter().filter(|(_, look)| look.under_way).map(|(&question, _)| question))
    }

    /// Returns the number of the last asker.
    pub(crate) fn last(&self) -> u32 {
        self.last
    }

    /// Restores questions from a record, for devices that have their QPs already.
    ///
    /// Sets in each device how many frames are held for it.
    pub(crate) fn restore<R>(
        questions: &[record::Question],
        last: u32,
        devices: &mut Devices<R>,
    ) -> Result<Drains, RestoreError> {
        let mut looks = Drains { last, ..Drains::default() };
        let mut askers = Askers::default();
        for record in questions {
            let of_device = |violation| RestoreError::from(violation).of_device(record.device);
            looks.restore_one(record, devices, &mut askers).map_err(of_device)?;
        }
        let question = |record: &record::Question| DrainRequest {
            device: DeviceId(record.device),
            owner: OwnerId(record.owner),
        };
        // This comes after all counts of taken questions are known.
        for record in questions.iter().filter(|record| !record.taken) {
            looks.pose(question(record));
        }
        if !looks.in_order().eq(questions.iter().map(question)) {
            return Err(Violation::Question.into());
        }
        askers.check(devices)?;
        Ok(looks)
    }

    fn restore_one<R>(
        &mut self,
        record: &record::Question,
        devices: &mut Devices<R>,
        askers: &mut Askers,
    ) -> Result<(), Violation> {
        let question = DrainRequest { device: DeviceId(record.device), owner: OwnerId(record.owner) };
        let device = devices.get_mut(record.device).ok_or(Violation::Question)?;
        let none_later = record.taken || record.later.is_empty();
        if record.asked.is_empty() || !none_later || self.open.contains_key(&question) {
            return Err(Violation::Question);
        }
        let mut restore = |asker| {
            let asker = askers.restore(question, asker)?;
            if let Waiter::Frame(..) = asker {
                device.held += 1;
            }
            Ok(asker)
        };
        let asked = record.asked.iter().map(&mut restore).collect::<Result<_, Violation>>()?;
        let later = record.later.iter().map(&mut restore).collect::<Result<_, Violation>>()?;
        if device.held > MAX_HELD {
            return Err(Violation::Frame);
        }
        self.open.insert(question, PendingDrain { asked, later, under_way: record.taken });
        self.device(record.device).under_way += u32::from(record.taken);
        Ok(())
    }
}

impl PendingDrain {
    fn save(&self, question: &DrainRequest) -> record::Question {
        let DrainRequest { device, owner } = *question;
        let PendingDrain { asked, later, under_way } = self;
        record::Question {
            device: device.0,
            owner: owner.0,
            taken: *under_way,
            asked: asked.iter().filter_map(Waiter::save).collect(),
            later: later.iter().filter_map(Waiter::save).collect(),
        }
    }
}

impl Waiter {
    /// Returns `None` for an inter-worker packet: its sender sends it again after a timeout.
    fn save(&self) -> Option<record::Asker> {
        Some(match self {
            Waiter::Near(_) => return None,
            Waiter::Send(place, number) => record::Asker::Send { place: (*place).into(), number: *number },
            Waiter::Frame(place, frame) if is_for_group(frame) => {
                record::Asker::GroupFrame { qpn: place.qpn.number(), frame: frame.to_vec() }
            }
            // The frame tells the QP that it is addressed to.
            Waiter::Frame(_, frame) => record::Asker::Frame(frame.to_vec()),
            Waiter::Stream(place, number) => {
                record::Asker::Stream { qpn: place.qpn.number(), number: *number }
            }
        })
    }
}

/// Whether a frame is for all members of a multicast group.
fn is_for_group(frame: &[u8]) -> bool {
    Packet::parse(frame).is_ok_and(|parsed| parsed.packet.path.dst.is_multicast())
}

/// All askers of a record.
#[derive(Default)]
struct Askers {
    sends: BTreeSet<(QpRef, u32)>,
    streams: BTreeSet<(QpRef, u32)>,
    /// How many frames are held for each QP.
    frames: BTreeMap<QpRef, u32>,
}

impl Askers {
    fn restore(&mut self, question: DrainRequest, asker: &record::Asker) -> Result<Waiter, Violation> {
        match asker {
            record::Asker::Send { place, number } => {
                let place = QpRef { device: place.device, qpn: to_qpn(place.qpn)? };
                self.sends.insert((place, *number));
                Ok(Waiter::Send(place, *number))
            }
            record::Asker::Frame(frame) => self.restore_frame(question, frame, None),
            record::Asker::GroupFrame { qpn, frame } => {
                self.restore_frame(question, frame, Some(to_qpn(*qpn)?))
            }
            record::Asker::Stream { qpn, number } => {
                let place = QpRef { device: question.device.0, qpn: to_qpn(*qpn)? };
                self.streams.insert((place, *number));
                Ok(Waiter::Stream(place, *number))
            }
        }
    }

    /// Restores a frame for the QP that it is addressed to, or for this member of a multicast
    /// group.
    fn restore_frame(
        &mut self,
        question: DrainRequest,
        frame: &[u8],
        member: Option<Qpn>,
    ) -> Result<Waiter, Violation> {
        let parsed = Packet::parse(frame).and_then(|parsed| parsed.check_icrc().map(|()| parsed));
        let packet = parsed.map_err(|_| Violation::Frame)?.packet;
        if frame.len() > MAX_FRAME || packet.path.dst.is_multicast() != member.is_some() {
            return Err(Violation::Frame);
        }
        let place = QpRef { device: question.device.0, qpn: member.unwrap_or(packet.bth.dest) };
        *self.frames.entry(place).or_default() += 1;
        Ok(Waiter::Frame(place, frame.into()))
    }

    /// Whether the next message in a QP's stream has asked, if it waits.
    fn has_asked(&self, place: QpRef, service: &Service) -> bool {
        match service {
            Service::Tcp(tcp) => {
                tcp.waiting_number().is_none_or(|number| self.streams.contains(&(place, number)))
            }
            Service::Rc(_) | Service::Uc(_) | Service::Ud => true,
        }
    }

    /// Checks that all QPs that wait for an answer have asked, and that none counts more held
    /// frames than exist.
    fn check<R>(&self, devices: &Devices<R>) -> Result<(), RestoreError> {
        for (index, device) in (0..devices.indices()).filter_map(|index| Some((index, devices.get(index)?))) {
            for QpEntry { qp, service } in device.qps.iter() {
                let place = QpRef { device: index, qpn: qp.qpn };
                let frames = self.frames.get(&place).copied().unwrap_or(0);
                let asked = qp.requester.wait != Wait::Drain || self.sends.contains(&(place, qp.question));
                let asked = asked && self.has_asked(place, service);
                let violation = match asked {
                    false => Violation::Question,
                    true if u32::from(qp.held) > frames => Violation::Held,
                    true => continue,
                };
                return Err(RestoreError::from(violation).of_qp(qp.qpn.number()).of_device(index));
            }
        }
        Ok(())
    }
}
