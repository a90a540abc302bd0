//! Peers that send much ahead of gaps: the memory is bounded, and each device gets its share.

use super::*;

/// An engine with devices that each have many QPs, whose peers are on the wire.
struct Target {
    net: Net,
    /// QPs by device.
    ends: Vec<Vec<End>>,
}

impl Target {
    fn new(devices: usize, qps: usize) -> Target {
        let mut net = Net::connected();
        let ends = (0..devices).map(|n| {
            let Host { engine, end, mac, .. } = &mut net.hosts[B];
            let device = engine.add_device(Limits { max_qp: 1 << 11, ..Limits::default() });
            let gid = Gid::from_ipv4([10, 0, 1, n as u8]);
            engine.set_gid(device, 0, Some(gid.into())).unwrap();
            engine.set_mac(device, *mac).unwrap();
            let pd = engine.alloc_pd(device, OWNER).unwrap();
            let end = End { device, pd, gid, ..end.clone() };
            make_qps(&mut net, &end, qps)
        });
        let ends = ends.collect();
        Target { net, ends }
    }

    /// Sends a SEND of `length` bytes, `ahead` of the expected PSN, to a QP.
    fn send(&mut self, end: &End, ahead: u32, length: usize) {
        let mut packet =
            self.net.packet(A, Body::Rc(Rc::Send(Part::Middle)), Psn::truncate(0xff_fffe).add(ahead));
        packet.bth.dest = end.qpn;
        packet.path.dst = end.gid;
        let frame = frame(&packet, &vec![1; length]);
        let Host { engine, log, .. } = &mut self.net.hosts[B];
        engine.handle_frame(self.net.now, &frame, log);
    }

    /// Sends as many long packets to a QP as it holds.
    fn fill(&mut self, end: &End) {
        (1..240).for_each(|ahead| self.send(end, ahead, 4096));
    }

    fn held(&self, device: usize) -> (u32, u64) {
        self.net.hosts[B].engine.held_early(self.ends[device][0].device)
    }

    fn dropped(&self, device: usize) -> u64 {
        self.net.hosts[B].engine.counters(self.ends[device][0].device).drop_reorder
    }
}

/// Makes QPs of a device of B. Each has A's QP as its peer.
fn make_qps(net: &mut Net, of: &End, count: usize) -> Vec<End> {
    let attr = net.attr(B);
    let Host { engine, log, .. } = &mut net.hosts[B];
    let make = |_| {
        let qpn = engine.create_qp(of.device, qp_init(of.pd)).unwrap();
        for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)] {
            let attr = QpAttr { state, ..attr };
            engine.modify_qp(net.now, of.device, qpn, mask, &attr, log).unwrap();
        }
        End { qpn, ..of.clone() }
    };
    (0..count).map(make).collect()
}

#[test]
fn a_queue_pair_holds_no_more_than_its_limit() {
    let mut target = Target::new(1, 1);
    let end = target.ends[0][0].clone();
    for ahead in 1..2 * REORDER_WINDOW {
        target.send(&end, ahead, 4096);
    }
    let (packets, bytes) = target.held(0);
    assert!(bytes <= REORDER_BYTES && bytes > REORDER_BYTES - 2 * 4200, "{bytes}");
    assert_eq!(u64::from(packets) + target.dropped(0), u64::from(REORDER_WINDOW) - 1);
    let counters = target.net.hosts[B].engine.counters(end.device);
    assert_eq!((counters.out_of_sequence, counters.naks_sequence), (2 * u64::from(REORDER_WINDOW) - 1, 1));
}

#[test]
fn a_flood_of_tiny_packets_to_many_queue_pairs_stays_within_the_device_s_limit() {
    let mut target = Target::new(1, 2000);
    for ahead in [511, 300, 1] {
        for qp in 0..2000 {
            let end = target.ends[0][qp].clone();
            target.send(&end, ahead, 0);
            assert!(target.held(0).1 <= DEVICE_BYTES);
        }
    }
    let (packets, bytes) = target.held(0);
    assert!(bytes > DEVICE_BYTES / 2 && packets >= 900, "{packets} packets, {bytes} bytes");
    assert!(target.dropped(0) > 1000, "the oldest gave way");
    for end in target.ends[0].clone() {
        target.net.hosts[B].engine.destroy_qp(end.device, end.qpn).unwrap();
    }
    assert_eq!(target.held(0), (0, 0));
}

#[test]
fn tenants_that_fill_the_engine_do_not_keep_another_from_holding() {
    let devices = 2 + (ENGINE_BYTES / DEVICE_BYTES) as usize;
    let mut target = Target::new(devices, 9);
    let honest = devices - 1;
    for device in 0..honest {
        for qp in 0..9 {
            for ahead in 1..240 {
                let end = target.ends[device][qp].clone();
                target.send(&end, ahead, 4096);
            }
        }
    }
    let all = |target: &Target| (0..devices).map(|device| target.held(device).1).sum::<u64>();
    assert!(all(&target) > ENGINE_BYTES - (2 << 20));
    for qp in 0..7 {
        for ahead in 1..240 {
            let end = target.ends[honest][qp].clone();
            target.send(&end, ahead, 4096);
            assert!(all(&target) <= ENGINE_BYTES);
        }
    }
    assert_eq!((target.held(honest).0, target.dropped(honest)), (7 * 239, 0));
    for device in 0..devices {
        assert!(target.held(device).1 <= DEVICE_BYTES);
    }
    for device in 0..devices {
        let id = target.ends[device][0].device;
        target.net.hosts[B].engine.reset_device(id);
        assert_eq!(target.held(device), (0, 0));
    }
    // All of the engine's room is there again.
    let devices = (ENGINE_BYTES / DEVICE_BYTES) as usize;
    let mut target = Target { ends: (0..devices).map(|_| Vec::new()).collect(), ..target };
    for device in 0..devices {
        let Host { engine, end, mac, .. } = &mut target.net.hosts[B];
        let (device_id, gid) =
            (engine.add_device(Limits::default()), Gid::from_ipv4([10, 0, 2, device as u8]));
        engine.set_gid(device_id, 0, Some(gid.into())).unwrap();
        engine.set_mac(device_id, *mac).unwrap();
        let pd = engine.alloc_pd(device_id, OWNER).unwrap();
        let end = End { device: device_id, pd, gid, ..end.clone() };
        target.ends[device] = make_qps(&mut target.net, &end, 8);
        for end in target.ends[device].clone() {
            target.fill(&end);
        }
        assert_eq!((target.held(device).0, target.dropped(device)), (8 * 239, 0));
    }
}

#[test]
fn who_has_to_give_way_in_a_gap_goes_on_without_another_nak() {
    save::replace_none();
    let mut net = Net::connected();
    let frames = write(&mut net, 60);
    bring(&mut net, &frames, (0..30).filter(|&at| at != 1));
    assert_eq!(answers(&mut net, &frames), [(1, true)]);
    let end = net.hosts[B].end.clone();
    let others = make_qps(&mut net, &end, 9);
    let mut target = Target { ends: vec![others.clone()], net };
    others.iter().for_each(|other| target.fill(other));
    assert!(target.dropped(0) >= 28, "the honest QP was the oldest");
    let Target { mut net, .. } = target;
    net.work(B);
    net.hosts[B].cable.frames.clear();
    // Copies of all that is held take long.
    save::replace_none();
    let before = net.hosts[B].counters().naks_sequence;
    // Packets that were under way, and then all that the peer sends again.
    bring(&mut net, &frames, 30..60);
    bring(&mut net, &frames, [1]);
    for at in 2..60 {
        let Host { engine, log, cable, .. } = &mut net.hosts[B];
        engine.transmit(net.now, 100, cable, log);
        assert!(at >= 30 || stored(&net) == at, "nothing was held behind the gap");
        bring(&mut net, &frames, [at]);
    }
    assert_eq!((stored(&net), net.hosts[B].counters().naks_sequence), (60, before));
}

#[test]
fn who_has_to_give_way_before_its_turn_has_a_nak() {
    save::replace_none();
    let mut net = Net::connected();
    let frames = write(&mut net, 30);
    bring(&mut net, &frames, (0..30).filter(|&at| at != 1));
    assert_eq!(answers(&mut net, &frames), [(1, true)]);
    bring(&mut net, &frames, [1]);
    let end = net.hosts[B].end.clone();
    let others = make_qps(&mut net, &end, 9);
    let mut target = Target { ends: vec![others.clone()], net };
    others.iter().for_each(|other| target.fill(other));
    assert!(target.dropped(0) >= 28, "the honest QP was the oldest");
    let Target { mut net, .. } = target;
    let Host { engine, log, cable, .. } = &mut net.hosts[B];
    while engine.transmit(net.now, 100, cable, log) {}
    let first = parse(&frames[0]).bth.psn;
    let naks = cable.frames.iter().filter(|frame| {
        let packet = parse(frame);
        let Body::Rc(Rc::Ack(Aeth { syndrome, .. })) = packet.body else { return false };
        packet.bth.psn == first.add(2) && syndrome == SEQUENCE
    });
    assert_eq!(naks.count(), 1);
}

#[test]
fn packets_beyond_the_window_and_within_it_have_one_nak_for_a_gap() {
    for order in [[REORDER_WINDOW, 5, 6], [5, REORDER_WINDOW, 6]] {
        let mut target = Target::new(1, 1);
        let end = target.ends[0][0].clone();
        order.iter().for_each(|&ahead| target.send(&end, ahead, 100));
        let counters = target.net.hosts[B].engine.counters(end.device);
        assert_eq!((counters.naks_sequence, counters.out_of_sequence, counters.drop_reorder), (1, 3, 0));
        assert_eq!(target.held(0).0, 2);
    }
}

#[test]
fn stale_and_distant_packets_are_not_held() {
    let mut target = Target::new(1, 1);
    let end = target.ends[0][0].clone();
    for ahead in [REORDER_WINDOW, 1 << 20, (1 << 23) - 1, 1 << 23, 0xff_fffe, 0xff_ffff] {
        target.send(&end, ahead, 100);
    }
    assert_eq!(target.held(0), (0, 0));
    target.send(&end, REORDER_WINDOW - 1, 100);
    assert_eq!(target.held(0).0, 1);
}
