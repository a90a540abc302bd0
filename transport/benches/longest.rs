//! The longest time of single calls of the engine, during which all guests wait.
//!
//! Each case is set up with as much as a guest may have. It prints the time of the call. If work
//! continues in [`Engine::poll`], it also prints the number of polls and the longest one.
//!
//! `cargo bench -p vrdma-transport --bench longest [-- PART]`: only the cases whose names contain
//! PART.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the engine knows no clock, its bench does"
)]

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant as Clock};
use vrdma_transport::*;
use vrdma_wire::num::{Gid, Lkey, Mac, Mtu, Psn, Qpn, Rkey};

const OWNER: OwnerId = OwnerId(1);
/// The number of QPs of a guest.
const QPS: u32 = 16_000;
/// The depth of the deepest queue.
const DEPTH: u32 = 1 << 15;
const NOW: Instant = Instant(1);

/// Memory without content.
struct Nothing;

impl Region for Nothing {
    fn copy_to(&self, _: u64, _: &Self, _: u64, _: u64) -> Result<(), Fault> {
        Ok(())
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn with_word<T>(&self, _: u64, operation: impl FnOnce(&AtomicU64) -> T) -> Result<T, Fault> {
        Ok(operation(&AtomicU64::new(0)))
    }
}

/// A sink that keeps the last CQEs, as a ring in memory does.
struct Ring(Vec<Option<Completion>>, usize);

impl Ring {
    fn new() -> Ring {
        Ring(vec![None; 1 << 12], 0)
    }
}

impl Sink for Ring {
    fn complete(&mut self, _: DeviceId, _: CqId, completion: &Completion) {
        let at = self.1 % self.0.len();
        self.0[at] = Some(*completion);
        self.1 += 1;
    }

    fn event(&mut self, _: DeviceId, _: Event) {}
}

/// An engine with two guests.
struct World {
    engine: Engine<Nothing>,
    sink: Ring,
    guests: [Guest; 2],
}

#[derive(Clone, Copy)]
struct Guest {
    device: DeviceId,
    pd: PdId,
    gid: Gid,
    key: u32,
}

impl World {
    fn new() -> World {
        let mut engine = Engine::new(1);
        let guests = [1, 2].map(|n| {
            let limits = Limits { max_qp: 1 << 14, max_qp_wr: DEPTH, ..Limits::default() };
            let device = engine.add_device(limits);
            let gid = Gid::from_ipv4([10, 0, 0, n]);
            engine.set_mac(device, Mac([2, 0, 0, 0, 0, n])).expect("it is there");
            engine.set_gid(device, 0, Some(gid.into())).expect("it is free");
            let pd = engine.alloc_pd(device, OWNER).expect("a PD");
            let key = engine.reg_mr(device, pd, Access::ALL, 0, 1 << 30, Nothing).expect("a region");
            Guest { device, pd, gid, key }
        });
        World { engine, sink: Ring::new(), guests }
    }

    fn qp(&mut self, guest: usize, send_wr: u32, recv_wr: u32) -> Qpn {
        let init = QpInit {
            owner: OWNER,
            pd: Some(self.guests[guest].pd),
            qp_type: QpType::Rc,
            send_cq: CqId(0),
            recv_cq: CqId(1),
            receives: Receives::Own,
            max_send_wr: send_wr,
            max_recv_wr: recv_wr,
            max_send_sge: 30,
            max_recv_sge: 30,
            max_inline: 0,
        };
        self.engine.create_qp(self.guests[guest].device, init).expect("a QP")
    }

    fn modify(&mut self, guest: usize, qpn: Qpn, mask: AttrMask, attr: QpAttr) {
        let device = self.guests[guest].device;
        self.engine.modify_qp(NOW, device, qpn, mask, &attr, &mut self.sink).expect("it is allowed");
    }

    /// Takes a QP to RTS, connected with a QP at that address.
    fn connect(&mut self, guest: usize, qpn: Qpn, dgid: Gid, peer: Qpn) {
        let attr = QpAttr {
            access: Access::ALL,
            port: 1,
            path_mtu: Mtu::M4096,
            rq_psn: Psn::truncate(7),
            sq_psn: Psn::truncate(7),
            dest_qpn: peer,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
            timeout: 14,
            retry_cnt: 0,
            rnr_retry: 7,
            dgid,
            dmac: Mac([2, 0, 0, 0, 0, 9]),
            hop_limit: 1,
            ..QpAttr::default()
        };
        use AttrMask as M;
        let init = M::STATE.with(M::PKEY_INDEX).with(M::PORT).with(M::ACCESS_FLAGS);
        let rtr = M::STATE.with(M::AV).with(M::PATH_MTU).with(M::DEST_QPN).with(M::RQ_PSN);
        let rtr = rtr.with(M::MAX_DEST_RD_ATOMIC).with(M::MIN_RNR_TIMER);
        let rts = M::STATE.with(M::SQ_PSN).with(M::TIMEOUT).with(M::RETRY_CNT);
        let rts = rts.with(M::RNR_RETRY).with(M::MAX_RD_ATOMIC);
        for (state, mask) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
            self.modify(guest, qpn, mask, QpAttr { state, ..attr });
        }
    }

    fn go(&mut self, guest: usize, qpn: Qpn, state: QpState) {
        self.modify(guest, qpn, AttrMask::STATE, QpAttr { state, ..QpAttr::default() });
    }

    /// Posts a WRITE of SGEs with this length, or an empty SEND for one SGE of length 0.
    fn send(&mut self, guest: usize, qpn: Qpn, length: u32, elements: usize) {
        let sges = vec![Sge { addr: 0, length, lkey: Lkey(self.guests[guest].key) }; elements];
        let op = if elements == 1 && length == 0 { SendOp::Send { imm: None } } else { WRITE };
        let payload = Payload::Sges(if length == 0 && elements == 1 { &[] } else { &sges });
        let request = SendRequest { id: 0, signaled: true, solicited: false, fence: false, op, payload };
        let device = self.guests[guest].device;
        self.engine.post_send(NOW, device, OWNER, qpn, &request, &mut self.sink).expect("there is room");
    }

    fn receive(&mut self, guest: usize, qpn: Qpn, elements: usize) {
        let sges = vec![Sge { addr: 0, length: 64, lkey: Lkey(self.guests[guest].key) }; elements];
        let request = RecvRequest { id: 0, sges: &sges };
        let device = self.guests[guest].device;
        self.engine.post_recv(NOW, device, OWNER, qpn, request, &mut self.sink).expect("there is room");
    }

    /// Creates a QP whose queues are full of requests with this number of SGEs.
    fn full_qp(&mut self, depth: u32, elements: usize) -> Qpn {
        let qpn = self.qp(0, depth, depth);
        let dgid = self.guests[1].gid;
        self.connect(0, qpn, dgid, Qpn::truncate(77));
        self.go(0, qpn, QpState::Sqd);
        for _ in 0..depth {
            self.send(0, qpn, 8, elements);
            self.receive(0, qpn, elements);
        }
        qpn
    }

    /// Creates connected pairs of QPs, one of each guest.
    fn pairs(&mut self, count: u32) -> Vec<[Qpn; 2]> {
        let gids = self.guests.map(|guest| guest.gid);
        let pair = |_| {
            let qpns = [self.qp(0, 16, 16), self.qp(1, 16, 16)];
            self.connect(0, qpns[0], gids[1], qpns[1]);
            self.connect(1, qpns[1], gids[0], qpns[0]);
            qpns
        };
        (0..count).map(pair).collect()
    }

    /// Polls until nothing is ready. Returns the time of each call.
    fn poll(&mut self, now: Instant) -> Vec<Duration> {
        let mut times = Vec::new();
        loop {
            let (time, more) = timed(|| self.engine.poll(now, 1 << 20, &mut self.sink));
            times.push(time);
            if !more {
                return times;
            }
        }
    }
}

const WRITE: SendOp = SendOp::Write { remote: Remote { addr: 0, rkey: Rkey(1) }, imm: None };

fn timed<T>(f: impl FnOnce() -> T) -> (Duration, T) {
    let start = Clock::now();
    let result = f();
    (start.elapsed(), result)
}

/// A case: sets up, and returns the time of the call, and of each poll after it.
type Case = fn() -> (Duration, Vec<Duration>);

const CASES: [(&str, Case); 12] = [
    ("reset of a device", || {
        let mut world = World::new();
        let device = world.guests[0].device;
        for [qpn, _] in world.pairs(QPS) {
            (0..16).for_each(|_| world.receive(0, qpn, 4));
            world.send(0, qpn, 0, 1);
        }
        let pd = world.guests[0].pd;
        for _ in 0..65_000 {
            world.engine.reg_mr(device, pd, Access::ALL, 0, 4096, Nothing).expect("a region");
        }
        let (time, _) = timed(|| world.engine.reset_device(device));
        (time, world.poll(NOW))
    }),
    ("DESTROY of a QP with full queues", || {
        let mut world = World::new();
        let (device, qpn) = (world.guests[0].device, world.full_qp(DEPTH, 30));
        let (time, _) = timed(|| world.engine.destroy_qp(device, qpn));
        (time, world.poll(NOW))
    }),
    ("reset of a QP with full queues", || {
        let mut world = World::new();
        let qpn = world.full_qp(DEPTH, 30);
        let (time, ()) = timed(|| world.go(0, qpn, QpState::Reset));
        (time, world.poll(NOW))
    }),
    ("flush of a QP with full queues", || {
        let mut world = World::new();
        let qpn = world.full_qp(DEPTH, 30);
        let (time, ()) = timed(|| world.go(0, qpn, QpState::Err));
        (time, world.poll(NOW))
    }),
    ("GID of 16,000 QPs cleared", || {
        let mut world = World::new();
        let device = world.guests[0].device;
        world.pairs(QPS);
        let (time, _) = timed(|| world.engine.set_gid(device, 0, None));
        (time, world.poll(NOW))
    }),
    ("answer to 16,000 who asked", || {
        let mut world = World::new();
        for [qpn, _] in world.pairs(QPS) {
            world.send(0, qpn, 0, 1);
        }
        let mut longest = Duration::ZERO;
        while let Some(question) = world.engine.poll_question() {
            longest = longest.max(timed(|| world.engine.answer(NOW, question, &mut world.sink)).0);
        }
        (longest, world.poll(NOW))
    }),
    ("reset of who was asked by 16,000", || {
        let mut world = World::new();
        for [qpn, _] in world.pairs(QPS) {
            world.send(0, qpn, 0, 1);
        }
        let device = world.guests[1].device;
        let (time, _) = timed(|| world.engine.reset_device(device));
        (time, world.poll(NOW))
    }),
    ("16,000 timers, 16 requests each", || {
        let mut world = World::new();
        let dgid = world.guests[1].gid;
        for _ in 0..QPS {
            let qpn = world.qp(0, 16, 16);
            world.connect(0, qpn, dgid, Qpn::truncate(77));
            (0..16).for_each(|_| world.send(0, qpn, 0, 1));
            (0..16).for_each(|_| world.receive(0, qpn, 1));
        }
        (Duration::ZERO, world.poll(Instant(1 << 40)))
    }),
    ("128 timers, 1,000 requests each", || {
        let mut world = World::new();
        let dgid = world.guests[1].gid;
        for _ in 0..128 {
            let qpn = world.qp(0, 1000, 1000);
            world.connect(0, qpn, dgid, Qpn::truncate(77));
            (0..1000).for_each(|_| world.send(0, qpn, 0, 1));
            (0..1000).for_each(|_| world.receive(0, qpn, 1));
        }
        (Duration::ZERO, world.poll(Instant(1 << 40)))
    }),
    ("16,000 QPs destroyed that wait", || {
        let mut world = World::new();
        let device = world.guests[0].device;
        let pairs = world.pairs(QPS);
        for &[qpn, _] in &pairs {
            world.send(0, qpn, 100_000, 1);
        }
        let destroy = |[qpn, _]: [Qpn; 2]| timed(|| world.engine.destroy_qp(device, qpn)).0;
        let longest = pairs.into_iter().map(destroy).max();
        (longest.unwrap_or_default(), world.poll(NOW))
    }),
    ("packets lost while the link is down", || {
        let mut world = World::new();
        world.engine.set_link(false);
        for _ in 0..1000 {
            let qpn = world.qp(0, 16, 16);
            world.connect(0, qpn, Gid::from_ipv4([10, 0, 1, 1]), Qpn::truncate(77));
            (0..16).for_each(|_| world.send(0, qpn, 1 << 20, 1));
        }
        (Duration::ZERO, world.poll(NOW))
    }),
    ("16,000 QPs go on after a pause", || {
        let mut world = World::new();
        let device = world.guests[0].device;
        for [qpn, _] in world.pairs(QPS) {
            world.send(0, qpn, 0, 1);
        }
        world.engine.set_suspended(device, true);
        let (time, ()) = timed(|| world.engine.set_suspended(device, false));
        (time, world.poll(NOW))
    }),
];

fn main() {
    // cargo passes "--bench".
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    println!("{:<40} {:>12} {:>8} {:>12}", "case", "call", "polls", "longest");
    for (name, case) in CASES {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        // The minimum of several runs, separately for each poll. All runs do equal work, but the
        // machine adds varying delays.
        let (mut call, mut polls) = case();
        for _ in 0..5 {
            let (again, times) = case();
            call = call.min(again);
            polls.iter_mut().zip(times).for_each(|(least, time)| *least = time.min(*least));
        }
        let longest = polls.iter().max().copied().unwrap_or_default();
        println!("{name:<40} {call:>12.1?} {:>8} {longest:>12.1?}", polls.len());
    }
}
