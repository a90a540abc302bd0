//! Requests that share units: see "Lists" in [`vrdma_abi::wqe`].

use vrdma_abi::wqe::{ListBody, WqeHeader, WrOpcode, flags, unit};
use vrdma_abi::zerocopy::little_endian::U32;
use vrdma_abi::zerocopy::transmute;

use super::parts::Sge;
use crate::span::Span;

/// The properties that all requests of a list share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListKind {
    /// SEND, RECV or SRQ_RECV.
    pub(super) opcode: WrOpcode,
    /// The flags of each request.
    pub(super) flags: u16,
    /// QPN or SRQN.
    pub(super) object: u32,
}

/// A request that a list may contain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed<'a> {
    pub(crate) kind: ListKind,
    pub(crate) wqe_id: u32,
    pub(crate) sge: &'a Sge,
}

/// A list that the device does not see yet, so that requests can be appended to it.
///
/// At first it is one request in the ordinary layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenList {
    kind: ListKind,
    wqe_id: u32,
    more: [u32; unit::LIST_MAX as usize - 1],
    len: u8,
}

impl OpenList {
    /// Creates a list from a request that was just written.
    #[inline]
    pub(crate) fn new(first: &Listed<'_>) -> Self {
        OpenList { kind: first.kind, wqe_id: first.wqe_id, more: [0; _], len: 1 }
    }

    /// Returns whether a request of this kind can be appended.
    #[inline]
    pub(crate) fn takes(&self, kind: ListKind) -> bool {
        self.kind == kind && u32::from(self.len) < unit::LIST_MAX
    }

    /// Returns the number of its units.
    #[inline]
    pub(crate) fn units(&self) -> usize {
        units(self.len)
    }

    /// Returns the number of its units after another request.
    #[inline]
    pub(crate) fn units_with_another(&self) -> usize {
        units(self.len + 1)
    }

    /// Appends a request.
    ///
    /// # Safety
    /// `span` has at least [`Self::units_with_another`] units, which contain the list.
    /// [`Self::takes`] returned true for the request.
    #[inline]
    pub(crate) unsafe fn append(&mut self, request: &Listed<'_>, span: &Span<'_>) {
        let place = usize::from(self.len);
        self.more[place - 1] = request.wqe_id;
        self.len += 1;
        let header: [u64; 2] = transmute!(WqeHeader {
            opcode: self.kind.opcode.0,
            units: self.units() as u8,
            flags: (self.kind.flags | flags::LIST).into(),
            object: self.kind.object.into(),
            wqe_id: self.wqe_id.into(),
            sge_count: self.len,
            reserved: 0,
            inline_len: 0.into(),
        });
        let body: [u64; 2] = transmute!(ListBody { wqe_ids: self.more.map(U32::new) });
        // SAFETY: header, body and one SGE per request lie inside the units, as units() counts
        // them.
        unsafe {
            span.put_pair(0, header);
            span.put_pair(unit::BODY_OFFSET as usize, body);
            span.put_pair(elements_end(place), request.sge.words());
        }
    }
}

/// Returns the offset after this number of SGEs.
#[inline]
const fn elements_end(count: usize) -> usize {
    unit::DATA_OFFSET as usize + count * size_of::<Sge>()
}

/// Returns the units of a list of this number of requests.
#[inline]
const fn units(len: u8) -> usize {
    elements_end(len as usize).div_ceil(unit::UNIT_SIZE as usize)
}
