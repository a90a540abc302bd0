//! The operations of send queues, one row each. Requester, responder and carriers ask the row; what
//! an operation does to memory is its effect ([`execute`](crate::message::effect::execute)), and
//! how it looks in packets is the carrier's.

mod effort;
mod named;
mod placement;

pub use placement::{FlushScope, Placement};

use crate::base::memory::Access;
use crate::verbs::attr::QpType;
use crate::verbs::window::Bind;
use vrdma_wire::num::{Imm, Mtu, Rkey};

/// What a send request does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// Into the peer's next receive.
    Send {
        /// Immediate data, as it goes on the wire.
        imm: Option<Imm>,
    },
    /// Into the peer's memory.
    Write {
        /// Where to.
        remote: Remote,
        /// Immediate data, which consumes the peer's next receive.
        imm: Option<Imm>,
    },
    /// Out of the peer's memory.
    Read {
        /// Where from.
        remote: Remote,
    },
    /// Stores `swap` in the peer's 8 bytes if they equal `compare`; their value before comes back.
    CompareSwap {
        /// Which 8 bytes; aligned.
        remote: Remote,
        /// Compared with.
        compare: u64,
        /// Stored when equal.
        swap: u64,
    },
    /// Adds to the peer's 8 bytes; their value before comes back.
    FetchAdd {
        /// Which 8 bytes; aligned.
        remote: Remote,
        /// Added, wrapping.
        add: u64,
    },
    /// Stores 8 bytes in the peer's memory at once, after all that came before (IBTA annex A19).
    AtomicWrite {
        /// Which 8 bytes; aligned.
        remote: Remote,
    },
    /// Has what this QP wrote before be where the request says (IBTA annex A19).
    Flush {
        /// Where it was written, a region's key at least.
        remote: Remote,
        /// What is flushed, and how far.
        scope: FlushScope,
    },
    /// Into the peer's next receive; then a key of the peer names nothing any more.
    SendInvalidate {
        /// Of a window of type 2B that the peer's QP bound, or of a region for fast registration in
        /// that QP's PD.
        key: Rkey,
    },
    /// Binds a memory window of the own device, or unbinds it.
    BindMw(Bind),
    /// Makes a key of the own device name nothing.
    LocalInvalidate {
        /// Of a window of type 2B that this QP bound, or of a region for fast registration in its
        /// PD.
        key: Rkey,
    },
    /// Registers memory with a free region for fast registration in the QP's PD
    /// ([`Engine::alloc_fast_mr`](crate::Engine::alloc_fast_mr)), on QPs of
    /// [`OwnerId::KERNEL`](crate::OwnerId::KERNEL) alone. (Fields, not a structure: it would make
    /// each request larger.)
    RegMr {
        /// The region's key afterwards: the low 8 bits are the requester's choice.
        key: Rkey,
        /// Rights of those in [`Access::ALL`].
        access: Access,
        /// Address of the first byte, as requests are to name it. It is as far into its page as
        /// that byte is into the first of the list.
        iova: u64,
        /// Bytes.
        length: u64,
        /// Where the list of pages is ([`PageList`](crate::PageList)): as many as the bytes take.
        list: u64,
        /// Size of a page, as a power of 2: 12 to 31.
        page_shift: u8,
    },
}

/// A place in the peer's memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Remote {
    /// Address in the peer's region.
    pub addr: u64,
    /// Key of the peer's region.
    pub rkey: Rkey,
}

/// What a completed request was (enum ibv_wc_opcode).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum WcOpcode {
    /// SEND, with or without immediate data.
    Send,
    /// WRITE, with or without immediate data.
    Write,
    /// READ.
    Read,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// FLUSH.
    Flush,
    /// A bind of a memory window.
    BindMw,
    /// An invalidation of an own key.
    LocalInvalidate,
    /// A fast registration.
    RegMr,
    /// A receive that took a SEND (or nothing, if it failed).
    Recv,
    /// A receive that a WRITE with immediate data consumed.
    RecvWriteImm,
}

/// What is true of every request of an operation.
#[derive(Debug)]
pub(crate) struct Row {
    /// What its completion says that it was.
    pub(crate) opcode: WcOpcode,
    /// Which way its payload goes.
    pub(crate) data: DataDirection,
    /// Bytes of its message, if it cannot have any number.
    pub(crate) length: Option<u32>,
    /// Rights that the requester's elements, and their keys, have to give.
    pub(crate) local: Access,
    /// Rights that the peer, and its key, have to give.
    pub(crate) remote: Access,
    /// Bits of the remote address that have to be 0.
    pub(crate) unaligned: u64,
    /// Which receives of the peer it takes.
    pub(crate) receive: Receive,
    /// What the peer answers.
    pub(crate) answer: Answer,
    /// What its packets but the last leave unfinished at the responder.
    pub(crate) message: Message,
    /// Which services have it.
    pub(crate) services: Services,
    /// It is of keys of the own device alone: it begins when all requests before it have ended, and
    /// ends at once; those behind it begin then. (IBTA 10.8.3.3 asks as much of a local
    /// invalidation, and of a bind that what comes behind it finds the window bound.)
    pub(crate) alone: bool,
}

/// Which services have an operation (IBTA table 38).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Services {
    /// Reliable connections.
    Reliable,
    /// All connections.
    Connected,
    /// Datagrams too.
    All,
}

/// Which way payload goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum DataDirection {
    /// To the responder.
    Out,
    /// Back to the requester.
    Back,
}

/// Which receives an operation takes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Receive {
    /// None.
    Never,
    /// One, which its payload goes to.
    Always,
    /// One, if it has immediate data.
    WithImm,
}

/// What a reliable responder answers. Of all but acknowledges, so many may be outstanding as
/// `max_rd_atomic` says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// An acknowledge, which may be of several requests.
    Acknowledge,
    /// A response with its data. The request is executed when it is answered, and anew when it is
    /// asked for again (IBTA 9.7.5.1.3).
    Data,
    /// A response with what it found, if it is one that finds something. The request is executed
    /// once, and what it found is remembered.
    Once,
}

/// A message that has begun and not ended at its responder.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// There is none: a request is one packet.
    None,
    /// Into a receive.
    Send,
    /// Into a region.
    Write,
}

/// Rights that the elements of a receive have to give to a message that goes into it.
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

/// Its responses are sent without the request, which said all that the row is asked for then.
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
    ..SEND
};

/// A request without a byte of its own.
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

impl SendOp {
    /// What is true of all requests like this one.
    #[inline]
    pub(crate) fn row(&self) -> &'static Row {
        match self {
            SendOp::Send { .. } => &SEND,
            SendOp::Write { .. } => &WRITE,
            SendOp::Read { .. } => &READ,
            SendOp::CompareSwap { .. } => &COMPARE_SWAP,
            SendOp::FetchAdd { .. } => &FETCH_ADD,
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
}

impl Row {
    /// PSNs of a message (IBTA 9.7.3.2): those of its packets, or of its responses.
    #[inline]
    pub(crate) fn psns(&self, mtu: Mtu, message: u32) -> u32 {
        mtu.packets(message)
    }

    /// PSNs of a stretch of a message. Those of responses all go with the request, which is first
    /// (IBTA 9.7.5.1.5).
    #[inline]
    pub(crate) fn psns_of_stretch(&self, mtu: Mtu, first: bool, length: u32, message: u32) -> u32 {
        match self.data {
            DataDirection::Out => mtu.packets(length),
            DataDirection::Back if first => mtu.packets(message),
            DataDirection::Back => 0,
        }
    }

    /// PSNs of one packet of it.
    #[inline]
    pub(crate) fn psns_of_packet(&self, mtu: Mtu, message: u32) -> u32 {
        match self.data {
            DataDirection::Out => 1,
            DataDirection::Back => mtu.packets(message),
        }
    }

    /// Whether a service has it.
    #[inline]
    pub(crate) fn is_of(&self, service: QpType) -> bool {
        match service {
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv => true,
            QpType::Uc => self.services != Services::Reliable,
            QpType::Ud | QpType::Gsi => self.services == Services::All,
        }
    }

    /// Whether the peer's answer is for this request alone.
    #[inline]
    pub(crate) fn has_response(&self) -> bool {
        self.answer != Answer::Acknowledge
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const PLACE: Remote = Remote { addr: 8, rkey: Rkey(1) };

    const fn flush(placement: Placement) -> SendOp {
        SendOp::Flush { remote: PLACE, scope: FlushScope { placement, whole: false, length: 8 } }
    }

    /// One of each, with and without immediate data.
    pub(crate) const ALL: [SendOp; 15] = [
        SendOp::Send { imm: None },
        SendOp::Send { imm: Some(Imm::from_bytes([1, 2, 3, 4])) },
        SendOp::Write { remote: PLACE, imm: None },
        SendOp::Write { remote: PLACE, imm: Some(Imm::from_bytes([1, 2, 3, 4])) },
        SendOp::Read { remote: PLACE },
        SendOp::CompareSwap { remote: PLACE, compare: 1, swap: 2 },
        SendOp::FetchAdd { remote: PLACE, add: 1 },
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
