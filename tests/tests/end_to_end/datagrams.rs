//! Datagrams and QP1 between guests.
//!
//! Tests cover address handles in guest memory, the GRH before the data, and dropped datagrams.
//!
//! Shows: verbs.

use std::sync::atomic::{AtomicBool, Ordering};
use vrdma_tests::abi::ah::AhEntry;
use vrdma_tests::abi::control::{QpAttr, QpState, QpType, Status, access, qp_attr};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::ah::{AhTable, entry};
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Data, Request, UdTarget};
use vrdma_tests::{Context, Lab, Mr, Qp, QpOptions, Setting, wait};

/// Index of the address handle from side a to side b.
const TO_B: u32 = 3;

struct Ud {
    lab: Lab,
    a: Side,
    b: Side,
    handles: AhTable,
}

impl Ud {
    fn new() -> Ud {
        Ud::between(Setting::OneWorker)
    }

    fn between(setting: Setting) -> Ud {
        let lab = Lab::with(2, setting.options());
        let (a, b) = pair(&lab, 1, 8192, &QpOptions::of(QpType::UD));
        let handles = AhTable::new(&lab.guests[0], 64).unwrap();
        handles.put(TO_B, &entry(a.process.pd, b.guest().gid()));
        Ud { lab, a, b, handles }
    }

    fn to_b(&self) -> UdTarget {
        UdTarget { ah: TO_B, qpn: self.b.qp.number, qkey: self.b.qp.options.qkey }
    }

    /// Waits until `counter` of the receiver's guest is 1.
    #[track_caller]
    fn expect_dropped(&self, counter: &str) {
        wait::until(counter, || (self.lab.transport(1, counter) == 1).then_some(()));
    }

    /// Sends to `to` and returns the status of the completion.
    fn status_of(&mut self, to: UdTarget, data: Data<'_>) -> WcStatus {
        self.a.post(&Request::ud_send(self.a.qp.tag(7), to, data).signaled(true));
        let wc = self.a.cq.wait();
        assert_eq!((wc.qpn(), wc.id()), (self.a.qp.number, 7));
        wc.status()
    }
}

#[test]
fn a_datagram_says_where_it_came_from() {
    Setting::ALL.map(Ud::between).into_iter().for_each(a_datagram_says_where);
}

fn a_datagram_says_where(mut ud: Ud) {
    ud.b.recv_any(1);
    ud.b.process.channel.drain();
    ud.a.mr.put(100, b"datagram");
    let to = UdTarget { ah: 5, ..ud.to_b() };
    let handle = entry(ud.a.process.pd, ud.b.guest().gid());
    ud.lab.guests.iter().for_each(|guest| guest.add_gid_in(Some(42), 1, guest.gid()).unwrap());
    let way = AhEntry { vlan: 42.into(), sgid_index: 1, traffic_class: 0x20, hop_limit: 3, ..handle };
    ud.handles.put(5, &way);
    let sges = [ud.a.mr.sge(100, 5), ud.a.mr.sge(105, 3)];
    let request = Request::ud_send_imm(ud.a.qp.tag(2), to, [9, 8, 7, 6], Data::Sges(&sges));
    ud.a.post(&request.signaled(true).solicited(true));
    ud.a.cq.expect(ud.a.qp.number, 2, WcStatus::SUCCESS);
    let wc = ud.b.cq.expect(ud.b.qp.number, 1, WcStatus::SUCCESS);
    assert_eq!((wc.len(), wc.imm(), wc.src_qpn()), (48, Some([9, 8, 7, 6]), ud.a.qp.number));
    assert!(wc.is_recv() && wc.has_grh() && wc.is_solicited());
    assert_eq!((wc.smac(), wc.vlan()), (ud.lab.guests[0].config.mac, 42));
    let got = ud.b.mr.get(0, 48);
    assert_eq!(got[..20], [0; 20]);
    assert_eq!(got[20..24], [0x45, 0x20, 0, 20 + 8 + 12 + 8 + 4 + 8 + 4]);
    assert_eq!((got[28], got[29]), (3, 17));
    assert_eq!(got[32..40], [10, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!(&got[40..], b"datagram");
}

#[test]
fn datagrams_arrive_in_order_and_loop_back() {
    Setting::ALL.map(Ud::between).into_iter().for_each(datagrams_arrive_and_loop_back);
}

fn datagrams_arrive_and_loop_back(mut ud: Ud) {
    ud.handles.put(4, &entry(ud.a.process.pd, ud.a.guest().gid()));
    let to_self = UdTarget { ah: 4, qpn: ud.a.qp.number, qkey: 1 << 31 };
    for round in 0..300u32 {
        let to = if round % 3 == 0 { to_self } else { ud.to_b() };
        let side = if round % 3 == 0 { &mut ud.a } else { &mut ud.b };
        side.recv_any(round);
        side.process.channel.drain();
        let data = round.to_le_bytes();
        ud.a.post(&Request::ud_send(ud.a.qp.tag(round), to, Data::Inline(&data)));
        let side = if round % 3 == 0 { &mut ud.a } else { &mut ud.b };
        let wc = side.cq.expect(side.qp.number, round, WcStatus::SUCCESS);
        assert!(wc.is_recv() && wc.len() == 44 && wc.src_qpn() == ud.a.qp.number);
        let side = if round % 3 == 0 { &ud.a } else { &ud.b };
        assert_eq!(side.mr.get(40, 4), data);
    }
    assert_eq!(ud.a.cq.poll(), None, "unsignaled sends tell nothing");
}

#[test]
fn what_is_dropped_is_counted_and_the_sender_learns_nothing() {
    type Spoil = fn(&mut Ud, &mut UdTarget);
    let cases: [(&str, Spoil); 5] = [
        ("drop_no_receive", |_, _| {}),
        ("drop_length", |ud, _| ud.b.recv(1, &[ud.b.mr.sge(0, 41)])),
        ("drop_qkey", |_, to| to.qkey += 1),
        ("drop_no_qp", |_, to| to.qpn += 1000),
        ("drop_state", |ud, _| ud.b.qp.to_state(QpState::ERR).unwrap()),
    ];
    for (setting, (counter, spoil)) in
        Setting::ALL.into_iter().flat_map(|setting| cases.map(|case| (setting, case)))
    {
        let mut ud = Ud::between(setting);
        let mut to = ud.to_b();
        spoil(&mut ud, &mut to);
        ud.b.process.channel.drain();
        assert_eq!(ud.status_of(to, Data::Inline(b"hi")), WcStatus::SUCCESS, "{counter}");
        ud.expect_dropped(counter);
        assert_eq!((ud.b.cq.poll(), ud.a.qp.state()), (None, QpState::RTS), "{counter}");
    }
    let mut ud = Ud::new();
    ud.handles.put(TO_B, &entry(ud.a.process.pd, [0x20; 16]));
    assert_eq!(ud.status_of(ud.to_b(), Data::EMPTY), WcStatus::SUCCESS);
    assert_eq!(ud.lab.stats().transport(0, "drop_no_route"), 1);
    let bad_qkeys = ud.lab.guests[1].query_port().unwrap().bad_qkeys.get();
    assert_eq!(bad_qkeys, 0);
    let to = UdTarget { qkey: 5, ..ud.to_b() };
    ud.handles.put(TO_B, &entry(ud.a.process.pd, ud.b.guest().gid()));
    ud.status_of(to, Data::EMPTY);
    // A guest on another worker may count after the sender's completion.
    wait::until("a wrong Q_Key to be counted", || {
        (ud.lab.guests[1].query_port().unwrap().bad_qkeys.get() == 1).then_some(())
    });
}

#[test]
fn an_address_handle_has_to_be_there_and_of_the_pd() {
    let mut ud = Ud::new();
    let pd = ud.a.process.pd;
    let other = Context::open(&ud.lab.guests[0]).unwrap().pd;
    let good = entry(pd, ud.b.guest().gid());
    let handles: [(u32, Option<AhEntry>); 8] = [
        (10, None),
        (64, None),
        (u32::MAX, None),
        (11, Some(AhEntry { pdn: other.into(), ..good })),
        (12, Some(AhEntry { pdn: 0xffff_ffff.into(), ..good })),
        (13, Some(AhEntry { vlan: 4095.into(), ..good })),
        (16, Some(AhEntry { vlan: 10.into(), ..good })),
        (15, Some(AhEntry { sgid_index: 200, ..good })),
    ];
    for (ah, entry) in handles {
        if let Some(entry) = entry {
            ud.handles.put(ah, &entry);
        }
        let to = UdTarget { ah, ..ud.to_b() };
        assert_eq!(ud.status_of(to, Data::Inline(b"x")), WcStatus::LOC_QP_OP_ERR, "{entry:?}");
        assert_eq!(ud.a.qp.state(), QpState::SQE);
        ud.a.qp.to_state(QpState::RTS).unwrap();
    }
    // A removed entry is invalid. An entry written again is valid.
    ud.handles.remove(TO_B);
    assert_eq!(ud.status_of(ud.to_b(), Data::EMPTY), WcStatus::LOC_QP_OP_ERR);
    ud.a.qp.to_state(QpState::RTS).unwrap();
    ud.handles.put(TO_B, &good);
    ud.b.recv_any(1);
    ud.b.process.channel.drain();
    assert_eq!(ud.status_of(ud.to_b(), Data::EMPTY), WcStatus::SUCCESS);
    assert_eq!(ud.b.cq.expect_success().len(), 40);
    assert_eq!(ud.lab.stats().device(0, "bad_address_handles"), 5);
}

#[test]
fn no_datagram_is_longer_than_the_active_mtu() {
    let mut ud = Ud::new();
    let guest = ud.a.guest().clone();
    for wrong in [0, 1000, 8192, u32::MAX] {
        assert_eq!(guest.set_port_mtu(wrong), Err(Status::INVALID));
    }
    assert_eq!(guest.query_port().unwrap().active_mtu.get(), 4096);
    guest.set_port_mtu(1024).unwrap();
    let port = guest.query_port().unwrap();
    assert_eq!((port.max_mtu.get(), port.active_mtu.get()), (4096, 1024));
    ud.b.recv_any(1);
    ud.b.process.channel.drain();
    let whole = [ud.a.mr.sge(0, 1024)];
    assert_eq!(ud.status_of(ud.to_b(), Data::Sges(&whole)), WcStatus::SUCCESS);
    let more = [ud.a.mr.sge(0, 1025)];
    assert_eq!(ud.status_of(ud.to_b(), Data::Sges(&more)), WcStatus::LOC_LEN_ERR);
    // The port's MTU does not limit the packets of connected QPs, which have a path MTU of their
    // own.
    guest.set_port_mtu(4096).unwrap();
    ud.a.qp.to_state(QpState::RTS).unwrap();
    ud.b.recv_any(2);
    ud.b.process.channel.drain();
    assert_eq!(ud.status_of(ud.to_b(), Data::Sges(&more)), WcStatus::SUCCESS);
}

/// Only the low bits of wide fields count.
///
/// UCX writes all ones for "no flow label", and keeps other data in the upper byte of a QPN.
#[test]
fn of_wide_fields_the_low_bits_count() {
    for setting in Setting::ALL {
        let mut ud = Ud::between(setting);
        let good = entry(ud.a.process.pd, ud.b.guest().gid());
        ud.handles.put(5, &AhEntry { flow_label: u32::MAX.into(), sl: 0xff, ..good });
        for (id, high) in [(1, 0), (2, 0xff00_0000)] {
            ud.b.recv_any(id);
            ud.b.process.channel.drain();
            let to = UdTarget { ah: 5, qpn: ud.b.qp.number | high, ..ud.to_b() };
            assert_eq!(ud.status_of(to, Data::Inline(b"wide")), WcStatus::SUCCESS);
            assert_eq!(ud.b.cq.expect_success().len(), 44);
        }
    }
}

#[test]
fn without_a_table_there_is_no_address_handle() {
    let lab = Lab::new(1);
    let mut side = Side::new(&lab.guests[0], 4096, &QpOptions::of(QpType::UD));
    side.qp.start().unwrap();
    let to = UdTarget { ah: 0, qpn: side.qp.number, qkey: 0 };
    side.post(&Request::ud_send(side.qp.tag(1), to, Data::EMPTY));
    side.cq.expect(side.qp.number, 1, WcStatus::LOC_QP_OP_ERR);
}

#[test]
fn a_send_that_is_wrong_flushes_what_follows_until_the_queue_is_mended() {
    let mut ud = Ud::new();
    let b_receives = |ud: &mut Ud| {
        ud.b.recv_any(20);
        ud.b.process.channel.drain();
    };
    let read_only = Mr::register(ud.a.guest(), ud.a.process.pd, access::REMOTE_READ, 4096).unwrap();
    let wrong = [
        (WcStatus::LOC_LEN_ERR, ud.a.mr.sge(0, 4097)),
        (WcStatus::LOC_PROT_ERR, ud.a.mr.sge(8000, 193)),
        (WcStatus::SUCCESS, read_only.sge(0, 4096)),
        (WcStatus::SUCCESS, ud.a.mr.sge(4096, 4096)),
    ];
    for (status, sge) in wrong {
        b_receives(&mut ud);
        let to = ud.to_b();
        assert_eq!(ud.status_of(to, Data::Sges(&[sge])), status);
        if status == WcStatus::SUCCESS {
            assert_eq!(ud.b.cq.expect_success().len(), 40 + 4096);
            continue;
        }
        assert_eq!(ud.status_of(to, Data::EMPTY), WcStatus::WR_FLUSH_ERR);
        assert_eq!(ud.a.qp.state(), QpState::SQE);
        let attr = QpAttr {
            state: QpState::RTS.0 as u8,
            cur_state: QpState::SQE.0 as u8,
            qkey: 5.into(),
            ..QpAttr::default()
        };
        let mask = qp_attr::STATE | qp_attr::CUR_STATE | qp_attr::QKEY;
        ud.a.guest().modify_qp(ud.a.qp.number, mask, attr).unwrap();
        assert_eq!(ud.a.guest().query_qp(ud.a.qp.number).unwrap().qkey.get(), 5);
        assert_eq!(ud.status_of(to, Data::EMPTY), WcStatus::SUCCESS);
        assert_eq!(ud.b.cq.expect_success().len(), 40);
    }
    let (tag, remote) = (ud.a.qp.tag(8), ud.b.mr.remote(0));
    ud.a.post(&Request::write(tag, remote, Data::Inline(b"x")));
    ud.a.cq.expect(ud.a.qp.number, 8, WcStatus::LOC_QP_OP_ERR);
}

/// Creates a kernel's side with QP1, set up as drivers/infiniband/core/mad.c does.
fn gsi(lab: &Lab, guest: usize) -> Side {
    let options = QpOptions { qkey: 0x8001_0000, ..QpOptions::of(QpType::GSI) };
    let process = Context::kernel(&lab.guests[guest]).unwrap();
    let (cq, mr) = (process.cq(64), process.mr(4096));
    let qp = process.qp(&cq, &cq, &options);
    assert_eq!(qp.number, 1);
    qp.start().unwrap();
    Side { process, cq, mr, qp }
}

#[test]
fn the_kernels_talk_through_qp1() {
    for setting in Setting::ALL {
        kernels_talk(&Lab::with(2, setting.options()));
    }
}

fn kernels_talk(lab: &Lab) {
    let (mut a, mut b) = (gsi(lab, 0), gsi(lab, 1));
    let handles = AhTable::new(&lab.guests[0], 1).unwrap();
    handles.put(0, &entry(a.process.pd, b.guest().gid()));
    b.recv_any(1);
    b.process.channel.drain();
    a.mr.put(0, &[0x5a; 256]);
    let to = UdTarget { ah: 0, qpn: 1, qkey: 0x8001_0000 };
    a.post(&Request::ud_send(a.qp.tag(2), to, Data::Sges(&[a.mr.sge(0, 256)])).signaled(true));
    a.cq.expect(1, 2, WcStatus::SUCCESS);
    let wc = b.cq.expect(1, 1, WcStatus::SUCCESS);
    assert_eq!((wc.len(), wc.src_qpn(), wc.has_grh()), (296, 1, true));
    assert_eq!(b.mr.get(40, 256), [0x5a; 256]);
    // There is only one QP1, and it belongs to the kernel.
    let again = Qp::create(a.guest(), 0, a.process.pd, a.cq.number, a.cq.number, &a.qp.options);
    assert_eq!(again.map(|qp| qp.number), Err(Status::BUSY));
    let process = Context::open(&lab.guests[0]).unwrap();
    let cq = process.cq(4);
    let own = Qp::create(a.guest(), process.number, process.pd, cq.number, cq.number, &a.qp.options);
    assert_eq!(own.map(|qp| qp.number), Err(Status::DENIED));
    let mut process = process;
    process.post(&Request::recv(a.qp.tag(9), &[]));
    process.channel.drain();
    wait::until("the stray request to be counted", || {
        (lab.stats().device(0, "stray_requests") == 1).then_some(())
    });
    for side in [a, b] {
        side.close();
    }
}

#[test]
fn an_entry_that_is_written_meanwhile_is_taken_whole_or_not_at_all() {
    let mut ud = Ud::new();
    let (pd, gid) = (ud.a.process.pd, ud.b.guest().gid());
    for guest in &ud.lab.guests {
        (1..=100).for_each(|n| guest.add_gid_in(Some(n), n.into(), guest.gid()).unwrap());
    }
    let numbered = |n: u8| {
        let vlan = u16::from(n).into();
        AhEntry { vlan, sgid_index: n, traffic_class: n, hop_limit: n, ..entry(pd, gid) }
    };
    ud.handles.put(TO_B, &numbered(1));
    let (mut taken, mut refused) = (0u32, 0u32);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (handles, stopped) = (&ud.handles, &stop);
        scope.spawn(move || {
            for n in (1..=100u8).cycle().take_while(|_| !stopped.load(Ordering::Relaxed)) {
                handles.put(TO_B, &numbered(n));
            }
        });
        for id in 0..2000 {
            ud.b.recv_any(id);
            ud.b.process.channel.drain();
            let to = UdTarget { ah: TO_B, qpn: ud.b.qp.number, qkey: ud.b.qp.options.qkey };
            ud.a.post(&Request::ud_send(ud.a.qp.tag(7), to, Data::EMPTY).signaled(true));
            if ud.a.cq.wait().status() != WcStatus::SUCCESS {
                refused += 1;
                ud.a.qp.to_state(QpState::RTS).unwrap();
                ud.b.qp.to_state(QpState::RESET).unwrap();
                ud.b.qp.start().unwrap();
                continue;
            }
            taken += 1;
            let wc = ud.b.cq.expect(ud.b.qp.number, id, WcStatus::SUCCESS);
            let header = ud.b.mr.get(20, 20);
            let seen = [wc.vlan(), header[1].into(), header[8].into()];
            if seen.iter().any(|one| *one != seen[0]) {
                stop.store(true, Ordering::Relaxed);
                panic!("an entry of two generations: {seen:?}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("{taken} entries taken, {refused} caught while they were written");
    assert!(taken > 0);
}
