//! How connections end.

use super::*;
use vrdma_wire::iwarp::{Cause, Code};

/// Returns the code of the TERMINATE that a host sent last, if it did.
fn told(host: &mut Host) -> Option<Code> {
    match host.segments().pop() {
        Some(Segment::Terminate(_, terminate)) => Some(terminate.code),
        _ => None,
    }
}

#[test]
fn a_send_without_a_receive_ends_the_connection() {
    let mut net = Net::greeted();
    let a = net.hosts[A].end.clone();
    net.post(A, 1, SEND, Payload::Sges(&[a.sge(0, 5)]));
    net.post_recv(A, 2, &[]);
    net.run();
    assert_eq!(told(&mut net.hosts[B]), Some(Cause::UntaggedNoBuffer.code()));
    assert_eq!([A, B].map(|at| net.hosts[at].state()), [QpState::Err; 2]);
    assert_eq!(net.hosts[B].away.end, Some(StreamEnd::Close), "behind the TERMINATE");
    assert_eq!(net.hosts[B].events(), [Event::QpFatal(net.hosts[B].end.qpn)]);
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success), (2, WcStatus::Flush)]);
    assert_eq!(net.hosts[A].events(), [Event::QpFatal(a.qpn)]);
    let [a, b] = [A, B].map(|at| net.hosts[at].counters().clone());
    assert_eq!((b.no_receive_ends, b.terminates_out, a.terminates_in), (1, 1, 1));
}

#[test]
fn a_send_that_is_too_long_ends_its_receive_and_the_connection() {
    let mut net = Net::greeted();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post_recv(B, 7, &[b.sge(0, 4)]);
    net.post_recv(B, 8, &[b.sge(0, 4)]);
    net.post(A, 1, SEND, Payload::Sges(&[a.sge(0, 5)]));
    net.run();
    assert_eq!(net.hosts[B].statuses(), [(7, WcStatus::LocLen), (8, WcStatus::Flush)]);
    assert_eq!(net.hosts[B].events(), [], "a completion says it");
    assert_eq!(told(&mut net.hosts[B]), Some(Cause::UntaggedTooLong.code()));
}

/// Returns wrong remote addresses, each with the TERMINATE's cause for a WRITE and for a READ.
fn places(b: &End) -> [(Remote, Cause, Cause); 3] {
    let beyond = b.remote(MEMORY as u64 - 99);
    let stranger = Remote { rkey: Rkey(b.key ^ 0xff), ..b.remote(0) };
    let before = Remote { addr: IOVA - 1, ..b.remote(0) };
    [
        (beyond, Cause::TaggedBounds, Cause::RdmapBounds),
        (stranger, Cause::TaggedInvalidStag, Cause::RdmapInvalidStag),
        (before, Cause::TaggedBounds, Cause::RdmapBounds),
    ]
}

#[test]
fn the_peer_says_what_was_wrong_with_a_place() {
    for which in 0..3 {
        let mut net = Net::greeted();
        let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
        let (remote, of_write, of_read) = places(&b)[which];
        net.post(A, 1, write_to(remote), Payload::Sges(&[a.sge(0, 100)]));
        net.run();
        assert_eq!(told(&mut net.hosts[B]), Some(of_write.code()), "{which}");
        assert_eq!(net.hosts[B].events(), [Event::QpAccessError(b.qpn)]);
        // The request had completed before.
        assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)]);

        let mut net = Net::greeted();
        let a = net.hosts[A].end.clone();
        let (remote, ..) = places(&net.hosts[B].end)[which];
        net.post(A, 1, SendOp::Read { remote }, Payload::Sges(&[a.sge(0, 100)]));
        net.post(A, 2, SendOp::Read { remote }, Payload::Sges(&[a.sge(0, 100)]));
        net.run();
        assert_eq!(told(&mut net.hosts[B]), Some(of_read.code()), "{which}");
        assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::RemAccess), (2, WcStatus::Flush)]);
        assert_eq!(net.hosts[A].events(), []);

        let mut net = Net::greeted();
        let a = net.hosts[A].end.clone();
        let (Remote { addr, rkey }, ..) = places(&net.hosts[B].end)[which];
        // The last 8 bytes are within the region.
        let remote = Remote { addr: if which == 0 { addr | 0xff } else { addr }, rkey };
        let add = SendOp::atomic(remote, Atomic::FetchAdd { add: 1 });
        net.post(A, 1, add, Payload::Sges(&[a.sge(0, 8)]));
        net.run();
        assert_eq!(told(&mut net.hosts[B]), Some(of_read.code()), "{which}");
        assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::RemAccess)]);
    }
}

#[test]
fn what_a_qp_does_not_allow_is_refused() {
    let mut net = Net::new(Access::NONE);
    net.connect(&attr(Role::Initiator), &attr(Role::Responder));
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 100)]));
    net.run();
    assert_eq!(told(&mut net.hosts[B]), Some(Cause::RdmapAccess.code()));
    assert_eq!(net.hosts[B].events(), [Event::QpRequestError(b.qpn)]);
}

#[test]
fn a_region_that_goes_while_it_is_read_ends_the_connection() {
    let mut net = Net::greeted();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 50_000)]));
    net.work(A);
    let bytes = std::mem::take(&mut net.hosts[A].away.bytes);
    net.offer(B, &bytes);
    let Host { engine, log, away, .. } = &mut net.hosts[B];
    engine.transmit(net.now, 3, away, log);
    engine.dereg_mr(b.device, b.key).unwrap();
    net.run();
    assert_eq!(told(&mut net.hosts[B]), Some(Cause::RdmapInvalidStag.code()));
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::RemAccess)]);
}

#[test]
fn a_request_that_is_wrong_here_ends_the_connection_behind_those_before_it() {
    let mut net = Net::greeted();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 50_000)]));
    let nowhere = Sge { lkey: Lkey(a.key ^ 1), ..a.sge(0, 8) };
    net.post(A, 2, write_to(b.remote(0)), Payload::Sges(&[nowhere]));
    net.post(A, 3, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 8)]));
    net.run();
    let ends = [(1, WcStatus::Success), (2, WcStatus::LocProt), (3, WcStatus::Flush)];
    assert_eq!(net.hosts[A].statuses(), ends);
    assert_eq!(told(&mut net.hosts[A]), Some(Cause::RdmapCatastrophic.code()));
    assert_eq!(net.hosts[B].state(), QpState::Err);
}

#[test]
fn an_end_that_goes_to_err_aborts_its_stream() {
    let mut net = Net::greeted();
    let a = net.hosts[A].end.clone();
    net.post_recv(A, 1, &[]);
    let Host { engine, log, .. } = &mut net.hosts[A];
    let err = QpAttr { state: QpState::Err, ..QpAttr::default() };
    engine.modify_qp(net.now, a.device, a.qpn, AttrMask::STATE, &err, log).unwrap();
    net.run();
    assert_eq!(net.hosts[A].away.end, Some(StreamEnd::Abort));
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Flush)]);
    assert_eq!(net.hosts[A].segments(), []);
    // Data that arrives afterwards is dropped.
    net.offer(A, &[1, 2, 3]);
    assert!(net.hosts[A].offered.is_empty());
}

#[test]
fn a_program_that_leaves_lets_what_has_begun_end() {
    let mut net = Net::greeted();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 20_000)]));
    net.post(B, 2, write_to(a.remote(0)), Payload::Sges(&[b.sge(0, 8)]));
    net.work(A);
    net.hosts[A].engine.finish_stream(a.device, a.qpn).unwrap();
    net.post(A, 3, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 8)]));
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success), (3, WcStatus::Flush)]);
    assert_eq!(net.hosts[A].away.end, Some(StreamEnd::Close));
    assert_eq!((net.hosts[A].state(), net.hosts[A].events()), (QpState::Err, vec![]));
    assert_eq!((net.hosts[B].state(), net.hosts[B].statuses()), (QpState::Rts, vec![(2, WcStatus::Success)]));
    let Host { engine, log, .. } = &mut net.hosts[B];
    engine.lose_stream(b.device, b.qpn, true, log).unwrap();
    net.run();
    assert_eq!((net.hosts[B].state(), net.hosts[B].events()), (QpState::Err, vec![]));
    assert_eq!(net.hosts[B].away.end, None, "it is over: nobody ends it again");
}

#[test]
fn a_stream_that_breaks_is_told_of() {
    for (orderly, pending, fatal) in
        [(true, false, false), (false, false, true), (true, true, true), (false, true, true)]
    {
        let mut net = Net::greeted();
        let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
        if pending {
            net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 8)]));
            net.work(A);
        }
        let Host { engine, log, .. } = &mut net.hosts[A];
        engine.lose_stream(a.device, a.qpn, orderly, log).unwrap();
        assert_eq!(net.hosts[A].state(), QpState::Err);
        let events: Vec<_> = fatal.then_some(Event::QpFatal(a.qpn)).into_iter().collect();
        assert_eq!(net.hosts[A].events(), events, "{orderly} {pending}");
        let flushed: Vec<_> = pending.then_some((1, WcStatus::Flush)).into_iter().collect();
        assert_eq!(net.hosts[A].statuses(), flushed);
        net.run();
        assert_eq!(net.hosts[A].away.end, None);
    }
}

#[test]
fn a_qp_that_was_reset_can_be_connected_again() {
    let mut net = Net::greeted();
    for at in [A, B] {
        let Host { engine, end, log, .. } = &mut net.hosts[at];
        let stream = attr(if at == A { Role::Initiator } else { Role::Responder });
        assert_eq!(engine.connect_stream(end.device, end.qpn, &stream), Err(Error::Invalid));
        let reset = QpAttr { state: QpState::Reset, ..QpAttr::default() };
        engine.modify_qp(net.now, end.device, end.qpn, AttrMask::STATE, &reset, log).unwrap();
        assert_eq!(engine.handle_stream(end.device, end.qpn, &[1], log), Err(Error::Invalid));
        assert_eq!(engine.connect_stream(end.device, end.qpn, &stream), Err(Error::Invalid));
        let init = QpAttr { state: QpState::Init, access: Access::QP, port: 1, ..QpAttr::default() };
        engine.modify_qp(net.now, end.device, end.qpn, TO_INIT, &init, log).unwrap();
        for bad in [StreamAttr { mss: 255, ..stream }, StreamAttr { ird: 17, ..stream }] {
            assert_eq!(engine.connect_stream(end.device, end.qpn, &bad), Err(Error::Invalid));
        }
        engine.connect_stream(end.device, end.qpn, &stream).unwrap();
    }
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 8)]));
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)]);
}

#[test]
fn what_a_stream_was_connected_with_does_not_change() {
    let mut net = Net::greeted();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    let attr =
        |state| QpAttr { state, dgid: b.gid, max_rd_atomic: 1, max_dest_rd_atomic: 1, ..QpAttr::default() };
    let Host { engine, log, .. } = &mut net.hosts[A];
    let mut modify = |mask, state| engine.modify_qp(net.now, a.device, a.qpn, mask, &attr(state), log);
    modify(AttrMask::STATE, QpState::Sqd).unwrap();
    for mask in [AttrMask::AV, AttrMask::MAX_RD_ATOMIC, AttrMask::MAX_DEST_RD_ATOMIC] {
        assert_eq!(modify(mask, QpState::Sqd), Err(Error::Invalid), "{mask:?}");
    }
    modify(AttrMask::STATE, QpState::Rts).unwrap();
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 8)]));
    net.run();
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success)]);
}
