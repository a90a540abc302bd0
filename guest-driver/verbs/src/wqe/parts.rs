//! The parts of a work request.

use vrdma_abi::wqe::unit;
use vrdma_abi::zerocopy::transmute;

/// A scatter/gather element in the CPU's byte order, with the layout of `struct ibv_sge`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// The IOVA of the first byte; in a [`Gather`] the address in this process.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// The local key of the region.
    pub lkey: u32,
}

impl Sge {
    /// Returns its encoding in a request.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 2] {
        transmute!(vrdma_abi::wqe::Sge {
            addr: self.addr.into(),
            length: self.length.into(),
            lkey: self.lkey.into(),
        })
    }
}

/// The queue of a request, and the number by which its completion names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The QP, or the shared receive queue of a [`Request::srq_recv`](super::Request::srq_recv).
    pub qpn: u32,
    /// The number that returns in the CQE; usually from [`crate::WrRing::next`].
    pub wqe_id: u32,
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The IOVA in the peer's region.
    pub addr: u64,
    /// The key of the peer's region.
    pub rkey: u32,
}

/// The receiver of a UD request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdTarget {
    /// The index in the AH table.
    pub ah: u32,
    /// The QPN of the receiver.
    pub qpn: u32,
    /// The Q_Key of the receiver. If the highest bit is set, the sender's own Q_Key is used.
    pub qkey: u32,
}

/// The memory that a FLUSH covers, and its placement type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// `VRDMA_FLUSH_*` ([`vrdma_abi::wqe::placement`]).
    pub placement: u8,
    /// Covers the whole region. Address and length are then ignored.
    pub whole: bool,
    /// Length in bytes.
    pub length: u32,
}

/// The range and the rights of a memory window's bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The rkey of the window before the bind.
    pub rkey: u32,
    /// Its rkey afterwards. It differs only in the low 8 bits.
    pub new_rkey: u32,
    /// The local key of the region.
    pub lkey: u32,
    /// `VRDMA_ACCESS_*` of [`vrdma_abi::control::access::WINDOW`].
    pub access: u32,
    /// The IOVA of the first byte.
    pub addr: u64,
    /// Length in bytes. 0 unbinds a window of type 1.
    pub length: u64,
}

/// The payload of a request that sends.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// The device reads registered memory.
    Sges(&'a [Sge]),
    /// The bytes are copied into the request.
    Inline(&'a [u8]),
    /// The bytes are copied into the request from several pieces of this process' memory.
    Gather(Gather<'a>),
}

impl Data<'_> {
    /// No payload.
    pub const EMPTY: Self = Data::Sges(&[]);
}

/// Pieces of this process' memory that are copied into a request one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Gather<'a> {
    /// The pieces.
    pub(super) list: &'a [Sge],
    /// The sum of the lengths, or [`unit::MAX_INLINE_V1_1`] + 1 if the sum is larger.
    len: u32,
}

impl<'a> Gather<'a> {
    /// Takes `addr` and `length` of each SGE (`lkey` is ignored).
    ///
    /// # Safety
    /// While the value is in use, each SGE must name readable memory of this process, unless its
    /// length is 0.
    #[inline]
    pub unsafe fn new(list: &'a [Sge]) -> Self {
        let total: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
        Self { list, len: total.min(u64::from(unit::MAX_INLINE_V1_1) + 1) as u32 }
    }

    /// Returns the sum of the lengths in bytes. A value above [`unit::MAX_INLINE_V1_1`] only says
    /// that it is too long.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether there is nothing to copy.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Why a request cannot be expressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WqeError {
    /// More SGEs than the largest request holds ([`unit::MAX_SGE_V1_1`]).
    TooManyElements,
    /// More inline data than the largest request holds ([`unit::MAX_INLINE_V1_1`]).
    InlineTooLong,
    /// More units than the channel or the buffer takes.
    TooManyUnits,
}
