//! Multicast groups, on one engine and from the wire.

use super::wire::{Cable, frame};
use super::*;
use crate::agenda::fan_out::MOST;
use crate::base::rng::Rng;
use crate::engine::groups::{AT_ONCE, FANNED_OUT};
use crate::tests::datagrams::{QKEY, TO_INIT_UD, TO_RTS_UD};
use std::collections::BTreeSet;
use vrdma_wire::num::{FlowLabel, Mac, Qkey, VlanId};
use vrdma_wire::roce::{Body, Bth, Deth, Packet, Path};

const OK: WcStatus = WcStatus::Success;
/// Bytes of memory of each QP.
const ROOM: u64 = 16384;
/// Bytes of the longest datagram.
const LONG: u32 = 4096;

pub(crate) fn group(last: u8) -> Gid {
    Gid::from_ipv4([239, 0, 0, last])
}

/// Devices with UD QPs in RTS.
struct World {
    engine: Engine<Mem>,
    now: Instant,
    log: Log,
    cable: Cable,
    ends: Vec<End>,
}

impl World {
    /// Creates devices with `each` QPs each. Device n is 10.0.0.(n+1).
    fn new(devices: u8, each: usize) -> World {
        let (mut engine, mut log, mut ends) = (Engine::new(1), Log::default(), Vec::new());
        let now = Instant(1);
        for number in 0..devices {
            let device = engine.add_device(Limits { max_qp: 1 << 10, ..Limits::default() });
            let gid = Gid::from_ipv4([10, 0, 0, number + 1]);
            engine.set_gid(device, 0, Some(gid.into())).unwrap();
            engine.set_mac(device, Mac([2, 0, 0, 0, 0, number + 1])).unwrap();
            let pd = engine.alloc_pd(device, OWNER).unwrap();
            let length = each * ROOM as usize;
            let memory = Mem::new(length);
            let key = engine.reg_mr(device, pd, Access::ALL, IOVA, length as u64, memory.clone()).unwrap();
            for _ in 0..each {
                let init = QpInit { qp_type: QpType::Ud, ..qp_init(pd) };
                let qpn = engine.create_qp(device, init).unwrap();
                let attr = QpAttr { port: 1, qkey: QKEY, ..QpAttr::default() };
                for (state, mask) in
                    [(QpState::Init, TO_INIT_UD), (QpState::Rtr, AttrMask::STATE), (QpState::Rts, TO_RTS_UD)]
                {
                    engine.modify_qp(now, device, qpn, mask, &QpAttr { state, ..attr }, &mut log).unwrap();
                }
                ends.push(End { device, pd, qpn, gid, memory: memory.clone(), key });
            }
        }
        World { engine, now, log, cable: Cable::default(), ends }
    }

    /// Creates devices whose QPs are all in one group.
    fn joined(devices: u8, each: usize) -> World {
        let mut world = World::new(devices, each);
        (0..world.ends.len()).for_each(|at| world.attach(at, 1).unwrap());
        world
    }

    fn attach(&mut self, at: usize, last: u8) -> Result<(), Error> {
        self.engine.attach_mcast(self.ends[at].device, self.ends[at].qpn, group(last))
    }

    fn detach(&mut self, at: usize, last: u8) -> Result<(), Error> {
        self.engine.detach_mcast(self.ends[at].device, self.ends[at].qpn, group(last))
    }

    /// Returns where the memory of a QP begins in its region.
    fn room(&self, at: usize) -> u64 {
        let first = self.ends.iter().position(|end| end.device == self.ends[at].device).unwrap();
        (at - first) as u64 * ROOM
    }

    fn recv(&mut self, at: usize, id: u32) {
        let sges = [self.ends[at].sge(self.room(at), ROOM as u32)];
        self.recv_into(at, id, &sges);
    }

    fn recv_into(&mut self, at: usize, id: u32, sges: &[Sge]) {
        let End { device, qpn, .. } = self.ends[at];
        let request = RecvRequest { id, sges };
        self.engine.post_recv(self.now, device, OWNER, qpn, request, &mut self.log).unwrap();
    }

    fn send(&mut self, from: usize, id: u32, last: u8, payload: Payload<'_>) {
        let dgid = group(last);
        let to = Destination { dgid, dmac: dgid.group_mac(), ..to_members(&self.ends[from]) };
        self.send_to(from, id, &to, payload);
    }

    fn send_to(&mut self, from: usize, id: u32, to: &Destination, payload: Payload<'_>) {
        save::replace_at_times(&mut self.engine);
        let End { device, qpn, .. } = self.ends[from];
        let op = SEND;
        let request = SendRequest { id, signaled: true, solicited: false, fence: false, op, payload };
        self.engine.post_datagram(self.now, device, OWNER, qpn, &request, to, &mut self.log).unwrap();
    }

    /// Handles a datagram to a group from a remote sender.
    fn handle(&mut self, last: u8, vlan: u16, text: &[u8]) {
        save::replace_at_times(&mut self.engine);
        let packet = from_elsewhere(group(last), vlan);
        self.engine.handle_frame(self.now, &frame(&packet, text), &mut self.log);
    }

    /// Makes one of each call that the engine's caller makes. Returns true if there is more to do.
    fn step(&mut self, budget: u64) -> bool {
        save::replace_at_times(&mut self.engine);
        let more = self.engine.poll(self.now, budget, &mut self.log);
        self.engine.transmit(self.now, 1, &mut self.cable, &mut self.log) || more
    }

    fn run(&mut self) {
        while self.step(u64::MAX) || answer_all(&mut self.engine, self.now, &mut self.log) {}
    }

    /// Takes receives that succeeded since the last call: index of the end, id and text.
    fn received(&mut self) -> Vec<(usize, u32, Vec<u8>)> {
        let mut all = Vec::new();
        let (ends, log) = (&self.ends, &mut self.log.completions);
        log.retain(|(device, _, completion)| {
            let is_receive = completion.opcode == WcOpcode::Recv && completion.status == OK;
            if is_receive {
                let at = ends.iter().position(|end| end.device == *device && end.qpn == completion.qpn);
                all.push((at.unwrap(), completion.id, completion.byte_len));
            }
            !is_receive
        });
        let text = |(at, id, length): (usize, u32, u32)| {
            (at, id, self.ends[at].memory.bytes(self.room(at) as usize + 40, length as usize - 40))
        };
        all.into_iter().map(text).collect()
    }

    /// Takes all other completions: index of the end, id and status.
    fn ended(&mut self) -> Vec<(usize, u32, WcStatus)> {
        let place = |device, qpn| self.ends.iter().position(|end| end.device == device && end.qpn == qpn);
        let log = std::mem::take(&mut self.log.completions);
        log.into_iter().map(|(device, _, it)| (place(device, it.qpn).unwrap(), it.id, it.status)).collect()
    }

    fn dropped(&self) -> Vec<(&'static str, u64)> {
        let devices: BTreeSet<u32> = self.ends.iter().map(|end| end.device.0).collect();
        let counters = devices.into_iter().flat_map(|device| self.engine.counters(DeviceId(device)).iter());
        let counters = counters.chain(self.engine.port_counters().iter());
        counters.filter(|(name, count)| name.starts_with("drop_") && *count > 0).collect()
    }
}

/// Returns the destination of datagrams to members, without the group's address.
pub(crate) fn to_members(sender: &End) -> Destination {
    Destination {
        pd: sender.pd,
        qpn: Qpn::MULTICAST,
        qkey: QKEY,
        dgid: Gid::ZERO,
        dmac: Mac::default(),
        sgid_index: 0,
        sl: 0,
        hop_limit: 1,
        traffic_class: 0,
        flow_label: 0,
        udp_sport: 0,
        vlan: None,
    }
}

pub(crate) fn from_elsewhere(dst: Gid, vlan: u16) -> Packet {
    let path = Path {
        src_mac: Mac([2, 0, 0, 0, 0, 99]),
        dst_mac: dst.group_mac(),
        vlan: vrdma_wire::num::VlanTag::in_vlan(VlanId::new(vlan).unwrap(), 0),
        src: Gid::from_ipv4([10, 0, 0, 99]),
        dst,
        traffic_class: 0,
        flow_label: FlowLabel::default(),
        hop_limit: 1,
        src_port: 0xc000,
    };
    let deth = Deth { qkey: QKEY, src: Qpn::truncate(77) };
    let bth = Bth { mig: true, dest: Qpn::MULTICAST, ..Bth::default() };
    Packet { path, bth, body: Body::Ud { deth, imm: None } }
}

#[test]
fn who_is_a_member_gets_one_copy_the_sender_too() {
    for port in [false, true] {
        let mut world = World::new(3, 2);
        if port {
            world.engine.set_link(true);
        }
        // QPs 0, 1 and 4 are in the group, 2 is in another, and 3 and 5 are in none.
        for (at, last) in [(0, 1), (1, 1), (4, 1), (2, 2)] {
            world.attach(at, last).unwrap();
        }
        (0..6).for_each(|at| world.recv(at, 10));
        world.send(0, 1, 1, Payload::Inline(b"all"));
        world.run();
        assert_eq!(world.received(), [0, 1, 4].map(|at| (at, 10, b"all".to_vec())));
        assert_eq!(world.ended(), [(0, 1, OK)]);
        assert_eq!(world.cable.frames.len(), usize::from(port), "one packet for all elsewhere");
        world.detach(1, 1).unwrap();
        [0, 4].into_iter().for_each(|at| world.recv(at, 11));
        world.send(5, 2, 1, Payload::Inline(b"from outside"));
        world.run();
        assert_eq!(world.received(), [0, 4].map(|at| (at, 11, b"from outside".to_vec())));
        assert_eq!((world.ended(), world.dropped()), (vec![(5, 2, OK)], vec![]));
        let counters = world.engine.counters(world.ends[4].device);
        assert_eq!((counters.sends, counters.packets_out, counters.receives), (1, u64::from(port), 2));
    }
}

#[test]
fn datagrams_to_a_group_count_for_the_rate_of_their_qp() {
    use crate::agenda::rate::RateLimit;
    let burst = Duration::from_millis(10);
    let rate = RateLimit { bytes: std::num::NonZeroU64::new(1_000_000), messages: None, burst };
    for port in [false, true] {
        let mut world = World::joined(1, 2);
        if port {
            world.engine.set_link(true);
        }
        let End { device, qpn, .. } = world.ends[0];
        world.engine.set_qp_rate(world.now, device, qpn, &rate).unwrap();
        let place = crate::base::qp_ref::QpRef { device: device.0, qpn };
        let left = |world: &World| world.engine.core.schedule.rates.left_of_qp(place);
        let full = left(&world);
        world.send(0, 1, 1, Payload::Inline(&[7; 100]));
        world.run();
        assert_eq!((world.ended().len(), full - left(&world)), (1, 100), "port {port}");
    }
}

#[test]
fn a_group_without_members_here_is_reached_by_the_port_or_not_at_all() {
    let mut world = World::new(1, 1);
    world.send(0, 1, 1, Payload::Inline(b"x"));
    world.run();
    assert_eq!((world.ended(), world.dropped()), (vec![(0, 1, OK)], vec![("drop_no_route", 1)]));
    world.engine.set_link(true);
    world.send(0, 2, 1, Payload::Inline(b"x"));
    world.run();
    assert_eq!((world.ended(), world.cable.frames.len()), (vec![(0, 2, OK)], 1));
    // An address of the other IP version leads nowhere. Neither does a member's own QPN with the
    // group's address.
    world.attach(0, 1).unwrap();
    world.recv(0, 9);
    let to = to_members(&world.ends[0]);
    let v6 = Gid([0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    world.send_to(0, 3, &Destination { dgid: v6, ..to }, Payload::Inline(b"x"));
    let qpn = world.ends[0].qpn;
    world.send_to(0, 4, &Destination { dgid: group(1), qpn, ..to }, Payload::Inline(b"x"));
    world.run();
    assert_eq!(world.ended(), [(0, 3, OK), (0, 4, OK)]);
    assert_eq!((world.received(), world.dropped()), (vec![], vec![("drop_no_route", 2)]));
}

#[test]
fn who_may_join_what() {
    let mut world = World::new(2, 1);
    let End { device, pd, qpn, .. } = world.ends[0].clone();
    let other = world.ends[1].device;
    let rc = world.engine.create_qp(device, qp_init(pd)).unwrap();
    let attach = |world: &mut World, device, qpn, mgid| world.engine.attach_mcast(device, qpn, mgid);
    for mgid in [Gid::ZERO, Gid::from_ipv4([223, 0, 0, 1]), Gid([0xfe; 16])] {
        assert_eq!(attach(&mut world, device, qpn, mgid), Err(Error::Invalid));
    }
    assert_eq!(attach(&mut world, device, rc, group(1)), Err(Error::Invalid), "not of datagrams");
    assert_eq!(attach(&mut world, other, rc, group(1)), Err(Error::NotFound));
    assert_eq!(attach(&mut world, DeviceId(9), qpn, group(1)), Err(Error::NotFound));
    assert_eq!(world.detach(0, 1), Err(Error::Invalid), "it is no member");
    for _ in 0..2 {
        assert_eq!(world.attach(0, 1), Ok(()), "the second time nothing changes");
    }
    assert_eq!(world.engine.counts(device).mcast_attached, 1);
    assert_eq!((world.detach(0, 1), world.detach(0, 1)), (Ok(()), Err(Error::Invalid)));
    // A destroyed QP leaves its groups, and a reset device's QPs leave all groups.
    world.attach(0, 1).unwrap();
    world.attach(0, 2).unwrap();
    world.attach(1, 1).unwrap();
    world.engine.destroy_qp(device, qpn).unwrap();
    assert_eq!(world.engine.counts(device).mcast_attached, 0);
    world.engine.reset_device(other);
    assert_eq!(world.engine.counts(other).mcast_attached, 0);
    world.handle(1, 0, b"nobody");
    assert_eq!(world.engine.port_counters().drop_multicast, 1);
}

#[test]
fn each_member_checks_for_itself() {
    for from_wire in [false, true] {
        let mut world = World::joined(2, 5);
        let (End { device, qpn, .. }, now) = (world.ends[4].clone(), world.now);
        let attr = QpAttr { state: QpState::Rts, qkey: Qkey(5), ..QpAttr::default() };
        let mask = AttrMask::STATE | AttrMask::QKEY;
        world.engine.modify_qp(now, device, qpn, mask, &attr, &mut world.log).unwrap();
        // QPs without a receive, with a short one, with one in missing memory, in ERR, and one that
        // accepts it. Another has another `Q_Key`.
        world.detach(0, 1).unwrap();
        let far = world.ends[7].sge(ROOM * 5 - 10, 60);
        let short = world.ends[6].sge(0, 42);
        world.recv_into(6, 20, &[short]);
        world.recv_into(7, 20, &[far]);
        world.recv(9, 20);
        let broken = world.ends[8].clone();
        let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
        world
            .engine
            .modify_qp(now, broken.device, broken.qpn, AttrMask::STATE, &attr, &mut world.log)
            .unwrap();
        (1..5).for_each(|at| world.recv(at, 20));
        match from_wire {
            true => world.handle(1, 0, b"one"),
            false => world.send(0, 1, 1, Payload::Inline(b"one")),
        }
        world.run();
        assert_eq!(world.received(), [1, 2, 3, 9].map(|at| (at, 20, b"one".to_vec())));
        let sent = if from_wire { vec![] } else { vec![(0, 1, OK)] };
        let mut ended = world.ended();
        ended.sort_by_key(|end| end.0);
        assert_eq!(ended, [sent, vec![(7, 20, WcStatus::LocProt)]].concat());
        let dropped = ["drop_qkey", "drop_state", "drop_no_receive", "drop_length"].map(|name| (name, 1));
        assert_eq!(world.dropped(), dropped);
        let state = world.engine.query_qp(world.ends[7].device, world.ends[7].qpn).unwrap().state;
        assert_eq!(state, QpState::Err, "the memory of its receive is not there");
    }
}

#[test]
fn a_missing_receive_holds_up_nobody_and_is_looked_for() {
    let mut world = World::joined(2, 1);
    world.detach(0, 1).unwrap();
    for id in 1..=2 {
        world.send(0, id, 1, Payload::Inline(&[id as u8]));
        while world.step(u64::MAX) {}
    }
    assert_eq!(world.ended(), [(0, 1, OK), (0, 2, OK)], "the sender has not waited");
    assert!(world.engine.has_questions());
    // The receive was in flight.
    world.recv(1, 20);
    answer_all(&mut world.engine, world.now, &mut world.log);
    assert_eq!(world.received(), [(1, 20, vec![1])], "in order");
    assert_eq!(world.dropped(), [("drop_no_receive", 1)]);
}

#[test]
fn what_a_member_does_not_take_does_not_wait_with_the_others() {
    let mut world = World::joined(2, 1);
    world.detach(0, 1).unwrap();
    let to = Destination { dgid: group(1), ..to_members(&world.ends[0]) };
    world.send_to(0, 1, &to, Payload::Inline(b"waits"));
    world.send_to(0, 2, &Destination { qkey: Qkey(9), ..to }, Payload::Inline(b"another's"));
    world.send_to(0, 3, &to, Payload::Inline(b"behind"));
    while world.step(u64::MAX) {}
    assert_eq!(world.ended(), [1, 2, 3].map(|id| (0, id, OK)));
    assert_eq!(world.dropped(), [("drop_qkey", 1)], "nobody has looked, the others wait");
    [20, 21].into_iter().for_each(|id| world.recv(1, id));
    world.run();
    // Both receives use the same memory.
    let lengths: Vec<_> = world.received().into_iter().map(|(at, id, text)| (at, id, text.len())).collect();
    assert_eq!(lengths, [(1, 20, b"waits".len()), (1, 21, b"behind".len())]);
    assert_eq!(world.dropped(), [("drop_qkey", 1)]);
}

#[test]
fn a_datagram_for_many_takes_turns() {
    let mut world = World::joined(3, 100);
    (0..300).for_each(|at| world.recv(at, 20));
    world.ends[0].memory.fill(0, &[7; LONG as usize]);
    let own = world.ends[0].sge(0, LONG);
    world.detach(0, 1).unwrap();
    world.send(0, 1, 1, Payload::Sges(&[own]));
    let (mut got, mut turns) = (Vec::new(), 0);
    while world.step(1) {
        let now = world.received();
        // A round is 256 KiB. Each copy counts 512 extra bytes, and a round ends after a complete
        // step.
        assert!(now.len() <= 60, "{} copies in a turn", now.len());
        got.extend(now);
        turns += 1;
    }
    got.extend(world.received());
    assert_eq!(got.len(), 299);
    assert!(turns >= 5 && got.iter().all(|(_, id, text)| *id == 20 && text == &[7; LONG as usize]));
    assert_eq!(got.iter().map(|got| got.0).collect::<BTreeSet<_>>().len(), 299, "each once");
    assert_eq!(world.ended(), [(0, 1, OK)]);
}

#[test]
fn what_has_begun_goes_on_in_sqd_and_ends_in_err() {
    for state in [QpState::Sqd, QpState::Err, QpState::Reset] {
        let mut world = World::joined(2, 100);
        (100..200).for_each(|at| world.recv(at, 20));
        (0..100).for_each(|at| world.detach(at, 1).unwrap());
        let (own, end, now) = (world.ends[0].sge(0, LONG), world.ends[0].clone(), world.now);
        world.send(0, 1, 1, Payload::Sges(&[own]));
        world.send(0, 2, 1, Payload::Inline(b"later"));
        assert!(world.step(1));
        let begun = world.received().len();
        assert!((1..100).contains(&begun), "{begun} have theirs");
        let attr = QpAttr { state, en_sqd_async_notify: true, ..QpAttr::default() };
        let mask = if state == QpState::Sqd { AttrMask::EN_SQD_ASYNC_NOTIFY } else { AttrMask::NONE };
        world
            .engine
            .modify_qp(now, end.device, end.qpn, AttrMask::STATE | mask, &attr, &mut world.log)
            .unwrap();
        world.run();
        let rest = world.received().len();
        let (events, ended) = (std::mem::take(&mut world.log.events), world.ended());
        match state {
            QpState::Sqd => {
                assert_eq!((begun + rest, ended), (100, vec![(0, 1, OK)]));
                assert_eq!(events, [(end.device, Event::SqDrained(end.qpn))]);
            }
            QpState::Err => {
                assert_eq!((rest, ended), (0, [1, 2].map(|id| (0, id, WcStatus::Flush)).to_vec()));
            }
            _ => assert_eq!((rest, ended), (0, vec![])),
        }
    }
}

#[test]
fn memory_that_goes_ends_the_request_and_a_receive_of_the_sender_its_queue() {
    let mut world = World::joined(2, 100);
    (100..200).for_each(|at| world.recv(at, 20));
    (0..100).for_each(|at| world.detach(at, 1).unwrap());
    let own = world.ends[0].sge(0, LONG);
    world.send(0, 1, 1, Payload::Sges(&[own]));
    assert!(world.step(1));
    world.ends[0].memory.vanish();
    world.run();
    assert!(world.received().len() < 100);
    assert_eq!(world.ended(), [(0, 1, WcStatus::LocProt)]);
    // The sender's own receive names no registered memory.
    let mut world = World::joined(1, 2);
    let wrong = world.ends[0].sge(ROOM * 2 - 10, 60);
    world.recv_into(0, 20, &[wrong]);
    world.recv(1, 21);
    for id in [1, 2] {
        world.send(0, id, 1, Payload::Inline(b"x"));
    }
    world.run();
    let expected = [(0, 1, OK), (0, 20, WcStatus::LocProt), (0, 2, WcStatus::Flush)];
    assert_eq!((world.received(), world.ended()), (vec![], expected.to_vec()));
}

#[test]
fn from_the_wire_some_have_theirs_at_once_and_the_others_in_turns() {
    let mut world = World::joined(2, 100);
    for at in 0..200 {
        [20, 21].into_iter().for_each(|id| world.recv(at, id));
    }
    world.handle(1, 0, b"first");
    let mut got = world.received();
    assert_eq!(got.len(), AT_ONCE);
    world.handle(1, 0, b"after");
    assert_eq!(world.received(), [], "behind the first");
    while world.step(u64::MAX) {
        let now = world.received();
        assert!(now.len() <= FANNED_OUT);
        got.extend(now);
    }
    got.extend(world.received());
    for at in 0..200 {
        let mine: Vec<u32> = got.iter().filter(|got| got.0 == at).map(|got| got.1).collect();
        assert_eq!(mine, [20, 21], "each once, in order");
    }
    assert_eq!((got.len(), world.dropped()), (400, vec![]));
}

#[test]
fn only_so_many_packets_wait_for_each_device() {
    let mut world = World::new(2, 20);
    (0..20).for_each(|at| world.attach(at, 1).unwrap());
    for text in 0..MOST as u8 + 3 {
        world.handle(1, 0, &[text]);
    }
    assert_eq!(world.dropped(), [("drop_fan_out", 3)]);
    // Other devices are not affected.
    world.attach(20, 2).unwrap();
    world.recv(20, 20);
    world.handle(2, 0, b"other");
    assert_eq!(world.received(), [(20, 20, b"other".to_vec())]);
    // A reset device drops its packets.
    world.engine.reset_device(world.ends[0].device);
    world.run();
    assert_eq!(world.engine.poll_timeout(), None);
}

#[test]
fn a_group_is_another_in_each_vlan() {
    let mut world = World::joined(3, 1);
    // Device 0 has its address untagged and in VLAN 5, device 1 untagged only, and device 2 in VLAN
    // 5 only.
    let vlan = VlanId::new(5).unwrap();
    for (at, index) in [(0, 1), (2, 0)] {
        let entry = GidEntry { gid: world.ends[at].gid, vlan };
        world.engine.set_gid(world.ends[at].device, index, Some(entry)).unwrap();
    }
    for (number, expected) in [(0, vec![0, 1]), (5, vec![0, 2]), (6, vec![])] {
        for from_wire in [true, false] {
            (0..3).for_each(|at| world.recv(at, 20));
            let is_in = |vlan| vlan == 0 || vlan == 5;
            match from_wire {
                true => world.handle(1, number, b"v"),
                false if is_in(number) => {
                    let to = Destination { dgid: group(1), ..to_members(&world.ends[0]) };
                    let to = match number {
                        0 => to,
                        _ => Destination { sgid_index: 1, vlan: Some(number), ..to },
                    };
                    world.send_to(0, 1, &to, Payload::Inline(b"v"));
                }
                false => continue,
            }
            world.run();
            let got: Vec<usize> = world.received().iter().map(|got| got.0).collect();
            assert_eq!(got, expected, "VLAN {number}");
            world.log.completions.clear();
        }
    }
    assert_eq!(world.dropped(), [("drop_multicast", 1)]);
    // No QP can send in a VLAN in which its device does not have the address.
    let to = Destination { dgid: group(1), vlan: Some(5), ..to_members(&world.ends[1]) };
    world.send_to(1, 9, &to, Payload::Inline(b"v"));
    world.run();
    assert_eq!(world.ended(), [(1, 9, WcStatus::LocQpOp)]);
}

#[test]
fn what_is_no_datagram_to_a_group_is_dropped() {
    let mut world = World::joined(1, 1);
    world.recv(0, 20);
    let right = from_elsewhere(group(1), 0);
    type Spoil = fn(&mut Packet);
    let cases: [(&str, Spoil); 5] = [
        ("drop_multicast", |it| it.bth.dest = Qpn::truncate(2)),
        ("drop_multicast", |it| {
            it.body = Body::Rc(vrdma_wire::roce::Rc::Send(vrdma_wire::roce::Part::Middle))
        }),
        ("drop_mac", |it| it.path.dst_mac = Mac([2, 0, 0, 0, 0, 1])),
        ("drop_spoofed", |it| it.path.src = Gid::from_ipv4([10, 0, 0, 1])),
        ("drop_pkey", |it| it.bth.pkey = vrdma_wire::num::Pkey(0x7ffe)),
    ];
    for (counter, spoil) in cases {
        let count = |world: &World| {
            let all = world.dropped();
            all.iter().find(|(name, _)| *name == counter).map_or(0, |found| found.1)
        };
        let (mut packet, before) = (right, count(&world));
        spoil(&mut packet);
        world.engine.handle_frame(world.now, &frame(&packet, &[0; 256]), &mut world.log);
        assert_eq!((count(&world), world.received()), (before + 1, vec![]), "{counter}");
    }
    let mut limited = right;
    limited.bth.pkey = vrdma_wire::num::Pkey(0x7fff);
    world.engine.handle_frame(world.now, &frame(&limited, b"right"), &mut world.log);
    assert_eq!(world.received(), [(0, 20, b"right".to_vec())]);
}

/// Permanent members get each datagram exactly once, and non-members get none.
///
/// Members that joined or left meanwhile get it at most once.
#[test]
fn each_member_gets_each_datagram_once_whatever_others_do() {
    const QPS: usize = 90;
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let mut world = World::new(3, QPS / 3);
        if seed % 2 == 0 {
            world.engine.set_link(true);
        }
        let mut pick = |most: usize| (rng.next() % most as u64) as usize;
        let mut members = BTreeSet::new();
        for round in 0..25u32 {
            for at in 0..QPS {
                world.recv(at, round);
            }
            for _ in 0..pick(40) {
                let at = pick(QPS);
                match members.contains(&at) {
                    false if world.attach(at, 1).is_ok() => drop(members.insert(at)),
                    true if pick(3) == 0 && world.detach(at, 1).is_ok() => drop(members.remove(&at)),
                    _ => {}
                }
            }
            let length = [1, 100, LONG][pick(3)];
            let (sender, text) = (pick(QPS), vec![round as u8; length as usize]);
            match pick(3) {
                0 => world.handle(1, 0, &text),
                _ => {
                    // The sender's own receive is placed before that memory.
                    let at = world.room(sender) + ROOM - u64::from(LONG);
                    world.ends[sender].memory.fill(at as usize, &text);
                    let own = world.ends[sender].sge(at, length);
                    world.send(sender, 1000 + round, 1, Payload::Sges(&[own]));
                }
            }
            let mut unsure = BTreeSet::new();
            for _ in 0..pick(4) {
                world.step(1);
                let at = pick(QPS);
                let known = match members.contains(&at) {
                    true => world.detach(at, 1).is_ok() && members.remove(&at),
                    false => world.attach(at, 1).is_ok() && members.insert(at),
                };
                assert!(known);
                unsure.insert(at);
            }
            world.run();
            let got = world.received();
            let once: BTreeSet<usize> = got.iter().map(|got| got.0).collect();
            assert_eq!(got.len(), once.len(), "seed {seed}, round {round}: nobody twice");
            let sure = |set: &BTreeSet<usize>| set.difference(&unsure).copied().collect::<Vec<_>>();
            assert_eq!(sure(&once), sure(&members), "seed {seed}, round {round}");
            assert!(got.iter().all(|(_, _, received)| *received == text));
            // QPs that got no datagram still have a receive.
            let (now, attr) = (world.now, QpAttr { port: 1, qkey: QKEY, ..QpAttr::default() });
            for End { device, qpn, .. } in world.ends.clone() {
                for (state, mask) in [
                    (QpState::Reset, AttrMask::STATE),
                    (QpState::Init, TO_INIT_UD),
                    (QpState::Rtr, AttrMask::STATE),
                    (QpState::Rts, TO_RTS_UD),
                ] {
                    let attr = QpAttr { state, ..attr };
                    world.engine.modify_qp(now, device, qpn, mask, &attr, &mut world.log).unwrap();
                }
            }
            world.log.completions.clear();
        }
        let mut dropped = world.dropped();
        dropped.retain(|(name, _)| !["drop_multicast", "drop_no_route"].contains(name));
        assert_eq!(dropped, []);
    }
}
