//! What becomes of held packets when something else happens to the QP.

use super::*;
use crate::tests::wire::Host;

/// B has a gap, and holds four packets.
fn gap() -> (Net, Vec<Frame>) {
    let mut net = Net::connected();
    let frames = write(&mut net, 6);
    bring(&mut net, &frames, [0, 2, 3, 4, 5]);
    net.work(B);
    net.hosts[B].cable.frames.clear();
    assert_eq!((held(&net, B).0, stored(&net)), (4, 1));
    (net, frames)
}

/// Nothing is held, and the packet of the gap is not executed.
fn is_over(mut net: Net, frames: &[Frame], what: &str) {
    assert_eq!(held(&net, B), (0, 0), "{what}");
    bring(&mut net, frames, [1]);
    net.work(B);
    assert_eq!(stored(&net), 1, "{what}");
}

#[test]
fn reset_error_and_destruction_free_what_is_held() {
    for state in [QpState::Reset, QpState::Err] {
        let (mut net, frames) = gap();
        net.hosts[B].modify(net.now, AttrMask::STATE, QpAttr { state, ..QpAttr::default() });
        is_over(net, &frames, &format!("{state:?}"));
    }
    let (mut net, frames) = gap();
    let Host { engine, end, .. } = &mut net.hosts[B];
    engine.destroy_qp(end.device, end.qpn).unwrap();
    is_over(net, &frames, "destroyed");
    let (mut net, frames) = gap();
    let Host { engine, end, .. } = &mut net.hosts[B];
    engine.reset_device(end.device);
    is_over(net, &frames, "device reset");
    let (mut net, frames) = gap();
    let Host { engine, end, .. } = &mut net.hosts[B];
    engine.remove_device(end.device);
    is_over(net, &frames, "device removed");
    let (mut net, frames) = gap();
    let Host { engine, end, log, .. } = &mut net.hosts[B];
    engine.cq_failed(end.device, end.qpn, log);
    is_over(net, &frames, "CQ failed");
}

#[test]
fn a_request_that_ends_the_connection_frees_what_is_held() {
    let (mut net, _) = gap();
    net.request(A, Rc::Write(Part::Last(WriteTail::Plain)), &[0; 7]);
    assert_eq!((net.hosts[B].state(), held(&net, B)), (QpState::Err, (0, 0)));
}

#[test]
fn another_first_psn_finds_nothing_held() {
    let (mut net, frames) = gap();
    net.hosts[B].modify(net.now, AttrMask::STATE, QpAttr::default());
    let attr = QpAttr { rq_psn: parse(&frames[2]).bth.psn, ..net.attr(B) };
    for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)] {
        net.hosts[B].modify(net.now, mask, QpAttr { state, ..attr });
    }
    assert_eq!(held(&net, B), (0, 0));
    bring(&mut net, &frames, [5]);
    assert_eq!((held(&net, B).0, stored(&net)), (1, 1));
}

#[test]
fn another_address_of_the_peer_frees_what_is_held() {
    let (mut net, frames) = gap();
    let sqd = QpAttr { state: QpState::Sqd, ..QpAttr::default() };
    net.hosts[B].modify(net.now, AttrMask::STATE, sqd);
    assert_eq!(held(&net, B).0, 4, "in SQD it still receives");
    let attr = QpAttr { state: QpState::Sqd, ..net.attr(B) };
    net.hosts[B].modify(net.now, AttrMask::STATE | AttrMask::AV, attr);
    assert_eq!(held(&net, B), (0, 0));
    // The connection goes on, and its peer sends again.
    bring(&mut net, &frames, 1..6);
    net.work(B);
    assert_eq!(stored(&net), 6);
}

#[test]
fn what_is_held_stays_while_sends_are_drained_and_the_link_is_down() {
    let (mut net, frames) = gap();
    let sqd = QpAttr { state: QpState::Sqd, ..QpAttr::default() };
    net.hosts[B].modify(net.now, AttrMask::STATE, sqd);
    net.hosts[B].engine.set_link(false);
    net.hosts[B].engine.set_link(true);
    bring(&mut net, &frames, [1]);
    net.work(B);
    assert_eq!((stored(&net), held(&net, B)), (6, (0, 0)));
}

#[test]
fn what_is_held_stays_while_the_device_is_suspended() {
    let (mut net, frames) = gap();
    let device = net.hosts[B].end.device;
    net.hosts[B].engine.set_suspended(device, true);
    bring(&mut net, &frames, 1..6);
    net.work(B);
    assert_eq!((stored(&net), held(&net, B).0), (1, 4), "nothing of it is touched");
    net.hosts[B].engine.set_suspended(device, false);
    bring(&mut net, &frames, [1]);
    net.work(B);
    assert_eq!((stored(&net), held(&net, B)), (6, (0, 0)));
}

#[test]
fn what_is_to_be_executed_waits_for_a_suspended_device() {
    let (mut net, frames) = gap();
    let device = net.hosts[B].end.device;
    bring(&mut net, &frames, [1]);
    net.hosts[B].engine.set_suspended(device, true);
    net.work(B);
    assert_eq!((stored(&net), held(&net, B).0), (2, 4));
    net.hosts[B].engine.set_suspended(device, false);
    net.work(B);
    assert_eq!((stored(&net), held(&net, B)), (6, (0, 0)));
}

#[test]
fn a_peer_that_is_gone_leaves_what_is_held_until_the_room_is_needed() {
    let (mut net, _) = gap();
    net.hosts[A].cable.frames.clear();
    while let Some(at) = net.hosts[A].engine.poll_timeout() {
        net.now = net.now.max(at);
        net.work(A);
        net.hosts[A].cable.frames.clear();
    }
    assert_eq!(net.hosts[A].statuses()[0].1, WcStatus::RetryExc);
    net.work(B);
    assert_eq!((held(&net, B).0, net.hosts[B].state()), (4, QpState::Rts));
    assert_eq!(net.hosts[B].engine.poll_timeout(), None, "it keeps nothing awake");
}

#[test]
fn what_is_held_goes_on_in_a_restored_engine() {
    let (mut net, frames) = gap();
    let copy = save::copied(&net.hosts[B].engine);
    net.hosts[B].engine = copy;
    assert_eq!(held(&net, B).0, 4);
    bring(&mut net, &frames, [1]);
    let copy = save::copied(&net.hosts[B].engine);
    net.hosts[B].engine = copy;
    net.work(B);
    assert_eq!((stored(&net), held(&net, B)), (6, (0, 0)));
}

#[test]
fn bytes_behind_a_packet_are_not_held() {
    let mut net = Net::connected();
    let frames = write(&mut net, 4);
    bring(&mut net, &frames, [0, 2]);
    let (_, one) = held(&net, B);
    let padded = [&frames[3][..], &[0xaa; 9000]].concat();
    net.deliver(A, &padded);
    let (packets, both) = held(&net, B);
    assert!(packets == 2 && both - one < frames[3].len() as u64 + 100, "{both}");
    let copy = save::copied(&net.hosts[B].engine);
    net.hosts[B].engine = copy;
    bring(&mut net, &frames, [1]);
    net.work(B);
    assert_eq!((stored(&net), held(&net, B)), (4, (0, 0)));
}

/// Adds bytes to the payload of a packet in IPv6, beyond what an encoder allows.
fn lengthen(frame: &mut Frame, more: usize) {
    const IP: usize = 14;
    const UDP: usize = IP + 20;
    assert_eq!(frame[IP], 0x45, "an IPv4 header without options");
    let end = frame.len() - vrdma_wire::icrc::LEN;
    frame.splice(end..end, vec![1; more]);
    for at in [IP + 2, UDP + 4] {
        let length = u16::from_be_bytes([frame[at], frame[at + 1]]) + more as u16;
        frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }
    frame[IP + 10..IP + 12].fill(0);
    let checksum = vrdma_wire::checksum::Sum::of(&frame[IP..UDP]).finish();
    frame[IP + 10..IP + 12].copy_from_slice(&checksum.to_be_bytes());
    vrdma_wire::icrc::seal(frame);
}

#[test]
fn a_packet_that_is_longer_than_any_mtu_is_not_held() {
    let mut net = Net::connected();
    let packet = net.packet(A, Body::Rc(Rc::Write(Part::Middle)), net.expected(B).add(1));
    let mut long = frame(&packet, &[1; 4096]);
    lengthen(&mut long, 4096);
    assert_eq!(parse(&long).bth.psn, packet.bth.psn, "it is a sound packet but for its length");
    net.deliver(A, &long);
    assert_eq!(held(&net, B), (0, 0));
    let counters = net.hosts[B].counters();
    assert_eq!((counters.out_of_sequence, counters.naks_sequence, counters.drop_reorder), (1, 1, 0));
    save::copied(&net.hosts[B].engine);
}
