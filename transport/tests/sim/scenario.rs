//! The scenario of a seed: hosts, their guests, a link, connections, and what they do.

use crate::connect::{End, connect};
use crate::flow::Flow;
use crate::link::Faults;
use crate::reference::{Kind, Peer};
use crate::rng::Rng;
use crate::stream::Shape;
use crate::switch::Queue;
use crate::world::{Guest, World, mix};
use vrdma_transport::*;
use vrdma_wire::num::Mtu;

/// Nanoseconds in a microsecond and in a second.
const US: u64 = 1000;
const S: u64 = 1_000_000_000;

/// What happens on the link.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The number of guests of each host.
    pub guests: Vec<usize>,
    pub v4: bool,
    pub faults: Faults,
    /// The service of each pair of QPs.
    pub services: Vec<QpType>,
    /// At times both QPs belong to one guest.
    pub loopback: bool,
    pub shape: Shape,
    /// Links go down and up, and devices are suspended at times.
    pub flaps: bool,
    /// Retry counts are so high that faults do not become visible.
    pub robust: bool,
    pub mtu: Option<Mtu>,
    pub extras: Extras,
}

/// Who is at the ends of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peers {
    /// Engines at both.
    #[default]
    Engines,
    /// An engine at one and a reference peer at the other, of either kind in turns.
    Reference,
    /// Reference peers of both kinds.
    References,
}

/// What a plan has that random plans do not have.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Connections with reference peers are of RC.
    pub peers: Peers,
    /// A switch on the link, with such queues.
    pub switch: Option<Queue>,
    /// All connections lead from a guest of their own to the first guest, and the first guest
    /// posts no requests.
    pub incast: bool,
    /// The traffic class of all connections.
    pub traffic_class: u8,
    /// Congestion control of all engines, if it is on.
    pub congestion: Option<Dcqcn>,
}

impl Plan {
    /// Returns any plan.
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
            one_way: false,
        };
        let hosts = rng.range(1..=3);
        let mut service = || rng.pick(&[QpType::Rc, QpType::Rc, QpType::XrcSend, QpType::Uc, QpType::Ud]);
        let services = [(); 5].map(|()| service());
        Plan {
            guests: (0..hosts).map(|_| rng.range(1..=3) as usize).collect(),
            v4: rng.one_in(2),
            faults,
            services: services[..rng.range(1..=5) as usize].to_vec(),
            loopback: hosts == 1 || rng.one_in(2),
            shape,
            flaps: rng.one_in(8),
            robust: rng.one_in(2),
            mtu: None,
            extras: Extras::default(),
        }
    }
}

/// The outcome of a run.
pub struct Outcome {
    pub trace: u64,
    pub frames: u64,
    pub streams: usize,
    pub failures: usize,
    pub bytes: u64,
    pub took: u64,
    /// How often an engine was replaced.
    pub replaced: u64,
    /// Windows that were bound, invalidated by an own request, and invalidated by a request of the
    /// peer.
    pub windows: [u64; 3],
    /// Frames that found no room in the switch, and frames that it marked.
    pub dropped: u64,
    pub marked: u64,
    /// Notifications that slowed senders down.
    pub notified: u64,
    /// Frames that the link lost or corrupted.
    pub lost: u64,
    /// Packets with requests or data, and those of them that had been sent before.
    pub sent: u64,
    pub resent: u64,
    /// Of these, the packets with data of READs.
    pub resent_responses: u64,
    /// Of each [`EPOCH`](crate::census::EPOCH) packets, those that had been sent before.
    pub resent_by_epoch: Vec<u64>,
}

/// A temporary fault of a host, a guest or the link.
enum Ailment {
    /// All frames are lost.
    Dark,
    /// The link of a host is down.
    Down(usize),
    /// The device of a guest is suspended.
    Suspended(usize),
}

impl Ailment {
    fn begins(world: &mut World, rng: &mut Rng) -> Ailment {
        let host = rng.index(world.hosts.len());
        let guest = rng.index(world.guests.len());
        match rng.range(0..=2) {
            0 => {
                world.link.dark = true;
                Ailment::Dark
            }
            1 => {
                world.hosts[host].engine.set_link(false);
                Ailment::Down(host)
            }
            _ => {
                let device = world.guests[guest].device;
                world.engine(guest).0.set_suspended(device, true);
                Ailment::Suspended(guest)
            }
        }
    }

    fn ends(self, world: &mut World) {
        match self {
            Ailment::Dark => world.link.dark = false,
            Ailment::Down(host) => world.hosts[host].engine.set_link(true),
            Ailment::Suspended(guest) => {
                let device = world.guests[guest].device;
                world.engine(guest).0.set_suspended(device, false);
            }
        }
    }
}

/// Prints the seed if the test panics.
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

/// Runs a plan to its end, and checks everything.
///
/// `replace` decides when engines are replaced by their copies. It is a separate generator, so that
/// the run is the same without it.
pub fn run(seed: u64, mut rng: Rng, plan: &Plan, replace: Option<Rng>, verbose: bool) -> Outcome {
    let _seed = Seed(seed);
    let mut world = World::new(seed, &plan.guests, plan.v4, plan.faults.clone(), verbose);
    world.replace = replace;
    if plan.extras.peers != Peers::Engines {
        Kind::ALL.into_iter().for_each(|kind| world.add_peer(kind));
    }
    if let Some(queue) = plan.extras.switch {
        world.add_switch(seed, queue);
    }
    world.set_congestion(plan.extras.congestion);
    let start = world.now;
    if verbose {
        eprintln!("{plan:?}");
    }
    let mut ends = Vec::new();
    let mut streams: Vec<Box<dyn Flow>> = Vec::new();
    for (n, &service) in plan.services.iter().enumerate() {
        let pair = connect(&mut world, &mut rng, plan, (n, service), &mut streams);
        ends.extend(pair);
    }
    // A connection that fails takes time to do so. No timeout of these plans is longer than this
    // limit.
    let limit = Instant(start.0 + 4000 * S);
    let mut next_flap = Instant(start.0 + rng.range(0..=500 * US));
    let mut ailing: Option<Ailment> = None;
    let mut stuck = 0u32;
    while !streams.iter().all(|it| it.is_over()) {
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
        let next = streams.iter().filter_map(|it| it.next()).chain(world.next()).chain(flap).min();
        let all = || streams.iter().map(|s| s.status(&world)).collect::<Vec<_>>().join("\n");
        let Some(next) = next else {
            if streams.iter().all(|it| it.is_over()) {
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
    // Frames that nobody waits for are still in flight.
    world.settle();
    while let Some(at) = world.link.next() {
        world.now = world.now.max(at);
        world.settle();
    }
    look(&mut world, &mut streams);
    finish(&mut world, &mut streams, &ends, plan);
    let bytes = streams.iter().map(|it| it.bytes()).sum();
    let failures = streams.iter().filter(|it| it.has_failed()).count();
    let mut windows = [0; 3];
    let mut notified = 0;
    for guest in 0..world.guests.len() {
        let counters = world.counters(guest);
        notified += counters.rp_cnp_handled + counters.rp_delay_handled;
        let of_windows = [counters.binds, counters.invalidations, counters.peer_invalidations];
        windows.iter_mut().zip(of_windows).for_each(|(sum, count)| *sum += count);
        let counts: Vec<u64> = counters.iter().map(|(_, count)| count).collect();
        counts.into_iter().for_each(|count| mix(&mut world.trace, count));
    }
    let switch = world.link.switch.as_ref();
    Outcome {
        notified,
        dropped: switch.map_or(0, |switch| switch.dropped),
        marked: switch.map_or(0, |switch| switch.marked),
        lost: world.link.lost,
        sent: world.census.sent,
        resent: world.census.resent,
        resent_responses: world.census.resent_responses,
        resent_by_epoch: world.census.by_epoch.clone(),
        trace: world.trace,
        frames: world.frames,
        failures,
        bytes,
        streams: streams.len(),
        took: world.now.0 - start.0,
        replaced: world.replaced,
        windows,
    }
}

/// Gives all completions to their flows.
fn look(world: &mut World, streams: &mut [Box<dyn Flow>]) {
    // Receives come first: a sender may not learn of the end of a message before the receiver.
    for sends in [false, true] {
        look_at_peers(world, streams, sends);
        for n in 0..world.hosts.len() {
            for _ in 0..world.hosts[n].log.completions.len() {
                let log = &mut world.hosts[n].log;
                let (device, cq, completion) = log.completions.pop_front().expect("as many as counted");
                if is_send_cq(cq) != sends {
                    log.completions.push_back((device, cq, completion));
                    continue;
                }
                let whose = |guest: &Guest| (guest.host, guest.device) == (n, device);
                let guest = world.guests.iter().position(whose).expect("a device is somebody's");
                give(world, streams, guest, cq, &completion);
            }
        }
    }
    for host in &mut world.hosts {
        host.log.events.clear();
    }
}

/// Gives the completions of reference peers to their flows, those of sends or those of receives.
fn look_at_peers(world: &mut World, streams: &mut [Box<dyn Flow>], sends: bool) {
    for n in 0..world.peers.len() {
        for _ in 0..world.peers[n].completions.len() {
            let completions = &mut world.peers[n].completions;
            let (cq, completion) = completions.pop_front().expect("as many as counted");
            match is_send_cq(cq) == sends {
                true => give(world, streams, world.guests.len() + n, cq, &completion),
                false => completions.push_back((cq, completion)),
            }
        }
    }
}

/// Gives a completion to its flow.
fn give(world: &mut World, streams: &mut [Box<dyn Flow>], guest: usize, cq: CqId, completion: &Completion) {
    if world.verbose {
        eprintln!("{:>12} guest {guest}: {completion:?}", world.now.0);
    }
    let Completion { id, qpn, opcode, status, byte_len, imm, solicited, .. } = *completion;
    let imm = imm.map_or(1 << 32, |imm| u64::from(u32::from_be_bytes(imm.to_bytes())));
    let what = [id, qpn.number(), opcode as u32, status as u32, byte_len, u32::from(solicited)];
    for word in what.map(u64::from).into_iter().chain([world.now.0, imm]) {
        mix(&mut world.trace, word);
    }
    let taken = streams.iter_mut().any(|it| it.take(world, guest, cq, completion));
    assert!(taken, "whose is {completion:?}?");
}

fn is_send_cq(cq: CqId) -> bool {
    cq.0.is_multiple_of(2)
}

/// Compares everything with the models. Then all QPs go to ERR, and everything that is left must
/// end.
fn finish(world: &mut World, streams: &mut [Box<dyn Flow>], ends: &[End], plan: &Plan) {
    let guests = world.guests.len();
    for stream in streams.iter_mut() {
        stream.check_end(world);
    }
    for guest in 0..world.guests.len() {
        let counts = world.counts(guest);
        assert_eq!(counts.pending_sends, 0, "{counts:?}");
    }
    if plan.faults.perfect() && plan.faults.pace == 0 && !plan.flaps {
        for guest in 0..world.guests.len() {
            let counters = world.counters(guest);
            let poisoned = plan.shape.poison || !plan.robust;
            assert!(poisoned || counters.timeouts == 0, "timeouts without a loss: {counters:?}");
        }
    }
    world.peers.iter_mut().for_each(Peer::fail_all);
    let of_engines = || ends.iter().filter(|end| end.guest < guests);
    for end in of_engines() {
        let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
        let (now, device) = (world.now, world.guests[end.guest].device);
        let (engine, log) = world.engine(end.guest);
        engine.modify_qp(now, device, end.qpn, AttrMask::STATE, &attr, log).unwrap();
    }
    look(world, streams);
    for guest in 0..world.guests.len() {
        let left: u64 = streams.iter().map(|it| it.receives_left(guest)).sum();
        let counts = world.counts(guest);
        assert_eq!(counts.pending_receives, left, "receives that no QP has taken: {counts:?}");
    }
    for end in of_engines() {
        let device = world.guests[end.guest].device;
        let (engine, _) = world.engine(end.guest);
        engine.destroy_qp(device, end.qpn).unwrap();
        if let Some(srq) = end.srq {
            engine.destroy_srq(device, srq).unwrap();
        }
    }
    // Turns of destroyed QPs are skipped.
    world.settle();
    for guest in 0..world.guests.len() {
        let counts = world.counts(guest);
        assert_eq!((counts.pending_sends, counts.pending_receives, counts.qps), (0, 0, 0));
    }
    for host in &world.hosts {
        assert_eq!(host.engine.poll_timeout(), None, "a timer of a QP that is gone");
    }
}
