//! Turns in the record.

use super::{Cost, DEBT, OPERATION, QUANTUM, Schedule, Share, TurnQueue, Turns, WITHIN_POSTS};
use crate::base::id::SrqId;
use crate::base::qp_ref::QpRef;
use crate::collections::wakes::Wakes;
use crate::objects::device::Devices;
use crate::objects::qp::{Direction, Qp};
use crate::save::{RestoreError, Violation, record, to_qpn};
use core::mem;
use std::collections::{BTreeSet, VecDeque};
use vrdma_wire::num::Qpn;

/// Returns the flag by which a QP knows that it waits for a turn of some kind.
type Flag = fn(&mut Qp) -> &mut bool;

impl From<QpRef> for record::Place {
    fn from(place: QpRef) -> record::Place {
        record::Place { device: place.device, qpn: place.qpn.number() }
    }
}

impl Schedule {
    /// Returns the record of all turns. Destroyed QPs are not in it.
    pub(crate) fn save<R>(&self, devices: &Devices<R>) -> record::Turns {
        let none: fn(&Qp) -> bool = |_| false;
        // The record of a QP has its flushes.
        // The caller sets rates and parameters of congestion control again. What waits for a rate
        // is recorded as if it waited for its turn. The records of QPs have what is held.
        let Schedule { local, wire, deadlines, rates: _, dcqcn: _, reorder: _, early: _, flushes: _, wakes } =
            self;
        record::Turns {
            local: local.save(devices, none, |qp| qp.requester.ready),
            wire: wire.save(devices, |qp| qp.answer_due, |qp| qp.turn_due),
            deadlines: deadlines.turn(),
            wakes: save_wakes(wakes, devices),
        }
    }

    /// Restores turns from a record, and sets the flags of waiting QPs. The caller then arms
    /// deadlines.
    pub(crate) fn restore<R>(
        record: &record::Turns,
        sweeps: &[record::Sweep],
        devices: &mut Devices<R>,
    ) -> Result<Schedule, RestoreError> {
        // No QP owes an answer to a QP of the same engine.
        let local = Turns::restore(&record.local, devices, None, |qp| &mut qp.requester.ready)?;
        let wire =
            Turns::restore(&record.wire, devices, Some(|qp| &mut qp.answer_due), |qp| &mut qp.turn_due)?;
        let wakes = restore_wakes(&record.wakes, sweeps, devices)?;
        let mut schedule = Schedule { local, wire, wakes, ..Schedule::default() };
        schedule.deadlines.set_turn(record.deadlines);
        Ok(schedule)
    }
}

/// Returns the record of shared queues with senders to wake. Destroyed queues are not in it.
fn save_wakes<R>(wakes: &Wakes, devices: &Devices<R>) -> Vec<record::Wakes> {
    let save = |(device, srqs): (u32, &VecDeque<SrqId>)| {
        let is_there = |id: &&SrqId| devices.get(device).is_some_and(|it| it.srqs.get(id.0).is_some());
        let srqs: Vec<_> = srqs.iter().filter(is_there).map(|id| id.0).collect();
        (!srqs.is_empty()).then_some(record::Wakes { device, srqs })
    };
    wakes.in_order().filter_map(save).collect()
}

/// Restores shared queues with senders to wake from a record, and sets their flags.
///
/// All queues that have to be listed must be in the record, except those of a device that is still
/// to resume.
fn restore_wakes<R>(
    records: &[record::Wakes],
    sweeps: &[record::Sweep],
    devices: &mut Devices<R>,
) -> Result<Wakes, RestoreError> {
    let mut wakes = Wakes::default();
    let mut seen = BTreeSet::new();
    for &record::Wakes { device, ref srqs } in records {
        let wrong = RestoreError::from(Violation::SharedQueue).of_device(device);
        if srqs.is_empty() || !seen.insert(device) {
            return Err(wrong);
        }
        for &id in srqs {
            let srq = devices.get_mut(device).and_then(|known| known.srqs.get_mut(id)).ok_or(wrong)?;
            if mem::replace(&mut srq.listed, true) {
                return Err(wrong);
            }
            wakes.push(device, srq.this.id());
        }
    }
    let goes_on =
        |device| sweeps.iter().any(|sweep| sweep.device == device && sweep.task == record::Task::GoOn);
    for device in (0..devices.indices()).filter(|&device| !goes_on(device)) {
        let known = devices.get(device).into_iter().filter(|known| !known.suspended);
        if known.flat_map(|known| known.srqs.iter()).any(|srq| srq.is_wanted() && !srq.listed) {
            return Err(RestoreError::from(Violation::SharedQueue).of_device(device));
        }
    }
    Ok(wakes)
}

impl Turns {
    fn save<R>(
        &self,
        devices: &Devices<R>,
        owes: impl Fn(&Qp) -> bool,
        asks: impl Fn(&Qp) -> bool,
    ) -> record::Round {
        // `carried` is the sum of what the devices have carried.
        let Turns { shares, round, begun, poll, later, entries: _, carried: _, holds: _ } = self;
        let waits = |device: u32| {
            let share = &shares[device as usize];
            share.answers.len() + share.requests.len() > 0 || later.of_device(device).next().is_some()
        };
        let all = 0..shares.len() as u32;
        let unlisted = all.filter(|&device| !shares[device as usize].listed);
        let (held, others): (Vec<u32>, Vec<u32>) = unlisted.partition(|&device| waits(device));
        let save = |device: u32| {
            let share = &shares[device as usize];
            // The caller sets weights again. A record has no more credit than weight 1 can have.
            let Share { answers, requests, restraints: _, .. } = share;
            let Share { listed, weight: _, credit, lead, carried, carried_in, .. } = share;
            let carried = if carried_in == poll { *carried } else { 0 };
            let (listed, credit, lead) = (*listed, (*credit).clamp(DEBT, QUANTUM as i64), *lead);
            let later = |of| {
                let waiters = later.of_device(device).filter(move |(_, direction)| *direction == of);
                waiters.map(|(place, _)| place.qpn)
            };
            let answers = answers.save(devices, device, &owes, later(Direction::Answers));
            let requests = requests.save(devices, device, &asks, later(Direction::Requests));
            let listed = listed || !answers.is_empty() || !requests.is_empty();
            // A share without any state is left out.
            let idle = !listed && (credit, lead, carried) == (0, 0, 0);
            (!idle).then_some(record::Share { device, listed, answers, requests, credit, lead, carried })
        };
        let shares = round.iter().copied().chain(held).chain(others).filter_map(save).collect();
        record::Round { shares, begun: *begun }
    }

    fn restore<R>(
        record: &record::Round,
        devices: &mut Devices<R>,
        owes: Option<Flag>,
        asks: Flag,
    ) -> Result<Turns, RestoreError> {
        let mut turns = Turns::default();
        let mut seen = BTreeSet::new();
        let mut last_other = None;
        for share in &record.shares {
            let device = share.device;
            let of_device = |violation| RestoreError::from(violation).of_device(device);
            let exists = devices.get(device).is_some();
            let waits = share.answers.len() + share.requests.len();
            if !exists || !seen.insert(device) || waits > 0 && !share.listed {
                return Err(of_device(Violation::Turns));
            }
            // Shares of devices that do not wait come last, in the order of devices, and are not
            // empty.
            let says_nothing = !share.listed && (share.credit, share.lead, share.carried) == (0, 0, 0);
            if says_nothing || last_other.is_some_and(|other| share.listed || device < other) {
                return Err(of_device(Violation::Carried));
            }
            if !share.listed {
                last_other = Some(device);
            }
            if turns.shares.len() <= device as usize {
                turns.shares.resize_with(device as usize + 1, Share::default);
            }
            let answers = match owes {
                Some(owes) => TurnQueue::restore(&share.answers, devices, device, owes),
                None if share.answers.is_empty() => Ok(TurnQueue::default()),
                None => Err(Violation::Turns),
            };
            let requests = TurnQueue::restore(&share.requests, devices, device, asks);
            let (answers, requests) = (answers.map_err(of_device)?, requests.map_err(of_device)?);
            let quantum = QUANTUM as i64;
            let possible = (DEBT..=quantum).contains(&share.credit)
                && (0..=2 * quantum).contains(&share.lead)
                // The last post before the next poll may have had any length.
                && share.carried <= WITHIN_POSTS + Cost::from(u32::MAX) + OPERATION;
            if !possible {
                return Err(of_device(Violation::Carried));
            }
            turns.entries += waits;
            if share.listed {
                turns.round.push_back(device);
            }
            let record::Share { listed, credit, lead, carried, .. } = *share;
            turns.carried += carried;
            turns.shares[device as usize] =
                Share { answers, requests, listed, credit, lead, carried, ..Share::default() };
        }
        turns.begun = record.begun && !turns.round.is_empty();
        if turns.begun != record.begun {
            return Err(Violation::Turns.into());
        }
        Ok(turns)
    }
}

impl TurnQueue {
    /// Returns the record of a queue, with those behind it that wait for a time.
    fn save<R>(
        &self,
        devices: &Devices<R>,
        device: u32,
        waits: impl Fn(&Qp) -> bool,
        later: impl Iterator<Item = Qpn>,
    ) -> Vec<u32> {
        let TurnQueue { checked: _, rest: _, stale: _ } = self;
        let mut seen = BTreeSet::new();
        let is_there = |qpn| devices.with_qp(QpRef { device, qpn }).is_some_and(|(_, qp)| waits(qp));
        let all = self.iter().copied().chain(later);
        let live = all.filter(|&qpn| is_there(qpn) && seen.insert(qpn));
        live.map(|qpn| qpn.number()).collect()
    }

    fn restore<R>(
        qpns: &[u32],
        devices: &mut Devices<R>,
        device: u32,
        flag: Flag,
    ) -> Result<TurnQueue, Violation> {
        let mut queue = TurnQueue::default();
        for &qpn in qpns {
            let qpn = to_qpn(qpn)?;
            let qp = devices.qp_mut(QpRef { device, qpn }).ok_or(Violation::Turns)?;
            if mem::replace(flag(qp), true) {
                return Err(Violation::Turns);
            }
            queue.push(qpn);
        }
        Ok(queue)
    }
}
