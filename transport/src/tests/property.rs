//! Any calls with any arguments.
//!
//! Nothing panics, every request completes once and in order, and everything is freed in the end.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use vrdma_wire::num::Imm;

const QPS: usize = 6;

/// An action of a guest, or of time.
///
/// QPs 0 to 3 belong to the first device, 4 and 5 to the second.
#[derive(Clone, Debug)]
enum Op {
    Connect { one: usize, other: usize, to: u8, odd: u8 },
    Modify { qp: usize, mask: u32, state: u8, value: u8 },
    State { qp: usize, state: u8 },
    Send { qp: usize, kind: u8, lengths: Vec<u32>, offset: u64, odd: u8, signaled: bool },
    Inline { qp: usize, write: bool, length: usize },
    Recv { qp: usize, lengths: Vec<u32>, odd: u8 },
    Invalid { qp: usize, send: bool },
    Destroy { qp: usize },
    CqFailed { second: bool, cq: u32 },
    Rereg { second: bool },
    Regid { second: bool, index: u32, gone: bool },
    Poll { budget: u64 },
    Sleep,
    Reset { second: bool },
    Suspend { second: bool, suspended: bool },
}

fn op() -> impl Strategy<Value = Op> {
    let length =
        || prop_oneof![4 => 0u32..100, 1 => 60_000u32..70_000, 1 => 250_000u32..400_000, 1 => any::<u32>()];
    let lengths = move || proptest::collection::vec(length(), 0..5);
    let qp = || 0..QPS;
    // Values 0 to 5 make the request wrong in some way.
    let odd = || 0u8..60;
    prop_oneof![
        6 => (qp(), qp(), 0u8..4, odd()).prop_map(|(one, other, to, odd)| Op::Connect { one, other, to, odd }),
        1 => (qp(), any::<u32>(), 0u8..7, any::<u8>())
            .prop_map(|(qp, mask, state, value)| Op::Modify { qp, mask, state, value }),
        1 => (qp(), 0u8..7).prop_map(|(qp, state)| Op::State { qp, state }),
        20 => (qp(), 0u8..10, lengths(), 0u64..900_000, odd(), any::<bool>())
            .prop_map(|(qp, kind, lengths, offset, odd, signaled)| Op::Send { qp, kind, lengths, offset, odd, signaled }),
        6 => (qp(), any::<bool>(), 0usize..140).prop_map(|(qp, write, length)| Op::Inline { qp, write, length }),
        20 => (qp(), lengths(), odd()).prop_map(|(qp, lengths, odd)| Op::Recv { qp, lengths, odd }),
        1 => (qp(), any::<bool>()).prop_map(|(qp, send)| Op::Invalid { qp, send }),
        1 => qp().prop_map(|qp| Op::Destroy { qp }),
        1 => (any::<bool>(), 0u32..4).prop_map(|(second, cq)| Op::CqFailed { second, cq }),
        1 => any::<bool>().prop_map(|second| Op::Rereg { second }),
        1 => (any::<bool>(), 0u32..3, any::<bool>()).prop_map(|(second, index, gone)| Op::Regid { second, index, gone }),
        6 => (0u64..1_000_000).prop_map(|budget| Op::Poll { budget }),
        3 => Just(Op::Sleep),
        1 => any::<bool>().prop_map(|second| Op::Reset { second }),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(second, suspended)| Op::Suspend { second, suspended }),
    ]
}

const STATES: [QpState; 7] =
    [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe, QpState::Err];

/// Requests in the model: number, and whether it completes on success.
type Pending = VecDeque<(u32, bool)>;

/// The engine, and a model of what is pending in it.
struct Model {
    pair: Pair,
    ends: Vec<End>,
    next: u32,
    /// A memory window of type 1 for each device. No window is bound to a region.
    windows: BTreeMap<DeviceId, Rkey>,
    sends: BTreeMap<(DeviceId, Qpn), Pending>,
    receives: BTreeMap<(DeviceId, Qpn), Pending>,
}

impl Model {
    fn new() -> Model {
        let mut pair = Pair::new();
        let mut ends = vec![pair.a.clone()];
        for i in 1..QPS {
            let end = if i < 4 { pair.a.clone() } else { pair.b.clone() };
            let qpn =
                if i == 4 { end.qpn } else { pair.engine.create_qp(end.device, qp_init(end.pd)).unwrap() };
            ends.push(End { qpn, ..end });
        }
        let (a, b) = (pair.a.clone(), pair.b.clone());
        let window =
            |end: End| (end.device, pair.engine.alloc_mw(end.device, end.pd, MwType::Type1).unwrap());
        let windows = [a, b].map(window).into();
        Model { pair, ends, next: 0, windows, sends: BTreeMap::new(), receives: BTreeMap::new() }
    }

    fn key(end: &End) -> (DeviceId, Qpn) {
        (end.device, end.qpn)
    }

    fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Records a post before it is made, as completions may come at once. Removes it if the post
    /// failed.
    fn posted(
        &mut self,
        end: &End,
        send: bool,
        signaled: bool,
        post: impl FnOnce(&mut Pair, u32) -> Result<(), PostError>,
    ) {
        let id = self.fresh();
        let map = if send { &mut self.sends } else { &mut self.receives };
        map.entry(Self::key(end)).or_default().push_back((id, signaled));
        let result = post(&mut self.pair, id);
        if result.is_err() {
            let map = if send { &mut self.sends } else { &mut self.receives };
            assert_eq!(map.get_mut(&Self::key(end)).unwrap().pop_back().unwrap().0, id);
        }
        self.check();
    }

    /// Asserts that each completion's request was pending, and first in its queue.
    fn check(&mut self) {
        for (device, _, completion) in self.pair.log.completions.drain(..) {
            let key = (device, completion.qpn);
            let receive = matches!(completion.opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm);
            let map = if receive { &mut self.receives } else { &mut self.sends };
            let pending = map.get_mut(&key).expect("a completion of a QP that exists");
            // Unsignaled requests before it have succeeded.
            while let Some((id, signaled)) = pending.pop_front() {
                if id == completion.id {
                    assert!(signaled || completion.status != WcStatus::Success);
                    break;
                }
                assert!(!signaled, "{id} was overtaken by {completion:?}");
            }
            assert!(completion.status == WcStatus::Success || completion.byte_len == 0);
        }
        self.pair.log.events.clear();
    }

    /// Removes a QP's pending requests from the model, because the engine has dropped them.
    fn forget(&mut self, end: &End) {
        self.sends.remove(&Self::key(end));
        self.receives.remove(&Self::key(end));
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Connect { one, other, to, odd } => {
                let (one, other) = (self.ends[one].clone(), self.ends[other].clone());
                for (end, peer) in [(&one, &other), (&other, &one)] {
                    self.pair.go(end, QpState::Reset);
                    self.forget(end);
                    let mut attr = attr_to(peer);
                    match odd {
                        0 => attr.sq_psn = Psn::truncate(3),
                        1 => attr.dest_qpn = Qpn::GSI,
                        2 => attr.path_mtu = Mtu::M4096,
                        3 => attr.access = Access::NONE,
                        4 => attr.timeout = 0,
                        5 => attr.rnr_retry = 7,
                        _ => {}
                    }
                    for (state, mask) in
                        [(QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)]
                    {
                        if STATES[usize::from(to)] as u8 >= state as u8 {
                            let _ = self.pair.modify(end, mask, QpAttr { state, ..attr });
                        }
                    }
                    if one.qpn == other.qpn && one.device == other.device {
                        break;
                    }
                }
            }
            Op::Modify { qp, mask, state, value } => {
                let end = self.ends[qp].clone();
                let state = STATES[usize::from(state)];
                let attr = QpAttr {
                    state,
                    timeout: value,
                    retry_cnt: value & 7,
                    rnr_retry: value & 7,
                    min_rnr_timer: value & 31,
                    sgid_index: value,
                    ..attr_to(&self.ends[usize::from(value) % QPS])
                };
                let mask = AttrMask(if value & 1 == 0 { mask } else { mask & 1 });
                let done = self.pair.modify(&end, mask, attr);
                self.check();
                if done.is_ok() && mask.contains(AttrMask::STATE) && state == QpState::Reset {
                    self.forget(&end);
                }
            }
            Op::State { qp, state } => {
                let (end, state) = (self.ends[qp].clone(), STATES[usize::from(state)]);
                let attr = QpAttr { state, en_sqd_async_notify: true, ..QpAttr::default() };
                let done = self.pair.modify(&end, AttrMask::STATE, attr);
                self.check();
                if done.is_ok() && state == QpState::Reset {
                    self.forget(&end);
                }
            }
            Op::Send { qp, kind, lengths, offset, odd, signaled } => {
                let end = self.ends[qp].clone();
                let peer = if offset % 2 == 0 { self.pair.a.clone() } else { self.pair.b.clone() };
                let mut remote = peer.remote(offset);
                let mut sges: Vec<_> = lengths.iter().map(|length| end.sge(offset / 2, *length)).collect();
                if (4..7).contains(&kind) {
                    sges = vec![end.sge(offset / 2, 8)];
                    remote = peer.remote(offset & !7);
                }
                match odd {
                    0 => remote.rkey = Rkey(offset as u32),
                    1 => remote.addr = u64::MAX - offset,
                    2 => sges.push(Sge { lkey: Lkey(0), ..end.sge(0, 1) }),
                    3 => sges = vec![Sge::default(); 20],
                    4 => remote.addr |= 1,
                    _ => {}
                }
                let op = match kind {
                    0 => SEND,
                    1 => write_to(remote),
                    2 => SendOp::Write { remote, imm: Some(Imm::from_bytes([1; 4])) },
                    3 => SendOp::Read { remote },
                    4 => SendOp::atomic(remote, Atomic::FetchAdd { add: 1 }),
                    5 => SendOp::atomic(remote, Atomic::CompareSwap { compare: 0, swap: 1 }),
                    6 => SendOp::AtomicWrite { remote },
                    7 => SendOp::SendInvalidate { key: remote.rkey },
                    8 => SendOp::LocalInvalidate { key: remote.rkey },
                    _ => {
                        // With length 0 it unbinds a window that is not bound, which is allowed.
                        let (rkey, length) = (self.windows[&end.device], offset % 2);
                        if odd > 2 {
                            sges.clear();
                        }
                        let (lkey, access) = (Lkey(end.key), Access::NONE);
                        SendOp::BindMw(Bind { rkey, new_rkey: rkey, lkey, access, addr: IOVA, length })
                    }
                };
                self.posted(&end, true, signaled, |pair, id| {
                    let payload = Payload::Sges(&sges);
                    let request = SendRequest { id, signaled, solicited: true, fence: odd > 30, op, payload };
                    pair.engine.post_send(pair.now, end.device, OWNER, end.qpn, &request, &mut pair.log)
                });
            }
            Op::Inline { qp, write, length } => {
                let end = self.ends[qp].clone();
                let peer = if length % 2 == 0 { self.pair.a.clone() } else { self.pair.b.clone() };
                let op = if write { write_to(peer.remote(0)) } else { SEND };
                self.posted(&end, true, true, |pair, id| {
                    pair.post(&end, id, op, Payload::Inline(&vec![1; length]))
                });
            }
            Op::Recv { qp, lengths, odd } => {
                let end = self.ends[qp].clone();
                let mut sges: Vec<_> = lengths.iter().map(|length| end.sge(64, *length)).collect();
                match odd {
                    0 => sges.push(Sge { lkey: Lkey(1), ..end.sge(0, 1) }),
                    1 => sges = vec![Sge::default(); 20],
                    _ => {}
                }
                self.posted(&end, false, true, |pair, id| pair.post_recv(&end, id, &sges));
            }
            Op::Invalid { qp, send } => {
                let end = self.ends[qp].clone();
                let queue = if send { Queue::Send } else { Queue::Recv };
                self.posted(&end, send, true, |pair, id| {
                    pair.engine.post_invalid(pair.now, end.device, OWNER, end.qpn, id, queue, &mut pair.log)
                });
            }
            Op::Destroy { qp } => {
                let end = self.ends[qp].clone();
                let init = self.pair.engine.destroy_qp(end.device, end.qpn).unwrap();
                self.forget(&end);
                self.ends[qp].qpn = self.pair.engine.create_qp(end.device, init).unwrap();
            }
            Op::CqFailed { second, cq } => {
                let device = self.ends[if second { 4 } else { 0 }].device;
                self.pair.cq_failed(device, CqId(SEND_CQ.0 + cq));
            }
            Op::Rereg { second } => {
                let end = if second { self.pair.b.clone() } else { self.pair.a.clone() };
                let memory = self.pair.engine.dereg_mr(end.device, end.key).unwrap();
                let key =
                    self.pair.engine.reg_mr(end.device, end.pd, Access::ALL, IOVA, 1 << 20, memory).unwrap();
                assert_ne!(key, end.key);
                let stays = |other: &&mut End| other.device == end.device;
                let all = self.ends.iter_mut().chain([&mut self.pair.a, &mut self.pair.b]);
                all.filter(stays).for_each(|other| other.key = key);
            }
            Op::Regid { second, index, gone } => {
                let end = if second { self.pair.b.clone() } else { self.pair.a.clone() };
                let _ = self.pair.engine.set_gid(end.device, index, (!gone).then_some(end.gid.into()));
            }
            Op::Poll { budget } => {
                self.pair.engine.poll(self.pair.now, budget, &mut self.pair.log);
                answer_all(&mut self.pair.engine, self.pair.now, &mut self.pair.log);
            }
            Op::Sleep => {
                self.pair.sleep();
            }
            Op::Reset { second } => self.reset(second),
            Op::Suspend { second, suspended } => {
                let device = self.ends[if second { 4 } else { 0 }].device;
                self.pair.engine.set_suspended(device, suspended);
            }
        }
        self.check();
    }

    fn reset(&mut self, second: bool) {
        let old = if second { self.pair.b.clone() } else { self.pair.a.clone() };
        let engine = &mut self.pair.engine;
        engine.reset_device(old.device);
        assert_eq!(engine.counts(old.device), ObjectCounts::default());
        let _ = engine.set_gid(old.device, 0, Some(old.gid.into()));
        let pd = engine.alloc_pd(old.device, OWNER).unwrap();
        let key = engine.reg_mr(old.device, pd, Access::ALL, IOVA, 1 << 20, old.memory.clone()).unwrap();
        self.windows.insert(old.device, engine.alloc_mw(old.device, pd, MwType::Type1).unwrap());
        for i in 0..QPS {
            if self.ends[i].device == old.device {
                let end = self.ends[i].clone();
                self.forget(&end);
                let qpn = self.pair.engine.create_qp(old.device, qp_init(pd)).unwrap();
                self.ends[i] = End { pd, key, qpn, ..end };
            }
        }
        let renewed = End { pd, key, ..old };
        if second { self.pair.b = renewed } else { self.pair.a = renewed }
    }

    /// Ends everything: flushes pending requests, and destroys all objects.
    fn finish(mut self) {
        for end in self.ends.clone() {
            self.pair.go(&end, QpState::Err);
        }
        self.check();
        assert!(self.receives.values().all(VecDeque::is_empty), "{:?}", self.receives);
        assert!(self.sends.values().flatten().all(|send| !send.1), "{:?}", self.sends);
        for device in [self.pair.a.device, self.pair.b.device] {
            let counts = self.pair.engine.counts(device);
            assert_eq!((counts.pending_sends, counts.pending_receives), (0, 0));
        }
        assert_eq!(self.pair.sleep(), None);
        for end in self.ends {
            self.pair.engine.destroy_qp(end.device, end.qpn).unwrap();
        }
        for end in [self.pair.a, self.pair.b] {
            self.pair.engine.dereg_mr(end.device, end.key).unwrap();
            self.pair.engine.dealloc_mw(end.device, self.windows[&end.device]).unwrap();
            self.pair.engine.dealloc_pd(end.device, end.pd).unwrap();
            let gids = self.pair.engine.counts(end.device).gids;
            assert_eq!(self.pair.engine.counts(end.device), ObjectCounts { gids, ..ObjectCounts::default() });
        }
        assert_eq!(self.pair.engine.core.schedule.len(), (0, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn every_request_ends_once_and_in_order(ops in proptest::collection::vec(op(), 1..300)) {
        let mut model = Model::new();
        // Begin with three connections, one of them within a device.
        for (one, other) in [(0, 4), (1, 5), (2, 3)] {
            model.apply(Op::Connect { one, other, to: 3, odd: 60 });
        }
        for op in ops {
            model.apply(op);
        }
        model.finish();
    }
}
