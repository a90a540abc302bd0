//! Two QPs of one engine with a loopback connection.
//!
//! Payload goes from memory to memory, and nothing else changes.

use super::*;
use crate::agenda::rate::RateLimit;
use crate::agenda::rates::RateLimits;
use core::num::NonZeroU64;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::VecDeque;

/// A part of a stream in flight.
#[derive(Debug)]
enum Part {
    Bytes(Vec<u8>),
    Placed(PlacedFpdu),
}

/// The streams of both QPs, by the number of the sending device.
#[derive(Default)]
struct Between {
    ways: [VecDeque<Part>; 2],
    ends: [Option<StreamEnd>; 2],
    /// Whether FPDUs with placed payload are accepted.
    places: bool,
}

impl Outlet for Between {
    fn has_room(&mut self) -> bool {
        true
    }
}

impl PacketOutlet<Mem> for Between {
    fn send(&mut self, packet: &vrdma_wire::roce::Packet, _: &Pieces<'_, Mem>) -> Result<(), Fault> {
        panic!("a packet: {packet:?}");
    }
}

impl StreamOutlet<Mem> for Between {
    fn stream_has_room(&mut self, _: DeviceId, _: Qpn) -> bool {
        true
    }

    fn send_fpdu(
        &mut self,
        device: DeviceId,
        _: Qpn,
        fpdu: &Fpdu,
        payload: &Pieces<'_, Mem>,
    ) -> Result<(), Fault> {
        let mut buffer = vec![0; fpdu.len(payload.len())];
        write_fpdu(fpdu, payload, &mut buffer)?;
        self.ways[device.0 as usize].push_back(Part::Bytes(buffer));
        Ok(())
    }

    fn takes_placed(&mut self, _: DeviceId, _: Qpn) -> bool {
        self.places
    }

    fn send_placed(&mut self, device: DeviceId, _: Qpn, placed: PlacedFpdu) {
        self.ways[device.0 as usize].push_back(Part::Placed(placed));
    }

    fn end_stream(&mut self, device: DeviceId, _: Qpn, end: StreamEnd) {
        self.ends[device.0 as usize] = Some(end);
    }
}

struct Both {
    engine: Engine<Mem>,
    ends: [End; 2],
    log: Log,
    between: Between,
}

const LONG: u32 = 5000;

impl Both {
    /// Creates a loopback connection on which both QPs have sent something.
    fn new() -> Both {
        let mut engine = Engine::new(1);
        engine.set_link(true);
        let mut log = Log::default();
        let ends = [1, 2].map(|number| {
            let device = engine.add_device(Limits { max_qp: 1 << 10, ..Limits::default() });
            let gid = Gid::from_ipv4([10, 0, 0, number]);
            engine.set_gid(device, 0, Some(gid.into())).unwrap();
            let pd = engine.alloc_pd(device, OWNER).unwrap();
            let memory = Mem::new(MEMORY);
            let key = engine.reg_mr(device, pd, OF_REGION, IOVA, MEMORY as u64, memory.clone()).unwrap();
            let qpn = engine.create_qp(device, QpInit { max_send_wr: 64, ..qp_init(pd) }).unwrap();
            End { device, pd, qpn, gid, memory, key }
        });
        let between = Between { places: true, ..Between::default() };
        let mut both = Both { engine, ends, log: std::mem::take(&mut log), between };
        both.connect(A, Role::Initiator);
        both.connect(B, Role::Responder);
        both.join();
        for from in [A, B] {
            both.write(from, 0, 10);
            both.run();
        }
        assert_eq!(both.statuses(), [(0, WcStatus::Success); 2]);
        both
    }

    /// Changes a QP's state from RESET to RTS.
    fn connect(&mut self, at: usize, role: Role) {
        let Both { engine, ends, log, .. } = self;
        let End { device, qpn, .. } = ends[at];
        let init = QpAttr { state: QpState::Init, access: Access::QP, port: 1, ..QpAttr::default() };
        engine.modify_qp(Instant(0), device, qpn, TO_INIT, &init, log).unwrap();
        // The last of three FPDUs is short.
        let attr = StreamAttr { mss: 32 << 10, ..attr(role) };
        engine.connect_stream(device, qpn, &attr).unwrap();
    }

    fn reset(&mut self, at: usize) {
        let Both { engine, ends, log, .. } = self;
        let attr = QpAttr { state: QpState::Reset, ..QpAttr::default() };
        engine.modify_qp(Instant(0), ends[at].device, ends[at].qpn, AttrMask::STATE, &attr, log).unwrap();
    }

    fn join(&mut self) {
        let [a, b] = [A, B].map(|at| (self.ends[at].device, self.ends[at].qpn));
        self.engine.connect_loopback(a, b).unwrap();
    }

    fn post(&mut self, from: usize, id: u32, op: SendOp, length: u32) {
        let Both { engine, ends, log, .. } = self;
        let end = &ends[from];
        let payload = Payload::Sges(&[end.sge(0, length)]);
        let request = SendRequest { id, signaled: true, solicited: false, fence: false, op, payload };
        engine.post_send(Instant(0), end.device, OWNER, end.qpn, &request, log).unwrap();
    }

    /// Posts a receive of a long message's length, to the same memory as WRITEs.
    fn post_recv(&mut self, at: usize, id: u32) {
        let Both { engine, ends, log, .. } = self;
        let end = &ends[at];
        let sges = [end.sge(100_000, LONG)];
        let request = RecvRequest { id, sges: &sges };
        engine.post_recv(Instant(0), end.device, OWNER, end.qpn, request, log).unwrap();
    }

    /// Posts a WRITE to the peer's memory after the part from which the peer sends.
    fn write(&mut self, from: usize, id: u32, length: u32) {
        let remote = self.ends[1 - from].remote(100_000);
        self.post(from, id, write_to(remote), length);
    }

    fn transmit(&mut self) {
        let Both { engine, log, between, .. } = self;
        engine.poll(Instant(0), u64::MAX, log);
        while engine.transmit(Instant(0), 7, between, log) {}
    }

    /// Delivers all parts in flight from this QP.
    fn deliver(&mut self, from: usize) {
        self.deliver_some(from, usize::MAX);
    }

    fn deliver_some(&mut self, from: usize, parts: usize) {
        let Both { engine, ends, log, between } = self;
        let to = &ends[1 - from];
        for _ in 0..parts {
            let Some(part) = between.ways[from].pop_front() else { break };
            let all = match &part {
                Part::Bytes(bytes) => {
                    engine.handle_stream(to.device, to.qpn, bytes, log).unwrap() == bytes.len()
                }
                Part::Placed(placed) => engine.handle_placed(to.device, to.qpn, placed, log).unwrap(),
            };
            answer_all(engine, Instant(0), log);
            if !all {
                return between.ways[from].push_front(part);
            }
        }
    }

    fn run(&mut self) {
        for _ in 0..10 {
            self.transmit();
            self.deliver(A);
            self.deliver(B);
        }
    }

    fn statuses(&mut self) -> Vec<(u32, WcStatus)> {
        self.log.completions.drain(..).map(|(_, _, c)| (c.id, c.status)).collect()
    }

    fn state(&self, at: usize) -> QpState {
        self.engine.query_qp(self.ends[at].device, self.ends[at].qpn).unwrap().state
    }

    fn fill(&mut self, at: usize, bytes: &[u8]) {
        self.ends[at].memory.write(0, bytes).unwrap();
    }

    /// Returns the bytes that the peer has written.
    fn written(&self, at: usize, length: u32) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.ends[at].memory.read(100_000, &mut bytes).unwrap();
        bytes
    }

    /// Returns for each part in flight from A whether it was placed.
    fn placed(&self) -> Vec<bool> {
        self.between.ways[A].iter().map(|part| matches!(part, Part::Placed(_))).collect()
    }
}

#[test]
fn what_a_long_write_carries_goes_at_once_and_the_rest_in_its_turn() {
    let mut both = Both::new();
    let data = pattern(66_000, 1);
    both.fill(A, &data);
    both.write(A, 1, 66_000);
    both.transmit();
    assert_eq!((both.statuses(), both.placed()), (vec![(1, WcStatus::Success)], vec![true; 3]));
    assert!(both.written(B, 66_000) == data);
    let fpdus_in = |both: &Both| both.engine.counters(both.ends[B].device).fpdus_in;
    let before = fpdus_in(&both);
    both.run();
    assert_eq!(fpdus_in(&both), before + 3);
    // Short messages carry their payload in the stream. So does a message that is sent after them,
    // before they were taken.
    for (id, length) in [(2, 100), (3, LONG)] {
        both.write(A, id, length);
    }
    both.transmit();
    assert_eq!(both.placed(), [false, false]);
    both.run();
    both.write(A, 4, LONG);
    both.transmit();
    assert_eq!(both.placed(), [true]);
    both.run();
    assert_eq!([both.state(A), both.state(B)], [QpState::Rts; 2]);
}

#[test]
fn a_peer_that_has_a_rate_gets_nothing_but_what_it_takes_out_of_the_stream() {
    let mut both = Both::new();
    let data = pattern(LONG as usize, 9);
    both.fill(A, &data);
    let limit = RateLimit {
        bytes: NonZeroU64::new(1_000_000),
        messages: None,
        burst: core::time::Duration::from_millis(10),
    };
    let limits = RateLimits { tx: RateLimit::default(), rx: limit };
    let device = both.ends[B].device;
    both.engine.set_rates(Instant(0), device, &limits).unwrap();
    for id in 1..=20 {
        both.write(A, id, LONG);
    }
    both.run();
    // What B has not taken is still in the stream: a TCP has no room then.
    assert!(both.placed().len() > 15 && both.placed().iter().all(|placed| !placed), "{:?}", both.placed());
    assert!(both.engine.rate_counters(device).rx_held > 0);
    both.engine.set_rates(Instant(0), device, &RateLimits::default()).unwrap();
    both.run();
    assert!(both.written(B, LONG) == data && both.placed().is_empty());
    both.write(A, 21, LONG);
    both.transmit();
    assert_eq!(both.placed(), [true], "without a rate, payload goes at once");
}

#[test]
fn sends_and_what_reads_return_go_at_once_too() {
    let mut both = Both::new();
    let data = pattern(LONG as usize, 5);
    both.fill(A, &data);
    // Without a receive, the message carries its payload in the stream.
    both.post(A, 1, SEND, LONG);
    both.transmit();
    assert_eq!(both.placed(), [false]);
    both.post_recv(B, 1);
    both.run();
    for id in 2..4 {
        both.post_recv(B, id);
        both.post(A, id, SEND, LONG);
    }
    both.statuses();
    both.ends[B].memory.write(100_000, &[0; LONG as usize]).unwrap();
    both.transmit();
    assert_eq!((both.placed(), both.written(B, LONG) == data), (vec![true; 2], true));
    // Neither message has arrived.
    assert_eq!(both.statuses(), [(2, WcStatus::Success), (3, WcStatus::Success)]);
    both.run();
    assert_eq!(both.statuses(), [(2, WcStatus::Success), (3, WcStatus::Success)]);
    // A receive that is too short does not count.
    both.post_recv(B, 4);
    both.post(A, 4, SEND, LONG + 1);
    both.transmit();
    assert_eq!(both.placed(), [false]);
    let mut both = Both::new();
    both.fill(B, &data);
    both.post(A, 1, SendOp::Read { remote: both.ends[B].remote(0) }, LONG);
    both.transmit();
    both.deliver(A);
    both.transmit();
    assert!(matches!(both.between.ways[B].front(), Some(Part::Placed(_))));
    let mut read = vec![0; LONG as usize];
    both.ends[A].memory.read(0, &mut read).unwrap();
    assert!(read == data && both.statuses().is_empty());
    both.run();
    assert_eq!(both.statuses(), [(1, WcStatus::Success)]);
    assert_eq!([both.state(A), both.state(B)], [QpState::Rts; 2]);
}

#[test]
fn nothing_is_placed_ahead_of_what_comes_before_it() {
    let mut both = Both::new();
    both.fill(A, &pattern(LONG as usize, 2));
    both.post(A, 1, SEND, 8);
    both.write(A, 2, LONG);
    both.transmit();
    assert_eq!((both.placed(), both.written(B, LONG)[8]), (vec![false, false], 0));
    // The SEND has arrived, has no receive and waits for an answer. Nothing passes it.
    let Some(Part::Bytes(send)) = both.between.ways[A].pop_front() else { panic!("a SEND") };
    let to = (both.ends[B].device, both.ends[B].qpn);
    both.engine.handle_stream(to.0, to.1, &send, &mut both.log).unwrap();
    both.between.ways[A].clear();
    both.write(A, 3, LONG);
    both.transmit();
    assert_eq!(both.placed(), [false]);
}

#[test]
fn a_peer_that_may_not_be_written_to_gets_bytes() {
    let mut both = Both::new();
    let length = LONG;
    both.fill(A, &pattern(length as usize, 3));
    // The peer is suspended.
    both.engine.set_suspended(both.ends[B].device, true);
    both.write(A, 1, length);
    both.transmit();
    assert_eq!(both.placed(), [false]);
    both.engine.set_suspended(both.ends[B].device, false);
    both.run();
    assert!(both.written(B, length) == pattern(length as usize, 3));
    // The outlet accepts no placed FPDUs.
    both.between.places = false;
    both.write(A, 2, length);
    both.transmit();
    assert_eq!(both.placed(), [false]);
    both.run();
    both.between.places = true;
    // A wrong key ends the connection, as it does in a stream.
    let remote = Remote { rkey: vrdma_wire::num::Rkey(both.ends[B].key ^ 1), ..both.ends[B].remote(0) };
    both.post(A, 3, write_to(remote), length);
    both.transmit();
    assert_eq!(both.placed(), [false]);
    both.run();
    assert_eq!([both.state(A), both.state(B)], [QpState::Err; 2]);
    assert_eq!(both.engine.counters(both.ends[B].device).terminates_out, 1);
}

#[test]
fn a_key_that_goes_before_the_turn_of_what_was_placed_ends_the_connection() {
    let mut both = Both::new();
    both.write(A, 1, LONG);
    both.transmit();
    assert_eq!(both.placed(), [true]);
    let End { device, key, .. } = both.ends[B];
    both.engine.dereg_mr(device, key).unwrap();
    both.run();
    assert_eq!([both.state(A), both.state(B)], [QpState::Err; 2]);
}

#[test]
fn a_qp_that_has_another_stream_now_is_not_reached() {
    let mut both = Both::new();
    both.fill(A, &pattern(LONG as usize, 4));
    both.reset(B);
    both.write(A, 1, LONG);
    both.transmit();
    assert_eq!((both.placed(), both.written(B, LONG)[8]), (vec![false], 0));
    both.between.ways[A].clear();
    // The QP gets a new connection to another peer.
    both.connect(B, Role::Responder);
    both.write(A, 2, LONG);
    both.transmit();
    assert_eq!((both.placed(), both.written(B, LONG)[8]), (vec![false], 0));
    // A QP of a removed device is not reached either.
    both.between.ways[A].clear();
    both.engine.remove_device(both.ends[B].device);
    both.write(A, 3, LONG);
    both.transmit();
    assert_eq!(both.placed(), [false]);
}

#[test]
fn only_streams_of_two_devices_are_joined() {
    let mut both = Both::new();
    let [a, b] = [A, B].map(|at| (both.ends[at].device, both.ends[at].qpn));
    assert_eq!(both.engine.connect_loopback(a, a), Err(Error::Invalid));
    both.reset(B);
    assert_eq!(both.engine.connect_loopback(a, b), Err(Error::Invalid));
    // Data that one side still sends reaches nobody.
    both.write(A, 1, LONG);
    both.transmit();
    assert_eq!(both.placed(), [false]);
}

#[test]
fn memory_that_is_gone_is_blamed_on_whose_it_is() {
    for at in [A, B] {
        let mut both = Both::new();
        both.ends[at].memory.vanish();
        both.write(A, 1, LONG);
        both.transmit();
        assert!(both.placed().iter().all(|placed| !placed));
        let sent = if at == A { WcStatus::LocProt } else { WcStatus::Success };
        assert_eq!(both.statuses(), [(1, sent)]);
        both.run();
        assert_eq!([both.state(A), both.state(B)], [QpState::Err; 2]);
        let terminates = [A, B].map(|at| both.engine.counters(both.ends[at].device).terminates_out);
        assert_eq!(terminates[at], 1);
    }
}

/// An action of a guest, or of the connection between them.
#[derive(Clone, Debug)]
enum Step {
    Write {
        from: usize,
        length: u32,
        to: u64,
        imm: bool,
        wrong: bool,
    },
    Send {
        from: usize,
        length: u32,
        invalidates: bool,
    },
    Read {
        from: usize,
        length: u32,
        to: u64,
    },
    Receive {
        at: usize,
        length: u32,
    },
    /// Changes the data to send.
    Fill {
        at: usize,
        salt: usize,
    },
    Suspend {
        at: usize,
        suspended: bool,
    },
    Transmit,
    Deliver {
        from: usize,
        parts: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let side = || A..=B;
    let length = || prop_oneof![0..100u32, 2040..2060u32, 3000..9000u32, 30_000..80_000u32];
    let place = || 100_000..200_000u64;
    let rarely = || prop::bool::weighted(0.02);
    let write = (side(), length(), place(), prop::bool::weighted(0.2), rarely());
    let read = (side(), length(), place());
    prop_oneof![
        4 => write.prop_map(|(from, length, to, imm, wrong)| Step::Write { from, length, to, imm, wrong }),
        4 => (side(), length(), rarely())
            .prop_map(|(from, length, invalidates)| Step::Send { from, length, invalidates }),
        2 => read.prop_map(|(from, length, to)| Step::Read { from, length, to }),
        6 => (side(), prop_oneof![9 => Just(100_000u32), 1 => length()])
            .prop_map(|(at, length)| Step::Receive { at, length }),
        1 => (side(), 0..250usize).prop_map(|(at, salt)| Step::Fill { at, salt }),
        1 => (side(), any::<bool>()).prop_map(|(at, suspended)| Step::Suspend { at, suspended }),
        6 => Just(Step::Transmit),
        6 => (side(), 1..8usize).prop_map(|(from, parts)| Step::Deliver { from, parts }),
    ]
}

impl Both {
    /// Takes a step. `id` is the number of the request that it posts.
    fn take(&mut self, step: &Step, id: u32) {
        match *step {
            Step::Write { from, length, to, imm, wrong } => {
                let Remote { addr, rkey } = self.ends[1 - from].remote(to);
                let rkey = if wrong { vrdma_wire::num::Rkey(rkey.0 ^ 1) } else { rkey };
                let imm = imm.then(|| vrdma_wire::num::Imm::from_bytes([1, 2, 3, 4]));
                self.try_post(from, id, (SendOp::Write { remote: Remote { addr, rkey }, imm }, 0, length));
            }
            Step::Send { from, length, invalidates } => {
                let key = vrdma_wire::num::Rkey(self.ends[1 - from].key);
                let op = if invalidates { SendOp::SendInvalidate { key } } else { SEND };
                self.try_post(from, id, (op, 0, length));
            }
            Step::Read { from, length, to } => {
                let op = SendOp::Read { remote: self.ends[1 - from].remote(0) };
                self.try_post(from, id, (op, to, length));
            }
            Step::Receive { at, length } => {
                let Both { engine, ends, log, .. } = self;
                let end = &ends[at];
                let half = length / 2;
                let sges = [end.sge(200_000, half), end.sge(300_000, length - half)];
                let _ = engine.post_recv(
                    Instant(0),
                    end.device,
                    OWNER,
                    end.qpn,
                    RecvRequest { id, sges: &sges },
                    log,
                );
            }
            Step::Fill { at, salt } => self.fill(at, &pattern(100_000, salt)),
            Step::Suspend { at, suspended } => {
                self.engine.set_suspended(self.ends[at].device, suspended);
            }
            Step::Transmit => self.transmit(),
            Step::Deliver { from, parts } => self.deliver_some(from, parts),
        }
    }

    /// Posts a request, if there is room.
    fn try_post(&mut self, from: usize, id: u32, (op, at, length): (SendOp, u64, u32)) {
        let Both { engine, ends, log, .. } = self;
        let end = &ends[from];
        let sges = [end.sge(at, length)];
        let request = SendRequest {
            id,
            signaled: true,
            solicited: false,
            fence: false,
            op,
            payload: Payload::Sges(&sges),
        };
        let _ = engine.post_send(Instant(0), end.device, OWNER, end.qpn, &request, log);
    }

    /// Returns all observable results except memory.
    fn outcome(&self) -> String {
        let counters = [A, B].map(|at| self.engine.counters(self.ends[at].device));
        let states = [A, B].map(|at| self.state(at));
        let under_way = [A, B].map(|at| self.between.ways[at].len());
        format!("{:?} {states:?} {under_way:?} {counters:?} {:?}", self.log.completions, self.log.events)
    }
}

/// Placed payload has the same results at the same time as payload in the streams.
#[test]
fn what_is_placed_changes_nothing_that_anyone_can_tell() {
    let placed = std::cell::Cell::new(0);
    let steps = proptest::collection::vec(step(), 1..60);
    let config = ProptestConfig { cases: 300, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&steps, |steps| {
        let mut all = [true, false].map(|places| {
            let mut both = Both::new();
            both.between.places = places;
            both
        });
        for (id, step) in steps.iter().enumerate() {
            all.iter_mut().for_each(|both| both.take(step, id as u32));
            placed.set(placed.get() + all[0].placed().iter().filter(|placed| **placed).count());
            prop_assert_eq!(all[0].outcome(), all[1].outcome());
        }
        for both in &mut all {
            for at in [A, B] {
                both.engine.set_suspended(both.ends[at].device, false);
            }
            both.run();
        }
        prop_assert_eq!(all[0].outcome(), all[1].outcome());
        for at in [A, B] {
            let [placed, streamed] = [0, 1].map(|which: usize| all[which].ends[at].memory.bytes(0, MEMORY));
            prop_assert!(placed == streamed, "memory of {}", at);
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    assert!(placed.get() > 1000, "{placed:?}");
}
