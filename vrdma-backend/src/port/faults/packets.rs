//! Tests with RoCE packets: marks, and losses of a kind.

use super::*;
use crate::port::pair::{Pair, pair};
use vrdma_wire::ecn::Ecn;
use vrdma_wire::icrc;
use vrdma_wire::num::{AethMsn, FlowLabel, Gid, Psn, Qpn, Rkey};
use vrdma_wire::roce::*;

const TAIL: Rc = Rc::Write(Part::Last(WriteTail::Plain));
const MIDDLE: Rc = Rc::Write(Part::Middle);

fn aeth(syndrome: Syndrome) -> Aeth {
    Aeth { syndrome, msn: AethMsn::default() }
}

fn ack() -> Rc {
    Rc::Ack(aeth(Syndrome::Ack(Credits::UNLIMITED)))
}

fn nak() -> Rc {
    Rc::Ack(aeth(Syndrome::Nak(NakCode::PsnSequenceError)))
}

/// Returns the frame of a packet to a QP. Data packets have four bytes of payload.
fn packet(dest: u32, psn: u32, rc: Rc, traffic_class: u8) -> Vec<u8> {
    let path = Path {
        src_mac: Mac([2, 0, 0, 0, 0, 1]),
        dst_mac: Mac([2, 0, 0, 0, 0, 2]),
        vlan: None,
        src: Gid::from_ipv4([10, 0, 0, 1]),
        dst: Gid::from_ipv4([10, 0, 0, 2]),
        traffic_class,
        flow_label: FlowLabel::default(),
        hop_limit: 64,
        src_port: 0xc000,
    };
    let bth = Bth { dest: Qpn::truncate(dest), psn: Psn::truncate(psn), ..Bth::default() };
    let packet = Packet { path, bth, body: Body::Rc(rc) };
    let payload = if matches!(rc, Rc::Ack(_) | Rc::ReadRequest(_)) { 0 } else { 4 };
    let mut frame = vec![0; MAX_FRAME];
    packet.emit(payload, &mut frame);
    frame.truncate(packet.frame_len(payload));
    icrc::seal(&mut frame);
    frame
}

/// Sends packets through faults, all at once, and returns those that arrive in a second.
fn through(faults: &str, packets: Vec<Vec<u8>>) -> (Vec<Vec<u8>>, Faults) {
    let (left, mut good, _): (Pair, Pair, _) = pair(1500).unwrap();
    let mut bad = Faults::new(Box::new(left), faults.parse().unwrap());
    bad.clock = Clock::Test(Duration::ZERO);
    let mut arrived = Vec::new();
    let mut take = |bad: &mut Faults| {
        bad.receive(&mut Vec::new());
        let mut frames = Vec::new();
        good.receive(&mut frames);
        arrived.extend(frames.iter().map(|frame| frame.to_vec()));
        frames.is_empty()
    };
    for packet in packets {
        bad.send(&mut vec![Frame::new(packet)]);
        take(&mut bad);
    }
    bad.clock = Clock::Test(Duration::from_secs(1));
    while !take(&mut bad) {}
    (arrived, bad)
}

fn counter(faults: &Faults, name: &str) -> u64 {
    let mut found = None;
    faults.counters(&mut |this, value| found = if this == name { Some(value) } else { found });
    found.unwrap()
}

/// Checks which packets are lost, by their places.
fn loses(rule: &str, packets: Vec<Vec<u8>>, lost: &[usize]) {
    let (arrived, faults) = through(rule, packets.clone());
    let left = packets.into_iter().enumerate().filter(|(at, _)| !lost.contains(at)).map(|(_, it)| it);
    assert!(arrived == left.collect::<Vec<_>>(), "{rule}: {} arrived", arrived.len());
    assert_eq!(counter(&faults, "fault_tx_dropped"), lost.len() as u64, "{rule}");
}

#[test]
fn each_kind_is_lost_by_plan() {
    let read = Rc::ReadRequest(Reth { va: 0, rkey: Rkey(1), length: 4096 });
    let last = Rc::ReadResponse(ReadPart::Last(aeth(Syndrome::Ack(Credits::UNLIMITED))));
    let rnr = Rc::Ack(aeth(Syndrome::Rnr(RnrTimer::new(1).unwrap())));
    let all: Vec<_> = [
        (7, 0, MIDDLE),
        (7, 1, TAIL),
        (8, 0, TAIL),
        (7, 1, TAIL), // 3: sent again
        (7, 2, read),
        (7, 5, ack()),
        (7, 6, nak()),
        (7, 6, rnr),
        (7, 9, Rc::ReadResponse(ReadPart::Middle)),
        (7, 9, last),
        (7, 0xff_ffff, MIDDLE), // 10: sent again
        (9, 0xff_ffff, MIDDLE),
        (9, 0, TAIL), // The PSN wraps.
    ]
    .into_iter()
    .map(|(dest, psn, rc)| packet(dest, psn, rc, 0))
    .collect();
    loses("drop=tail/1", all.clone(), &[1, 2, 4, 12]);
    loses("drop=tail/3", all.clone(), &[4]);
    loses("drop=middle/1", all.clone(), &[0, 11]);
    loses("drop=retransmission/1", all.clone(), &[3, 10]);
    loses("drop=ack/1", all.clone(), &[5]);
    loses("drop=nak/1", all.clone(), &[6]);
    loses("drop=response/1", all.clone(), &[9]);
    loses("drop=response/2", all.clone(), &[]);
    loses("drop=ack/1,drop=nak/1,drop=1", all, &[0, 5, 6]);
}

#[test]
fn a_bottleneck_marks_by_the_length_of_its_queue() {
    let length = packet(7, 0, TAIL, 2).len() as u64;
    let marks = |min, max, class| {
        let (min, max) = (min * length, max * length);
        let faults = format!("rate=1000000,queue=100000,ecn_min={min},ecn_max={max}");
        let packets = (0..100).map(|psn| packet(7, psn, TAIL, class)).collect();
        let (arrived, faults) = through(&faults, packets);
        let classes: Vec<_> = arrived
            .iter()
            .map(|frame| {
                let parsed = Packet::parse(frame).unwrap();
                parsed.check_icrc().unwrap();
                parsed.packet.path.traffic_class
            })
            .collect();
        assert_eq!(classes.len(), 100);
        let is_marked = |class: &u8| Ecn::of(*class) == Ecn::Experienced;
        let count = classes.iter().filter(|class| is_marked(class)).count() as u64;
        assert_eq!(count, counter(&faults, "fault_tx_marked"));
        (classes.iter().position(is_marked), count)
    };
    // All from the eleventh on; between the two limits, about half.
    assert_eq!(marks(10, 10, 2), (Some(10), 90));
    let (first, count) = marks(0, 100, 2);
    assert!((35..65).contains(&count) && first < Some(50), "{count}, from {first:?} on");
    assert_eq!(marks(0, 0, 2), (None, 0));
    assert_eq!(marks(10, 10, 0), (None, 0));
}
