//! Any packets at any time, between valid ones.
//!
//! Nothing panics, and every request completes once and in order.

use super::*;
use crate::base::rng::Rng;
use std::collections::VecDeque;
use vrdma_wire::num::{AethMsn, Imm};
use vrdma_wire::roce::{
    Aeth, AtomicEth, AtomicKind, Credits, Feth, NakCode, Part, ReadPart, Reth, RnrTimer, SendTail, Syndrome,
    WriteTail,
};

fn part<F, L>(rng: &mut Rng, head: F, tail: L) -> Part<F, L> {
    match rng.next() % 4 {
        0 => Part::First(head),
        1 => Part::Middle,
        2 => Part::Last(tail),
        _ => Part::Only(head, tail),
    }
}

fn body(rng: &mut Rng, key: u32) -> Rc {
    let odd = rng.next().is_multiple_of(8);
    let length = match rng.next() % 6 {
        0 => 0,
        1 => 256,
        2 => rng.next() as u32 % 3000,
        3 => 1 << 31,
        4 => rng.next() as u32,
        _ => 600,
    };
    let va = if odd { rng.next() } else { IOVA + rng.next() % 1000 / 8 * 8 };
    let reth =
        Reth { va, rkey: Rkey(if rng.next().is_multiple_of(16) { rng.next() as u32 } else { key }), length };
    let syndrome = match rng.next() % 8 {
        0 => Syndrome::Rnr(RnrTimer::new(rng.next() as u8 & 31).unwrap()),
        1 => Syndrome::Nak(NakCode::PsnSequenceError),
        2 if odd => Syndrome::Nak(NakCode::InvalidRequest),
        3 => Syndrome::Ack(Credits::new(rng.next() as u8 & 31).unwrap()),
        _ => Syndrome::Ack(Credits::UNLIMITED),
    };
    let aeth = Aeth { syndrome, msn: AethMsn::truncate(rng.next() as u32) };
    let atomic = AtomicEth { va: reth.va, rkey: reth.rkey, swap_or_add: rng.next(), compare: rng.next() };
    let imm = Imm::from_bytes(*b"wxyz");
    match rng.next() % 14 {
        0 | 1 => Rc::Send(part(rng, (), if odd { SendTail::Imm(imm) } else { SendTail::Plain })),
        2 | 3 => Rc::Write(part(rng, reth, if odd { WriteTail::Imm(imm) } else { WriteTail::Plain })),
        4 => Rc::ReadRequest(reth),
        5 | 6 => Rc::ReadResponse(match rng.next() % 4 {
            0 => ReadPart::First(aeth),
            1 => ReadPart::Middle,
            2 => ReadPart::Last(aeth),
            _ => ReadPart::Only(aeth),
        }),
        7 => Rc::AtomicAck(aeth, rng.next()),
        8 => Rc::Atomic(AtomicKind::FetchAdd, atomic),
        9 => Rc::Atomic(AtomicKind::CompareSwap, atomic),
        10 => Rc::AtomicWrite(Reth { length: if odd { length } else { 8 }, ..reth }),
        11 => Rc::Flush(Feth::from_bits(if odd { rng.next() as u8 } else { 1 }), reth),
        _ => Rc::Ack(aeth),
    }
}

struct Chaos {
    net: Net,
    rng: Rng,
    pending: [VecDeque<u32>; 2],
    /// A memory window of type 1 for each host.
    windows: [Rkey; 2],
    next_id: u32,
}

impl Chaos {
    fn roll(&mut self, most: u64) -> u64 {
        self.rng.next() % most
    }

    /// Takes completions of sends, which have to be in the order of posting.
    fn look(&mut self) {
        for at in [A, B] {
            for (_, cq, completion) in self.net.hosts[at].log.completions.drain(..) {
                if cq == SEND_CQ {
                    assert_eq!(self.pending[at].pop_front(), Some(completion.id));
                }
            }
        }
    }

    fn post(&mut self, from: usize) {
        let (own, peer) = (self.net.hosts[from].end.clone(), self.net.hosts[1 - from].end.clone());
        let length = self.roll(3000) as u32;
        let remote = peer.remote(self.roll(100_000) / 8 * 8);
        let id = self.next_id;
        self.next_id += 1;
        let scope = FlushScope { placement: Placement::Global, whole: length.is_multiple_of(2), length };
        let (op, length) = match self.roll(9) {
            0 => (SEND, length),
            1 => (SendOp::Send { imm: Some(Imm::default()) }, 0),
            2 => (SendOp::Write { remote, imm: None }, length),
            3 => (SendOp::Read { remote }, length),
            4 => (SendOp::atomic(remote, Atomic::FetchAdd { add: 1 }), 8),
            5 => (SendOp::atomic(remote, Atomic::CompareSwap { compare: 0, swap: 1 }), 8),
            6 => (SendOp::AtomicWrite { remote }, 8),
            7 => (SendOp::Flush { remote, scope }, 0),
            // It needs no packet.
            _ => (unbind(self.windows[from]), 0),
        };
        let sge = own.sge(self.roll(100_000), length);
        let sge = if self.roll(200) == 0 { Sge { lkey: Lkey(0), ..sge } } else { sge };
        let fence = self.roll(8) == 0;
        let Host { engine, log, .. } = &mut self.net.hosts[from];
        let signaled = true;
        let payload = Payload::Sges(&[sge]);
        let request = SendRequest { id, signaled, solicited: false, fence, op, payload };
        if engine.post_send(self.net.now, own.device, OWNER, own.qpn, &request, log).is_ok() {
            self.pending[from].push_back(id);
        }
    }

    fn inject(&mut self, from: usize) {
        let key = self.net.hosts[1 - from].end.key;
        let body = body(&mut self.rng, key);
        let answer = matches!(body, Rc::Ack(_) | Rc::AtomicAck(..) | Rc::ReadResponse(_));
        let near = if answer {
            let End { device, qpn, .. } = self.net.hosts[1 - from].end;
            self.net.hosts[1 - from].engine.query_qp(device, qpn).unwrap().sq_psn
        } else {
            self.net.expected(1 - from)
        };
        let psn = match self.roll(8) {
            0 => Psn::truncate(self.rng.next() as u32),
            1..4 => near,
            _ => near.add((self.roll(40) as u32).wrapping_sub(20)),
        };
        let carries = matches!(body, Rc::Send(_) | Rc::Write(_) | Rc::ReadResponse(_));
        let length = match self.roll(4) {
            _ if matches!(body, Rc::AtomicWrite(_)) => 8,
            _ if !carries => 0,
            0 => self.roll(600) as usize,
            1 => 0,
            _ => 256,
        };
        let packet = self.net.packet(from, Body::Rc(body), psn);
        self.net.inject(from, &packet, &vec![7; length]);
    }

    /// Reconnects both QPs if one went to ERR.
    fn mend(&mut self) {
        if self.net.hosts.iter().all(|host| host.state() == QpState::Rts) || self.roll(10) != 0 {
            return;
        }
        for at in [A, B] {
            let peer = self.net.hosts[1 - at].end.clone();
            let attr = QpAttr { dmac: self.net.hosts[1 - at].mac, path_mtu: Mtu::M256, ..attr_to(&peer) };
            let steps = [
                (QpState::Reset, AttrMask::STATE),
                (QpState::Init, TO_INIT),
                (QpState::Rtr, TO_RTR),
                (QpState::Rts, TO_RTS),
            ];
            for (state, mask) in steps {
                self.net.hosts[at].modify(self.net.now, mask, QpAttr { state, ..attr });
            }
            self.look();
            self.pending[at].clear();
        }
    }
}

/// Returns a bind of no bytes, which unbinds a window.
fn unbind(rkey: Rkey) -> SendOp {
    let (access, lkey) = (Access::NONE, Lkey(0));
    SendOp::BindMw(Bind { rkey, new_rkey: rkey, lkey, access, addr: 0, length: 0 })
}

fn chaos(seed: u64, steps: usize) {
    let set = |attr: &mut QpAttr| attr.path_mtu = Mtu::M256;
    let mut net = Net::connected_with(set, set);
    let windows = [A, B].map(|at| {
        let Host { engine, end, .. } = &mut net.hosts[at];
        engine.alloc_mw(end.device, end.pd, MwType::Type1).unwrap()
    });
    let mut chaos = Chaos { net, rng: Rng::new(seed), pending: Default::default(), windows, next_id: 0 };
    for _ in 0..steps {
        let at = chaos.roll(2) as usize;
        match chaos.roll(16) {
            0..3 => chaos.post(at),
            3 => {
                let sge = chaos.net.hosts[at].end.sge(200_000, 2500);
                if chaos.net.hosts[at].engine.counts(chaos.net.hosts[at].end.device).pending_receives < 16 {
                    chaos.net.post_recv(at, 0, &[sge]);
                }
            }
            4 => chaos.inject(at),
            5..10 => chaos.net.work(at),
            10..14 => {
                let lose = chaos.roll(4) == 0;
                let which = chaos.roll(10) as usize;
                chaos.net.carry(at, |index, _| !lose || index != which);
            }
            14 => {
                let next = chaos.net.hosts.iter().filter_map(|host| host.engine.poll_timeout()).min();
                chaos.net.now = chaos.net.now.max(next.unwrap_or_default());
            }
            _ => match chaos.roll(30) {
                0 => chaos.net.hosts[at].engine.set_link(false),
                1..8 => chaos.net.hosts[at].engine.set_link(true),
                8 => {
                    let device = chaos.net.hosts[at].end.device;
                    chaos.net.hosts[at].engine.set_suspended(device, true);
                }
                9..16 => {
                    let device = chaos.net.hosts[at].end.device;
                    chaos.net.hosts[at].engine.set_suspended(device, false);
                }
                _ => {}
            },
        }
        chaos.look();
        chaos.mend();
    }
    for at in [A, B] {
        let host = &mut chaos.net.hosts[at];
        host.engine.set_link(true);
        host.engine.set_suspended(host.end.device, false);
    }
    chaos.net.settle();
    chaos.look();
    for at in [A, B] {
        assert!(chaos.pending[at].is_empty(), "seed {seed} at {at}: {:?}", chaos.pending[at]);
    }
}

#[test]
fn whatever_comes_every_request_ends_once() {
    for seed in 0..60 {
        chaos(seed, 2500);
    }
}
