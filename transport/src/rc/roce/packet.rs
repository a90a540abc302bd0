//! How the operations of reliable connections look in packets, and back: the one place that knows both.

use crate::op::{Remote, SendOp};
use crate::request::Work;
use vrdma_wire::num::Imm;
use vrdma_wire::roce::{AtomicEth, Part, Rc, Reth, SendTail, WriteTail};

/// How the next packet of a request is cut.
pub(super) struct Cut {
    pub(super) first: bool,
    pub(super) last: bool,
    /// First byte,
    pub(super) offset: u32,
    /// and how many, in the packet or, for a READ, asked for by it.
    pub(super) length: u32,
    /// PSNs that it stands for.
    pub(super) psns: u32,
}

fn reth(remote: Remote, offset: u32, length: u32) -> Reth {
    // What wraps is for the responder to refuse.
    Reth { va: remote.addr.wrapping_add(offset.into()), rkey: remote.rkey, length }
}

/// The headers of a packet of `work`.
pub(super) fn body(work: &Work<'_>, cut: &Cut) -> Rc {
    fn part<F, L>(cut: &Cut, head: F, tail: L) -> Part<F, L> {
        match (cut.first, cut.last) {
            (true, true) => Part::Only(head, tail),
            (true, false) => Part::First(head),
            (false, false) => Part::Middle,
            (false, true) => Part::Last(tail),
        }
    }
    match *work.op {
        SendOp::Send { imm } => Rc::Send(part(cut, (), imm.map_or(SendTail::Plain, SendTail::Imm))),
        SendOp::Write { remote, imm } => {
            let tail = imm.map_or(WriteTail::Plain, WriteTail::Imm);
            Rc::Write(part(cut, reth(remote, 0, work.length), tail))
        }
        SendOp::Read { remote } => Rc::ReadRequest(reth(remote, cut.offset, cut.length)),
        SendOp::CompareSwap { remote: Remote { addr: va, rkey }, compare, swap } => {
            Rc::CompareSwap(AtomicEth { va, rkey, swap_or_add: swap, compare })
        }
        SendOp::FetchAdd { remote: Remote { addr: va, rkey }, add } => {
            Rc::FetchAdd(AtomicEth { va, rkey, swap_or_add: add, compare: 0 })
        }
    }
}

/// What a request packet says, in terms of a segment.
pub(super) struct Request {
    pub(super) op: SendOp,
    pub(super) first: bool,
    pub(super) last: bool,
    /// Of its WRITE, READ or atomic: where, and how much in all.
    pub(super) reth: Option<Reth>,
}

/// What a request packet says, if it is of a WRITE in the midst of `write`; `None` for what this device does not do.
pub(super) fn understand(body: &Rc, write: &Reth) -> Option<Request> {
    fn place<F, L>(part: &Part<F, L>) -> (bool, bool) {
        (matches!(part, Part::First(_) | Part::Only(..)), matches!(part, Part::Last(_) | Part::Only(..)))
    }
    let at = |reth: &Reth| Remote { addr: reth.va, rkey: reth.rkey };
    let atomic = |eth: &AtomicEth| Reth { va: eth.va, rkey: eth.rkey, length: 8 };
    let only = |op, reth| Request { op, first: true, last: true, reth: Some(reth) };
    Some(match body {
        Rc::Send(part) => {
            let (first, last) = place(part);
            let imm = match part {
                Part::Last(tail) | Part::Only((), tail) => match tail {
                    SendTail::Plain => None,
                    SendTail::Imm(imm) => Some(*imm),
                    SendTail::Invalidate(_) => return None,
                },
                Part::First(()) | Part::Middle => None,
            };
            Request { op: SendOp::Send { imm }, first, last, reth: None }
        }
        Rc::Write(part) => {
            let (first, last) = place(part);
            let imm_of = |tail: &WriteTail| -> Option<Imm> {
                match tail {
                    WriteTail::Plain => None,
                    WriteTail::Imm(imm) => Some(*imm),
                }
            };
            let (reth, imm) = match part {
                Part::First(reth) => (*reth, None),
                Part::Middle => (*write, None),
                Part::Last(tail) => (*write, imm_of(tail)),
                Part::Only(reth, tail) => (*reth, imm_of(tail)),
            };
            Request { op: SendOp::Write { remote: at(&reth), imm }, first, last, reth: Some(reth) }
        }
        Rc::ReadRequest(reth) => only(SendOp::Read { remote: at(reth) }, *reth),
        Rc::CompareSwap(eth) => {
            let reth = atomic(eth);
            only(SendOp::CompareSwap { remote: at(&reth), compare: eth.compare, swap: eth.swap_or_add }, reth)
        }
        Rc::FetchAdd(eth) => {
            let reth = atomic(eth);
            only(SendOp::FetchAdd { remote: at(&reth), add: eth.swap_or_add }, reth)
        }
        _ => return None,
    })
}
