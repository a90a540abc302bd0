//! Weights, rates and limits of guests, on each way that messages and frames take.
//!
//! How exact rates are is tested in `transport/src/tests/rates.rs`, where a test has the time in
//! its hand. Here they are kept at all, and what they hold back is counted.
//!
//! Shows: quality-of-service.

use vrdma_backend::config::{GuestConfig, OwnLimits, Weight};
use vrdma_backend::port::Burst;
use vrdma_tests::abi::ah::AhEntry;
use vrdma_tests::abi::control::{QpType, Status};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::ah::{AhTable, entry};
use vrdma_tests::cm::connected;
use vrdma_tests::greedy::{Greedy, LONG};
use vrdma_tests::guest::gid;
use vrdma_tests::lab::{over_own_tcp, over_tcp};
use vrdma_tests::net::{NetGuest, NetOptions, frame, mac};
use vrdma_tests::side::{Side, pair_between};
use vrdma_tests::verbs::{Data, Request, UdTarget};
use vrdma_tests::{
    CableOptions, Context, GuestOptions, GuestTcp, Lab, LabOptions, Qp, QpOptions, Setting, wait,
};
use vrdma_wire::num::{VlanId, VlanTag};
use vrdma_wire::roce::Packet;

/// EtherType for experiments (IEEE 802).
const TEST: u16 = 0x88b5;
/// Bytes in a second. A request of [`LONG`] takes 13 ms then.
const BYTES: u64 = 5_000_000;
/// Messages in a second. A message takes 10 ms then.
const MESSAGES: u64 = 100;
/// Requests that are sent at once.
const REQUESTS: u32 = 20;

fn tx_bytes(index: u8, guest: GuestConfig) -> GuestConfig {
    GuestConfig { tx_bytes: if index == 0 { BYTES } else { 0 }, ..guest }
}

fn rx_bytes(index: u8, guest: GuestConfig) -> GuestConfig {
    GuestConfig { rx_bytes: if index == 1 { BYTES } else { 0 }, ..guest }
}

fn tx_messages(index: u8, guest: GuestConfig) -> GuestConfig {
    GuestConfig { tx_messages: if index == 0 { MESSAGES } else { 0 }, ..guest }
}

fn rx_messages(index: u8, guest: GuestConfig) -> GuestConfig {
    GuestConfig { rx_messages: if index == 1 { MESSAGES } else { 0 }, ..guest }
}

/// A rate: the guest that has it, the counter of what it holds back, whether it is of bytes, and
/// what the host says.
type Rate = (usize, &'static str, bool, fn(u8, GuestConfig) -> GuestConfig);

const RATES: [Rate; 4] = [
    (0, "tx_held", true, tx_bytes),
    (1, "rx_held", true, rx_bytes),
    (0, "tx_held", false, tx_messages),
    (1, "rx_held", false, rx_messages),
];

/// Sends WRITEs from guest 0 to guest 1, and waits until all have ended.
fn send(a: &mut Side, b: &Side, length: u32) {
    for id in 0..REQUESTS {
        let own = [a.mr.sge(0, length)];
        a.post(&Request::write(a.qp.tag(id), b.mr.remote(0), Data::Sges(&own)).signaled(true));
    }
    for id in 0..REQUESTS {
        a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
    }
}

/// Sends from guest 0 to guest 1 until one of them is held back. The other one never is.
fn expect_held(lab: &Lab, (a, b): (&mut Side, &Side), (guest, counter, is_of_bytes, _): Rate, way: &str) {
    let context = format!("{way}, {}", if is_of_bytes { "bytes" } else { "messages" });
    // A busy machine may keep this thread from posting for longer than the rate needs.
    wait::until(&format!("{counter} of guest {guest}, {context}"), || {
        send(a, b, if is_of_bytes { LONG } else { 8 });
        (lab.transport(guest, counter) > 0).then_some(())
    });
    for (other, name) in [(0, "tx_held"), (0, "rx_held"), (1, "tx_held"), (1, "rx_held")] {
        let is_limited = other == guest && name == counter;
        assert!(is_limited || lab.transport(other, name) == 0, "{name} of guest {other}, {context}");
    }
    assert!(lab.transport(guest, &format!("{counter}_us")) > 0, "{context}");
}

#[test]
fn rates_hold_back_messages_between_guests_on_each_way() {
    for setting in Setting::ALL {
        for rate in RATES {
            let workers = if setting == Setting::TwoWorkers { 2 } else { 1 };
            let lab = Lab::with(4, LabOptions { workers, host_says: rate.3, ..setting.options() });
            let [(mut a, b), (mut c, d)] = [0, 2].map(|own| {
                pair_between(&lab.guests[own], &lab.guests[own + 1], LONG.into(), &QpOptions::default())
            });
            expect_held(&lab, (&mut a, &b), rate, &format!("{setting:?}"));
            // Others have no rates.
            send(&mut c, &d, LONG);
            for (guest, counter) in [(2, "tx_held"), (2, "rx_held"), (3, "tx_held"), (3, "rx_held")] {
                assert_eq!(lab.transport(guest, counter), 0, "{counter} of guest {guest}");
            }
        }
    }
}

/// Starts two guests with iWARP functions on one host or two, with a rate.
///
/// On one host, `tcp_between_guests` says whether there is a TCP between them.
fn streams(
    (tcp, hosts, tcp_between_guests): (GuestTcp, u8, bool),
    host_says: fn(u8, GuestConfig) -> GuestConfig,
) -> Lab {
    let held = hosts == 1;
    let cable = (tcp == GuestTcp::Own || !held).then(|| CableOptions { held, ..CableOptions::default() });
    let guest = GuestOptions { tcp, ..GuestOptions::default() };
    Lab::with(2, LabOptions { cable, host_says, guest, tcp_between_guests, ..LabOptions::default() })
}

/// Says over which TCP a guest's streams go, and a rate of bytes or messages.
fn over<const OWN: bool, const RATE: usize>(index: u8, guest: GuestConfig) -> GuestConfig {
    let guest = RATES[RATE].3(index, guest);
    if OWN { over_own_tcp(index, guest) } else { over_tcp(index, guest) }
}

#[test]
fn rates_hold_back_streams_over_both_tcps_and_without_any() {
    let over_kernels = [over::<false, 0>, over::<false, 1>, over::<false, 2>, over::<false, 3>];
    let over_own = [over::<true, 0>, over::<true, 1>, over::<true, 2>, over::<true, 3>];
    for (way, says) in [
        ((GuestTcp::Kernel, 1, true), over_kernels),
        ((GuestTcp::Kernel, 2, true), over_kernels),
        ((GuestTcp::Own, 1, true), over_own),
        ((GuestTcp::Own, 1, false), over_own),
        ((GuestTcp::Own, 2, true), over_own),
    ] {
        for (rate, host_says) in RATES.into_iter().zip(says) {
            let lab = streams(way, host_says);
            let options = QpOptions::default();
            let ((mut a, _), (b, _)) = connected(&lab.guests[0], &lab.guests[1], LONG.into(), &options);
            expect_held(&lab, (&mut a, &b), rate, &format!("{way:?}"));
        }
    }
}

fn weigh(index: u8, guest: GuestConfig) -> GuestConfig {
    let weight = if index == 2 { 3 } else { 1 };
    GuestConfig { weight: Weight::new(weight).expect("it is in the range"), ..guest }
}

#[test]
fn guests_of_weights_1_and_3_share_a_worker_and_its_wire_as_1_to_3() {
    /// Messages of both guests of which shares are told.
    const WINDOW: u64 = 1000;
    for setting in [Setting::OneWorker, Setting::TwoHosts] {
        let lab = Lab::with(4, LabOptions { workers: 1, host_says: weigh, ..setting.options() });
        let mut greedy = [0, 2].map(|own| Greedy::new(&lab, own, LONG));
        // A busy machine may keep this thread from posting for a while. Then others may send more.
        let mut before = [0; 2];
        let mut shares = Vec::new();
        wait::until(&format!("shares of 1 to 3 of {setting:?}"), || {
            greedy.iter_mut().for_each(Greedy::step);
            let now = [greedy[0].messages, greedy[1].messages];
            let window = [now[0] - before[0], now[1] - before[1]];
            if window[0] + window[1] < WINDOW {
                return None;
            }
            before = now;
            let share = window[1] as f64 / window[0].max(1) as f64;
            shares.push(share);
            // The first window has what was posted before both did.
            (shares.len() > 1 && (2.7..=3.3).contains(&share)).then_some(())
        });
        greedy.iter_mut().for_each(Greedy::end);
    }
}

fn few_frames(index: u8, guest: GuestConfig) -> GuestConfig {
    let (tx_messages, rx_messages) = [(MESSAGES, 0), (0, MESSAGES), (0, 0)][usize::from(index)];
    GuestConfig { tx_messages, rx_messages, ..guest }
}

#[test]
fn frames_beyond_a_rate_wait_at_their_sender_and_are_dropped_at_their_receiver() {
    for workers in [1, 2] {
        let lab =
            Lab::without_guests(3, LabOptions { workers, host_says: few_frames, ..LabOptions::default() });
        let options = NetOptions::default();
        let guests = [0, 1, 2].map(|index| NetGuest::connect(&lab.net_socket(index), options.clone()));
        let [mut sender, mut receiver, mut free] = guests.map(|guest| guest.expect("it connects"));
        // All frames of the sender arrive, though some wait.
        let sent = frame(mac(3), mac(1), TEST, &[7; 100]);
        wait::until("frames that wait", || {
            for _ in 0..5 {
                sender.send(&sent);
            }
            for _ in 0..5 {
                assert!(free.recv().1 == sent);
            }
            (lab.stats().net(0, "tx_held") > 0).then_some(())
        });
        // Frames to the other guest are dropped beyond its rate.
        let to_receiver = frame(mac(2), mac(3), TEST, &[7; 100]);
        let mut count = 0;
        wait::until("a frame that is dropped", || {
            free.send(&to_receiver);
            count += 1;
            (lab.stats().net(1, "rx_limited") > 0).then_some(())
        });
        wait::until("all frames", || {
            let stats = lab.stats();
            (stats.net(1, "rx_frames") + stats.net(1, "rx_limited") == count).then_some(())
        });
        assert!(receiver.recv().1 == to_receiver, "some arrive");
        let stats = lab.stats();
        let others = [(0, "rx_limited"), (1, "tx_held"), (2, "tx_held"), (2, "rx_limited")];
        assert!(others.iter().all(|&(guest, counter)| stats.net(guest, counter) == 0), "{workers} workers");
    }
}

fn fewer_qps(index: u8, guest: GuestConfig) -> GuestConfig {
    let qps = (index == 0).then_some(8);
    GuestConfig { limits: OwnLimits { qps, ..OwnLimits::default() }, ..guest }
}

#[test]
fn a_guest_with_limits_of_its_own_reaches_them_before_others() {
    let lab = Lab::with(2, LabOptions { host_says: fewer_qps, ..LabOptions::default() });
    let made = [0, 1].map(|at| {
        let guest = &lab.guests[at];
        let device = guest.query_device().unwrap();
        let context = Context::open(guest).expect("a context");
        let cq = context.cq(16);
        let options = QpOptions { send_wr: 16, recv_wr: 16, ..QpOptions::default() };
        let create = || Qp::create(guest, context.number, context.pd, cq.number, cq.number, &options);
        let qps: Vec<_> = (0..20).map_while(|_| create().ok()).collect();
        let refused = create().err();
        assert_eq!(refused, (at == 0).then_some(Status::NO_RESOURCES));
        (device.max_qp.get(), qps.len())
    });
    // Two QP numbers are not for ordinary QPs.
    assert_eq!(made[0], (8, 6));
    assert!(made[1].0 > 20 && made[1].1 == 20, "{made:?}");
}

fn marked(_index: u8, guest: GuestConfig) -> GuestConfig {
    GuestConfig { dscp: Some(26), pcp: Some(3), vlans: vec![7], any_vlan: false, ..guest }
}

#[test]
fn packets_to_other_hosts_have_the_marks_of_their_guest() {
    let cable = Some(CableOptions { held: true, ..CableOptions::default() });
    let address = |index| (index + 1, Some(7));
    let mut lab = Lab::with(1, LabOptions { cable, address, host_says: marked, ..LabOptions::default() });
    let mut outside = lab.outside.take().expect("its end");
    let mut side = Side::new(&lab.guests[0], 4096, &QpOptions::of(QpType::UD));
    side.qp.start().unwrap();
    let handles = AhTable::new(&lab.guests[0], 64).unwrap();
    // The program asks for a traffic class of 5, whose lower bits are those of ECN, and for 6.
    let way = AhEntry { vlan: 7.into(), traffic_class: 5, sl: 6, ..entry(side.process.pd, gid(9)) };
    handles.put(0, &way);
    let to = UdTarget { ah: 0, qpn: 5, qkey: 7 };
    side.post(&Request::ud_send(side.qp.tag(1), to, Data::Inline(b"marked")).signaled(true));
    side.cq.expect(side.qp.number, 1, WcStatus::SUCCESS);
    let mut burst = Burst::default();
    let path = wait::until("a packet on the wire", || {
        outside.receive(&mut burst);
        burst.frames().iter().find_map(|frame| Some(Packet::parse(frame).ok()?.packet.path))
    });
    let tag = VlanTag::new(VlanId::new(7).expect("a VLAN"), 3);
    assert_eq!((path.traffic_class, path.vlan), (26 << 2 | 1, Some(tag)));
}
