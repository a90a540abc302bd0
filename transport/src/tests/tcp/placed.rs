//! FPDUs that come beyond a hole: which are placed, and that each is delivered in its turn.

use super::*;
use vrdma_wire::iwarp::Cause;
use vrdma_wire::iwarp::num::{Msn, Stag};
use vrdma_wire::iwarp::rdmap::{Part, Tagged};

fn fpdu(segment: Segment, payload: &[u8]) -> Vec<u8> {
    let fpdu = Fpdu { framing: PLAIN, place: Place::START, segment: Some(segment) };
    let mut bytes = vec![0; fpdu.len(payload.len())];
    write_fpdu(&fpdu, &Pieces::<Mem>::bytes(payload), &mut bytes).unwrap();
    bytes
}

fn write(stag: u32, addr: u64, payload: &[u8]) -> Vec<u8> {
    fpdu(Segment::Write(Tagged { stag: Stag(stag), offset: addr, last: true }), payload)
}

fn response(stag: u32, offset: u64, last: bool, payload: &[u8]) -> Vec<u8> {
    fpdu(Segment::ReadResponse(Tagged { stag: Stag(stag), offset, last }), payload)
}

fn send(msn: u32, invalidate: Option<u32>, payload: &[u8]) -> Vec<u8> {
    let part = Part { msn: Msn(msn), offset: 0, last: true };
    fpdu(Segment::Send { part, solicited: false, invalidate: invalidate.map(Stag) }, payload)
}

impl Net {
    fn place(&mut self, at: usize, bytes: &[u8]) -> Option<PlacedFpdu> {
        let Host { engine, end, .. } = &mut self.hosts[at];
        let placed = engine.place_fpdu(end.device, end.qpn, bytes);
        assert!(placed.as_ref().is_none_or(|placed| placed.len() == bytes.len()));
        save::replace_at_times(engine);
        placed
    }

    fn deliver(&mut self, at: usize, placed: &PlacedFpdu) -> bool {
        let Host { engine, end, log, .. } = &mut self.hosts[at];
        engine.handle_placed(end.device, end.qpn, placed, log).unwrap()
    }

    /// What the host told its peer last, and that the connection is over.
    fn terminated(&mut self, at: usize) -> vrdma_wire::iwarp::Code {
        self.work(at);
        assert_eq!(self.hosts[at].state(), QpState::Err);
        match self.hosts[at].segments().pop() {
            Some(Segment::Terminate(_, terminate)) => terminate.code,
            other => panic!("no TERMINATE: {other:?}"),
        }
    }
}

#[test]
fn what_a_write_carries_is_there_at_once_and_completions_come_in_their_turn() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    net.post_recv(B, 1, &[b.sge(1000, 100)]);
    net.post_recv(B, 2, &[b.sge(2000, 100)]);
    let placed = net.place(B, &write(b.key, IOVA, b"beyond the hole")).unwrap();
    assert_eq!(b.memory.bytes(0, 15), b"beyond the hole");
    assert!(net.hosts[B].statuses().is_empty());
    net.offer(B, &send(1, None, b"in the hole"));
    assert_eq!(net.hosts[B].statuses(), [(1, WcStatus::Success)]);
    // Nobody writes what was placed a second time.
    b.memory.fill(0, &[0; 15]);
    assert!(net.deliver(B, &placed));
    net.offer(B, &send(2, None, b"behind"));
    assert_eq!(net.hosts[B].statuses(), [(2, WcStatus::Success)]);
    assert_eq!(b.memory.bytes(0, 15), [0; 15]);
    let counters = net.hosts[B].counters();
    assert_eq!((counters.fpdus_in, counters.fpdus_placed, counters.stream_faults), (3, 1, 0));
}

/// Two READs of A, which B has not answered.
fn reading() -> (Net, End, [u32; 2]) {
    let mut net = Net::greeted();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 4), a.sge(100, 4)]));
    net.post(A, 2, write_to(b.remote(0)), Payload::Inline(b"between"));
    let add = SendOp::FetchAdd { remote: b.remote(0), add: 1 };
    net.post(A, 3, add, Payload::Sges(&[a.sge(200, 8)]));
    net.post(A, 4, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(300, 8)]));
    net.work(A);
    let sinks: Vec<u32> = net.hosts[A]
        .segments()
        .iter()
        .filter_map(|segment| match segment {
            Segment::ReadRequest(_, request) => Some(request.sink.0),
            _ => None,
        })
        .collect();
    (net, a, sinks.try_into().unwrap())
}

#[test]
fn what_a_read_returns_is_placed_whichever_read_it_is_and_reads_end_in_order() {
    let (mut net, a, [first, second]) = reading();
    let later = net.place(A, &response(second, 0, true, b"later...")).unwrap();
    assert_eq!(a.memory.bytes(300, 8), b"later...");
    let half = net.place(A, &response(first, 2, true, b"345678")).unwrap();
    assert_eq!((a.memory.bytes(0, 4), a.memory.bytes(100, 4)), (b"\0\x0034".to_vec(), b"5678".to_vec()));
    assert!(net.hosts[A].statuses().is_empty());
    net.offer(A, &response(first, 0, false, b"12"));
    assert!(net.deliver(A, &half));
    assert_eq!(a.memory.bytes(0, 4), b"1234");
    assert_eq!(net.hosts[A].statuses(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    // What it asked for has ended: nothing more is placed there.
    assert_eq!(net.place(A, &response(first, 0, false, b"xx")), None);
    let original = vrdma_wire::iwarp::request::AtomicResponse { id: first + 1, original: 7 };
    net.offer(A, &fpdu(Segment::AtomicResponse(Msn::FIRST, original), b""));
    assert_eq!(net.hosts[A].statuses(), [(3, WcStatus::Success)]);
    assert!(net.deliver(A, &later));
    assert_eq!(net.hosts[A].statuses(), [(4, WcStatus::Success)]);
}

#[test]
fn what_a_read_did_not_ask_for_is_not_placed() {
    let (mut net, a, [first, second]) = reading();
    let before = a.memory.bytes(0, 1000);
    let wrong = [
        response(second, 4, true, b"too long"),
        response(second, u64::MAX - 7, true, b"wraps..."),
        // That of the atomic, of a READ that was never sent, and of one long ago.
        response(first + 1, 0, true, b"atomic.."),
        response(second + 1, 0, true, b"nobody.."),
        response(first.wrapping_sub(1), 0, true, b"nobody.."),
        response(second, 0, true, b""),
    ];
    for bytes in wrong {
        assert_eq!(net.place(A, &bytes), None);
    }
    assert_eq!(a.memory.bytes(0, 1000), before);
}

#[test]
fn a_response_that_was_placed_and_is_not_next_ends_the_connection_in_its_turn() {
    let (mut net, _, [_, second]) = reading();
    let placed = net.place(A, &response(second, 0, true, b"too soon")).unwrap();
    assert!(net.deliver(A, &placed));
    assert_eq!(net.terminated(A), Cause::TaggedInvalidStag.code());
    assert_eq!(net.hosts[A].statuses()[0], (1, WcStatus::BadResp));
}

#[test]
fn what_is_not_one_right_fpdu_of_a_write_that_may_be_is_not_placed() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    net.post_recv(B, 1, &[b.sge(0, 100)]);
    let right = write(b.key, IOVA, b"12345678");
    let changed = |at: usize| {
        let mut bytes = right.clone();
        bytes[at] ^= 1;
        bytes
    };
    let wrong = [
        right[..right.len() - 4].to_vec(),
        [&right[..], &[0; 4]].concat(),
        [&right[..], &right[..]].concat(),
        right[4..].to_vec(),
        // The payload, the length, the CRC.
        changed(20),
        changed(1),
        changed(right.len() - 1),
        Vec::new(),
        vec![0],
        write(b.key, IOVA, b""),
        write(b.key ^ 1, IOVA, b"key"),
        write(b.key, IOVA - 1, b"before"),
        write(b.key, IOVA + MEMORY as u64 - 1, b"beyond"),
        write(b.key, u64::MAX, b"."),
        send(1, None, b"a receive is its"),
        response(1, 0, true, b"nobody asked"),
    ];
    for (n, bytes) in wrong.iter().enumerate() {
        assert_eq!(net.place(B, bytes), None, "{n}");
    }
    assert_eq!(b.memory.bytes(0, 100), [0; 100]);
    // It is that QP's, and none before: nothing ended it.
    assert_eq!(net.hosts[B].state(), QpState::Rts);
    assert!(net.place(B, &right).is_some());
}

#[test]
fn nothing_is_placed_for_a_qp_that_may_not_or_is_over() {
    let mut net = Net::new(Access::REMOTE_READ);
    net.connect(&attr(Role::Initiator), &attr(Role::Responder));
    let b = net.hosts[B].end.clone();
    assert_eq!(net.place(B, &write(b.key, IOVA, b"right")), None);

    let with = |stream: &mut StreamAttr| stream.framing_in.markers = true;
    let mut net = Net::connected_with(|_| {}, with);
    assert_eq!(net.place(B, &write(b.key, IOVA, b"markers")), None);

    let mut net = Net::connected();
    let placed = net.place(B, &write(b.key, IOVA, b"first")).unwrap();
    let Host { engine, end, .. } = &mut net.hosts[B];
    engine.set_suspended(end.device, true);
    assert_eq!(net.place(B, &write(b.key, IOVA, b"pause")), None);
    assert!(!net.deliver(B, &placed), "a guest that stands still is told nothing");
    let Host { engine, end, .. } = &mut net.hosts[B];
    engine.set_suspended(end.device, false);
    assert!(net.deliver(B, &placed));
    let placed = net.place(B, &write(b.key, IOVA, b"again")).unwrap();
    net.offer(B, &write(0, IOVA, b"ends it"));
    assert_eq!(net.terminated(B), Cause::TaggedInvalidStag.code());
    assert_eq!(net.place(B, &write(b.key, IOVA, b"over!")), None);
    assert!(net.deliver(B, &placed), "what comes after the end is nobody's");
    let b = net.hosts[B].end.clone();
    assert_eq!(b.memory.bytes(0, 5), b"again");
}

#[test]
fn a_key_that_is_invalidated_in_the_hole_ends_the_connection_in_the_turn_of_who_used_it() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    let Host { engine, .. } = &mut net.hosts[B];
    let rights = OF_REGION | Access::MW_BIND;
    let lkey = Lkey(engine.reg_mr(b.device, b.pd, rights, IOVA, 8192, b.memory.clone()).unwrap());
    let rkey = engine.alloc_mw(b.device, b.pd, MwType::Type2B).unwrap();
    let key = Rkey(rkey.0 ^ 0x81);
    let bind = Bind { rkey, new_rkey: key, lkey, access: Access::REMOTE_WRITE, addr: IOVA, length: 4096 };
    net.post_recv(B, 1, &[]);
    net.offer(B, &write(b.key, IOVA + 5000, b"it may send"));
    net.post(B, 2, SendOp::BindMw(bind), Payload::Sges(&[]));
    net.work(B);
    assert_eq!(net.hosts[B].statuses(), [(2, WcStatus::Success)]);

    let used = write(key.0, IOVA, b"before");
    let placed = net.place(B, &used).unwrap();
    net.offer(B, &send(1, Some(key.0), b""));
    assert_eq!(net.hosts[B].statuses(), [(1, WcStatus::Success)]);
    // Whoever has the key no more has the memory alone.
    b.memory.fill(0, b"own...");
    assert_eq!(net.place(B, &used), None);
    assert!(net.deliver(B, &placed));
    // The window is there still, and has no bytes.
    assert_eq!(net.terminated(B), Cause::TaggedBounds.code());
    assert_eq!(b.memory.bytes(0, 6), b"own...");
}

#[test]
fn nothing_is_placed_in_a_region_that_is_gone() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    let bytes = write(b.key, IOVA, b"early");
    let placed = net.place(B, &bytes).unwrap();
    let Host { engine, .. } = &mut net.hosts[B];
    engine.dereg_mr(b.device, b.key).unwrap();
    b.memory.fill(0, b"own..");
    assert_eq!(net.place(B, &bytes), None);
    assert!(net.deliver(B, &placed));
    assert_eq!(net.terminated(B), Cause::TaggedInvalidStag.code());
    assert_eq!(b.memory.bytes(0, 5), b"own..");
}

#[test]
fn what_was_placed_waits_behind_a_message_without_a_receive() {
    let mut net = Net::connected();
    net.looks = false;
    let b = net.hosts[B].end.clone();
    let placed = net.place(B, &write(b.key, IOVA, b"placed")).unwrap();
    net.offer(B, &send(1, None, b"waits"));
    assert!(!net.deliver(B, &placed));
    net.post_recv(B, 1, &[b.sge(1000, 100)]);
    let Host { engine, log, .. } = &mut net.hosts[B];
    assert!(answer_all(engine, net.now, log));
    assert_eq!(net.hosts[B].statuses(), [(1, WcStatus::Success)]);
    assert!(net.deliver(B, &placed));
    assert_eq!(net.hosts[B].state(), QpState::Rts);
}

#[test]
fn who_lies_about_where_fpdus_begin_is_told_so() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    net.offer(B, &write(b.key, IOVA, b"it may send"));
    let placed = net.place(B, &write(b.key, IOVA, b"placed")).unwrap();
    let long = write(b.key, IOVA + 100, &[1; 400]);
    // It seems to go on where the other began.
    net.offer(B, &long[..200]);
    assert!(net.deliver(B, &placed));
    assert_eq!(net.terminated(B), Cause::MpaMarker.code());
    assert_eq!(net.hosts[B].counters().stream_faults, 1);
    assert_eq!(b.memory.bytes(100, 400), [0; 400]);
}
