//! A work request as a value, and its encoding into 64-byte units.

pub(crate) mod list;
mod parts;

use core::ptr;

use vrdma_abi::wqe::{
    AtomicOperands, BindMwBody, BindMwRange, FlushBody, FlushRange, RdmaBody, UdBody, WrOpcode, XrcBody,
    flags, flush_level, unit,
};
use vrdma_abi::zerocopy::{big_endian, transmute};

use crate::span::Span;
use crate::unit::Unit;
use list::{ListKind, Listed};
pub use parts::{Bind, Data, Flush, Gather, Remote, Sge, Tag, UdTarget, WqeError};

/// Bytes of a unit.
const UNIT: usize = unit::UNIT_SIZE as usize;
/// Where SGEs, inline data or atomic operands begin in a request that is not of XRC.
const DATA_OFFSET: usize = unit::DATA_OFFSET as usize;
/// Bytes of atomic operands and similar ones.
const OPERANDS: usize = unit::ATOMIC_SGE_OFFSET as usize - DATA_OFFSET;
/// Bytes of an SGE.
const SGE: usize = size_of::<Sge>();

/// A work request.
///
/// It is made by the constructor of its kind. The `bool` methods then set flags. The caller checks
/// the capabilities of the QP.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    opcode: WrOpcode,
    flags: u16,
    tag: Tag,
    body: [u64; 2],
    operands: [u64; 2],
    /// The peer's shared receive queue, with [`flags::XRC`].
    srqn: u32,
    data: Data<'a>,
    /// Whether a list may contain its operation.
    listable: bool,
}

impl<'a> Request<'a> {
    /// Makes a SEND on an RC or UC QP.
    #[inline]
    pub fn send(tag: Tag, data: Data<'a>) -> Self {
        Self::new(WrOpcode::SEND, tag, [0; 2], data).listable()
    }

    /// Makes a SEND with immediate data. `imm` reaches the peer's CQE unchanged.
    #[inline]
    pub fn send_imm(tag: Tag, imm: [u8; 4], data: Data<'a>) -> Self {
        Self::new(WrOpcode::SEND_WITH_IMM, tag, rdma_body(Remote { addr: 0, rkey: 0 }, imm), data)
    }

    /// Makes an RDMA WRITE.
    #[inline]
    pub fn write(tag: Tag, remote: Remote, data: Data<'a>) -> Self {
        Self::new(WrOpcode::RDMA_WRITE, tag, rdma_body(remote, [0; 4]), data)
    }

    /// Makes an RDMA WRITE with immediate data, which consumes a receive of the peer.
    #[inline]
    pub fn write_imm(tag: Tag, remote: Remote, imm: [u8; 4], data: Data<'a>) -> Self {
        Self::new(WrOpcode::RDMA_WRITE_WITH_IMM, tag, rdma_body(remote, imm), data)
    }

    /// Makes an RDMA READ into `sges`.
    #[inline]
    pub fn read(tag: Tag, remote: Remote, sges: &'a [Sge]) -> Self {
        Self::new(WrOpcode::RDMA_READ, tag, rdma_body(remote, [0; 4]), Data::Sges(sges))
    }

    /// Makes an atomic that compares 8 bytes with `compare`, and stores `swap` if they are equal.
    ///
    /// `result` receives the former value.
    #[inline]
    pub fn compare_swap(tag: Tag, remote: Remote, compare: u64, swap: u64, result: &'a Sge) -> Self {
        Self::atomic(WrOpcode::ATOMIC_CMP_AND_SWP, tag, remote, compare, swap, result)
    }

    /// Makes an atomic that adds `add` to 8 bytes. `result` receives the former value.
    #[inline]
    pub fn fetch_add(tag: Tag, remote: Remote, add: u64, result: &'a Sge) -> Self {
        Self::atomic(WrOpcode::ATOMIC_FETCH_AND_ADD, tag, remote, add, 0, result)
    }

    /// Makes an ATOMIC WRITE: it stores the 8 bytes of `data` at once, after all earlier requests.
    #[inline]
    pub fn atomic_write(tag: Tag, remote: Remote, data: Data<'a>) -> Self {
        Self::new(WrOpcode::ATOMIC_WRITE, tag, rdma_body(remote, [0; 4]), data)
    }

    /// Makes a FLUSH: it completes when earlier writes are placed at the peer as `flush` requires.
    #[inline]
    pub fn flush(tag: Tag, remote: Remote, flush: Flush) -> Self {
        let body = transmute!(FlushBody {
            remote_addr: remote.addr.into(),
            rkey: remote.rkey.into(),
            placement: flush.placement,
            level: if flush.whole { flush_level::REGION } else { flush_level::RANGE },
            reserved: 0.into(),
        });
        let operands = transmute!(FlushRange { length: flush.length.into(), reserved: [0; 12] });
        Self { operands, ..Self::new(WrOpcode::FLUSH, tag, body, Data::EMPTY) }
    }

    /// Makes a SEND that invalidates the peer's key `rkey`, on an RC QP.
    #[inline]
    pub fn send_inv(tag: Tag, rkey: u32, data: Data<'a>) -> Self {
        Self::new(WrOpcode::SEND_WITH_INV, tag, rdma_body(Remote { addr: 0, rkey }, [0; 4]), data)
    }

    /// Makes a request that invalidates the own key `rkey` when all earlier requests are complete.
    #[inline]
    pub fn local_inv(tag: Tag, rkey: u32) -> Self {
        Self::new(WrOpcode::LOCAL_INV, tag, rdma_body(Remote { addr: 0, rkey }, [0; 4]), Data::EMPTY)
    }

    /// Makes a bind of a memory window.
    #[inline]
    pub fn bind_mw(tag: Tag, bind: &Bind) -> Self {
        let body = transmute!(BindMwBody {
            rkey: bind.rkey.into(),
            new_rkey: bind.new_rkey.into(),
            lkey: bind.lkey.into(),
            access: bind.access.into(),
        });
        let operands = transmute!(BindMwRange { addr: bind.addr.into(), length: bind.length.into() });
        Self { operands, ..Self::new(WrOpcode::BIND_MW, tag, body, Data::EMPTY) }
    }

    /// Makes a SEND on a UD QP.
    #[inline]
    pub fn ud_send(tag: Tag, to: UdTarget, data: Data<'a>) -> Self {
        Self::new(WrOpcode::SEND, tag, ud_body(to, [0; 4]), data)
    }

    /// Makes a SEND with immediate data on a UD QP.
    #[inline]
    pub fn ud_send_imm(tag: Tag, to: UdTarget, imm: [u8; 4], data: Data<'a>) -> Self {
        Self::new(WrOpcode::SEND_WITH_IMM, tag, ud_body(to, imm), data)
    }

    /// Makes a RECV for the receive queue.
    #[inline]
    pub fn recv(tag: Tag, sges: &'a [Sge]) -> Self {
        Self::new(WrOpcode::RECV, tag, [0; 2], Data::Sges(sges)).listable()
    }

    /// Makes a RECV for shared receive queue `srqn`.
    #[inline]
    pub fn srq_recv(srqn: u32, wqe_id: u32, sges: &'a [Sge]) -> Self {
        Self::new(WrOpcode::SRQ_RECV, Tag { qpn: srqn, wqe_id }, [0; 2], Data::Sges(sges)).listable()
    }

    /// Sets whether success makes a CQE too. It has no meaning for RECV, which always makes one.
    #[inline]
    pub fn signaled(self, yes: bool) -> Self {
        self.with(flags::SIGNALED, yes)
    }

    /// Sets whether the receiver gets a solicited event.
    #[inline]
    pub fn solicited(self, yes: bool) -> Self {
        self.with(flags::SOLICITED, yes)
    }

    /// Sets whether it waits for earlier READs and atomics.
    #[inline]
    pub fn fence(self, yes: bool) -> Self {
        self.with(flags::FENCE, yes)
    }

    /// Sets the peer's shared receive queue, for a request on an XRC initiator.
    #[inline]
    pub fn xrc(self, srqn: u32) -> Self {
        Self { srqn, listable: false, ..self.with(flags::XRC, true) }
    }

    /// Returns the number of units that it takes.
    ///
    /// # Errors
    /// Fails if it is longer than the largest possible request.
    #[inline]
    pub fn units(&self) -> Result<usize, WqeError> {
        let operands = if self.opcode.has_operands() { OPERANDS } else { 0 };
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
        Ok((self.data_offset() + operands + bytes).div_ceil(UNIT))
    }

    /// Writes it to the front of `units`, for the kernel's slow path and for tests.
    ///
    /// Returns how many units it took.
    ///
    /// # Errors
    /// Fails if it cannot be expressed, or not in `units`. Nothing is written then.
    pub fn encode(&self, units: &mut [Unit]) -> Result<usize, WqeError> {
        let count = self.units()?;
        let Some(front) = units.get_mut(..count) else { return Err(WqeError::TooManyUnits) };
        // The request leaves a part of its last unit untouched. That part must not contain old
        // bytes, because the buffer may leave the process.
        front.fill(Unit::default());
        // SAFETY: the span covers exactly the units that the request needs.
        unsafe { self.write_to(&Span::contiguous(front), count) };
        Ok(count)
    }

    /// Writes it to its units.
    ///
    /// # Safety
    /// `span` has at least `units` units, and `units` is the result of [`Self::units`].
    // Inlined into its caller. A request that is assembled in memory is read there in other pieces
    // than it was stored in, which takes until these stores are done. They queue behind stores to
    // units whose cache lines the device's processor has.
    #[inline(always)]
    pub(crate) unsafe fn write_to(&self, span: &Span<'_>, units: usize) {
        let (sge_count, inline_len, inline_flag) = match self.data {
            Data::Sges(sges) => (sges.len() as u8, 0, 0),
            Data::Inline(_) | Data::Gather(_) => {
                let len = self.inline_len() as u16;
                // Without a byte there is no inline data.
                (0, len, if len == 0 { 0 } else { flags::INLINE })
            }
        };
        // A `WqeHeader`, in whole words.
        let header = [
            u64::from(self.opcode.0)
                | (units as u64) << 8
                | u64::from(self.flags | inline_flag) << 16
                | u64::from(self.tag.qpn) << 32,
            u64::from(self.tag.wqe_id) | u64::from(sge_count) << 32 | u64::from(inline_len) << 48,
        ]
        .map(u64::to_le);
        // SAFETY: header, body and the rest lie inside `units` units, as units() counted them.
        unsafe {
            span.put_pair(0, header);
            span.put_pair(unit::BODY_OFFSET as usize, self.body);
            if self.flags & flags::XRC != 0 {
                span.put_pair(DATA_OFFSET, xrc_body(self.srqn));
            }
            let data = self.data_offset();
            if self.opcode.has_operands() {
                span.put_pair(data, self.operands);
            }
            match self.data {
                Data::Sges(sges) => {
                    let start = if self.opcode.has_operands() { data + OPERANDS } else { data };
                    for (i, sge) in sges.iter().enumerate() {
                        span.put_pair(start + i * SGE, sge.words());
                    }
                }
                Data::Inline(bytes) => span.put_bytes(data, bytes.as_ptr(), bytes.len()),
                Data::Gather(gather) => {
                    let mut offset = data;
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
        Self { opcode, flags: 0, tag, body, operands: [0; 2], srqn: 0, data, listable: false }
    }

    #[inline]
    fn listable(self) -> Self {
        Self { listable: true, ..self }
    }

    /// Returns whether a list may contain its operation.
    #[inline]
    pub(crate) fn is_listable(&self) -> bool {
        self.listable
    }

    /// Returns the request as one of a list, if that is possible.
    #[inline]
    pub(crate) fn listed(&self) -> Option<Listed<'_>> {
        match self.data {
            Data::Sges([sge]) if self.listable => {
                let kind = ListKind { opcode: self.opcode, flags: self.flags, object: self.tag.qpn };
                Some(Listed { kind, wqe_id: self.tag.wqe_id, sge })
            }
            _ => None,
        }
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

    /// Returns the offset of SGEs, inline data or operands.
    #[inline]
    fn data_offset(&self) -> usize {
        DATA_OFFSET + if self.flags & flags::XRC != 0 { unit::XRC_SHIFT as usize } else { 0 }
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
fn xrc_body(srqn: u32) -> [u64; 2] {
    transmute!(XrcBody { remote_srqn: srqn.into(), reserved: [0; 12] })
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

#[cfg(test)]
mod tests;
