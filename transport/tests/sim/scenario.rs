//! What a seed stands for: hosts, a link, connections, and what they do.

use crate::link::Faults;
use crate::rng::Rng;
use crate::stream::{MayFail, Shape, Stream};
use crate::world::{Host, OWNER, World, mix};
use vrdma_transport::*;
use vrdma_wire::num::{Mtu, Psn, Qpn};

/// Nanoseconds in a microsecond and in a second.
const US: u64 = 1000;
const S: u64 = 1_000_000_000;

/// What is going on on the link.
#[derive(Clone, Debug)]
pub struct Plan {
    pub hosts: usize,
    pub v4: bool,
    pub faults: Faults,
    pub connections: usize,
    pub shape: Shape,
    /// Links go down and up, devices pause at times.
    pub flaps: bool,
    /// Retry counts are such that nothing of this may show.
    pub robust: bool,
    pub mtu: Option<Mtu>,
}

impl Plan {
    /// Anything.
    pub fn random(rng: &mut Rng) -> Plan {
        let ppm = |rng: &mut Rng| if rng.one_in(2) { 0 } else { rng.range(0..=50_000) as u32 };
        let mut faults = Faults {
            loss: ppm(rng),
            duplication: ppm(rng),
            reordering: ppm(rng),
            corruption: ppm(rng),
            forgery: ppm(rng),
            delay: rng.range(0..=30 * US),
            jitter: rng.range(0..=10 * US),
            late: rng.range(1..=400 * US),
            pace: rng.pick(&[0, 0, 80, 800]),
        };
        if rng.one_in(4) {
            faults = Faults { loss: 0, duplication: 0, reordering: 0, corruption: 0, ..faults };
        }
        let longest = rng.pick(&[64, 2000, 9000, 70_000]);
        let shape = Shape {
            requests: rng.range(1..=60) as u32,
            bytes: 0,
            longest,
            window: longest * 2 + 64,
            depth: rng.range(1..=24) as u32,
            receives: rng.range(1..=24) as u32,
            send_pause: rng.pick(&[0, 5, 50, 500]) * US,
            recv_pause: rng.pick(&[0, 0, 5, 50, 2000]) * US,
            signal_every: rng.range(1..=4),
            poison: rng.one_in(6),
        };
        Plan {
            hosts: rng.range(2..=3) as usize,
            v4: rng.one_in(2),
            faults,
            connections: rng.range(1..=4) as usize,
            shape,
            flaps: rng.one_in(8),
            robust: rng.one_in(2),
            mtu: None,
        }
    }
}

/// What came of a run.
pub struct Outcome {
    pub trace: u64,
    pub frames: u64,
    pub streams: usize,
    pub failures: usize,
    pub bytes: u64,
    pub took: u64,
    /// How often an engine was replaced.
    pub replaced: u64,
}

struct End {
    host: usize,
    qpn: Qpn,
    send_cq: CqId,
    recv_cq: CqId,
    /// A shared receive queue that it alone uses.
    srq: Option<SrqId>,
}

/// What may come over a host, or the link, for a while.
enum Ailment {
    /// All frames are lost.
    Dark,
    /// The link of a host is down.
    Down(usize),
    /// The device of a host is suspended.
    Suspended(usize),
}

impl Ailment {
    fn begins(world: &mut World, rng: &mut Rng) -> Ailment {
        let host = rng.index(world.hosts.len());
        let Host { engine, device, .. } = &mut world.hosts[host];
        match rng.range(0..=2) {
            0 => {
                world.link.dark = true;
                Ailment::Dark
            }
            1 => {
                engine.set_link(false);
                Ailment::Down(host)
            }
            _ => {
                engine.set_suspended(*device, true);
                Ailment::Suspended(host)
            }
        }
    }

    fn ends(self, world: &mut World) {
        match self {
            Ailment::Dark => world.link.dark = false,
            Ailment::Down(host) => world.hosts[host].engine.set_link(true),
            Ailment::Suspended(host) => {
                let Host { engine, device, .. } = &mut world.hosts[host];
                engine.set_suspended(*device, false);
            }
        }
    }
}

/// Says on a panic which seed it was.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "this was VRDMA_SIM_SEED={}: with that in the environment it happens again, step by step",
                self.0
            );
        }
    }
}

/// Runs a plan to its end, and checks all that there is to check. `replace` says when engines are replaced by their copies: it is a generator of
/// its own, for the story is the same with it.
pub fn run(seed: u64, mut rng: Rng, plan: &Plan, replace: Option<Rng>, verbose: bool) -> Outcome {
    let _seed = Seed(seed);
    let mut world = World::new(seed, plan.hosts, plan.v4, plan.faults.clone(), verbose);
    world.replace = replace;
    let start = world.now;
    if verbose {
        eprintln!("{plan:?}");
    }
    let mut ends = Vec::new();
    let mut streams = Vec::new();
    for n in 0..plan.connections {
        let pair = connect(&mut world, &mut rng, plan, n, &mut streams);
        ends.extend(pair);
    }
    // A connection that fails does so in its own time; no timeout of these plans is longer.
    let limit = Instant(start.0 + 4000 * S);
    let mut next_flap = Instant(start.0 + rng.range(0..=500 * US));
    let mut ailing: Option<Ailment> = None;
    let mut stuck = 0u32;
    while !streams.iter().all(Stream::is_over) {
        if plan.flaps && next_flap <= world.now {
            let begins = ailing.is_none();
            match ailing.take() {
                Some(ailment) => ailment.ends(&mut world),
                None => ailing = Some(Ailment::begins(&mut world, &mut rng)),
            }
            next_flap = Instant(world.now.0 + rng.range(1..=if begins { 1000 } else { 20_000 } * US));
        }
        for stream in &mut streams {
            stream.act(&mut world);
        }
        world.settle();
        look(&mut world, &mut streams);
        let flap = Some(next_flap).filter(|_| plan.flaps);
        let next = streams.iter().filter_map(Stream::next).chain(world.next()).chain(flap).min();
        let all = || streams.iter().map(|s| s.status(&world)).collect::<Vec<_>>().join("\n");
        let Some(next) = next else {
            if streams.iter().all(Stream::is_over) {
                break;
            }
            panic!("nothing will ever happen again:\n{}", all());
        };
        assert!(next < limit, "not over after all this time:\n{}", all());
        stuck = if next > world.now { 0 } else { stuck + 1 };
        assert!(stuck < 100_000, "time stands still:\n{}", all());
        world.now = world.now.max(next);
    }
    if let Some(ailment) = ailing {
        ailment.ends(&mut world);
    }
    finish(&mut world, &mut streams, &ends, plan);
    let bytes = streams.iter().map(|s| s.bytes).sum();
    let failures = streams.iter().filter(|s| s.failed.is_some()).count();
    for host in &world.hosts {
        for (_, count) in host.engine.counters(host.device).iter() {
            mix(&mut world.trace, count);
        }
    }
    Outcome {
        trace: world.trace,
        frames: world.frames,
        failures,
        bytes,
        streams: streams.len(),
        took: world.now.0 - start.0,
        replaced: world.replaced,
    }
}

/// Gives all completions to their streams.
fn look(world: &mut World, streams: &mut [Stream]) {
    // Receives first: a sender may not know of the end of a message before the receiver does.
    for sends in [false, true] {
        for n in 0..world.hosts.len() {
            let log = &mut world.hosts[n].log;
            for _ in 0..log.completions.len() {
                let (cq, completion) = log.completions.pop_front().expect("as many as counted");
                if is_send_cq(cq) != sends {
                    log.completions.push_back((cq, completion));
                    continue;
                }
                if world.verbose {
                    eprintln!("{:>12} host {n}: {completion:?}", world.now.0);
                }
                let Completion { id, qpn, opcode, status, byte_len, imm, solicited, .. } = completion;
                let imm = imm.map_or(1 << 32, |imm| u64::from(u32::from_be_bytes(imm.to_bytes())));
                let what = [id, qpn.number(), opcode as u32, status as u32, byte_len, u32::from(solicited)];
                for word in what.map(u64::from).into_iter().chain([world.now.0, imm]) {
                    mix(&mut world.trace, word);
                }
                assert!(streams.iter_mut().any(|s| s.take(n, cq, &completion)), "whose is {completion:?}?");
            }
        }
    }
    for host in &mut world.hosts {
        host.log.events.clear();
    }
}

fn is_send_cq(cq: CqId) -> bool {
    cq.0.is_multiple_of(2)
}

/// Everything has to be as the model says; then all QPs go to ERR, and what is still there has to end.
fn finish(world: &mut World, streams: &mut [Stream], ends: &[End], plan: &Plan) {
    for stream in streams.iter_mut() {
        stream.check_end(world);
    }
    for host in &world.hosts {
        let counts = host.engine.counts(host.device);
        assert_eq!(counts.pending_sends, 0, "{counts:?}");
    }
    if plan.faults.perfect() && plan.faults.pace == 0 && !plan.flaps {
        for host in &world.hosts {
            let counters = host.engine.counters(host.device);
            let poisoned = plan.shape.poison || !plan.robust;
            assert!(poisoned || counters.timeouts == 0, "timeouts without a loss: {counters:?}");
        }
    }
    for end in ends {
        let host = &mut world.hosts[end.host];
        let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
        let (now, device) = (world.now, host.device);
        host.engine.modify_qp(now, device, end.qpn, AttrMask::STATE, &attr, &mut host.log).unwrap();
    }
    look(world, streams);
    for (n, host) in world.hosts.iter().enumerate() {
        let left: u64 = streams.iter().map(|stream| stream.receives_left(n)).sum();
        let counts = host.engine.counts(host.device);
        assert_eq!(counts.pending_receives, left, "receives that no QP has taken: {counts:?}");
    }
    for end in ends {
        let host = &mut world.hosts[end.host];
        host.engine.destroy_qp(host.device, end.qpn).unwrap();
        if let Some(srq) = end.srq {
            host.engine.destroy_srq(host.device, srq).unwrap();
        }
    }
    // Turns of QPs that are gone are passed over.
    world.settle();
    for host in &world.hosts {
        let counts = host.engine.counts(host.device);
        assert_eq!((counts.pending_sends, counts.pending_receives, counts.qps), (0, 0, 0));
        assert_eq!(host.engine.poll_timeout(), None, "a timer of a QP that is gone");
    }
}

/// Two QPs of two hosts, connected; and the streams of both directions.
fn connect(world: &mut World, rng: &mut Rng, plan: &Plan, n: usize, streams: &mut Vec<Stream>) -> [End; 2] {
    let first = rng.index(plan.hosts);
    let second = (first + 1 + rng.index(plan.hosts - 1)) % plan.hosts;
    let cq = |k: u32| CqId(n as u32 * 4 + k);
    let ends = [(first, cq(0), cq(1)), (second, cq(2), cq(3))].map(|(host, send_cq, recv_cq)| {
        let srq = rng.one_in(3).then(|| {
            let host = &mut world.hosts[host];
            let init = SrqInit { owner: OWNER, pd: host.pd, max_wr: plan.shape.receives, max_sge: 4 };
            host.engine.create_srq(host.device, init).unwrap()
        });
        let init = QpInit {
            owner: OWNER,
            pd: world.hosts[host].pd,
            qp_type: QpType::Rc,
            send_cq,
            recv_cq,
            srq,
            max_send_wr: plan.shape.depth,
            max_recv_wr: plan.shape.receives,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 64,
        };
        let host_ = &mut world.hosts[host];
        let qpn = host_.engine.create_qp(host_.device, init).unwrap();
        End { host, qpn, send_cq, recv_cq, srq }
    });
    // PSNs near the end of their range more often than not.
    let psns = [(); 2].map(|()| {
        Psn::truncate(if rng.one_in(2) { 0xff_ffff - rng.range(0..=40) as u32 } else { rng.next() as u32 })
    });
    let path_mtu = plan.mtu.unwrap_or_else(|| Mtu::from_code(rng.range(1..=5) as u8).expect("a code"));
    let (rnr_retry, retry_cnt) =
        if plan.robust { (7, 7) } else { (rng.range(0..=7) as u8, rng.range(0..=7) as u8) };
    // Longer than a frame and its answer take, were they the last of all that wait in both rings; or not, so that answers come late.
    let timeout = rng.range(if plan.robust { 8 } else { 2 }..=14) as u8;
    let atomics: Vec<(u8, u8)> = (0..2)
        .map(|_| {
            let dest = rng.range(1..=8) as u8;
            (rng.range(1..=u64::from(dest)) as u8, dest)
        })
        .collect();
    for (local, remote) in [(0, 1), (1, 0)] {
        let attr = QpAttr {
            access: Access::ALL,
            port: 1,
            path_mtu,
            rq_psn: psns[remote],
            sq_psn: psns[local],
            dest_qpn: ends[remote].qpn,
            max_rd_atomic: atomics[local].0,
            max_dest_rd_atomic: atomics[remote].1,
            min_rnr_timer: rng.range(1..=14) as u8,
            timeout,
            retry_cnt,
            rnr_retry,
            dgid: world.hosts[ends[remote].host].gid,
            dmac: world.hosts[ends[remote].host].mac,
            hop_limit: 64,
            ..QpAttr::default()
        };
        let host = &mut world.hosts[ends[local].host];
        for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)] {
            let attr = QpAttr { state, ..attr };
            host.engine
                .modify_qp(world.now, host.device, ends[local].qpn, mask, &attr, &mut host.log)
                .unwrap();
        }
    }
    let poison = [plan.shape.poison && rng.one_in(2), plan.shape.poison && rng.one_in(2)];
    let weak = plan.faults.lossy() && !(plan.robust && plan.faults.loss + plan.faults.corruption <= 20_000);
    for (local, remote) in [(0, 1), (1, 0)] {
        // Where one end fails, the other falls silent, or is flushed.
        let falls = weak || plan.flaps || rnr_retry < 7 || poison[0] || poison[1] || !plan.robust;
        let may_fail = MayFail { retry: falls, rnr: rnr_retry < 7, flush: falls };
        let shape = Shape { poison: poison[local], ..plan.shape.clone() };
        let name = format!(
            "connection {n} from host {} QP {:#x} to host {} QP {:#x}",
            ends[local].host,
            ends[local].qpn.number(),
            ends[remote].host,
            ends[remote].qpn.number()
        );
        let stream = Stream::new(
            world,
            name,
            (ends[local].host, ends[local].qpn, ends[local].send_cq),
            (ends[remote].host, ends[remote].qpn, ends[remote].recv_cq, ends[remote].srq),
            shape,
            may_fail,
            Rng::new(rng.next()),
        );
        streams.push(stream);
    }
    ends
}

pub const TO_INIT: AttrMask =
    AttrMask::STATE.with(AttrMask::PKEY_INDEX).with(AttrMask::PORT).with(AttrMask::ACCESS_FLAGS);
pub const TO_RTR: AttrMask = AttrMask::STATE
    .with(AttrMask::AV)
    .with(AttrMask::PATH_MTU)
    .with(AttrMask::DEST_QPN)
    .with(AttrMask::RQ_PSN)
    .with(AttrMask::MAX_DEST_RD_ATOMIC)
    .with(AttrMask::MIN_RNR_TIMER);
pub const TO_RTS: AttrMask = AttrMask::STATE
    .with(AttrMask::TIMEOUT)
    .with(AttrMask::RETRY_CNT)
    .with(AttrMask::RNR_RETRY)
    .with(AttrMask::SQ_PSN)
    .with(AttrMask::MAX_RD_ATOMIC);
