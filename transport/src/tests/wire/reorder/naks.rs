//! When the responder sends NAKs and acknowledges while it holds packets.

use super::*;

#[test]
fn a_gap_that_gets_lost_again_has_another_nak() {
    let mut net = Net::connected();
    let frames = write(&mut net, 10);
    bring(&mut net, &frames, [0, 2, 3, 4]);
    assert_eq!(answers(&mut net, &frames), [(1, true)]);
    bring(&mut net, &frames, 5..10);
    assert_eq!(answers(&mut net, &frames), [], "they are no news of the gap");
    bring(&mut net, &frames, 2..6);
    assert_eq!(answers(&mut net, &frames), [(1, true)], "the peer went back");
    bring(&mut net, &frames, 6..10);
    assert_eq!(answers(&mut net, &frames), [], "that is one repetition");
    bring(&mut net, &frames, 2..10);
    assert_eq!(answers(&mut net, &frames), [(1, true)]);
}

#[test]
fn a_further_gap_has_its_nak_when_the_first_is_filled() {
    let mut net = Net::connected();
    let frames = write(&mut net, 10);
    bring(&mut net, &frames, [0, 2, 3, 5, 6, 8, 9]);
    assert_eq!(answers(&mut net, &frames), [(1, true)]);
    bring(&mut net, &frames, [1]);
    assert_eq!(answers(&mut net, &frames), [(4, true)]);
    bring(&mut net, &frames, [4]);
    assert_eq!(answers(&mut net, &frames), [(7, true)]);
    bring(&mut net, &frames, [7]);
    assert_eq!(answers(&mut net, &frames), [(9, false)]);
    assert_eq!(stored(&net), 10);
}

#[test]
fn a_repetition_is_not_acknowledged_packet_by_packet() {
    let mut net = Net::connected();
    let frames = write(&mut net, 100);
    bring(&mut net, &frames, 0..100);
    net.work(B);
    net.hosts[B].cable.frames.clear();
    let asks = |frame: &Frame| parse(frame).bth.ack_req;
    let asking = frames.iter().filter(|frame| asks(frame)).count();
    let mut sent = 0;
    for at in 0..100 {
        bring(&mut net, &frames, [at]);
        let told = answers(&mut net, &frames);
        assert!(told.iter().all(|answer| *answer == (99, false)), "{told:?}");
        assert!(!asks(&frames[at]) || told.len() == 1, "who asks is answered");
        sent += told.len();
    }
    assert!(sent <= asking + 1, "{sent} acknowledges for {asking} that asked");
}

/// A SEND of A has no receive. B knows what is behind it.
fn not_ready() -> (Net, Vec<Frame>) {
    let set = |attr: &mut QpAttr| (attr.rnr_retry, attr.retry_cnt) = (7, 2);
    let mut net = Net::connected_with(set, |_| {});
    let b = net.hosts[B].end.clone();
    net.post(A, 1, SEND, Payload::Inline(b"send"));
    for id in 2..10 {
        net.post(A, id, write_to(b.remote(u64::from(id))), Payload::Inline(&[id as u8]));
    }
    net.work(A);
    let frames: Vec<_> = net.hosts[A].cable.frames.drain(..).collect();
    (net, frames)
}

#[test]
fn an_rnr_nak_keeps_what_is_behind_it_and_no_other_nak_follows() {
    let (mut net, frames) = not_ready();
    bring(&mut net, &frames, 0..9);
    let told = net.answers(B);
    assert_eq!(told.len(), 1);
    assert!(matches!(told[0].1, Body::Rc(Rc::Ack(Aeth { syndrome: Syndrome::Rnr(_), .. }))));
    assert_eq!(held(&net, B).0, 8);
    // The peer sends all again, and the network reorders that.
    for _ in 0..5 {
        bring(&mut net, &frames, [3, 1, 2, 5, 4, 8, 7, 6]);
        assert_eq!(net.answers(B), [], "no NAK for a gap that is none");
    }
    let b = net.hosts[B].end.clone();
    net.post_recv(B, 20, &[b.sge(100, 8)]);
    bring(&mut net, &frames, [0]);
    assert_eq!(answers(&mut net, &frames), [(8, false)]);
    assert_eq!((held(&net, B), net.hosts[B].counters().naks_sequence), ((0, 0), 0));
}

#[test]
fn a_peer_that_waits_for_a_receive_spends_no_retry_when_packets_are_reordered() {
    let (mut net, frames) = not_ready();
    bring(&mut net, &frames, 0..9);
    for _ in 0..6 {
        net.work(B);
        net.carry(B, |_, _| true);
        net.now = net.hosts[A].engine.poll_timeout().expect("it tries again");
        net.work(A);
        let mut again: Vec<_> = net.hosts[A].cable.frames.drain(..).collect();
        assert_eq!(again.len(), 9);
        again.rotate_left(4);
        again.iter().for_each(|frame| net.deliver(A, frame));
    }
    assert_eq!((net.hosts[B].counters().naks_sequence, net.hosts[A].statuses()), (0, vec![]));
    let b = net.hosts[B].end.clone();
    net.post_recv(B, 20, &[b.sge(100, 8)]);
    net.settle();
    let ends: Vec<_> = (1..10).map(|id| (id, Success)).collect();
    assert_eq!(net.hosts[A].statuses(), ends);
}

#[test]
fn once_the_network_is_known_to_reorder_there_are_no_naks_for_that() {
    let mut net = Net::connected();
    // The late packet comes again after the NAK.
    let frames = write(&mut net, 10);
    bring(&mut net, &frames, [1, 2, 3]);
    assert_eq!(answers(&mut net, &frames), [(0, true)]);
    bring(&mut net, &frames, [0, 0]);
    bring(&mut net, &frames, [5, 6, 7]);
    assert_eq!(answers(&mut net, &frames), [(3, false)]);
    bring(&mut net, &frames, [4, 9, 8]);
    assert_eq!(answers(&mut net, &frames), [(9, false)]);
    assert_eq!(net.hosts[B].counters().naks_sequence, 1);
    net.settle();
    assert_eq!(net.hosts[B].engine.poll_timeout(), None);
}

#[test]
fn a_gap_near_the_end_has_its_nak_after_a_short_time() {
    let mut net = Net::connected();
    let frames = write(&mut net, 10);
    bring(&mut net, &frames, [1, 2, 3]);
    net.work(B);
    bring(&mut net, &frames, [0, 0, 4, 5, 6, 7]);
    net.work(B);
    net.hosts[B].cable.frames.clear();
    bring(&mut net, &frames, [9]);
    assert_eq!(answers(&mut net, &frames), []);
    let at = net.hosts[B].engine.poll_timeout().expect("the NAK is due later");
    assert!(at > net.now && at <= net.now + Duration::from_micros(500));
    net.now = at;
    assert_eq!(answers(&mut net, &frames), [(8, true)]);
    bring(&mut net, &frames, [8]);
    assert_eq!(answers(&mut net, &frames), [(9, false)]);
    assert_eq!((stored(&net), net.hosts[B].engine.poll_timeout()), (10, None));
}

/// B knows that packets may come some packets late. It expects the fifth frame.
fn tolerant(packets: usize) -> (Net, Vec<Frame>) {
    let mut net = Net::connected();
    let frames = write(&mut net, packets);
    bring(&mut net, &frames, [1, 2, 3]);
    assert_eq!(answers(&mut net, &frames), [(0, true)]);
    bring(&mut net, &frames, [0, 0]);
    assert_eq!(answers(&mut net, &frames), [(3, false)]);
    (net, frames)
}

#[test]
fn a_burst_of_lost_packets_has_one_nak() {
    for is_tolerant in [false, true] {
        let (mut net, frames) = match is_tolerant {
            true => tolerant(40),
            false => {
                let mut net = Net::connected();
                let frames = write(&mut net, 40);
                bring(&mut net, &frames, 0..4);
                (net, frames)
            }
        };
        net.work(B);
        net.hosts[B].cable.frames.clear();
        let before = net.hosts[B].counters().naks_sequence;
        bring(&mut net, &frames, 14..40);
        assert_eq!(answers(&mut net, &frames), [(4, true)]);
        // The peer goes back. One packet comes in each turn.
        for at in 4..40 {
            bring(&mut net, &frames, [at]);
            assert!(answers(&mut net, &frames).iter().all(|&(_, is_nak)| !is_nak), "after {at}");
        }
        assert_eq!((stored(&net), held(&net, B)), (40, (0, 0)));
        assert_eq!(net.hosts[B].counters().naks_sequence, before + 1);
    }
}

#[test]
fn a_packet_that_comes_much_too_early_has_one_nak_at_most() {
    for is_tolerant in [false, true] {
        let (mut net, frames) = match is_tolerant {
            true => tolerant(30),
            false => {
                let mut net = Net::connected();
                let frames = write(&mut net, 30);
                bring(&mut net, &frames, 0..4);
                net.work(B);
                net.hosts[B].cable.frames.clear();
                (net, frames)
            }
        };
        let before = net.hosts[B].counters().naks_sequence;
        bring(&mut net, &frames, [24]);
        let told = if is_tolerant { vec![] } else { vec![(4, true)] };
        assert_eq!(answers(&mut net, &frames), told);
        for at in (4..30).filter(|&at| at != 24) {
            bring(&mut net, &frames, [at]);
            assert!(answers(&mut net, &frames).iter().all(|&(_, is_nak)| !is_nak), "after {at}");
        }
        assert_eq!((stored(&net), held(&net, B)), (30, (0, 0)));
        assert_eq!(net.hosts[B].counters().naks_sequence - before, u64::from(!is_tolerant));
    }
}

#[test]
fn a_packet_that_waits_for_a_receive_has_no_nak() {
    let (mut net, _) = tolerant(4);
    net.settle();
    assert_eq!(net.hosts[A].statuses(), [(1, Success)]);
    let b = net.hosts[B].end.clone();
    net.post(A, 2, SEND, Payload::Inline(b"send"));
    net.post(A, 3, write_to(b.remote(0)), Payload::Inline(b"next"));
    net.work(A);
    let later: Vec<_> = net.hosts[A].cable.frames.drain(..).collect();
    bring(&mut net, &later, [1]);
    net.work(B);
    let at = net.hosts[B].engine.poll_timeout().expect("a NAK is due later");
    let Host { engine, log, cable, .. } = &mut net.hosts[B];
    engine.handle_frame(net.now, &later[0], log);
    assert!(engine.has_questions());
    net.now = at;
    engine.poll(at, u64::MAX, log);
    engine.transmit(at, 100, cable, log);
    assert!(engine.has_questions() && engine.poll_timeout().is_none());
    assert_eq!((cable.frames.len(), net.hosts[B].counters().naks_sequence), (0, 1));
    net.post_recv(B, 20, &[b.sge(100, 8)]);
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(2, Success), (3, Success)]);
    assert_eq!((b.memory.bytes(0, 4), b.memory.bytes(100, 4)), (b"next".to_vec(), b"send".to_vec()));
    assert_eq!(net.hosts[B].counters().naks_sequence, 1);
}

#[test]
fn a_nak_that_was_withdrawn_is_made_up_for() {
    let mut net = Net::connected();
    let frames = write(&mut net, 11);
    // All of that is there before B has a turn.
    bring(&mut net, &frames, [0, 3, 1]);
    assert_eq!(answers(&mut net, &frames), [(1, false)], "no NAK has left");
    bring(&mut net, &frames, 4..11);
    assert_eq!(answers(&mut net, &frames), [(2, true)]);
    bring(&mut net, &frames, [2]);
    assert_eq!(answers(&mut net, &frames), [(10, false)]);
    assert_eq!(stored(&net), 11);
}

#[test]
fn a_loss_that_a_probe_heals_does_not_delay_naks() {
    for fills in [true, false] {
        let mut net = Net::connected();
        let frames = write(&mut net, 10);
        let probe = Packet { bth: Bth { ack_req: true, ..parse(&frames[0]).bth }, ..parse(&frames[0]) };
        let probe = frame(&probe, &Packet::parse(&frames[0]).unwrap().payload.to_vec());
        assert_ne!(probe, frames[0]);
        bring(&mut net, &frames, [1]);
        assert_eq!(answers(&mut net, &frames), [(0, true)]);
        let order = if fills { [&probe, &frames[0]] } else { [&frames[0], &probe] };
        order.into_iter().for_each(|frame| net.deliver(A, frame));
        assert_eq!(answers(&mut net, &frames), [(1, false)]);
        bring(&mut net, &frames, [3]);
        assert_eq!(answers(&mut net, &frames), [(2, true)], "at once");
    }
}

#[test]
fn who_executes_nothing_repeats_no_acknowledge() {
    let mut net = Net::connected();
    let mut frames = write(&mut net, EXECUTED + 1);
    net.post(A, 2, SEND, Payload::Inline(b"send"));
    net.work(A);
    frames.extend(net.hosts[A].cable.frames.drain(..));
    assert_eq!(frames.len(), EXECUTED + 2);
    bring(&mut net, &frames, 1..EXECUTED + 2);
    assert_eq!(answers(&mut net, &frames), [(0, true)]);
    bring(&mut net, &frames, [0]);
    let Host { engine, log, cable, .. } = &mut net.hosts[B];
    // The SEND has no receive so far. It is alone in the second turn.
    (0..4).for_each(|_| _ = engine.transmit(net.now, 1000, cable, log));
    assert!(engine.has_questions());
    assert_eq!(net.hosts[B].cable.frames.len(), 1);
}
