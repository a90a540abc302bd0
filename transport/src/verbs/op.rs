//! The operations of send queues, one row each.
//!
//! The row has all that requester, responder, transport kinds and counters have to know of an
//! operation. The effect of an operation on memory is in
//! [`execute`](crate::message::effect::execute). How it looks in packets is up to the transport
//! kind.

mod columns;
mod effort;
mod placement;
mod row;

pub(crate) use columns::{Answer, DataDirection, Message, Receive, Services};
pub use placement::{FlushScope, Placement};

use crate::base::memory::Access;
use crate::save::fields::same_fields;
use crate::verbs::window::Bind;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::SeqCst;
use vrdma_wire::num::{Imm, Rkey};
use vrdma_wire::roce::AtomicKind;

/// The operation of a send request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// Sends into the peer's next receive.
    Send {
        /// Immediate data, as it goes on the wire.
        imm: Option<Imm>,
    },
    /// Writes into the peer's memory.
    Write {
        /// Destination.
        remote: Remote,
        /// Immediate data, which consumes the peer's next receive.
        imm: Option<Imm>,
    },
    /// Reads from the peer's memory.
    Read {
        /// Source.
        remote: Remote,
    },
    /// Replaces the peer's 8 bytes in one step. Returns the previous value.
    Atomic {
        /// Address of the 8 bytes, aligned.
        addr: u64,
        /// Key of the peer's region. (It and the address are fields because a [`Remote`] would make
        /// each request larger.)
        rkey: Rkey,
        /// What replaces them.
        op: Atomic,
    },
    /// Stores 8 bytes in the peer's memory at once, after all earlier messages (IBTA annex A19).
    AtomicWrite {
        /// The 8 bytes, aligned.
        remote: Remote,
    },
    /// Flushes bytes that this QP wrote before, as far as `scope` says (IBTA annex A19).
    Flush {
        /// Where they were written. The key has to be that of the region at least.
        remote: Remote,
        /// What is flushed, and how far.
        scope: FlushScope,
    },
    /// Sends into the peer's next receive, and then invalidates a key of the peer.
    SendInvalidate {
        /// Key of a window of type 2B that the peer's QP bound, or of a region for fast
        /// registration in that QP's PD.
        key: Rkey,
    },
    /// Binds a memory window of the own device, or unbinds it.
    BindMw(Bind),
    /// Invalidates a key of the own device.
    LocalInvalidate {
        /// Key of a window of type 2B that this QP bound, or of a region for fast registration in
        /// its PD.
        key: Rkey,
    },
    /// Registers memory with a free region for fast registration in the QP's PD
    /// ([`Engine::alloc_fast_mr`](crate::Engine::alloc_fast_mr)).
    ///
    /// Only QPs of [`OwnerId::KERNEL`](crate::OwnerId::KERNEL) may do so. (These are fields because
    /// a structure would make each request larger.)
    RegMr {
        /// The region's key afterwards. The low 8 bits are the requester's choice.
        key: Rkey,
        /// Rights, of those in [`Access::ALL`].
        access: Access,
        /// Address of the first byte, by which requests will name it. Its offset in its page is
        /// that of the first byte in the first page of the list.
        iova: u64,
        /// Length in bytes.
        length: u64,
        /// Address of the list of pages ([`PageList`](crate::PageList)). It has as many pages as
        /// the bytes take.
        list: u64,
        /// Page size, as a power of 2: 12 to 31.
        page_shift: u8,
    },
}

/// An address in the peer's memory, with its key.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Remote {
    /// Address in the peer's region.
    pub addr: u64,
    /// Key of the peer's region.
    pub rkey: Rkey,
}

/// What an atomic stores.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Atomic {
    /// `swap` if the value is `compare`, and otherwise the value that is there.
    CompareSwap {
        /// Value to compare with.
        compare: u64,
        /// Value to store if equal.
        swap: u64,
    },
    /// The sum.
    FetchAdd {
        /// Value to add, wrapping.
        add: u64,
    },
}

/// The operation of a completed request, with the number of enum `ibv_wc_opcode`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum WcOpcode {
    /// SEND, with or without immediate data.
    Send = 0,
    /// WRITE, with or without immediate data.
    Write = 1,
    /// READ.
    Read = 2,
    /// Compare and swap.
    CompareSwap = 3,
    /// Fetch and add.
    FetchAdd = 4,
    /// A bind of a memory window.
    BindMw = 5,
    /// An invalidation of a key of the own device.
    LocalInvalidate = 6,
    /// FLUSH.
    Flush = 8,
    /// ATOMIC WRITE.
    AtomicWrite = 9,
    /// A fast registration, with the number of enum `ib_wc_opcode` of Linux.
    RegMr = 10,
    /// A receive that took a SEND (or nothing, if it failed).
    Recv = 128,
    /// A receive that a WRITE with immediate data consumed.
    RecvWriteImm = 129,
}

/// The properties of an operation, which all its requests share.
#[derive(Debug)]
pub(crate) struct Row {
    /// The operation that its completion reports.
    pub(crate) opcode: WcOpcode,
    /// Direction of the payload.
    pub(crate) data: DataDirection,
    /// Length of its messages in bytes; `None` if any length is allowed.
    pub(crate) length: Option<u32>,
    /// Rights that the requester's elements and their keys have to give.
    pub(crate) local: Access,
    /// Rights that the peer and its key have to give.
    pub(crate) remote: Access,
    /// Bits of the remote address that have to be 0.
    pub(crate) unaligned: u64,
    /// Which receives of the peer it takes.
    pub(crate) receive: Receive,
    /// What the peer answers.
    pub(crate) answer: Answer,
    /// The message that is in progress at the responder after any packet except the last.
    pub(crate) message: Message,
    /// Services that have the operation.
    pub(crate) services: Services,
    /// Whether iWARP has it, at least without immediate data.
    pub(crate) iwarp: bool,
    /// Whether the operation only concerns keys of the own device.
    ///
    /// It then begins when all requests before it have ended, and ends at once. The requests behind
    /// it begin after that. (IBTA 10.8.3.3 requires this of a local invalidation. Of a bind it
    /// requires that requests behind it find the window bound.)
    pub(crate) alone: bool,
}

/// Rights that the elements of a receive have to give to a message.
pub(crate) const OF_RECEIVES: Access = Access::LOCAL_WRITE;

const SEND: Row = Row {
    opcode: WcOpcode::Send,
    data: DataDirection::Out,
    length: None,
    local: Access::NONE,
    remote: Access::NONE,
    unaligned: 0,
    receive: Receive::Always,
    answer: Answer::Acknowledge,
    message: Message::Send,
    services: Services::All,
    iwarp: true,
    alone: false,
};

const WRITE: Row = Row {
    opcode: WcOpcode::Write,
    remote: Access::REMOTE_WRITE,
    receive: Receive::WithImm,
    message: Message::Write,
    services: Services::Connected,
    ..SEND
};

/// The row of READs. Responses are sent without their request: this row has all that they need.
pub(crate) const READ: Row = Row {
    opcode: WcOpcode::Read,
    data: DataDirection::Back,
    length: None,
    local: Access::LOCAL_WRITE,
    remote: Access::REMOTE_READ,
    unaligned: 0,
    receive: Receive::Never,
    answer: Answer::Data,
    message: Message::None,
    services: Services::Reliable,
    iwarp: true,
    alone: false,
};

const COMPARE_SWAP: Row = Row {
    opcode: WcOpcode::CompareSwap,
    length: Some(8),
    remote: Access::REMOTE_ATOMIC,
    unaligned: 7,
    answer: Answer::Once,
    ..READ
};

const FETCH_ADD: Row = Row { opcode: WcOpcode::FetchAdd, ..COMPARE_SWAP };

const ATOMIC_WRITE: Row = Row {
    opcode: WcOpcode::AtomicWrite,
    length: Some(8),
    remote: Access::REMOTE_WRITE,
    unaligned: 7,
    receive: Receive::Never,
    answer: Answer::Once,
    message: Message::None,
    services: Services::Reliable,
    iwarp: false,
    ..SEND
};

/// The row of a FLUSH, a request without payload.
const FLUSH_GLOBAL: Row = flush(Access::FLUSH_GLOBAL);
const FLUSH_PERSISTENT: Row = flush(Access::FLUSH_PERSISTENT);
const FLUSH_BOTH: Row = flush(Access::FLUSH);

const fn flush(remote: Access) -> Row {
    Row { opcode: WcOpcode::Flush, length: Some(0), remote, unaligned: 0, ..ATOMIC_WRITE }
}

const SEND_INVALIDATE: Row = Row { services: Services::Reliable, ..SEND };

const BIND_MW: Row = Row {
    opcode: WcOpcode::BindMw,
    length: Some(0),
    receive: Receive::Never,
    message: Message::None,
    services: Services::Connected,
    alone: true,
    ..SEND
};

const LOCAL_INVALIDATE: Row = Row { opcode: WcOpcode::LocalInvalidate, ..BIND_MW };

const REG_MR: Row = Row { opcode: WcOpcode::RegMr, ..BIND_MW };

impl Atomic {
    /// Returns the atomic that a packet of this kind and with these values asks for.
    #[inline]
    pub(crate) fn of_packet(kind: AtomicKind, swap_or_add: u64, compare: u64) -> Atomic {
        match kind {
            AtomicKind::CompareSwap => Atomic::CompareSwap { compare, swap: swap_or_add },
            AtomicKind::FetchAdd => Atomic::FetchAdd { add: swap_or_add },
        }
    }

    /// Returns kind and values of its packet: the value to swap or add, and the value to compare
    /// with.
    #[inline]
    pub(crate) fn in_packet(self) -> (AtomicKind, u64, u64) {
        match self {
            Atomic::CompareSwap { compare, swap } => (AtomicKind::CompareSwap, swap, compare),
            Atomic::FetchAdd { add } => (AtomicKind::FetchAdd, add, 0),
        }
    }

    /// Executes it, and returns the value before.
    #[inline]
    pub(crate) fn execute(self, word: &AtomicU64) -> u64 {
        match self {
            Atomic::CompareSwap { compare, swap } => {
                word.compare_exchange(compare, swap, SeqCst, SeqCst).unwrap_or_else(|found| found)
            }
            Atomic::FetchAdd { add } => word.fetch_add(add, SeqCst),
        }
    }
}

impl SendOp {
    /// Makes an atomic on the 8 bytes at `remote`.
    #[inline]
    pub const fn atomic(remote: Remote, op: Atomic) -> SendOp {
        SendOp::Atomic { addr: remote.addr, rkey: remote.rkey, op }
    }

    /// Returns the properties of the operation.
    #[inline]
    pub(crate) fn row(&self) -> &'static Row {
        match self {
            SendOp::Send { .. } => &SEND,
            SendOp::Write { .. } => &WRITE,
            SendOp::Read { .. } => &READ,
            SendOp::Atomic { op: Atomic::CompareSwap { .. }, .. } => &COMPARE_SWAP,
            SendOp::Atomic { op: Atomic::FetchAdd { .. }, .. } => &FETCH_ADD,
            SendOp::AtomicWrite { .. } => &ATOMIC_WRITE,
            SendOp::Flush { scope, .. } => match scope.placement {
                Placement::Global => &FLUSH_GLOBAL,
                Placement::Persistent => &FLUSH_PERSISTENT,
                Placement::Both => &FLUSH_BOTH,
            },
            SendOp::SendInvalidate { .. } => &SEND_INVALIDATE,
            SendOp::BindMw(_) => &BIND_MW,
            SendOp::LocalInvalidate { .. } => &LOCAL_INVALIDATE,
            SendOp::RegMr { .. } => &REG_MR,
        }
    }

    /// Returns the address and key in the peer's memory that the operation names.
    #[inline]
    pub(crate) fn remote(&self) -> Option<Remote> {
        match *self {
            SendOp::Send { .. }
            | SendOp::SendInvalidate { .. }
            | SendOp::BindMw(_)
            | SendOp::LocalInvalidate { .. }
            | SendOp::RegMr { .. } => None,
            SendOp::Atomic { addr, rkey, .. } => Some(Remote { addr, rkey }),
            SendOp::Write { remote, .. }
            | SendOp::Read { remote }
            | SendOp::AtomicWrite { remote }
            | SendOp::Flush { remote, .. } => Some(remote),
        }
    }

    /// Returns the immediate data.
    #[inline]
    pub(crate) fn imm(&self) -> Option<Imm> {
        match *self {
            SendOp::Send { imm } | SendOp::Write { imm, .. } => imm,
            SendOp::Read { .. }
            | SendOp::Atomic { .. }
            | SendOp::AtomicWrite { .. }
            | SendOp::Flush { .. }
            | SendOp::SendInvalidate { .. }
            | SendOp::BindMw(_)
            | SendOp::LocalInvalidate { .. }
            | SendOp::RegMr { .. } => None,
        }
    }

    /// Returns the peer's key that the operation invalidates.
    #[inline]
    pub(crate) fn invalidates(&self) -> Option<Rkey> {
        match *self {
            SendOp::SendInvalidate { key } => Some(key),
            _ => None,
        }
    }

    /// Whether the operation takes a receive of the peer.
    #[inline]
    pub(crate) fn takes_receive(&self) -> bool {
        match self.row().receive {
            Receive::Never => false,
            Receive::Always => true,
            Receive::WithImm => self.imm().is_some(),
        }
    }

    /// Whether iWARP has the operation.
    ///
    /// Immediate data is a message of its own there, and takes a receive of its own. So there is no
    /// SEND with immediate data.
    #[inline]
    pub(crate) fn is_of_iwarp(&self) -> bool {
        let row = self.row();
        row.iwarp && (row.receive != Receive::Always || self.imm().is_none())
    }
}

same_fields!(SendOp, Operation {
    Send { imm } = Send { imm },
    Write { remote: Remote { addr, rkey }, imm } = Write { addr, rkey, imm },
    Read { remote: Remote { addr, rkey } } = Read { addr, rkey },
    Atomic { addr, rkey, op: Atomic::CompareSwap { compare, swap } } =
        CompareSwap { addr, rkey, compare, swap },
    Atomic { addr, rkey, op: Atomic::FetchAdd { add } } = FetchAdd { addr, rkey, add },
    AtomicWrite { remote: Remote { addr, rkey } } = AtomicWrite { addr, rkey },
    Flush { remote: Remote { addr, rkey }, scope: FlushScope { placement, whole, length } } =
        Flush { addr, rkey, placement, whole, length },
    SendInvalidate { key } = SendInvalidate { key },
    BindMw(Bind { rkey, new_rkey, lkey, access, addr, length }) =
        BindMw { rkey, new_rkey, lkey, access, addr, length },
    LocalInvalidate { key } = LocalInvalidate { key },
    RegMr { key, access, iova, length, list, page_shift } =
        RegMr { key, access, iova, length, list, page_shift },
});

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::verbs::counters::Counters;

    const PLACE: Remote = Remote { addr: 8, rkey: Rkey(1) };

    const fn flush(placement: Placement) -> SendOp {
        SendOp::Flush { remote: PLACE, scope: FlushScope { placement, whole: false, length: 8 } }
    }

    /// One of each operation, with and without immediate data.
    pub(crate) const ALL: [SendOp; 15] = [
        SendOp::Send { imm: None },
        SendOp::Send { imm: Some(Imm::from_bytes([1, 2, 3, 4])) },
        SendOp::Write { remote: PLACE, imm: None },
        SendOp::Write { remote: PLACE, imm: Some(Imm::from_bytes([1, 2, 3, 4])) },
        SendOp::Read { remote: PLACE },
        SendOp::atomic(PLACE, Atomic::CompareSwap { compare: 1, swap: 2 }),
        SendOp::atomic(PLACE, Atomic::FetchAdd { add: 1 }),
        SendOp::AtomicWrite { remote: PLACE },
        flush(Placement::Global),
        flush(Placement::Persistent),
        flush(Placement::Both),
        SendOp::SendInvalidate { key: Rkey(1) },
        SendOp::BindMw(Bind {
            rkey: Rkey(1),
            new_rkey: Rkey(2),
            lkey: vrdma_wire::num::Lkey(3),
            access: Access::REMOTE_READ,
            addr: 8,
            length: 8,
        }),
        SendOp::LocalInvalidate { key: Rkey(1) },
        SendOp::RegMr {
            key: Rkey(1),
            access: Access::REMOTE_READ,
            iova: 0x8000,
            length: 8,
            list: 16,
            page_shift: 12,
        },
    ];

    #[test]
    fn rows_agree_with_themselves() {
        for op in ALL {
            let row = op.row();
            let mut counters = Counters::ZERO;
            row.count(&mut counters);
            let counted: Vec<_> = counters.iter().filter(|counter| counter.1 != 0).collect();
            assert!(matches!(counted[..], [(_, 1)]), "{op:?}: {counted:?}");
            assert_eq!(
                counters.atomics() == 1,
                row.length == Some(8) && row.has_response(),
                "{op:?}: atomics change 8 bytes and are answered"
            );
            if let SendOp::Atomic { op, .. } = op {
                let (kind, swap_or_add, compare) = op.in_packet();
                assert_eq!(Atomic::of_packet(kind, swap_or_add, compare), op);
            }
            assert_eq!(op.remote().is_some(), row.remote != Access::NONE, "{op:?}: a place needs a right");
            assert_eq!(
                row.local == Access::LOCAL_WRITE,
                row.data == DataDirection::Back,
                "{op:?}: what comes back is written"
            );
            assert_eq!(
                row.message == Message::None,
                row.has_response() || row.alone,
                "{op:?}: a request with a response is one packet, and what is of own keys alone none"
            );
            assert_eq!(op.takes_receive(), row.receive == Receive::Always || op.imm().is_some(), "{op:?}");
            assert!(
                row.services == Services::Reliable || !row.has_response(),
                "{op:?}: nobody answers on unreliable connections"
            );
            assert!(
                row.unaligned == 0 || row.length == Some(row.unaligned as u32 + 1),
                "{op:?}: an aligned word"
            );
        }
    }
}
