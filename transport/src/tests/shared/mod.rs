//! SRQs: which QP takes which receive, what happens without one, and how SRQs end.
//!
//! Shows: shared-receives.

mod ends;
mod given_back;
mod limits;
mod order;
mod random;
mod services;
mod wait;

use super::*;
use crate::objects::srq::Srq;

const OK: WcStatus = WcStatus::Success;
const FLUSH: WcStatus = WcStatus::Flush;

/// An SRQ of `end`'s device, in a PD of its own, and memory of that PD.
struct Shared {
    srq: SrqId,
    end: End,
}

fn init(pd: PdId) -> SrqInit {
    SrqInit { owner: OWNER, pd, max_wr: 8, max_sge: 2, xrc: None }
}

impl Shared {
    fn new(engine: &mut Engine<Mem>, end: &End) -> Shared {
        let pd = engine.alloc_pd(end.device, OWNER).unwrap();
        let memory = Mem::new(1 << 20);
        let key = engine.reg_mr(end.device, pd, Access::ALL, IOVA, 1 << 20, memory.clone()).unwrap();
        let srq = engine.create_srq(end.device, init(pd)).unwrap();
        Shared { srq, end: End { pd, memory, key, ..end.clone() } }
    }

    /// Returns the parameters of a QP that uses the SRQ.
    fn init(&self, end: &End) -> QpInit {
        QpInit { receives: Receives::Shared(self.srq), ..qp_init(end.pd) }
    }

    fn post(&self, engine: &mut Engine<Mem>, id: u32, length: u32, log: &mut Log) -> Result<(), PostError> {
        let sges = [self.end.sge(u64::from(id) << 16, length)];
        let request = RecvRequest { id, sges: &sges };
        engine.post_srq_recv(self.end.device, OWNER, self.srq, request, log)
    }
}

/// Bytes of a message that takes several rounds.
const LONG: u32 = 1 << 19;

/// Adds a device with an address and memory of its own.
fn third_device(pair: &mut Pair) -> End {
    let engine = &mut pair.engine;
    let device = engine.add_device(Limits { max_qp: 1 << 10, ..Limits::default() });
    let gid = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]);
    engine.set_gid(device, 0, Some(gid.into())).unwrap();
    let pd = engine.alloc_pd(device, OWNER).unwrap();
    let memory = Mem::new(1 << 20);
    let key = engine.reg_mr(device, pd, Access::ALL, IOVA, 1 << 20, memory.clone()).unwrap();
    End { device, pd, qpn: Qpn::GSI, gid, memory, key }
}

/// RC connections on one host, whose B ends use an SRQ.
struct Group {
    pair: Pair,
    shared: Shared,
    senders: Vec<End>,
    receivers: Vec<End>,
}

impl Group {
    fn new(count: usize) -> Group {
        let mut pair = Pair::new();
        let shared = Shared::new(&mut pair.engine, &pair.b);
        let mut group = Group { pair, shared, senders: Vec::new(), receivers: Vec::new() };
        (0..count).for_each(|_| group.connect());
        group
    }

    /// Creates one more connection.
    fn connect(&mut self) {
        let a = self.pair.a.clone();
        self.connect_from(&a);
    }

    /// Creates one more connection, from a device that may be another.
    fn connect_from(&mut self, a: &End) {
        let Group { pair, shared, senders, receivers } = self;
        let make = |pair: &mut Pair, end: &End, init| {
            let qpn = pair.engine.create_qp(end.device, init).unwrap();
            End { qpn, ..end.clone() }
        };
        let b = pair.b.clone();
        let a = make(pair, a, qp_init(a.pd));
        let b = make(pair, &b, shared.init(&b));
        pair.connect(&a, attr_to(&b), QpState::Rts);
        pair.connect(&b, attr_to(&a), QpState::Rts);
        senders.push(a);
        receivers.push(b);
    }

    fn post_shared(&mut self, id: u32) {
        let Group { pair, shared, .. } = self;
        save::replace_at_times(&mut pair.engine);
        shared.post(&mut pair.engine, id, 1 << 16, &mut pair.log).unwrap();
    }

    /// Sends bytes on connection `at`.
    fn send(&mut self, at: usize, id: u32, bytes: &[u8]) {
        let sender = self.senders[at].clone();
        self.pair.post(&sender, id, SEND, Payload::Inline(bytes)).unwrap();
    }

    /// Sends many bytes on connection `at`, and lets the first segment arrive.
    fn begin(&mut self, at: usize, id: u32) {
        let sender = self.senders[at].clone();
        self.post_long(at, id, SEND, LONG);
        let before = self.pair.log.completions.len();
        self.pair.engine.poll(self.pair.now, 1, &mut self.pair.log);
        assert_eq!(self.pair.log.completions.len(), before, "{:?} is under way", sender.qpn);
    }

    /// Posts a request of many bytes on connection `at`, without letting the engine work.
    fn post_long(&mut self, at: usize, id: u32, op: SendOp, length: u32) {
        let Group { pair: Pair { engine, now, log, .. }, senders, .. } = self;
        let end = &senders[at];
        let payload = [end.sge(0, length)];
        let payload = Payload::Sges(&payload);
        let request = SendRequest { id, signaled: true, solicited: false, fence: false, op, payload };
        engine.post_send(*now, end.device, OWNER, end.qpn, &request, log).unwrap();
    }

    /// Returns the SRQ.
    fn srq(&self) -> &Srq {
        let known = self.pair.engine.core.devices.get(self.pair.b.device.0).unwrap();
        known.srqs.get(self.shared.srq.0).unwrap()
    }

    /// Takes the receivers' completions, as (connection, id, status).
    fn received(&mut self) -> Vec<(usize, u32, WcStatus)> {
        let b = self.pair.b.device;
        let completions = std::mem::take(&mut self.pair.log.completions);
        let ours = completions.into_iter().filter(|&(device, cq, _)| device == b && cq == RECV_CQ);
        let index = |qpn| self.receivers.iter().position(|end| end.qpn == qpn).unwrap();
        ours.map(|(_, _, c)| (index(c.qpn), c.id, c.status)).collect()
    }

    fn counters(&self) -> &Counters {
        self.pair.engine.counters(self.pair.b.device)
    }

    fn modify(&mut self, max_wr: Option<u32>, limit: Option<u32>) -> Result<(), Error> {
        let Pair { engine, log, b, .. } = &mut self.pair;
        engine.modify_srq(b.device, self.shared.srq, (max_wr, limit), log)
    }

    fn query(&self) -> SrqAttr {
        self.pair.engine.query_srq(self.pair.b.device, self.shared.srq).unwrap()
    }
}
