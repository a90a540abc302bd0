//! How connections are set up.

use super::*;
use vrdma_wire::iwarp::{Cause, Fault};

const WISHES: Wishes =
    Wishes { markers: false, crc: true, enhanced: true, peer_to_peer: false, ird: 4, ord: 8 };

/// Negotiates the parameters of both ends, with bytes that arrive one by one.
fn meet(a: Wishes, b: Wishes) -> Result<[Agreed; 2], SetUpError> {
    let (mut initiator, request) = Initiator::new(a, b"may I");
    let mut responder = Responder::default();
    let mut came = None;
    for (index, byte) in request.iter().enumerate() {
        let (taken, found) = responder.handle(std::slice::from_ref(byte))?;
        assert_eq!((taken, found.is_some()), (1, index + 1 == request.len()));
        came = found;
    }
    let came = came.unwrap();
    assert_eq!(came.private_data, b"may I");
    let (of_b, mut reply) = came.accept(&b, b"you may")?;
    let length = reply.len();
    reply.extend_from_slice(b"the first FPDU");
    let (taken, found) = initiator.handle(&reply)?;
    let (of_a, private_data) = found.unwrap();
    assert_eq!((taken, private_data.as_slice()), (length, b"you may".as_slice()));
    Ok([of_a, of_b])
}

#[test]
fn crcs_are_used_if_either_wants_them_and_markers_where_the_receiver_does() {
    for bits in 0..16 {
        let has = |bit: i32| bits >> bit & 1 == 1;
        let a = Wishes { markers: has(0), crc: has(1), ..WISHES };
        let b = Wishes { markers: has(2), crc: has(3), ..WISHES };
        let crc = a.crc || b.crc;
        let [of_a, of_b] = meet(a, b).unwrap();
        assert_eq!(of_a.framing_in, Framing { markers: a.markers, crc }, "{bits}");
        assert_eq!(of_a.framing_out, Framing { markers: b.markers, crc }, "{bits}");
        assert_eq!((of_a.framing_in, of_a.framing_out), (of_b.framing_out, of_b.framing_in));
    }
}

#[test]
fn no_more_reads_are_outstanding_than_the_other_answers() {
    for (ird_a, ord_a, ird_b, ord_b) in [(4, 8, 4, 8), (0, 0, 16, 16), (16, 1, 2, 16), (200, 255, 255, 255)] {
        for peer_to_peer in [false, true] {
            let a = Wishes { ird: ird_a, ord: ord_a, peer_to_peer, ..WISHES };
            let b = Wishes { ird: ird_b, ord: ord_b, ..WISHES };
            let [of_a, of_b] = meet(a, b).unwrap();
            assert!(of_a.ord <= of_b.ird && of_b.ord <= of_a.ird, "{of_a:?} {of_b:?}");
            assert!(of_a.ord <= ord_a && of_b.ord <= ord_b && of_a.ird <= ird_a && of_b.ird <= ird_b);
            assert_eq!(of_a.ord, ord_a.min(ird_b));
            assert_eq!(of_a.ready, of_b.ready);
            assert_eq!(of_a.ready.is_some(), peer_to_peer);
        }
    }
}

#[test]
fn without_the_enhanced_set_up_each_takes_its_own_word() {
    let [of_a, of_b] = meet(Wishes { enhanced: false, ..WISHES }, WISHES).unwrap();
    assert_eq!((of_a.ird, of_a.ord, of_b.ird, of_b.ord, of_a.ready), (4, 8, 4, 8, None));
}

#[test]
fn a_refusal_comes_with_private_data() {
    let (mut initiator, request) = Initiator::new(WISHES, b"");
    let (_, came) = Responder::default().handle(&request).unwrap();
    let reply = came.unwrap().reject(b"not today");
    assert_eq!(initiator.handle(&reply), Err(SetUpError::Rejected(b"not today".to_vec())));
}

#[test]
fn nonsense_is_refused() {
    let (mut initiator, request) = Initiator::new(WISHES, b"");
    assert_eq!(initiator.handle(&request), Err(SetUpError::Unexpected), "its own request");
    let (_, came) = Responder::default().handle(&request).unwrap();
    let (_, reply) = came.unwrap().accept(&WISHES, b"").unwrap();
    assert_eq!(Responder::default().handle(&reply), Err(SetUpError::Unexpected));
    let malformed = Err(SetUpError::Malformed(Fault::Key));
    assert_eq!(Responder::default().handle(b"GET / HTTP/1.1"), malformed);
    // A reply of the other revision.
    let (mut initiator, _) = Initiator::new(Wishes { enhanced: false, ..WISHES }, b"");
    assert_eq!(initiator.handle(&reply), Err(SetUpError::Unexpected));
    // A reply that asks for more READs than this end answers.
    let (_, request) = Initiator::new(WISHES, b"");
    let (_, came) = Responder::default().handle(&request).unwrap();
    let (_, reply) = came.unwrap().accept(&WISHES, b"").unwrap();
    let (mut smaller, _) = Initiator::new(Wishes { ird: 1, ..WISHES }, b"");
    assert_eq!(smaller.handle(&reply), Err(SetUpError::Disagreed(Cause::MpaInsufficientIrd)));
}

#[test]
fn the_longest_private_data_fits() {
    let data = vec![7; MAX_PROGRAM_DATA];
    let (_, request) = Initiator::new(Wishes { peer_to_peer: true, ..WISHES }, &data);
    let (taken, came) = Responder::default().handle(&request).unwrap();
    assert_eq!(taken, request.len());
    let came = came.unwrap();
    assert_eq!(came.private_data, data);
    let (_, reply) = came.accept(&WISHES, &data).unwrap();
    assert_eq!(reply.len(), request.len());
}

#[test]
fn the_responder_sends_nothing_before_the_initiator_has() {
    let mut net = Net::connected();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post(B, 1, write_to(a.remote(0)), Payload::Sges(&[b.sge(0, 8)]));
    net.run();
    assert_eq!((net.hosts[B].statuses(), net.hosts[B].segments()), (vec![], vec![]));
    net.post(A, 2, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 8)]));
    net.run();
    assert_eq!(net.hosts[B].statuses(), [(1, WcStatus::Success)]);
}

/// Lets time pass, and does what is due then.
fn after(net: &mut Net, milliseconds: u64) {
    net.now = net.now + Duration::from_millis(milliseconds);
    net.run();
}

#[test]
fn a_responder_sends_when_an_initiator_was_silent_for_long() {
    let mut net = Net::connected();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post_recv(A, 1, &[a.sge(0, 8)]);
    // The deadline does not depend on the connection's age.
    after(&mut net, 10_000);
    net.post(B, 2, SEND, Payload::Sges(&[b.sge(0, 8)]));
    after(&mut net, 0);
    after(&mut net, 499);
    assert_eq!((net.hosts[B].statuses(), net.hosts[B].segments()), (vec![], vec![]));
    after(&mut net, 1);
    assert_eq!(net.hosts[B].statuses(), [(2, WcStatus::Success)]);
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)]);
    assert_eq!(net.hosts[B].engine.poll_timeout(), None);
}

#[test]
fn a_responder_waits_for_an_initiator_that_promised_to_send() {
    let mut net = Net::new(Access::QP);
    net.connect(
        &attr(Role::Initiator),
        &StreamAttr { ready: Some(ReadyToReceive::Write), ..attr(Role::Responder) },
    );
    let b = net.hosts[B].end.clone();
    net.post(B, 1, SEND, Payload::Sges(&[b.sge(0, 8)]));
    after(&mut net, 0);
    after(&mut net, 60_000);
    assert_eq!((net.hosts[B].statuses(), net.hosts[B].segments()), (vec![], vec![]));
}

#[test]
fn a_responder_that_fails_in_silence_has_no_deadline() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    net.post(B, 1, SEND, Payload::Sges(&[b.sge(0, 8)]));
    after(&mut net, 0);
    let Host { engine, end, log, .. } = &mut net.hosts[B];
    assert!(engine.poll_timeout().is_some());
    engine.lose_stream(end.device, end.qpn, true, log).unwrap();
    after(&mut net, 60_000);
    assert_eq!(net.hosts[B].statuses(), [(1, WcStatus::Flush)]);
    assert_eq!((net.hosts[B].segments(), net.hosts[B].engine.poll_timeout()), (vec![], None));
}

#[test]
fn an_initiator_that_is_to_send_by_itself_waits_a_little() {
    let with = |role| StreamAttr { ready: Some(ReadyToReceive::Write), ..attr(role) };
    for has_request in [false, true] {
        let mut net = Net::new(Access::QP);
        net.connect(&with(Role::Initiator), &with(Role::Responder));
        let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
        if has_request {
            net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 8)]));
        }
        after(&mut net, 0);
        after(&mut net, 19);
        assert_eq!(net.hosts[A].segments(), []);
        after(&mut net, 1);
        assert_eq!(net.hosts[A].segments().len(), 1 + usize::from(has_request));
    }
}

#[test]
fn between_peers_the_initiator_sends_something_by_itself() {
    for ready in [ReadyToReceive::Fpdu, ReadyToReceive::Write, ReadyToReceive::Read] {
        // Rights are for programs. The agreed message needs none.
        let mut net = Net::new(Access::NONE);
        let with = |role| StreamAttr { ready: Some(ready), ..attr(role) };
        net.connect(&with(Role::Initiator), &with(Role::Responder));
        let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
        net.post_recv(A, 1, &[a.sge(0, 8)]);
        net.post(B, 2, SEND, Payload::Sges(&[b.sge(0, 8)]));
        after(&mut net, 0);
        after(&mut net, 20);
        assert_eq!(net.hosts[B].statuses(), [(2, WcStatus::Success)], "{ready:?}");
        assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)], "{ready:?}");
        net.post_recv(B, 3, &[b.sge(0, 8)]);
        net.post(A, 4, SEND, Payload::Sges(&[a.sge(0, 8)]));
        net.run();
        assert_eq!(net.hosts[A].statuses(), [(4, WcStatus::Success)], "{ready:?}");
        assert_eq!([A, B].map(|at| net.hosts[at].state()), [QpState::Rts; 2]);
    }
}

#[test]
fn a_read_behind_the_one_that_was_agreed_is_answered() {
    let mut net = Net::new(Access::QP);
    let with = |role| StreamAttr { ready: Some(ReadyToReceive::Read), ..attr(role) };
    net.connect(&with(Role::Initiator), &with(Role::Responder));
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    b.memory.fill(0, b"read");
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 4)]));
    net.post(A, 2, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[]));
    after(&mut net, 0);
    after(&mut net, 20);
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!(a.memory.bytes(0, 4), b"read");
}

#[test]
fn the_read_that_was_agreed_is_one_of_those_that_the_peer_keeps() {
    let mut net = Net::new(Access::QP);
    let with = |role| StreamAttr { ready: Some(ReadyToReceive::Read), ord: 1, ird: 1, ..attr(role) };
    net.connect(&with(Role::Initiator), &with(Role::Responder));
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 4)]));
    // The agreed READ is sent alone, and the program's READ after its answer.
    for milliseconds in [0, 20] {
        net.now = net.now + Duration::from_millis(milliseconds);
        net.work(A);
    }
    assert_eq!(net.hosts[A].segments().len(), 1);
    net.run();
    assert_eq!(net.hosts[A].segments().len(), 1);
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)]);
    assert_eq!([A, B].map(|at| net.hosts[at].state()), [QpState::Rts; 2]);
}

#[test]
fn whoever_has_it_all_takes_no_more() {
    let (mut initiator, request) = Initiator::new(WISHES, &[]);
    let mut responder = Responder::default();
    let mut more = request.clone();
    more.extend_from_slice(b"too early");
    let (taken, came) = responder.handle(&more).unwrap();
    assert_eq!(taken, request.len());
    let (_, reply) = came.unwrap().accept(&WISHES, &[]).unwrap();
    assert_eq!(responder.handle(&more[taken..]), Err(SetUpError::Unexpected));
    assert!(initiator.handle(&reply).unwrap().1.is_some());
    assert_eq!(initiator.handle(b"x"), Err(SetUpError::Unexpected));
}
