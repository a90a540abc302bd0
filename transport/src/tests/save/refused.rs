//! Records that no engine can have written. Each is refused with a specific violation.

use super::noticed::{groups, late};
use super::stories::{on_one_host, on_the_wire, shared_queue, windows};
use super::*;
use crate::tests::wire::probes::repeat;
use crate::tests::wire::{A, B};
use crate::tests::xrc;
use record::{Asker, Device, Nak, Qp, RcRoce, Roce};
use vrdma_wire::roce::MAX_FRAME;

/// Returns why a record is refused after `spoil` has changed it.
fn violation(record: &Record, spoil: impl FnOnce(&mut Record)) -> Option<Violation> {
    let mut record = record.clone();
    spoil(&mut record);
    let lend = |_, _, mr: &record::MemoryRegion| (mr.length <= 1 << 20).then(|| Mem::new(mr.length as usize));
    Engine::restore(&record, lend).err().map(|error| error.violation)
}

fn device(record: &mut Record) -> &mut Device {
    record.devices[0].as_mut().unwrap()
}

/// Returns the QP of the first device with the most pending requests.
fn qp(record: &mut Record) -> &mut Qp {
    let qps = device(record).qps.iter_mut();
    qps.max_by_key(|qp| qp.requester.queue.len() + qp.responder.queue.len()).unwrap()
}

fn rc(record: &mut Record) -> &mut RcRoce {
    match &mut qp(record).roce {
        Some(Roce::Rc(roce)) => roce,
        _ => panic!("the connection is on the wire"),
    }
}

/// Returns the share of a device that waits for no turn.
fn share(device: u32, credit: i64) -> record::Share {
    let (answers, requests) = (Vec::new(), Vec::new());
    record::Share { device, listed: false, answers, requests, credit, lead: 0, carried: 0 }
}

type Spoil = fn(&mut Record);

fn check(record: &Record, cases: &[(Violation, Spoil)]) {
    assert_eq!(violation(record, |_| {}), None);
    for (index, &(expected, spoil)) in cases.iter().enumerate() {
        assert_eq!(violation(record, spoil), Some(expected), "case {index}");
    }
}

#[test]
fn what_an_engine_or_a_device_cannot_have_is_refused() {
    use Violation as V;
    let cases: [(Violation, Spoil); 33] = [
        (V::Version, |r| r.version = record::VERSION + 1),
        (V::Version, |r| r.version = 0),
        (V::Counter, |r| {
            r.port.counters.insert("no_such".to_owned(), 1);
        }),
        (V::Counter, |r| {
            device(r).counters.insert("sends".to_owned(), u64::MAX);
        }),
        (V::Limits, |r| device(r).limits.max_qp = 1000),
        (V::Mtu, |r| {
            device(r).limits.max_mtu = record::Mtu::M1024;
            device(r).active_mtu = record::Mtu::M2048;
        }),
        (V::Gid, |r| device(r).gids.truncate(3)),
        (V::Gid, |r| device(r).gids[0].as_mut().unwrap().gid[0] = 0xff),
        (V::Gid, |r| device(r).gids[0].as_mut().unwrap().vlan = 4095),
        (V::GidTaken, |r| r.devices[1].as_mut().unwrap().gids = device(r).gids.clone()),
        (V::Numbers, |r| device(r).qp_numbers.free.push(2)),
        (V::Numbers, |r| device(r).pd_numbers.tags.push(1)),
        (V::Numbers, |r| device(r).mr_numbers.free.push(70_000)),
        (V::Number, |r| device(r).qps[0].qpn += 1 << 10),
        (V::Number, |r| device(r).mrs.extend_from_within(..1)),
        (V::Number, |r| device(r).mrs[0].key = 0),
        (V::Number, |r| device(r).qps.swap(0, 1)),
        (V::NoPd, |r| device(r).mrs[0].pd += 1),
        (V::MemoryRegion, |r| device(r).mrs[0].access = 32),
        (V::MemoryRegion, |r| device(r).mrs[0].iova = u64::MAX),
        (V::NoRegion, |r| device(r).mrs[0].length = 1 << 30),
        (V::Turns, |r| r.turns.local.shares[0].requests.push(77)),
        (V::Turns, |r| r.turns.local.shares[0].requests.extend_from_within(..1)),
        (V::Turns, |r| r.turns.local.shares[0].listed = false),
        (V::Turns, |r| r.turns.local.shares.extend_from_within(..1)),
        (V::Carried, |r| r.turns.local.shares[0].credit = i64::MIN),
        (V::Carried, |r| r.turns.wire.shares.push(share(0, 0))),
        (V::Carried, |r| r.turns.wire.shares.extend([share(1, -1), share(0, -1)])),
        (V::Sweep, |r| r.sweeps.push(r.sweeps[0].clone())),
        (V::Sweep, |r| r.sweeps[0].device = 2),
        (V::Question, |r| r.questions.clear()),
        (V::Question, |r| r.questions.push(r.questions[0].clone())),
        (V::Question, |r| {
            let of_another = r.questions[0].owner + 1;
            r.questions.push(record::Question { owner: of_another, taken: false, ..r.questions[0].clone() });
        }),
    ];
    check(&on_one_host().engine.save(), &cases);
}

#[test]
fn what_a_queue_pair_cannot_have_is_refused() {
    use Violation as V;
    let cases: [(Violation, Spoil); 41] = [
        (V::Owner, |r| qp(r).init.owner += 1),
        (V::NoPd, |r| *qp(r).init.pd.as_mut().unwrap() += 1),
        (V::Capabilities, |r| qp(r).init.pd = None),
        (V::Capabilities, |r| qp(r).init.max_send_wr = 1 << 20),
        (V::RequestMemory, |r| device(r).limits.max_request_memory = 1),
        (V::Attributes, |r| qp(r).attr.min_rnr_timer = 32),
        (V::Attributes, |r| qp(r).attr.av = None),
        (V::Attributes, |r| qp(r).attr.av.as_mut().unwrap().sgid_index = 16),
        (V::State, |r| qp(r).state = record::QpState::Sqe),
        (V::Queue, |r| qp(r).state = record::QpState::Reset),
        // Requests that are still to be flushed were not sent.
        (V::Cursor, |r| qp(r).state = record::QpState::Err),
        (V::Psn, |r| qp(r).requester.psn = 1 << 24),
        (V::Psn, |r| qp(r).attr.dest_qpn = 1 << 24),
        (V::Queue, |r| qp(r).init.max_send_wr = 1),
        (V::Request, |r| qp(r).init.max_send_sge = 1),
        (V::Request, |r| qp(r).init.max_inline = 1),
        (V::Progress, |r| qp(r).requester.offset = 1),
        // The requester waits, but for nothing.
        (V::Progress, |r| {
            let requester = &mut qp(r).requester;
            requester.queue.clear();
            (requester.started, requester.wait) = (false, record::Wait::Answer);
        }),
        (V::Retries, |r| qp(r).requester.retries = 8),
        (V::Carrier, |r| qp(r).roce = None),
        (V::Carrier, |r| qp(r).roce = Some(Roce::Uc { write: rc(r).responder.write.clone() })),
        (V::Cursor, |r| rc(r).requester.cursor = 100),
        (V::Cursor, |r| rc(r).requester.sent = 1 << 20),
        (V::Cursor, |r| rc(r).requester.una = (rc(r).requester.una + 100) & 0xff_ffff),
        (V::Outstanding, |r| qp(r).carrier = record::TransportKind::Local),
        (V::Outstanding, |r| qp(r).requester.psn = rc(r).requester.una),
        (V::Outstanding, |r| qp(r).requester.psn = (rc(r).requester.una + 1000) & 0xff_ffff),
        (V::Window, |r| rc(r).requester.window = 0),
        (V::Window, |r| rc(r).requester.window = 513),
        (V::Window, |r| (rc(r).requester.window, rc(r).requester.acknowledged) = (127, 1)),
        (V::Window, |r| (rc(r).requester.window, rc(r).requester.acknowledged) = (200, 200)),
        (V::Window, |r| (rc(r).requester.window, rc(r).requester.acknowledged) = (512, 1)),
        (V::Window, |r| rc(r).requester.awaited = 1 << 20),
        (V::Time, |r| rc(r).deadline = Some(u64::MAX)),
        (V::Time, |r| qp(r).timer = Some(u64::MAX)),
        (V::Time, |r| (qp(r).timer, qp(r).timer_is_idle) = (None, true)),
        (V::Time, |r| rc(r).probes.at = Some(u64::MAX)),
        (V::Psn, |r| rc(r).probes.end = Some(1 << 24)),
        (V::Psn, |r| rc(r).round_trip.timed = Some(1 << 24)),
        (V::Time, |r| rc(r).round_trip.timed_at = None),
        (V::Peers, |r| {
            let peer = record::Peer { gid: [7; 16], estimate: None, ahead: record::Ahead::Held };
            device(r).peers = vec![peer.clone(), peer];
        }),
    ];
    check(&on_the_wire().hosts[A].engine.save(), &cases);
}

#[test]
fn what_a_responder_cannot_owe_is_refused() {
    use Violation as V;
    let cases: [(Violation, Spoil); 14] = [
        (V::Received, |r| qp(r).responder.received = u32::MAX),
        (V::Received, |r| {
            qp(r).responder.in_progress = record::Message::Send;
            qp(r).responder.received = 41;
        }),
        (V::Request, |r| qp(r).init.max_recv_sge = 1),
        (V::Request, |r| qp(r).responder.queue.last_mut().unwrap().not_understood = true),
        (V::Queue, |r| qp(r).init.max_recv_wr = 1),
        (V::Resource, |r| rc(r).responder.resources[0].next = 1 << 20),
        (V::Resource, |r| rc(r).responder.resources[0].from = 1 << 20),
        (V::Resource, |r| {
            let again = vec![rc(r).responder.resources[0].clone(); 10];
            rc(r).responder.resources = again;
        }),
        (V::Nak, |r| rc(r).responder.nak = Some(record::PendingNak { psn: 0, nak: Nak::InvalidRequest })),
        (V::Nak, |r| rc(r).responder.nak = Some(record::PendingNak { psn: 0, nak: Nak::Rnr(32) })),
        (V::Frame, |r| r.questions[0].asked = vec![Asker::Frame(vec![0; 60])]),
        (V::Frame, |r| r.questions[0].asked = vec![r.questions[0].asked[0].clone(); 257]),
        (V::Frame, |r| match &mut r.questions[0].asked[0] {
            // Data beyond a packet does not matter to it.
            Asker::Frame(frame) => frame.resize(MAX_FRAME + 1, 0),
            Asker::Send { .. } | Asker::GroupFrame { .. } | Asker::Stream { .. } => panic!("a frame waits"),
        }),
        (V::Held, |r| device(r).qps.iter_mut().for_each(|qp| qp.held += 1)),
    ];
    check(&on_the_wire().hosts[B].engine.save(), &cases);
}

#[test]
fn what_a_shared_queue_cannot_be_is_refused() {
    use Violation as V;
    fn shared_qp(record: &mut Record) -> &mut Qp {
        record.devices[1].as_mut().unwrap().qps.iter_mut().find(|qp| qp.init.srq.is_some()).unwrap()
    }
    fn srqs(record: &mut Record) -> &mut Vec<record::Srq> {
        &mut record.devices[1].as_mut().unwrap().srqs
    }
    let cases: [(Violation, Spoil); 28] = [
        (V::Number, |r| srqs(r)[0].srq += 1 << 16),
        (V::Number, |r| srqs(r).extend_from_within(..1)),
        (V::NoPd, |r| srqs(r)[0].pd += 1),
        (V::Owner, |r| srqs(r)[0].owner += 1),
        (V::Capabilities, |r| srqs(r)[0].max_wr = 0),
        (V::Capabilities, |r| srqs(r)[0].max_wr = 16385),
        (V::Capabilities, |r| srqs(r)[0].max_sge = 31),
        (V::SharedQueue, |r| srqs(r)[0].limit = 3),
        (V::SharedQueue, |r| {
            srqs(r)[0].waiting.pop();
        }),
        (V::SharedQueue, |r| srqs(r)[0].waiting.extend_from_within(..1)),
        (V::SharedQueue, |r| srqs(r)[0].waiting.push(2)),
        (V::Psn, |r| srqs(r)[0].waiting[0] = 1 << 24),
        (V::Psn, |r| srqs(r)[0].woken[0] = 1 << 24),
        // It was woken, although it does not wait.
        (V::SharedQueue, |r| srqs(r)[0].woken[0] = 2),
        (V::SharedQueue, |r| srqs(r)[0].woken.extend_from_within(..1)),
        (V::SharedQueue, |r| {
            let waiting = srqs(r)[0].waiting.clone();
            srqs(r)[0].woken = waiting.into_iter().rev().collect();
        }),
        // A waiter has its receive, but nothing is scheduled to wake it.
        (V::SharedQueue, |r| r.turns.wakes.clear()),
        (V::SharedQueue, |r| r.turns.wakes.extend_from_within(..1)),
        (V::SharedQueue, |r| r.turns.wakes[0].srqs.extend_from_within(..1)),
        (V::SharedQueue, |r| r.turns.wakes[0].srqs[0] += 1),
        // QPs have taken more receives than there is room for.
        (V::SharedQueue, |r| srqs(r)[0].max_wr = 2),
        (V::Request, |r| srqs(r)[0].receives.push(receive(2))),
        (V::SharedQueue, |r| srqs(r)[0].receives = vec![receive(1); 9]),
        (V::SharedQueue, |r| {
            srqs(r)[0].receives.push(receive(1));
            srqs(r)[0].failed = true;
        }),
        (V::Numbers, |r| srqs(r).clear()),
        (V::SharedQueue, |r| shared_qp(r).init.srq = Some(1)),
        (V::Capabilities, |r| shared_qp(r).init.max_recv_wr = 1),
        (V::Queue, |r| shared_qp(r).responder.queue = vec![receive(1); 2]),
    ];
    check(&shared_queue().engine.save(), &cases);
}

#[test]
fn what_xrc_cannot_have_is_refused() {
    use Violation as V;
    fn host(record: &mut Record) -> &mut Device {
        record.devices[1].as_mut().unwrap()
    }
    // The first initiator and target have a message in progress.
    fn target(record: &mut Record) -> &mut Qp {
        host(record).qps.iter_mut().find(|qp| qp.init.qp_type == record::QpType::XrcRecv).unwrap()
    }
    fn initiator(record: &mut Record) -> &mut Qp {
        device(record).qps.iter_mut().find(|qp| qp.init.qp_type == record::QpType::XrcSend).unwrap()
    }
    let cases: [(Violation, Spoil); 18] = [
        (V::Number, |r| host(r).xrcds.extend_from_within(..1)),
        (V::Numbers, |r| host(r).xrcds.clear()),
        (V::Xrc, |r| host(r).srqs[0].xrc.as_mut().unwrap().xrcd += 16),
        (V::Xrc, |r| target(r).init.xrcd = Some(99)),
        (V::Xrc, |r| target(r).init.srq = Some(0)),
        // It belongs to another domain than its SRQ.
        (V::Xrc, |r| target(r).init.xrcd = host(r).xrcds.last().copied()),
        (V::Capabilities, |r| target(r).init.xrcd = None),
        (V::Capabilities, |r| target(r).init.pd = Some(host(r).pds[0].pd)),
        (V::Capabilities, |r| target(r).init.max_recv_wr = 1),
        (V::Capabilities, |r| target(r).init.max_send_wr = 1),
        (V::Capabilities, |r| initiator(r).init.pd = None),
        (V::Capabilities, |r| initiator(r).init.max_recv_wr = 1),
        (V::Xrc, |r| target(r).responder.srq = Some(99)),
        (V::Xrc, |r| initiator(r).responder.srq = Some(0)),
        // It has taken a receive of the SRQ.
        (V::Queue, |r| target(r).responder.srq = None),
        (V::Request, |r| initiator(r).requester.queue[0].srqn = None),
        (V::Psn, |r| initiator(r).requester.queue[0].srqn = Some(1 << 24)),
        // An XRC SRQ cannot be a QP's permanent SRQ.
        (V::Capabilities, |r| {
            let srq = host(r).srqs[0].srq;
            let rc = |qp: &&mut Qp| qp.init.qp_type == record::QpType::Rc;
            host(r).qps.iter_mut().find(rc).unwrap().init.srq = Some(srq);
        }),
    ];
    check(&xrc::records()[0], &cases);
}

#[test]
fn what_a_group_cannot_be_is_refused() {
    use Violation as V;
    fn groups_of(record: &mut Record) -> &mut Vec<record::Group> {
        &mut record.devices[1].as_mut().unwrap().groups
    }
    let cases: [(Violation, Spoil); 21] = [
        (V::Group, |r| groups_of(r)[0].mgid = Gid::from_ipv4([10, 0, 0, 1]).0),
        (V::Group, |r| groups_of(r)[0].members.clear()),
        (V::Group, |r| groups_of(r)[0].members.extend_from_within(..1)),
        (V::Group, |r| groups_of(r).swap(0, 1)),
        (V::Group, |r| groups_of(r).extend_from_within(..1)),
        (V::Group, |r| groups_of(r)[1].members.push(700)),
        // Of another QP type.
        (V::Group, |r| {
            let connected = r.devices[1].as_ref().unwrap().qps[0].qpn;
            groups_of(r)[1].members.insert(0, connected);
        }),
        (V::Psn, |r| groups_of(r)[1].members.push(1 << 24)),
        (V::Group, |r| r.devices[1].as_mut().unwrap().limits.max_mcast_grp = 1),
        (V::Group, |r| r.devices[1].as_mut().unwrap().limits.max_mcast_qp_attach = 1),
        (V::Group, |r| r.devices[1].as_mut().unwrap().limits.max_total_mcast_qp_attach = 2),
        (V::Limits, |r| device(r).limits.max_mcast_grp = 1 << 20),
        (V::Group, |r| r.fan_outs[1].device = 2),
        (V::Group, |r| r.fan_outs.swap(0, 1)),
        (V::Group, |r| r.fan_outs = vec![r.fan_outs[0].clone(); 33]),
        (V::Frame, |r| r.fan_outs[0].frame[50] ^= 1),
        (V::Frame, |r| r.fan_outs[0].frame.resize(MAX_FRAME + 1, 0)),
        (V::Psn, |r| r.fan_outs[0].served = Some(1 << 24)),
        (V::Frame, |r| {
            let Asker::GroupFrame { frame, .. } = &r.questions[0].asked[0] else { panic!("a frame waits") };
            r.questions[0].asked[0] = Asker::Frame(frame.clone());
        }),
        (V::Progress, |r| device(r).qps.last_mut().unwrap().requester.served = None),
        (V::Progress, |r| device(r).qps.last_mut().unwrap().requester.started = false),
    ];
    check(&groups(), &cases);
}

/// Returns a receive with `sges` elements.
fn receive(sges: usize) -> record::Receive {
    record::Receive {
        id: 1,
        not_understood: false,
        sges: vec![record::Sge { addr: 0, length: 1, lkey: 0 }; sges],
    }
}

#[test]
fn regions_for_fast_registration_that_cannot_be_are_refused() {
    use Violation as V;
    /// Returns a fast-registration region that is free, or one that is not.
    fn of(record: &mut Record, is_free: bool) -> &mut record::MemoryRegion {
        let mrs = record.devices[1].as_mut().unwrap().mrs.iter_mut();
        let fast = |mr: &&mut record::MemoryRegion| mr.fast.as_ref().is_some_and(|it| it.is_free == is_free);
        mrs.rev().find(fast).unwrap()
    }
    fn fast(record: &mut Record, is_free: bool) -> &mut record::FastRegion {
        of(record, is_free).fast.as_mut().unwrap()
    }
    let cases: [(Violation, Spoil); 10] = [
        (V::MemoryRegion, |r| of(r, true).iova = 4096),
        (V::MemoryRegion, |r| of(r, true).length = 1),
        (V::MemoryRegion, |r| of(r, true).access = 1),
        (V::MemoryRegion, |r| of(r, false).access = Access::MW_BIND.0),
        (V::MemoryRegion, |r| of(r, false).access = Access::REMOTE_WRITE.0),
        (V::MemoryRegion, |r| of(r, false).length = (3 << 31) + 1),
        (V::MemoryRegion, |r| fast(r, false).is_free = true),
        (V::MemoryRegion, |r| fast(r, true).max_pages = 0),
        (V::MemoryRegion, |r| fast(r, true).max_pages = MAX_PAGES + 1),
        // The PD of a process.
        (V::MemoryRegion, |r| of(r, true).pd = r.devices[1].as_ref().unwrap().pds[0].pd),
    ];
    let record = super::stories::fast().engine.save();
    for (case, (expected, spoil)) in cases.into_iter().enumerate() {
        assert_eq!(violation(&record, spoil), Some(expected), "case {case}");
    }
}

#[test]
fn windows_that_cannot_be_are_refused() {
    use Violation as V;
    fn of(record: &mut Record) -> &mut Vec<record::MemoryWindow> {
        &mut record.devices[1].as_mut().unwrap().windows
    }
    fn bound(record: &mut Record, at: usize) -> &mut record::Binding {
        of(record)[at].bound.as_mut().unwrap()
    }
    let cases: [(Violation, Spoil); 16] = [
        (V::MemoryWindow, |r| of(r)[1].mw_type = record::MwType::Type2B),
        (V::MemoryWindow, |r| of(r)[2].mw_type = record::MwType::Type1),
        (V::MemoryWindow, |r| bound(r, 1).qpn = bound(r, 2).qpn.take()),
        (V::MemoryWindow, |r| bound(r, 2).qpn = None),
        (V::MemoryWindow, |r| bound(r, 2).qpn = Some(1)),
        (V::MemoryWindow, |r| bound(r, 1).length = 0),
        (V::MemoryWindow, |r| bound(r, 1).length = 1 << 40),
        (V::MemoryWindow, |r| bound(r, 1).addr = 0),
        (V::MemoryWindow, |r| bound(r, 1).access = 64),
        (V::MemoryWindow, |r| bound(r, 1).access |= Access::ZERO_BASED.0),
        (V::MemoryWindow, |r| bound(r, 1).lkey = of(r)[2].key),
        (V::MemoryWindow, |r| of(r)[0].bound = of(r)[1].bound.clone()),
        (V::Number, |r| of(r)[1].key ^= 1),
        (V::Number, |r| of(r).swap(0, 1)),
        (V::Number, |r| of(r).extend_from_within(..1)),
        (V::NoPd, |r| of(r)[1].pd += 9),
    ];
    let record = windows().engine.save();
    for (case, (expected, spoil)) in cases.into_iter().enumerate() {
        assert_eq!(violation(&record, spoil), Some(expected), "case {case}");
    }
}

#[test]
fn a_reorder_buffer_that_no_queue_pair_can_have_is_refused() {
    use Violation as V;
    fn buffer(r: &mut Record) -> &mut record::ReorderBuffer {
        rc(r).reorder.as_mut().unwrap()
    }
    let cases: [(Violation, Spoil); 18] = [
        (V::Window, |r| {
            buffer(r).suspect = Some((0, record::Lateness { packets: 1, time: u32::MAX }));
        }),
        (V::Frame, |r| *buffer(r).frames[0].last_mut().unwrap() ^= 1),
        (V::Frame, |r| buffer(r).frames.extend_from_within(..1)),
        (V::Frame, |r| buffer(r).frames[0].resize(MAX_FRAME + 1, 0)),
        (V::Frame, |r| buffer(r).frames.clear()),
        (V::Frame, |r| buffer(r).base += 3),
        (V::Frame, |r| buffer(r).place = 0),
        (V::Frame, |r| buffer(r).place = 1 << 63),
        (V::Psn, |r| buffer(r).base = 1 << 24),
        (V::Window, |r| buffer(r).tolerance.packets = 33),
        (V::Window, |r| buffer(r).extent = 0),
        (V::Window, |r| buffer(r).asked = true),
        (V::Window, |r| {
            buffer(r).extent = 0;
            buffer(r).asked = true;
            buffer(r).nak_at = None;
        }),
        // The gap is not in front of what is held.
        (V::Window, |r| buffer(r).base += 2),
        (V::Lost, |r| qp(r).timer = None),
        (V::Lost, |r| *qp(r).timer.as_mut().unwrap() += 1),
        (V::Lost, |r| *buffer(r).nak_at.as_mut().unwrap() -= 1),
        // It may be executed, and has no turn.
        (V::Lost, |r| {
            qp(r).responder.psn += 2;
            buffer(r).nak_at = None;
        }),
    ];
    check(&late(), &cases);
}

#[test]
fn responses_that_no_requester_can_hold_are_refused() {
    use Violation as V;
    fn early(r: &mut Record) -> &mut record::EarlyResponses {
        rc(r).early.as_mut().unwrap()
    }
    fn after(r: &mut Record, more: u32) -> u32 {
        (rc(r).requester.una + more) % (1 << 24)
    }
    fn again(r: &mut Record, end: u32) {
        (rc(r).read_again, rc(r).again_end) = (record::ReadAgain::All, end);
    }
    fn losses(r: &mut Record, since: u32, interval: u32) {
        rc(r).losses = Some(record::LossInterval { since, interval });
    }
    let cases: [(Violation, Spoil); 19] = [
        (V::Psn, |r| losses(r, 1 << 24, 1)),
        (V::Losses, |r| losses(r, 5, (1 << 22) + 1)),
        (V::Psn, |r| again(r, 1 << 24)),
        (V::Early, |r| {
            let end = after(r, 100);
            again(r, end);
        }),
        (V::Early, |r| (early(r).extent, early(r).late_at) = (0, Some(7))),
        (V::Psn, |r| early(r).held[0].psn = 1 << 24),
        (V::Early, |r| early(r).held[0].psn = after(r, 0)),
        (V::Early, |r| early(r).held.last_mut().unwrap().psn = after(r, 100)),
        (V::Early, |r| early(r).held.swap(0, 1)),
        (V::Early, |r| {
            let held = early(r).held[0].clone();
            early(r).held.insert(0, held);
        }),
        (V::Early, |r| {
            early(r).held[0].data = record::EarlyData::Read { last: false, data: vec![0; 1025] };
        }),
        (V::Early, |r| early(r).held[0].aeth = Some((0, 32))),
        (V::Early, |r| early(r).executed = None),
        (V::Early, |r| early(r).executed = Some(after(r, 0))),
        (V::Early, |r| early(r).executed = Some(after(r, 100))),
        (V::Early, |r| early(r).asked = Some(after(r, 100))),
        (V::Early, |r| early(r).tolerance.packets = 33),
        (V::Probe, |r| rc(r).selective.misses = 3),
        (V::Probe, |r| (rc(r).probes.is_due, rc(r).probes.is_repeat_due) = (true, true)),
    ];
    let [record, _] = repeat::records();
    check(&record, &cases);
}
