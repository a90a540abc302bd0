//! What a work request is made of.

use vrdma_abi::wqe::unit;
use vrdma_abi::zerocopy::transmute;

/// A scatter/gather element in the CPU's byte order; the same layout as `struct ibv_sge`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// iova of the first byte; in a [`Gather`] the address in this process.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key of the region.
    pub lkey: u32,
}

impl Sge {
    /// As it stands in a request.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 2] {
        transmute!(vrdma_abi::wqe::Sge {
            addr: self.addr.into(),
            length: self.length.into(),
            lkey: self.lkey.into(),
        })
    }
}

/// Whose request it is, and how its completion will name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The QP, or the shared receive queue of a [`Request::srq_recv`](super::Request::srq_recv).
    pub qpn: u32,
    /// Comes back in the CQE; usually from [`crate::WrRing::next`].
    pub wqe_id: u32,
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// iova in the peer's region.
    pub addr: u64,
    /// Key of the peer's region.
    pub rkey: u32,
}

/// The receiver of a UD request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdTarget {
    /// Index in the AH table.
    pub ah: u32,
    /// QPN of the receiver.
    pub qpn: u32,
    /// Q_Key of the receiver; with the highest bit set, the sender's own is used.
    pub qkey: u32,
}

/// What a FLUSH is of, and how far it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// `VRDMA_FLUSH_*` ([`vrdma_abi::wqe::placement`]).
    pub placement: u8,
    /// All of the region: then address and length mean nothing.
    pub whole: bool,
    /// Length in bytes.
    pub length: u32,
}

/// What a memory window is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The window's rkey before.
    pub rkey: u32,
    /// Its rkey afterwards: the same but for the low 8 bits.
    pub new_rkey: u32,
    /// Local key of the region.
    pub lkey: u32,
    /// `VRDMA_ACCESS_*` of [`vrdma_abi::control::access::WINDOW`].
    pub access: u32,
    /// iova of the first byte.
    pub addr: u64,
    /// Length in bytes. 0 unbinds a window of type 1.
    pub length: u64,
}

/// Payload of a request that sends.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// The device reads registered memory.
    Sges(&'a [Sge]),
    /// The bytes travel in the request.
    Inline(&'a [u8]),
    /// The same, gathered from memory of this process.
    Gather(Gather<'a>),
}

impl Data<'_> {
    /// No payload.
    pub const EMPTY: Self = Data::Sges(&[]);
}

/// Pieces of this process' memory that are copied into a request one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Gather<'a> {
    /// The pieces.
    pub(super) list: &'a [Sge],
    /// Sum of the lengths, or [`unit::MAX_INLINE_V1_1`] + 1 if that is more.
    len: u32,
}

impl<'a> Gather<'a> {
    /// Takes `addr` and `length` of each element (`lkey` is ignored).
    ///
    /// # Safety
    /// While the value is in use, each element must name readable memory of this process, unless
    /// its length is 0.
    #[inline]
    pub unsafe fn new(list: &'a [Sge]) -> Self {
        let total: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
        Self { list, len: total.min(u64::from(unit::MAX_INLINE_V1_1) + 1) as u32 }
    }

    /// Sum of the lengths in bytes; anything above [`unit::MAX_INLINE_V1_1`] only says that it is
    /// too much.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is nothing to copy.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Why a request cannot be expressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WqeError {
    /// More elements than the largest request holds ([`unit::MAX_SGE_V1_1`]).
    TooManyElements,
    /// More inline data than the largest request holds ([`unit::MAX_INLINE_V1_1`]).
    InlineTooLong,
    /// More units than the channel or the buffer takes.
    TooManyUnits,
}
