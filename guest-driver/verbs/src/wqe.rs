//! A work request as a value, and how it becomes 64-byte units.

use core::ptr;

use vrdma_abi::wqe::{AtomicOperands, RdmaBody, UdBody, WqeHeader, WrOpcode, flags, unit};
use vrdma_abi::zerocopy::{big_endian, transmute};

use crate::span::Span;
use crate::unit::Unit;

/// Bytes of a unit.
const UNIT: usize = unit::UNIT_SIZE as usize;
/// Where elements, inline data or atomic operands begin in a request.
const DATA_OFFSET: usize = unit::DATA_OFFSET as usize;
/// Bytes of an element.
const SGE: usize = size_of::<Sge>();

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

/// Whose request it is, and how its completion will name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The QP, or the shared receive queue of a [`Request::srq_recv`].
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
    list: &'a [Sge],
    /// Sum of the lengths, or [`unit::MAX_INLINE_V1_1`] + 1 if that is more.
    len: u32,
}

impl<'a> Gather<'a> {
    /// Takes `addr` and `length` of each element (`lkey` is ignored).
    ///
    /// # Safety
    /// While the value is in use, each element must name readable memory of this process, unless its length is 0.
    #[inline]
    pub unsafe fn new(list: &'a [Sge]) -> Self {
        let total: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
        Self { list, len: total.min(u64::from(unit::MAX_INLINE_V1_1) + 1) as u32 }
    }

    /// Sum of the lengths in bytes; anything above [`unit::MAX_INLINE_V1_1`] only says that it is too much.
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

/// A work request.
///
/// Made by the constructor of its kind; the `bool` methods then set flags. What a QP's own capabilities allow
/// is for the caller to check.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    opcode: WrOpcode,
    flags: u16,
    tag: Tag,
    body: [u64; 2],
    operands: [u64; 2],
    data: Data<'a>,
}

impl<'a> Request<'a> {
    /// SEND on an RC or UC QP.
    #[inline]
    pub fn send(tag: Tag, data: Data<'a>) -> Self {
        Self::new(WrOpcode::SEND, tag, [0; 2], data)
    }

    /// SEND with immediate data: `imm` reaches the peer's CQE as it is.
    #[inline]
    pub fn send_imm(tag: Tag, imm: [u8; 4], data: Data<'a>) -> Self {
        Self::new(WrOpcode::SEND_WITH_IMM, tag, rdma_body(Remote { addr: 0, rkey: 0 }, imm), data)
    }

    /// RDMA WRITE.
    #[inline]
    pub fn write(tag: Tag, remote: Remote, data: Data<'a>) -> Self {
        Self::new(WrOpcode::RDMA_WRITE, tag, rdma_body(remote, [0; 4]), data)
    }

    /// RDMA WRITE with immediate data, which consumes a receive of the peer.
    #[inline]
    pub fn write_imm(tag: Tag, remote: Remote, imm: [u8; 4], data: Data<'a>) -> Self {
        Self::new(WrOpcode::RDMA_WRITE_WITH_IMM, tag, rdma_body(remote, imm), data)
    }

    /// RDMA READ into `sges`.
    #[inline]
    pub fn read(tag: Tag, remote: Remote, sges: &'a [Sge]) -> Self {
        Self::new(WrOpcode::RDMA_READ, tag, rdma_body(remote, [0; 4]), Data::Sges(sges))
    }

    /// Compare 8 bytes with `compare`, store `swap` if equal; `result` receives the value before.
    #[inline]
    pub fn compare_swap(tag: Tag, remote: Remote, compare: u64, swap: u64, result: &'a Sge) -> Self {
        Self::atomic(WrOpcode::ATOMIC_CMP_AND_SWP, tag, remote, compare, swap, result)
    }

    /// Add `add` to 8 bytes; `result` receives the value before.
    #[inline]
    pub fn fetch_add(tag: Tag, remote: Remote, add: u64, result: &'a Sge) -> Self {
        Self::atomic(WrOpcode::ATOMIC_FETCH_AND_ADD, tag, remote, add, 0, result)
    }

    /// ATOMIC WRITE: store the 8 bytes of `data` at once, after all that came before.
    #[inline]
    pub fn atomic_write(tag: Tag, remote: Remote, data: Data<'a>) -> Self {
        Self::new(WrOpcode::ATOMIC_WRITE, tag, rdma_body(remote, [0; 4]), data)
    }

    /// SEND on a UD QP.
    #[inline]
    pub fn ud_send(tag: Tag, to: UdTarget, data: Data<'a>) -> Self {
        Self::new(WrOpcode::SEND, tag, ud_body(to, [0; 4]), data)
    }

    /// SEND with immediate data on a UD QP.
    #[inline]
    pub fn ud_send_imm(tag: Tag, to: UdTarget, imm: [u8; 4], data: Data<'a>) -> Self {
        Self::new(WrOpcode::SEND_WITH_IMM, tag, ud_body(to, imm), data)
    }

    /// RECV, for the receive queue.
    #[inline]
    pub fn recv(tag: Tag, sges: &'a [Sge]) -> Self {
        Self::new(WrOpcode::RECV, tag, [0; 2], Data::Sges(sges))
    }

    /// RECV, for shared receive queue `srqn`.
    #[inline]
    pub fn srq_recv(srqn: u32, wqe_id: u32, sges: &'a [Sge]) -> Self {
        Self::new(WrOpcode::SRQ_RECV, Tag { qpn: srqn, wqe_id }, [0; 2], Data::Sges(sges))
    }

    /// Whether success makes a CQE too. Meaningless for RECV, which always makes one.
    #[inline]
    pub fn signaled(self, yes: bool) -> Self {
        self.with(flags::SIGNALED, yes)
    }

    /// Whether the receiver gets a solicited event.
    #[inline]
    pub fn solicited(self, yes: bool) -> Self {
        self.with(flags::SOLICITED, yes)
    }

    /// Whether it waits for the READs and atomics before it.
    #[inline]
    pub fn fence(self, yes: bool) -> Self {
        self.with(flags::FENCE, yes)
    }

    /// Number of units that hold it.
    ///
    /// # Errors
    /// If the largest possible request does not.
    #[inline]
    pub fn units(&self) -> Result<usize, WqeError> {
        if self.is_atomic() {
            return Ok(1);
        }
        let bytes = match self.data {
            Data::Sges(sges) if sges.len() > unit::MAX_SGE_V1_1 as usize => {
                return Err(WqeError::TooManyElements);
            }
            Data::Sges(sges) => sges.len() * SGE,
            Data::Inline(_) | Data::Gather(_) => {
                let len = self.inline_len();
                if len > unit::MAX_INLINE_V1_1 as usize {
                    return Err(WqeError::InlineTooLong);
                }
                len
            }
        };
        Ok((DATA_OFFSET + bytes).div_ceil(UNIT))
    }

    /// Writes it to the front of `units`, for the kernel's slow path and for tests; says how many it took.
    ///
    /// # Errors
    /// If it cannot be expressed, or not in `units`; nothing is written then.
    pub fn encode(&self, units: &mut [Unit]) -> Result<usize, WqeError> {
        let count = self.units()?;
        let Some(front) = units.get_mut(..count) else { return Err(WqeError::TooManyUnits) };
        // What the request leaves untouched in its last unit must not be somebody's old bytes: the buffer
        // may be on its way out of the process.
        front.fill(Unit::default());
        // SAFETY: the span covers exactly the units that the request was just said to need.
        unsafe { self.write_to(&Span::contiguous(front), count) };
        Ok(count)
    }

    /// Writes it to its units.
    ///
    /// # Safety
    /// `span` has at least `units` units, and `units` is what [`Self::units`] said.
    #[inline]
    pub(crate) unsafe fn write_to(&self, span: &Span<'_>, units: usize) {
        let (sge_count, inline_len, inline_flag) = match self.data {
            Data::Sges(sges) => (sges.len() as u8, 0, 0),
            Data::Inline(_) | Data::Gather(_) => {
                let len = self.inline_len() as u16;
                // Without a byte there is nothing inline.
                (0, len, if len == 0 { 0 } else { flags::INLINE })
            }
        };
        let header: [u64; 2] = transmute!(WqeHeader {
            opcode: self.opcode.0,
            units: units as u8,
            flags: (self.flags | inline_flag).into(),
            object: self.tag.qpn.into(),
            wqe_id: self.tag.wqe_id.into(),
            sge_count,
            reserved: 0,
            inline_len: inline_len.into(),
        });
        // SAFETY: header, body and what follows lie inside `units` units, which is how units() counted them.
        unsafe {
            span.put_pair(0, header);
            span.put_pair(unit::BODY_OFFSET as usize, self.body);
            if self.is_atomic() {
                span.put_pair(DATA_OFFSET, self.operands);
            }
            match self.data {
                Data::Sges(sges) => {
                    let start = if self.is_atomic() { unit::ATOMIC_SGE_OFFSET as usize } else { DATA_OFFSET };
                    for (i, sge) in sges.iter().enumerate() {
                        span.put_pair(start + i * SGE, sge_words(sge));
                    }
                }
                Data::Inline(bytes) => span.put_bytes(DATA_OFFSET, bytes.as_ptr(), bytes.len()),
                Data::Gather(gather) => {
                    let mut offset = DATA_OFFSET;
                    for sge in gather.list.iter().filter(|sge| sge.length != 0) {
                        let len = sge.length as usize;
                        span.put_bytes(offset, ptr::with_exposed_provenance(sge.addr as usize), len);
                        offset += len;
                    }
                }
            }
        }
    }

    #[inline]
    fn new(opcode: WrOpcode, tag: Tag, body: [u64; 2], data: Data<'a>) -> Self {
        Self { opcode, flags: 0, tag, body, operands: [0; 2], data }
    }

    #[inline]
    fn atomic(opcode: WrOpcode, tag: Tag, remote: Remote, first: u64, swap: u64, result: &'a Sge) -> Self {
        let data = Data::Sges(core::slice::from_ref(result));
        let operands = transmute!(AtomicOperands { compare_add: first.into(), swap: swap.into() });
        Self { operands, ..Self::new(opcode, tag, rdma_body(remote, [0; 4]), data) }
    }

    #[inline]
    fn with(mut self, flag: u16, yes: bool) -> Self {
        self.flags = if yes { self.flags | flag } else { self.flags & !flag };
        self
    }

    #[inline]
    fn is_atomic(&self) -> bool {
        matches!(self.opcode, WrOpcode::ATOMIC_CMP_AND_SWP | WrOpcode::ATOMIC_FETCH_AND_ADD)
    }

    #[inline]
    fn inline_len(&self) -> usize {
        match self.data {
            Data::Sges(_) => 0,
            Data::Inline(bytes) => bytes.len(),
            Data::Gather(gather) => gather.len(),
        }
    }
}

#[inline]
fn rdma_body(remote: Remote, imm: [u8; 4]) -> [u64; 2] {
    transmute!(RdmaBody {
        remote_addr: remote.addr.into(),
        rkey: remote.rkey.into(),
        imm: big_endian::U32::from_bytes(imm),
    })
}

#[inline]
fn ud_body(to: UdTarget, imm: [u8; 4]) -> [u64; 2] {
    transmute!(UdBody {
        ah: to.ah.into(),
        remote_qpn: to.qpn.into(),
        qkey: to.qkey.into(),
        imm: big_endian::U32::from_bytes(imm),
    })
}

#[inline]
fn sge_words(sge: &Sge) -> [u64; 2] {
    transmute!(vrdma_abi::wqe::Sge {
        addr: sge.addr.into(),
        length: sge.length.into(),
        lkey: sge.lkey.into(),
    })
}

#[cfg(test)]
mod tests;
