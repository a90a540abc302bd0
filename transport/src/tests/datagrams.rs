//! Datagrams between QPs of one engine.

use super::*;
use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
use vrdma_wire::num::{Imm, Mac, Qkey, VlanId};

pub(crate) const QKEY: Qkey = Qkey(0x1111_2222);
pub(crate) const TO_INIT_UD: AttrMask =
    AttrMask::STATE.with(AttrMask::PKEY_INDEX).with(AttrMask::PORT).with(AttrMask::QKEY);
pub(crate) const TO_RTS_UD: AttrMask = AttrMask::STATE.with(AttrMask::SQ_PSN);
const V4: [Gid; 2] = [Gid::from_ipv4([10, 0, 0, 1]), Gid::from_ipv4([10, 0, 0, 2])];

/// Two UD QPs, whose devices also have an IPv4 address in GID entry 1.
pub(super) struct Ud {
    pub(super) pair: Pair,
    pub(super) a: End,
    pub(super) b: End,
}

impl Ud {
    pub(super) fn new() -> Ud {
        let mut ud = Ud::fresh();
        let (a, b) = (ud.a.clone(), ud.b.clone());
        [a, b].iter().for_each(|end| ud.to(end, Rts));
        ud
    }

    /// Creates both QPs, in RESET.
    fn fresh() -> Ud {
        let mut pair = Pair::new();
        let [a, b] = [(pair.a.clone(), 1), (pair.b.clone(), 2)].map(|(end, n)| {
            pair.engine.set_gid(end.device, 1, Some(V4[n - 1].into())).unwrap();
            pair.engine.set_mac(end.device, Mac([2, 0, 0, 0, 0, n as u8])).unwrap();
            let init = QpInit { qp_type: QpType::Ud, ..qp_init(end.pd) };
            End { qpn: pair.engine.create_qp(end.device, init).unwrap(), ..end }
        });
        Ud { pair, a, b }
    }

    /// Changes the state of a QP from RESET to `last`.
    fn to(&mut self, end: &End, last: QpState) {
        let steps = [(Init, TO_INIT_UD), (Rtr, AttrMask::STATE), (Rts, TO_RTS_UD)];
        for (state, mask) in steps {
            let attr =
                QpAttr { state, port: 1, qkey: QKEY, sq_psn: Psn::truncate(0xff_ffff), ..QpAttr::default() };
            self.pair.modify(end, mask, attr).unwrap();
            if state == last {
                break;
            }
        }
    }

    pub(super) fn send(&mut self, id: u32, to: &Destination, op: SendOp, payload: Payload<'_>) {
        let a = self.a.clone();
        let request = SendRequest { id, signaled: true, solicited: true, fence: false, op, payload };
        let Pair { engine, now, log, .. } = &mut self.pair;
        engine.post_datagram(*now, a.device, OWNER, a.qpn, &request, to, log).unwrap();
        self.pair.look();
    }

    /// Sends two bytes and returns the status of the completion.
    fn status_of(&mut self, to: &Destination) -> WcStatus {
        self.send(7, to, SEND, Payload::Inline(b"hi"));
        let a = self.a.device;
        let at = self.pair.log.completions.iter().position(|c| c.0 == a && c.2.id == 7);
        self.pair.log.completions.remove(at.expect("it has ended")).2.status
    }

    fn dropped(&self) -> Vec<(&'static str, u64)> {
        let ends = [&self.a, &self.b];
        let counters = ends.iter().flat_map(|end| self.pair.engine.counters(end.device).iter());
        counters.filter(|(name, count)| name.starts_with("drop_") && *count > 0).collect()
    }
}

/// Changes the state of both QPs, which are in RESET, to RTS.
pub(super) fn ready(pair: Pair) -> Pair {
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let mut ud = Ud { pair, a, b };
    let ends = [ud.a.clone(), ud.b.clone()];
    ends.iter().for_each(|end| ud.to(end, Rts));
    ud.pair
}

pub(crate) fn to(sender: &End, receiver: &End) -> Destination {
    Destination {
        pd: sender.pd,
        qpn: receiver.qpn,
        qkey: QKEY,
        dgid: receiver.gid,
        dmac: Mac([2, 0, 0, 0, 0, 9]),
        sgid_index: 0,
        sl: 0,
        hop_limit: 9,
        traffic_class: 0x68,
        flow_label: 0xabcde,
        udp_sport: 0,
        vlan: None,
    }
}

#[test]
fn a_datagram_comes_with_its_route_and_its_sender() {
    let mut ud = Ud::new();
    let (a, b) = (ud.a.clone(), ud.b.clone());
    ud.pair.post_recv(&b, 20, &[b.sge(0, 13), b.sge(100, 60)]).unwrap();
    a.memory.fill(5, b"datagram");
    let imm = Some(Imm::from_bytes([1, 2, 3, 4]));
    let vlan = VlanId::new(77).unwrap();
    for end in [&a, &b] {
        ud.pair.engine.set_gid(end.device, 2, Some(GidEntry { gid: end.gid, vlan })).unwrap();
    }
    let target = Destination { sgid_index: 2, vlan: Some(77), ..to(&a, &b) };
    ud.send(1, &target, SendOp::Send { imm }, Payload::Sges(&[a.sge(5, 3), a.sge(8, 5)]));
    let expected = Completion {
        id: 20,
        qpn: b.qpn,
        opcode: WcOpcode::Recv,
        status: WcStatus::Success,
        byte_len: 48,
        imm,
        invalidated: None,
        src_qpn: a.qpn,
        solicited: true,
        srq: None,
        arrival: Some(Arrival { smac: Mac([2, 0, 0, 0, 0, 1]), vlan: Some(77) }),
    };
    assert_eq!(ud.pair.log.completions.remove(0), (b.device, RECV_CQ, expected));
    assert_eq!(ud.pair.statuses(), [('a', 1, WcStatus::Success)]);
    let received = [b.memory.bytes(0, 13), b.memory.bytes(100, 35)].concat();
    // Version, traffic class and flow label; length of the UDP datagram with 8 bytes of payload;
    // addresses.
    assert_eq!(received[..8], [0x66, 0x8a, 0xbc, 0xde, 0, 8 + 12 + 8 + 4 + 8 + 4, 17, 9]);
    assert_eq!((&received[8..24], &received[24..40]), (&a.gid.0[..], &b.gid.0[..]));
    assert_eq!(&received[40..], b"datagram");
    assert_eq!(b.memory.bytes(135, 1), [0]);
    let [sent, got] = [&a, &b].map(|end| ud.pair.engine.counters(end.device).clone());
    assert_eq!((sent.sends, sent.bytes_out, got.receives, got.bytes_in), (1, 8, 1, 8));
    assert_eq!(ud.pair.engine.query_qp(a.device, a.qpn).unwrap().sq_psn, Psn::default(), "wrapped");
}

#[test]
fn the_header_of_ipv4_takes_the_last_20_bytes() {
    let mut ud = Ud::new();
    let (a, b) = (ud.a.clone(), ud.b.clone());
    b.memory.fill(0, &[0xee; 64]);
    ud.pair.post_recv(&b, 20, &[b.sge(0, 64)]).unwrap();
    let target = Destination { sgid_index: 1, dgid: V4[1], ..to(&a, &b) };
    ud.send(1, &target, SEND, Payload::Inline(b"abc"));
    let header = b.memory.bytes(20, 20);
    assert_eq!(b.memory.bytes(0, 20), [0; 20]);
    // The length is 20 + 8 + 12 + 8 + 3 + 1 + 4 bytes.
    assert_eq!(header[..10], [0x45, 0x68, 0, 56, 0, 0, 0x40, 0, 9, 17]);
    assert_eq!(header[12..], [10, 0, 0, 1, 10, 0, 0, 2]);
    let words = header.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let sum = words.sum::<u32>();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "checksum");
    assert_eq!(b.memory.bytes(40, 4), b"abc\xee");
    // There is no route between IPv6 and IPv4 addresses.
    let mixed = Destination { sgid_index: 0, ..target };
    assert_eq!((ud.status_of(&mixed), ud.dropped()), (WcStatus::Success, vec![("drop_no_route", 1)]));
}

#[test]
fn a_qp_reaches_itself_and_others_of_its_device() {
    let mut ud = Ud::new();
    let a = ud.a.clone();
    ud.pair.post_recv(&a, 20, &[a.sge(0, 42)]).unwrap();
    assert_eq!(ud.status_of(&to(&a, &a)), WcStatus::Success);
    assert_eq!(ud.pair.completion().src_qpn, a.qpn);
    assert_eq!(a.memory.bytes(40, 2), b"hi");
}

#[test]
fn what_the_receiver_cannot_take_is_dropped_and_the_sender_learns_nothing() {
    type Spoil = fn(&mut Ud, &mut Destination);
    let cases: [(&str, Spoil); 12] = [
        ("drop_no_receive", |_, _| {}),
        ("drop_length", |ud, _| {
            let b = ud.b.clone();
            ud.pair.post_recv(&b, 1, &[b.sge(0, 41)]).unwrap();
        }),
        ("drop_length", |ud, _| {
            let b = ud.b.clone();
            ud.pair.post_recv(&b, 1, &[]).unwrap();
        }),
        ("drop_qkey", |_, to| to.qkey = Qkey(QKEY.0 + 1)),
        ("drop_qkey", |ud, _| {
            let b = ud.b.clone();
            let attr = QpAttr { qkey: Qkey(5), ..QpAttr::default() };
            ud.pair.modify(&b, AttrMask::QKEY, attr).unwrap();
        }),
        ("drop_no_qp", |_, to| to.qpn = Qpn::GSI),
        ("drop_service", |ud, to| to.qpn = ud.pair.b.qpn),
        ("drop_state", |ud, _| ud.pair.go(&ud.b.clone(), Err)),
        ("drop_state", |ud, _| ud.pair.go(&ud.b.clone(), Reset)),
        ("drop_state", |ud, _| ud.pair.engine.set_suspended(ud.b.device, true)),
        ("drop_no_route", |_, to| to.dgid = Gid([0x20; 16])),
        ("drop_no_route", |_, to| to.sgid_index = 3),
    ];
    for (at, (counter, spoil)) in cases.into_iter().enumerate() {
        let mut ud = Ud::new();
        let mut target = to(&ud.a, &ud.b);
        spoil(&mut ud, &mut target);
        ud.pair.log.completions.clear();
        assert_eq!(ud.status_of(&target), WcStatus::Success, "case {at}");
        assert_eq!((ud.dropped(), ud.pair.statuses()), (vec![(counter, 1)], vec![]), "case {at}");
        assert_eq!(ud.b.memory.bytes(0, 64), [0; 64], "case {at}");
    }
}

#[test]
fn the_highest_bit_of_a_q_key_stands_for_the_senders_own() {
    let mut ud = Ud::new();
    let (a, b) = (ud.a.clone(), ud.b.clone());
    ud.pair.post_recv(&b, 1, &[b.sge(0, 100)]).unwrap();
    let target = Destination { qkey: Qkey(0x8000_0000), ..to(&a, &b) };
    assert_eq!(
        (ud.status_of(&target), ud.pair.statuses()),
        (WcStatus::Success, vec![('b', 1, WcStatus::Success)])
    );
}

#[test]
fn a_send_that_is_wrong_stops_the_send_queue_alone() {
    type Spoil = fn(&mut Ud, &mut Destination);
    let nothing: Spoil = |_, _| {};
    let cases: [(WcStatus, Spoil, SendOp, u32); 6] = [
        (WcStatus::LocLen, nothing, SEND, 4097),
        (WcStatus::LocProt, nothing, SEND, 1),
        (WcStatus::LocQpOp, |_, to| to.pd = PdId(99), SEND, 1),
        (WcStatus::LocQpOp, |_, to| to.sgid_index = 16, SEND, 1),
        (WcStatus::LocQpOp, nothing, SendOp::Read { remote: Remote::default() }, 1),
        (WcStatus::LocQpOp, nothing, SendOp::Write { remote: Remote::default(), imm: None }, 1),
    ];
    for (status, spoil, op, length) in cases {
        let mut ud = Ud::new();
        let (a, b) = (ud.a.clone(), ud.b.clone());
        ud.pair.post_recv(&a, 20, &[a.sge(0, 5000)]).unwrap();
        ud.pair.post_recv(&b, 30, &[b.sge(0, 5000)]).unwrap();
        let mut target = to(&a, &b);
        spoil(&mut ud, &mut target);
        let sge = if status == WcStatus::LocProt { a.sge(1 << 20, length) } else { a.sge(0, length) };
        ud.send(1, &target, op, Payload::Sges(&[sge]));
        ud.send(2, &to(&a, &b), SEND, Payload::Inline(b"flushed"));
        assert_eq!(ud.pair.statuses(), [('a', 1, status), ('a', 2, WcStatus::Flush)]);
        assert_eq!((ud.pair.state(&a), ud.pair.events()), (Sqe, vec![]));
        // The QP still receives.
        let request = SendRequest {
            id: 3,
            signaled: false,
            solicited: false,
            fence: false,
            op: SEND,
            payload: Payload::Inline(b"x"),
        };
        let Pair { engine, now, log, .. } = &mut ud.pair;
        engine.post_datagram(*now, b.device, OWNER, b.qpn, &request, &to(&b, &a), log).unwrap();
        ud.pair.look();
        assert_eq!(ud.pair.statuses(), [('a', 20, WcStatus::Success)]);
        // The QP can be repaired.
        let attr = QpAttr { state: Rts, cur_state: Sqe, ..QpAttr::default() };
        ud.pair.modify(&a, AttrMask::STATE | AttrMask::CUR_STATE, attr).unwrap();
        assert_eq!(ud.status_of(&to(&a, &b)), WcStatus::Success);
        assert_eq!(ud.pair.statuses(), [('b', 30, WcStatus::Success)]);
    }
}

#[test]
fn a_message_of_the_whole_mtu_passes() {
    let mut ud = Ud::new();
    let (a, b) = (ud.a.clone(), ud.b.clone());
    ud.pair.post_recv(&b, 1, &[b.sge(0, 4136)]).unwrap();
    a.memory.fill(0, &[0x5a; 4096]);
    ud.send(2, &to(&a, &b), SEND, Payload::Sges(&[a.sge(0, 4096)]));
    assert_eq!(ud.pair.statuses(), [('b', 1, WcStatus::Success), ('a', 2, WcStatus::Success)]);
    assert_eq!(b.memory.bytes(40, 4097), [vec![0x5a; 4096], vec![0]].concat());
}

#[test]
fn a_post_without_a_destination_and_one_to_a_connection_are_no_requests() {
    let mut ud = Ud::new();
    let (a, b) = (ud.a.clone(), ud.b.clone());
    ud.pair.post(&a, 1, SEND, Payload::Inline(b"x")).unwrap();
    ud.pair.run();
    assert_eq!((ud.pair.statuses(), ud.pair.state(&a)), (vec![('a', 1, WcStatus::LocQpOp)], Sqe));
    let (rc, peer) = (ud.pair.a.clone(), ud.pair.b.clone());
    ud.pair.connect(&rc, attr_to(&peer), Rts);
    ud.a = rc.clone();
    ud.send(2, &to(&a, &b), SEND, Payload::Inline(b"x"));
    ud.pair.run();
    assert_eq!((ud.pair.statuses(), ud.pair.state(&rc)), (vec![('a', 2, WcStatus::LocQpOp)], Err));
    assert!(!ud.pair.engine.is_datagram(rc.device, rc.qpn) && ud.pair.engine.is_datagram(a.device, a.qpn));
}

#[test]
fn a_receive_whose_memory_may_not_be_written_fails_its_qp_alone() {
    let mut ud = Ud::new();
    let (a, b) = (ud.a.clone(), ud.b.clone());
    ud.pair.post_recv(&b, 1, &[b.sge(0, 45), b.sge(1 << 20, 5)]).unwrap();
    ud.pair.post_recv(&b, 2, &[]).unwrap();
    ud.send(3, &to(&a, &b), SEND, Payload::Inline(b"longer than 5"));
    // 40 + 13 bytes do not fit 50, but 45 + 5 do.
    assert_eq!(ud.dropped(), [("drop_length", 1)]);
    ud.pair.log.completions.clear();
    ud.send(4, &to(&a, &b), SEND, Payload::Inline(b"0123456789"));
    let expected = [('a', 4, WcStatus::Success), ('b', 1, WcStatus::LocProt), ('b', 2, WcStatus::Flush)];
    assert_eq!(ud.pair.statuses(), expected);
    assert_eq!((ud.pair.state(&a), ud.pair.state(&b)), (Rts, Err));
    // Memory that is gone.
    let mut ud = Ud::new();
    let (a, b) = (ud.a.clone(), ud.b.clone());
    ud.pair.post_recv(&b, 1, &[b.sge(0, 100)]).unwrap();
    a.memory.vanish();
    ud.send(2, &to(&a, &b), SEND, Payload::Sges(&[a.sge(0, 8)]));
    assert_eq!((ud.pair.statuses(), ud.pair.state(&a)), (vec![('a', 2, WcStatus::LocProt)], Sqe));
    assert_eq!(ud.pair.state(&b), Rts);
}

#[test]
fn a_qp_that_fails_its_own_receive_flushes_what_it_has() {
    let mut ud = Ud::new();
    let a = ud.a.clone();
    ud.pair.post_recv(&a, 1, &[a.sge(1 << 20, 100)]).unwrap();
    ud.pair.go(&a, Sqd);
    for id in [2, 3] {
        ud.send(id, &to(&a, &a), SEND, Payload::Inline(b"x"));
    }
    assert_eq!(ud.pair.statuses(), []);
    ud.pair.go(&a, Rts);
    ud.pair.run();
    let expected = [('a', 2, WcStatus::Success), ('a', 1, WcStatus::LocProt), ('a', 3, WcStatus::Flush)];
    assert_eq!((ud.pair.statuses(), ud.pair.state(&a)), (expected.to_vec(), Err));
}

#[test]
fn a_queue_that_drains_or_sleeps_keeps_its_datagrams() {
    let mut ud = Ud::new();
    let (a, b) = (ud.a.clone(), ud.b.clone());
    let data: Vec<u8> = (0..100).collect();
    for round in 0..2 {
        ud.pair.post_recv(&b, 1, &[b.sge(0, 200)]).unwrap();
        match round {
            0 => ud.pair.go(&a, Sqd),
            _ => ud.pair.engine.set_suspended(a.device, true),
        }
        ud.send(2, &to(&a, &b), SEND, Payload::Inline(&data));
        ud.pair.run();
        assert_eq!(ud.pair.statuses(), []);
        match round {
            0 => ud.pair.go(&a, Rts),
            _ => ud.pair.engine.set_suspended(a.device, false),
        }
        ud.pair.run();
        assert_eq!(ud.pair.statuses(), [('b', 1, WcStatus::Success), ('a', 2, WcStatus::Success)]);
        assert_eq!(b.memory.bytes(40, 100), data);
        assert_eq!(ud.pair.engine.counts(a.device).pending_sends, 0);
    }
}

#[test]
fn masks_of_connections_are_refused() {
    let mut ud = Ud::fresh();
    let a = ud.a.clone();
    let attr = QpAttr { state: Init, port: 1, ..QpAttr::default() };
    assert_eq!(ud.pair.modify(&a, TO_INIT, attr), Result::Err(Error::Invalid));
    ud.to(&a, Init);
    let attr = attr_to(&ud.pair.b);
    assert_eq!(ud.pair.modify(&a, TO_RTR, QpAttr { state: Rtr, ..attr }), Result::Err(Error::Invalid));
    assert_eq!(ud.pair.engine.query_qp(a.device, a.qpn).unwrap().qkey, QKEY);
}

#[test]
fn qp1_is_the_kernels_and_there_is_one() {
    let mut ud = Ud::new();
    let kernel = OwnerId::KERNEL;
    let (a, b) = (ud.a.clone(), ud.b.clone());
    let mut gsi = Vec::new();
    for end in [&a, &b] {
        let engine = &mut ud.pair.engine;
        let pd = engine.alloc_pd(end.device, kernel).unwrap();
        let key = engine.reg_mr(end.device, pd, Access::ALL, IOVA, 1 << 20, end.memory.clone()).unwrap();
        let init = QpInit { qp_type: QpType::Gsi, owner: kernel, ..qp_init(pd) };
        assert_eq!(engine.create_qp(end.device, init), Ok(Qpn::GSI));
        assert_eq!(engine.create_qp(end.device, init), Result::Err(Error::Busy));
        engine.destroy_qp(end.device, Qpn::GSI).unwrap();
        assert_eq!(engine.create_qp(end.device, init), Ok(Qpn::GSI));
        gsi.push(End { pd, key, qpn: Qpn::GSI, ..end.clone() });
    }
    let keys = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::QKEY;
    for end in &gsi {
        assert_eq!(ud.pair.engine.query_qp(end.device, end.qpn).unwrap().port, 1);
        for (state, mask) in [(Init, keys), (Rtr, AttrMask::STATE), (Rts, TO_RTS_UD)] {
            let attr = QpAttr { state, qkey: Qkey(0x8001_0000), ..QpAttr::default() };
            ud.pair.modify(end, mask, attr).unwrap();
        }
    }
    let recv = RecvRequest { id: 4, sges: &[gsi[1].sge(0, 296)] };
    let Pair { engine, now, log, .. } = &mut ud.pair;
    assert_eq!(
        engine.post_recv(*now, b.device, OWNER, Qpn::GSI, recv, log),
        Result::Err(PostError::NotOwner)
    );
    engine.post_recv(*now, b.device, kernel, Qpn::GSI, recv, log).unwrap();
    let request = SendRequest {
        id: 5,
        signaled: true,
        solicited: false,
        fence: false,
        op: SEND,
        payload: Payload::Inline(&[0x5a; 100]),
    };
    let target = Destination { qkey: Qkey(0x8001_0000), ..to(&gsi[0], &gsi[1]) };
    engine.post_datagram(*now, a.device, kernel, Qpn::GSI, &request, &target, log).unwrap();
    assert_eq!(ud.pair.statuses(), [('b', 4, WcStatus::Success), ('a', 5, WcStatus::Success)]);
    // A process knows the number, but cannot send that `Q_Key`: its highest bit selects the
    // sender's own.
    let target = Destination { qpn: Qpn::GSI, qkey: Qkey(0x8001_0000), ..to(&a, &b) };
    assert_eq!(ud.status_of(&target), WcStatus::Success);
    assert_eq!(ud.dropped(), [("drop_qkey", 1)]);
}
