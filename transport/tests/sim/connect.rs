//! Connected pairs of QPs, and the flows between them.

use crate::flow::Flow;
use crate::rng::Rng;
use crate::scenario::{Peers, Plan};
use crate::stream::{MayFail, Shape, Stream};
use crate::unreliable::{Passage, QKEY, Unreliable};
use crate::world::{Guest, OWNER, World};
use vrdma_transport::*;
use vrdma_wire::num::{Mtu, Psn, Qpn, Srqn};

/// A QP with its queues.
pub struct End {
    pub guest: usize,
    pub qpn: Qpn,
    send_cq: CqId,
    recv_cq: CqId,
    /// A shared receive queue that only this QP uses.
    pub srq: Option<SrqId>,
}

/// How a pair of reliable connections may fail.
struct Weakness {
    falls: bool,
    rnr: bool,
}

/// Creates two connected QPs of a service in RTS, and the flows of both directions.
pub fn connect(
    world: &mut World,
    rng: &mut Rng,
    plan: &Plan,
    (n, service): (usize, QpType),
    flows: &mut Vec<Box<dyn Flow>>,
) -> Vec<End> {
    let ends = make_ends(world, rng, plan, (n, service));
    let poison = [(); 2].map(|()| plan.shape.poison && rng.one_in(2));
    let rnr_retry = connect_ends(world, rng, plan, service, &ends);
    let [here, there] = [0, 1].map(|n| world.place(ends[n].guest).0);
    let local = here == there;
    let faults = &plan.faults;
    let weak = !local && faults.lossy() && !(plan.robust && faults.loss + faults.corruption <= 20_000);
    // If one end fails, its peer gets no answers, or is flushed.
    let falls = weak || plan.flaps || rnr_retry < 7 || poison[0] || poison[1] || !plan.robust;
    let weakness = Weakness { falls, rnr: rnr_retry < 7 };
    let passage = Passage {
        complete: !plan.flaps
            && (local || faults.perfect() && (service == QpType::Uc || faults.forgery == 0)),
        in_order: local || faults.duplication + faults.reordering == 0,
        bent: !local && faults.corruption > 0,
    };
    let mut reliables = Vec::new();
    let one_way = service == QpType::XrcSend || plan.extras.incast;
    let directions = if one_way { &[(0, 1)][..] } else { &[(0, 1), (1, 0)] };
    for &(local, remote) in directions {
        let (from, to) = (&ends[local], &ends[remote]);
        let name = format!(
            "{service:?} {n} from guest {} QP {:#x} to guest {} QP {:#x}",
            from.guest,
            from.qpn.number(),
            to.guest,
            to.qpn.number()
        );
        let shape = Shape { poison: poison[local], ..plan.shape.clone() };
        let rng = Rng::new(rng.next());
        match service {
            QpType::Rc | QpType::XrcSend => {
                let xrc = service == QpType::XrcSend;
                reliables.push(reliable(world, name, ([from, to], xrc), shape, &weakness, rng));
            }
            _ => flows.push(Box::new(unreliable(world, name, service, [from, to], shape, passage, rng))),
        }
    }
    // An end that posts no requests binds no windows, and reference peers have none.
    if let [there, back] = &mut reliables[..]
        && plan.extras.peers == Peers::Engines
    {
        Stream::with_windows(world, [there, back]);
    }
    flows.extend(reliables.into_iter().map(|stream| Box::new(stream) as Box<dyn Flow>));
    ends.into()
}

fn reliable(
    world: &mut World,
    name: String,
    ([from, to], xrc): ([&End; 2], bool),
    shape: Shape,
    weakness: &Weakness,
    rng: Rng,
) -> Stream {
    let may_fail = MayFail { retry: weakness.falls, rnr: weakness.rnr, flush: weakness.falls };
    let srqn = to.srq.filter(|_| xrc).and_then(|srq| Srqn::new(srq.0));
    let sender = (from.guest, from.qpn, from.send_cq, srqn);
    Stream::new(world, name, sender, (to.guest, to.qpn, to.recv_cq, to.srq), shape, may_fail, rng)
}

fn unreliable(
    world: &mut World,
    name: String,
    service: QpType,
    [from, to]: [&End; 2],
    shape: Shape,
    passage: Passage,
    rng: Rng,
) -> Unreliable {
    let datagrams = service == QpType::Ud;
    let longest = if datagrams { shape.longest.min(Mtu::M4096.bytes().into()) } else { shape.longest };
    let shape = Shape { longest, ..shape };
    let ways = ((from.guest, from.qpn, from.send_cq), (to.guest, to.qpn, to.recv_cq));
    Unreliable::new(world, name, datagrams, ways, to.srq, shape, passage, rng)
}

/// Chooses the guests of a pair of QPs.
fn two_guests(world: &World, rng: &mut Rng, plan: &Plan) -> [usize; 2] {
    let guests = world.guests.len();
    let first = rng.index(guests);
    let second = match guests == 1 || plan.loopback && rng.one_in(8) {
        true => first,
        false => (first + 1 + rng.index(guests - 1)) % guests,
    };
    [first, second]
}

/// Creates two QPs in RESET. For XRC these are an initiator, and a target with a shared queue that
/// only it uses.
fn make_ends(world: &mut World, rng: &mut Rng, plan: &Plan, (n, service): (usize, QpType)) -> [End; 2] {
    let guests = world.guests.len();
    let [first, second] = match plan.extras.peers {
        _ if plan.extras.incast => [n + 1, 0],
        Peers::Engines => two_guests(world, rng, plan),
        Peers::Reference => {
            let (engine, reference) = (rng.index(guests), guests + n % world.peers.len());
            if rng.one_in(2) { [engine, reference] } else { [reference, engine] }
        }
        Peers::References => [guests, guests + 1],
    };
    let cq = |k: u32| CqId(n as u32 * 4 + k);
    let services = [service, if service == QpType::XrcSend { QpType::XrcRecv } else { service }];
    [(first, cq(0), cq(1), services[0]), (second, cq(2), cq(3), services[1])].map(|end| {
        let (guest, send_cq, recv_cq, qp_type) = end;
        if let Some(peer) = world.peer(guest) {
            let qpn = peer.create_qp(send_cq, recv_cq);
            return End { guest, qpn, send_cq, recv_cq, srq: None };
        }
        let Guest { device, pd, .. } = world.guests[guest];
        let (engine, _) = world.engine(guest);
        let xrc = (qp_type == QpType::XrcRecv).then(|| {
            let xrcd = engine.alloc_xrcd(device).unwrap();
            XrcSrq { xrcd, cq: recv_cq }
        });
        let shared = qp_type != QpType::XrcSend && rng.one_in(3);
        let srq = (xrc.is_some() || shared).then(|| {
            let init = SrqInit { owner: OWNER, pd, max_wr: plan.shape.receives, max_sge: 4, xrc };
            engine.create_srq(device, init).unwrap()
        });
        let init = QpInit {
            owner: OWNER,
            pd: xrc.is_none().then_some(pd),
            qp_type,
            send_cq,
            recv_cq,
            receives: xrc.map_or(srq.into(), |xrc| Receives::Xrc(xrc.xrcd)),
            max_send_wr: plan.shape.depth,
            max_recv_wr: plan.shape.receives,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 64,
        };
        let qpn = engine.create_qp(device, init).unwrap();
        End { guest, qpn, send_cq, recv_cq, srq }
    })
}

/// Takes both QPs to RTS. Returns their RNR retry count.
fn connect_ends(world: &mut World, rng: &mut Rng, plan: &Plan, service: QpType, ends: &[End; 2]) -> u8 {
    // Half of the PSNs are near the end of their range.
    let psns = [(); 2].map(|()| {
        Psn::truncate(if rng.one_in(2) { 0xff_ffff - rng.range(0..=40) as u32 } else { rng.next() as u32 })
    });
    let path_mtu = plan.mtu.unwrap_or_else(|| Mtu::from_code(rng.range(1..=5) as u8).expect("a code"));
    let (rnr_retry, retry_cnt) =
        if plan.robust { (7, 7) } else { (rng.range(0..=7) as u8, rng.range(0..=7) as u8) };
    // A robust plan has timeouts that cover a frame and its answer, even behind two full rings.
    // Others may be shorter, so that answers come late.
    let timeout = rng.range(if plan.robust { 8 } else { 2 }..=14) as u8;
    let atomics = [(); 2].map(|()| {
        let dest = rng.range(1..=8) as u8;
        (rng.range(1..=u64::from(dest)) as u8, dest)
    });
    let masks = match service {
        QpType::Rc | QpType::XrcSend | QpType::XrcRecv => [TO_INIT, TO_RTR, TO_RTS],
        QpType::Uc => [TO_INIT, TO_RTR_UC, TO_RTS_UNRELIABLE],
        QpType::Ud | QpType::Gsi => [TO_INIT_UD, AttrMask::STATE, TO_RTS_UNRELIABLE],
    };
    for (local, remote) in [(0, 1), (1, 0)] {
        let (_, dgid, dmac) = world.place(ends[remote].guest);
        let attr = QpAttr {
            access: Access::QP,
            qkey: QKEY,
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
            dgid,
            dmac,
            hop_limit: 64,
            traffic_class: plan.extras.traffic_class,
            ..QpAttr::default()
        };
        if let Some(peer) = world.peer(ends[local].guest) {
            peer.connect(ends[local].qpn, &attr);
            continue;
        }
        let (now, device) = (world.now, world.guests[ends[local].guest].device);
        let (engine, log) = world.engine(ends[local].guest);
        for (state, mask) in [QpState::Init, QpState::Rtr, QpState::Rts].into_iter().zip(masks) {
            let attr = QpAttr { state, ..attr };
            engine.modify_qp(now, device, ends[local].qpn, mask, &attr, log).unwrap();
        }
    }
    rnr_retry
}

pub const TO_INIT: AttrMask =
    AttrMask::STATE.with(AttrMask::PKEY_INDEX).with(AttrMask::PORT).with(AttrMask::ACCESS_FLAGS);
const TO_INIT_UD: AttrMask =
    AttrMask::STATE.with(AttrMask::PKEY_INDEX).with(AttrMask::PORT).with(AttrMask::QKEY);
const TO_RTR_UC: AttrMask = AttrMask::STATE
    .with(AttrMask::AV)
    .with(AttrMask::PATH_MTU)
    .with(AttrMask::DEST_QPN)
    .with(AttrMask::RQ_PSN);
const TO_RTS_UNRELIABLE: AttrMask = AttrMask::STATE.with(AttrMask::SQ_PSN);
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
