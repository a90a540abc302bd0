//! Two hosts and the wire between them: a pulled cable, lost frames, and forged packets.
//!
//! Shows: bad-link, link-loss.

use std::sync::atomic::AtomicU64;
use vrdma_backend::port::{Burst, FaultsConfig};
use vrdma_tests::abi::control::{QpState, port_state};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::events::Told;
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{CableOptions, Lab, LabOptions, QpOptions, Rng, wait};
use vrdma_transport::{Fault, Pieces, Region, write_frame};
use vrdma_wire::num::{FlowLabel, Gid, Mac, Pkey, Psn, Qpn, Rkey};
use vrdma_wire::roce::{Body, Bth, Packet, Part, Path, Rc, Reth, WriteTail};

fn lab(cable: CableOptions) -> Lab {
    Lab::with(2, LabOptions { cable: Some(cable), ..LabOptions::default() })
}

const MIB: u64 = 1 << 20;

#[test]
fn a_cable_that_is_plugged_in_again_in_time_costs_nothing_but_time() {
    let lab = lab(CableOptions::default());
    let cable = lab.cable.clone().unwrap();
    // The QP gives up after half a minute.
    let (mut a, b) = pair(&lab, 1, 8 * MIB, &QpOptions { timeout: 20, ..QpOptions::default() });
    let data = Rng::new(1).bytes(8 * MIB as usize);
    a.mr.put(0, &data);
    let own = [a.mr.sge(0, 8 * MIB as u32)];
    for round in 0..3 {
        let mut post = |id| {
            let request = Request::write(a.qp.tag(id), b.mr.remote(0), Data::Sges(&own));
            a.process.post(&request.signaled(true));
        };
        b.mr.fill(0);
        // The cable is pulled about during the first request. The second has no cable from the
        // beginning.
        post(2 * round);
        cable.plug(false);
        post(2 * round + 1);
        expect_port(&lab, port_state::DOWN);
        let ended: Vec<u32> = std::iter::from_fn(|| a.cq.poll()).map(|wc| wc.id()).collect();
        assert!(!ended.contains(&(2 * round + 1)), "nothing ends without a cable");
        cable.plug(true);
        expect_port(&lab, port_state::ACTIVE);
        for id in [2 * round, 2 * round + 1].into_iter().filter(|id| !ended.contains(id)) {
            a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
        }
        assert!(b.mr.get(0, 8 * MIB) == data);
    }
    for guest in &lab.guests {
        let told = guest.async_events().recv();
        assert_eq!(told, Told { kind: EventKind::PORT_ERR, object: 1 });
        let told = guest.async_events().recv();
        assert_eq!(told, Told { kind: EventKind::PORT_ACTIVE, object: 1 });
        assert_eq!(guest.query_port().unwrap().state, port_state::ACTIVE);
    }
    assert_eq!(lab.stats().uplink("link_changes"), 6);
}

/// Waits until both guests see their port in this state.
fn expect_port(lab: &Lab, state: u8) {
    for guest in &lab.guests {
        wait::until("the port's state", || (guest.query_port().unwrap().state == state).then_some(()));
    }
}

#[test]
fn a_cable_that_stays_pulled_ends_what_was_under_way() {
    let lab = lab(CableOptions::default());
    let cable = lab.cable.clone().unwrap();
    let options = QpOptions { timeout: 12, retry_cnt: 2, ..QpOptions::default() };
    let (mut a, b) = pair(&lab, 1, MIB, &options);
    cable.plug(false);
    let guest = &lab.guests[0];
    assert_eq!(guest.async_events().recv(), Told { kind: EventKind::PORT_ERR, object: 1 });
    assert_eq!(guest.query_port().unwrap().state, port_state::DOWN);
    a.post(&Request::write(a.qp.tag(1), b.mr.remote(0), Data::Inline(b"lost")).signaled(true));
    a.post(&Request::write(a.qp.tag(2), b.mr.remote(0), Data::Inline(b"lost")));
    a.cq.expect(a.qp.number, 1, WcStatus::RETRY_EXC_ERR);
    a.cq.expect(a.qp.number, 2, WcStatus::WR_FLUSH_ERR);
    assert_eq!(a.qp.state(), QpState::ERR);
    assert_eq!(b.mr.get(0, 4), [0; 4]);
}

#[test]
fn nothing_is_lost_where_frames_are() {
    let faults =
        FaultsConfig { loss: 0.01, dup: 0.01, reorder: 0.01, corrupt: 0.005, ..FaultsConfig::default() };
    let lab = lab(CableOptions { faults: Some(faults), ..CableOptions::default() });
    // The timeout is 1 s, so that a loss at a message's end does not take long. All retries take 8
    // s.
    let options = QpOptions { path_mtu: 3, timeout: 18, ..QpOptions::default() };
    let (mut a, mut b) = pair(&lab, 1, 2 * MIB, &options);
    let mut rng = Rng::new(2);
    for round in 0..8 {
        let data = rng.bytes(MIB as usize);
        a.mr.put(0, &data);
        b.recv(round, &[b.mr.sge(MIB, MIB as u32)]);
        let (own, back) = ([a.mr.sge(0, MIB as u32)], [a.mr.sge(MIB, MIB as u32)]);
        a.post(&Request::send(a.qp.tag(1), Data::Sges(&own)).signaled(true));
        a.post(&Request::write(a.qp.tag(2), b.mr.remote(0), Data::Sges(&own)).signaled(true));
        a.post(&Request::read(a.qp.tag(3), b.mr.remote(0), &back).signaled(true));
        a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
        assert_eq!(b.cq.expect(b.qp.number, round, WcStatus::SUCCESS).len(), MIB as u32);
        a.cq.expect(a.qp.number, 2, WcStatus::SUCCESS);
        a.cq.expect(a.qp.number, 3, WcStatus::SUCCESS);
        assert!(b.mr.get(MIB, MIB) == data && b.mr.get(0, MIB) == data && a.mr.get(MIB, MIB) == data);
    }
    assert_ne!(lab.transport(0, "retries") + lab.transport(0, "naks_sequence_in"), 0, "something was lost");
    assert_eq!((a.cq.poll(), b.cq.poll()), (None, None));
}

#[test]
fn a_bottleneck_that_marks_slows_its_senders_down() {
    // The window of a QP is longer than what waits before all frames are marked, and shorter than
    // the queue.
    let faults = FaultsConfig {
        rate: 50_000_000,
        queue: 1 << 20,
        ecn_min: 10_000,
        ecn_max: 50_000,
        ..FaultsConfig::default()
    };
    let lab = lab(CableOptions { faults: Some(faults), ..CableOptions::default() });
    let (mut a, b) = pair(&lab, 1, 2 * MIB, &QpOptions { path_mtu: 3, timeout: 18, ..QpOptions::default() });
    let data = Rng::new(3).bytes(MIB as usize);
    a.mr.put(0, &data);
    b.mr.put(MIB, &data);
    let (own, back) = ([a.mr.sge(0, MIB as u32)], [a.mr.sge(MIB, MIB as u32)]);
    for _ in 0..4 {
        a.post(&Request::write(a.qp.tag(1), b.mr.remote(0), Data::Sges(&own)).signaled(true));
        a.post(&Request::read(a.qp.tag(2), b.mr.remote(MIB), &back).signaled(true));
        a.cq.expect(a.qp.number, 1, WcStatus::SUCCESS);
        a.cq.expect(a.qp.number, 2, WcStatus::SUCCESS);
    }
    assert!(b.mr.get(0, MIB) == data && a.mr.get(MIB, MIB) == data);
    for guest in 0..2 {
        // Requests met congestion at one end, responses at the other.
        let of = ["np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled"];
        let counts = of.map(|counter| lab.transport(guest, counter));
        assert!(counts.iter().all(|count| *count > 0), "guest {guest}: {counts:?}");
        assert_eq!((lab.transport(guest, "rp_cnp_ignored"), lab.transport(guest, "retries")), (0, 0));
    }
}

/// A region without memory, because these packets carry bytes of their own.
struct Nowhere;

impl Region for Nowhere {
    fn copy_to(&self, _: u64, _: &Self, _: u64, _: u64) -> Result<(), Fault> {
        Err(Fault)
    }
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Fault> {
        Err(Fault)
    }
    fn write(&self, _: u64, _: &[u8]) -> Result<(), Fault> {
        Err(Fault)
    }
    fn with_word<T>(&self, _: u64, _: impl FnOnce(&AtomicU64) -> T) -> Result<T, Fault> {
        Err(Fault)
    }
}

/// A host on the wire that guest 0's QP takes for its peer.
struct Stranger {
    lab: Lab,
    victim: Side,
    right: Packet,
}

impl Stranger {
    fn new() -> Stranger {
        let lab = lab(CableOptions { held: true, ..CableOptions::default() });
        let victim = Side::new(&lab.guests[0], 4096, &QpOptions::default());
        let peer = Gid::from_ipv4([10, 0, 0, 0x99]);
        victim.qp.to_init().unwrap();
        victim.qp.to_rtr(peer.0, 0x77, 1000).unwrap();
        victim.qp.to_rts().unwrap();
        let own = &lab.guests[0];
        let right = Packet {
            path: Path {
                src_mac: Mac([0x52, 0x54, 0, 0, 0, 0x99]),
                dst_mac: Mac(own.config.mac),
                vlan: None,
                src: peer,
                dst: Gid(own.gid()),
                traffic_class: 0,
                flow_label: FlowLabel::default(),
                hop_limit: 64,
                src_port: 0xc000,
            },
            bth: Bth {
                mig: true,
                dest: Qpn::new(victim.qp.number).unwrap(),
                ack_req: true,
                psn: Psn::truncate(1000),
                ..Bth::default()
            },
            body: Body::Rc(Rc::Write(Part::Only(
                Reth { va: victim.mr.remote(0).addr, rkey: Rkey(victim.mr.key), length: 6 },
                WriteTail::Plain,
            ))),
        };
        Stranger { lab, victim, right }
    }

    /// Sends `packet`, and asserts that `counter` grows and that memory does not change.
    #[track_caller]
    fn refused(
        &mut self,
        what: &str,
        counter: impl Fn(&Lab) -> u64,
        packet: Packet,
        spoil: impl Fn(&mut [u8]),
    ) {
        let before = counter(&self.lab);
        self.send(packet, spoil);
        wait::until(what, || (counter(&self.lab) > before).then_some(()));
        assert_eq!(self.victim.mr.get(0, 64), [0; 64], "{what}");
        assert_eq!(self.victim.qp.state(), QpState::RTS, "{what}");
    }

    fn send(&mut self, packet: Packet, spoil: impl Fn(&mut [u8])) {
        let port = self.lab.outside.as_mut().unwrap();
        let payload = Pieces::<Nowhere>::bytes(b"forged");
        let mut frame = port.transmit(packet.frame_len(payload.len())).expect("room");
        let len = write_frame(&packet, &payload, frame.buf()).unwrap();
        spoil(&mut frame.buf()[..len]);
        frame.commit(len);
        port.flush();
    }
}

#[test]
fn forged_packets_change_nothing_and_are_counted() {
    let mut stranger = Stranger::new();
    let right = stranger.right;
    let with = |change: &dyn Fn(&mut Packet)| {
        let mut packet = right;
        change(&mut packet);
        packet
    };
    let transport = |counter| move |lab: &Lab| lab.transport(0, counter);
    let roce = |counter| move |lab: &Lab| lab.stats().roce(counter);
    let keep = |_: &mut [u8]| {};
    let s = &mut stranger;
    let psn = |n| with(&|p| p.bth.psn = Psn::truncate(n));
    s.refused("a PSN of the future", transport("out_of_sequence"), psn(1001), keep);
    s.refused("a PSN of the past", transport("duplicates"), psn(999), keep);
    let gid = Gid::from_ipv4([10, 0, 0, 0x98]);
    s.refused("another source", transport("drop_source"), with(&|p| p.path.src = gid), keep);
    let own = Gid(s.lab.guests[1].gid());
    // The engine knows the GIDs of its worker's guests, and the worker knows those of other
    // workers.
    let spoofed = |lab: &Lab| {
        let stats = lab.stats();
        let of_others = (0..lab.workers().into()).map(|worker| stats.worker(worker, "drop_spoofed"));
        stats.roce("drop_spoofed") + of_others.sum::<u64>()
    };
    s.refused("a source of this host", spoofed, with(&|p| p.path.src = own), keep);
    s.refused("another destination", roce("drop_no_device"), with(&|p| p.path.dst = gid), keep);
    let mac = Mac(s.lab.guests[1].config.mac);
    // The packet goes to the guest with that MAC, which does not have the GID.
    let wrong_mac = roce(if s.lab.are_apart(0, 1) { "drop_no_device" } else { "drop_mac" });
    s.refused("another guest's MAC", wrong_mac, with(&|p| p.path.dst_mac = mac), keep);
    let spoofed = |lab: &Lab| lab.stats().switch("drop_own_source");
    s.refused("a guest's MAC as source", spoofed, with(&|p| p.path.src_mac = mac), keep);
    let qpn = Qpn::truncate(0x123456);
    s.refused("no such QP", transport("drop_no_qp"), with(&|p| p.bth.dest = qpn), keep);
    s.refused("another partition", transport("drop_pkey"), with(&|p| p.bth.pkey = Pkey(0x8001)), keep);
    let malformed = |name| move |lab: &Lab| lab.stats().malformed(name);
    s.refused("a turned bit", malformed("icrc"), right, |frame| frame[60] ^= 4);
    s.refused("another version", malformed("bth_version"), right, |frame| frame[43] |= 1);
    // The QP still accepts the right packet.
    s.send(with(&|p| p.bth.pkey = Pkey(0x7fff)), keep);
    wait::until("the right one, of a limited member", || (s.victim.mr.get(0, 6) == b"forged").then_some(()));
    let mut burst = Burst::default();
    let port = s.lab.outside.as_mut().unwrap();
    wait::until("its acknowledgement", || {
        port.receive(&mut burst);
        let frames = burst.frames().iter().filter_map(|frame| Packet::parse(frame).ok());
        let psns: Vec<_> = frames.filter(|p| matches!(p.packet.body, Body::Rc(Rc::Ack(_)))).collect();
        psns.iter().any(|p| p.packet.bth.psn == Psn::truncate(1000)).then_some(())
    });
}
