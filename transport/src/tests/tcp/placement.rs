//! FPDUs that arrive after a gap: which are placed out of order, and that each is delivered in
//! order.
//!
//! Shows: placed.

use super::*;
use vrdma_wire::iwarp::Cause;
use vrdma_wire::iwarp::num::{Msn, Stag};
use vrdma_wire::iwarp::rdmap::{SendPart, Tagged};

fn fpdu(segment: Segment, payload: &[u8]) -> Vec<u8> {
    let fpdu = Fpdu { framing: PLAIN, place: StreamOffset::START, segment: Some(segment) };
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
    let part = SendPart { msn: Msn(msn), offset: 0, last: true };
    fpdu(Segment::Send { part, solicited: false, invalidate: invalidate.map(Stag) }, payload)
}

/// Builds a part of a SEND.
fn part(msn: u32, offset: u32, last: bool, payload: &[u8]) -> Vec<u8> {
    let part = SendPart { msn: Msn(msn), offset, last };
    fpdu(Segment::Send { part, solicited: false, invalidate: None }, payload)
}

fn immediate(msn: u32) -> Vec<u8> {
    fpdu(Segment::Immediate { msn: Msn(msn), solicited: false, data: [7; 8] }, b"")
}

impl Net {
    fn early(&mut self, at: usize, bytes: &[u8]) -> EarlyFpdu {
        let Host { engine, end, log, .. } = &mut self.hosts[at];
        let early = engine.place_fpdu(end.device, end.qpn, bytes, log);
        save::replace_at_times(engine);
        early
    }

    /// Places an FPDU out of order. Returns `None` if the bytes have to be kept.
    fn place(&mut self, at: usize, bytes: &[u8]) -> Option<PlacedFpdu> {
        match self.early(at, bytes) {
            EarlyFpdu::Placed(placed) => {
                assert_eq!(placed.len(), bytes.len());
                Some(placed)
            }
            EarlyFpdu::Keep => None,
            EarlyFpdu::NoReceive => panic!("no receive"),
        }
    }

    fn deliver(&mut self, at: usize, placed: &PlacedFpdu) -> bool {
        let Host { engine, end, log, .. } = &mut self.hosts[at];
        engine.handle_placed(end.device, end.qpn, placed, log).unwrap()
    }

    /// Asserts that the connection is over, and returns the code of the host's TERMINATE.
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
    let placed = net.place(B, &write(b.key, IOVA, b"beyond the gap")).unwrap();
    assert_eq!(b.memory.bytes(0, 14), b"beyond the gap");
    assert!(net.hosts[B].statuses().is_empty());
    net.offer(B, &send(1, None, b"in the gap"));
    assert_eq!(net.hosts[B].statuses(), [(1, WcStatus::Success)]);
    // Placed payload is not written a second time.
    b.memory.fill(0, &[0; 14]);
    assert!(net.deliver(B, &placed));
    net.offer(B, &send(2, None, b"behind"));
    assert_eq!(net.hosts[B].statuses(), [(2, WcStatus::Success)]);
    assert_eq!(b.memory.bytes(0, 14), [0; 14]);
    let counters = net.hosts[B].counters();
    assert_eq!((counters.fpdus_in, counters.fpdus_placed, counters.stream_faults), (3, 1, 0));
}

/// Posts two READs of A, which B has not answered.
fn reading() -> (Net, End, [u32; 2]) {
    let mut net = Net::greeted();
    let [a, b] = [A, B].map(|at| net.hosts[at].end.clone());
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 4), a.sge(100, 4)]));
    net.post(A, 2, write_to(b.remote(0)), Payload::Inline(b"between"));
    let add = SendOp::atomic(b.remote(0), Atomic::FetchAdd { add: 1 });
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
    // The READ has completed, so nothing more is placed there.
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
        // Responses to the atomic, to a READ that was never sent, and to one that completed long
        // ago.
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
        // A changed byte in the payload, the length, and the CRC.
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
        response(1, 0, true, b"nobody asked"),
    ];
    for (n, bytes) in wrong.iter().enumerate() {
        assert_eq!(net.place(B, bytes), None, "{n}");
    }
    assert_eq!(b.memory.bytes(0, 100), [0; 100]);
    // None of the FPDUs before ended the connection, and the QP accepts the right one.
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
    // After the key is invalid, the memory belongs to its owner alone.
    b.memory.fill(0, b"own...");
    assert_eq!(net.place(B, &used), None);
    assert!(net.deliver(B, &placed));
    // The window still exists, and has no bytes.
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
    // The segment appears to continue where the other FPDU began.
    net.offer(B, &long[..200]);
    assert!(net.deliver(B, &placed));
    assert_eq!(net.terminated(B), Cause::MpaMarker.code());
    assert_eq!(net.hosts[B].counters().stream_faults, 1);
    assert_eq!(b.memory.bytes(100, 400), [0; 400]);
}

#[test]
fn what_sends_carry_is_in_their_receives_at_once_and_they_end_in_order_once() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    net.post_recv(B, 1, &[b.sge(0, 10)]);
    net.post_recv(B, 2, &[b.sge(100, 3), b.sge(200, 10)]);
    net.post_recv(B, 3, &[]);
    net.post_recv(B, 4, &[b.sge(300, 10)]);
    let fourth = net.place(B, &send(4, None, b"fourth")).unwrap();
    let middle = net.place(B, &part(2, 2, false, b"cde")).unwrap();
    let end = net.place(B, &part(2, 5, true, b"fg")).unwrap();
    let end_of_first = net.place(B, &part(1, 3, true, b"st")).unwrap();
    assert_eq!(b.memory.bytes(300, 6), b"fourth");
    assert_eq!((b.memory.bytes(100, 3), b.memory.bytes(200, 4)), (b"\0\0c".to_vec(), b"defg".to_vec()));
    assert_eq!(b.memory.bytes(0, 5), b"\0\0\0st");
    assert!(net.hosts[B].statuses().is_empty());
    // Placed payload is not written a second time.
    for (at, length) in [(300, 6), (102, 1), (200, 4), (3, 2)] {
        b.memory.fill(at, &vec![b'!'; length]);
    }
    net.offer(B, &part(1, 0, false, b"fir"));
    // A part of the message in progress goes to its receive as well.
    assert!(net.deliver(B, &end_of_first));
    net.offer(B, &part(2, 0, false, b"ab"));
    assert!(net.deliver(B, &middle) && net.deliver(B, &end));
    net.offer(B, &immediate(3));
    assert!(net.deliver(B, &fourth));
    let ended: Vec<_> =
        net.hosts[B].log.completions.drain(..).map(|(_, _, c)| (c.id, c.status, c.byte_len)).collect();
    let success = |id, length| (id, WcStatus::Success, length);
    assert_eq!(ended, [success(1, 5), success(2, 7), success(3, 0), success(4, 6)]);
    assert_eq!(b.memory.bytes(0, 5), b"fir!!");
    assert_eq!((b.memory.bytes(100, 3), b.memory.bytes(200, 4)), (b"ab!".to_vec(), b"!!!!".to_vec()));
    let counters = net.hosts[B].counters();
    assert_eq!((counters.fpdus_in, counters.fpdus_placed, counters.receives), (7, 4, 4));
}

#[test]
fn an_early_message_without_a_receive_is_neither_placed_nor_kept_and_in_order_it_ends_the_connection() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    net.post_recv(B, 1, &[b.sge(0, 10)]);
    let second = send(2, None, b"second");
    for bytes in
        [&second, &immediate(2), &send(2, None, b""), &send(u32::MAX, None, b"far"), &send(0, None, b"old")]
    {
        assert_eq!(net.early(B, bytes), EarlyFpdu::NoReceive);
    }
    assert_eq!(net.hosts[B].counters().fpdus_too_early, 5);
    net.offer(B, &send(1, None, b"first"));
    assert_eq!(net.hosts[B].statuses(), [(1, WcStatus::Success)]);
    assert_eq!(net.early(B, &second), EarlyFpdu::NoReceive);
    net.post_recv(B, 2, &[b.sge(100, 10)]);
    let placed = net.place(B, &second).unwrap();
    assert!(net.deliver(B, &placed));
    assert_eq!(net.hosts[B].statuses(), [(2, WcStatus::Success)]);
    assert_eq!(b.memory.bytes(100, 6), b"second");
    assert_eq!(net.early(B, &send(3, None, b"third")), EarlyFpdu::NoReceive);
    net.offer(B, &send(3, None, b"third"));
    assert_eq!(net.terminated(B), Cause::UntaggedNoBuffer.code());
}

#[test]
fn a_send_that_does_not_fit_its_receive_is_not_placed_and_ends_the_connection_in_its_turn() {
    let wrong = |b: &End| {
        [
            (send(1, None, b"longer"), Cause::UntaggedTooLong),
            (part(1, 3, true, b"345"), Cause::UntaggedOffset),
            (part(1, u32::MAX, true, b"wraps"), Cause::UntaggedOffset),
            // A receive element without a valid key.
            (send(2, None, b"no key"), Cause::UntaggedMsn),
            (send(2, Some(b.key), b"no key"), Cause::UntaggedMsn),
        ]
    };
    for n in 0..5 {
        let mut net = Net::connected();
        let b = net.hosts[B].end.clone();
        net.post_recv(B, 1, &[b.sge(0, 5)]);
        net.post_recv(B, 2, &[b.sge(0, 5), Sge { lkey: Lkey(b.key ^ 1), ..b.sge(0, 5) }]);
        let (bytes, cause) = &wrong(&b)[n];
        assert_eq!(net.place(B, bytes), None);
        assert_eq!(b.memory.bytes(0, 100), [0; 100]);
        net.offer(B, bytes);
        assert_eq!(net.terminated(B), cause.code(), "{n}");
    }
}

#[test]
fn a_send_that_was_placed_with_a_wrong_number_place_or_key_ends_the_connection_in_its_turn() {
    let cases = [
        (send(2, None, b"skips"), Cause::UntaggedMsn),
        (part(1, 2, true, b"gap"), Cause::UntaggedOffset),
        (send(1, Some(0), b"key"), Cause::RdmapProtectedInvalidate),
    ];
    for (bytes, cause) in cases {
        let mut net = Net::connected();
        let b = net.hosts[B].end.clone();
        net.post_recv(B, 1, &[b.sge(0, 10)]);
        net.post_recv(B, 2, &[b.sge(100, 10)]);
        let placed = net.place(B, &bytes).unwrap();
        assert!(net.deliver(B, &placed));
        assert_eq!(net.terminated(B), cause.code());
        let statuses = net.hosts[B].statuses();
        assert_eq!(statuses.len(), 2);
        assert!(statuses.iter().all(|(_, status)| *status != WcStatus::Success), "{statuses:?}");
    }
}

#[test]
fn receives_with_parts_that_were_placed_are_flushed_as_others_are() {
    let mut net = Net::connected();
    let b = net.hosts[B].end.clone();
    net.post_recv(B, 1, &[b.sge(0, 10)]);
    net.post_recv(B, 2, &[b.sge(100, 10)]);
    let placed = net.place(B, &send(2, None, b"second")).unwrap();
    let Host { engine, log, .. } = &mut net.hosts[B];
    engine.lose_stream(b.device, b.qpn, false, log).unwrap();
    net.work(B);
    assert_eq!(net.hosts[B].statuses(), [(1, WcStatus::Flush), (2, WcStatus::Flush)]);
    assert_eq!(net.place(B, &send(1, None, b"late")), None);
    assert!(net.deliver(B, &placed), "what comes after the end is nobody's");
    assert!(net.hosts[B].statuses().is_empty());
}

#[test]
fn a_send_whose_memory_goes_before_its_turn_ends_as_it_would_have_in_order() {
    for early in [true, false] {
        let mut net = Net::connected();
        let b = net.hosts[B].end.clone();
        let Host { engine, .. } = &mut net.hosts[B];
        let key = engine.reg_mr(b.device, b.pd, OF_REGION, IOVA, 100, b.memory.clone()).unwrap();
        net.post_recv(B, 1, &[Sge { lkey: Lkey(key), ..b.sge(0, 10) }]);
        let bytes = send(1, None, b"early");
        let placed = early.then(|| net.place(B, &bytes).unwrap());
        net.hosts[B].engine.dereg_mr(b.device, key).unwrap();
        match placed {
            Some(placed) => assert!(net.deliver(B, &placed)),
            None => net.offer(B, &bytes),
        }
        assert_eq!(net.terminated(B), Cause::RdmapStreamCatastrophic.code());
        assert_eq!(net.hosts[B].statuses(), [(1, WcStatus::LocProt)]);
    }
}

#[test]
fn only_so_many_receives_are_looked_at_for_a_send() {
    let mut net = Net::new(Access::QP);
    let Host { engine, end, log, .. } = &mut net.hosts[B];
    end.qpn = engine.create_qp(end.device, QpInit { max_recv_wr: 1100, ..qp_init(end.pd) }).unwrap();
    let init = QpAttr { state: QpState::Init, access: Access::QP, port: 1, ..QpAttr::default() };
    engine.modify_qp(Instant(0), end.device, end.qpn, TO_INIT, &init, log).unwrap();
    net.connect(&attr(Role::Initiator), &attr(Role::Responder));
    let b = net.hosts[B].end.clone();
    for id in 0..1100 {
        net.post_recv(B, id, &[b.sge(u64::from(id), 1)]);
    }
    assert!(net.place(B, &send(1024, None, b"1")).is_some());
    assert_eq!(net.place(B, &send(1025, None, b"1")), None);
    assert_eq!(net.early(B, &send(1101, None, b"1")), EarlyFpdu::NoReceive);
    assert_eq!(b.memory.bytes(1022, 4), [0, b'1', 0, 0]);
}

/// Creates B's QP with an SRQ of `receives` receives of 10 bytes each.
///
/// The receive with id n is at offset 100 n. The limit is armed below 1.
fn sharing(receives: u32) -> (Net, End, SrqId) {
    let mut net = Net::new(Access::QP);
    let Host { engine, end, log, .. } = &mut net.hosts[B];
    let init = SrqInit { owner: OWNER, pd: end.pd, max_wr: 100, max_sge: 1, xrc: None };
    let srq = engine.create_srq(end.device, init).unwrap();
    let shared = QpInit { receives: Receives::Shared(srq), max_recv_wr: 0, ..qp_init(end.pd) };
    end.qpn = engine.create_qp(end.device, shared).unwrap();
    let init = QpAttr { state: QpState::Init, access: Access::QP, port: 1, ..QpAttr::default() };
    engine.modify_qp(Instant(0), end.device, end.qpn, TO_INIT, &init, log).unwrap();
    for id in 1..=receives {
        let sges = [end.sge(u64::from(id) * 100, 10)];
        engine.post_srq_recv(end.device, OWNER, srq, RecvRequest { id, sges: &sges }, log).unwrap();
    }
    net.connect(&attr(Role::Initiator), &attr(Role::Responder));
    let b = net.hosts[B].end.clone();
    (net, b, srq)
}

#[test]
fn a_send_beyond_a_hole_claims_all_that_are_missing_of_a_shared_queue() {
    let (mut net, b, srq) = sharing(3);
    assert_eq!(net.early(B, &send(4, None, b"fourth")), EarlyFpdu::NoReceive);
    let third = net.place(B, &send(3, None, b"third")).unwrap();
    assert_eq!(b.memory.bytes(300, 5), b"third");
    let first = net.place(B, &part(1, 2, true, b"cd")).unwrap();
    net.offer(B, &part(1, 0, false, b"ab"));
    assert!(net.deliver(B, &first));
    assert_eq!(b.memory.bytes(100, 4), b"abcd");
    // Further receives come after those that are claimed.
    let Host { engine, end, log, .. } = &mut net.hosts[B];
    let sges = [end.sge(400, 10)];
    engine.post_srq_recv(end.device, OWNER, srq, RecvRequest { id: 4, sges: &sges }, log).unwrap();
    let fourth = net.place(B, &send(4, None, b"fourth")).unwrap();
    net.offer(B, &send(2, None, b"second"));
    assert!(net.deliver(B, &third) && net.deliver(B, &fourth));
    let success = |id| (id, WcStatus::Success);
    assert_eq!(net.hosts[B].statuses(), [1, 2, 3, 4].map(success));
    assert_eq!((b.memory.bytes(200, 6), b.memory.bytes(400, 6)), (b"second".to_vec(), b"fourth".to_vec()));
}

#[test]
fn no_more_than_so_many_receives_of_a_shared_queue_are_claimed() {
    let (mut net, b, _) = sharing(70);
    assert_eq!(net.place(B, &send(65, None, b"far")), None);
    assert!(net.place(B, &send(64, None, b"last")).is_some());
    assert_eq!(b.memory.bytes(6400, 4), b"last");
    // Claimed receives complete with the QP. The remaining ones stay available.
    let Host { engine, log, .. } = &mut net.hosts[B];
    engine.lose_stream(b.device, b.qpn, false, log).unwrap();
    net.work(B);
    let statuses = net.hosts[B].statuses();
    assert_eq!(statuses.len(), 64);
    assert!((1..).zip(&statuses).all(|(n, status)| *status == (n, WcStatus::Flush)), "{statuses:?}");
}

#[test]
fn receives_that_were_claimed_are_the_shared_queues_again_once_the_qp_is_reset() {
    let (mut net, b, srq) = sharing(3);
    let Host { engine, log, .. } = &mut net.hosts[B];
    engine.modify_srq(b.device, srq, (None, Some(2)), log).unwrap();
    assert!(net.place(B, &send(2, None, b"second")).is_some());
    assert_eq!(net.hosts[B].events(), [Event::SrqLimitReached(srq)]);
    let Host { engine, log, .. } = &mut net.hosts[B];
    let reset = QpAttr { state: QpState::Reset, ..QpAttr::default() };
    engine.modify_qp(Instant(0), b.device, b.qpn, AttrMask::STATE, &reset, log).unwrap();
    let init = QpAttr { state: QpState::Init, access: Access::QP, port: 1, ..QpAttr::default() };
    engine.modify_qp(Instant(0), b.device, b.qpn, TO_INIT, &init, log).unwrap();
    engine.connect_stream(b.device, b.qpn, &attr(Role::Responder)).unwrap();
    for msn in 1..=3 {
        net.offer(B, &send(msn, None, b"again"));
    }
    assert_eq!(net.hosts[B].statuses(), [1, 2, 3].map(|id| (id, WcStatus::Success)));
}
