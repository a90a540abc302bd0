//! Copies of bytes between two sides, each of which may be in several pieces.
//!
//! Every piece is checked where it is used. There is no other way to a region's memory.

use crate::base::id::PdId;
use crate::base::inter_worker::PinnedRegion;
use crate::base::memory::{Access, Fault, Region};
use crate::objects::mr::Mrs;
use crate::verbs::request::Sge;

/// The side that is at fault.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The side that the bytes come from.
    Source,
    /// The side that the bytes go to.
    Destination,
}

/// Why some or all bytes did not move.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct TransferError {
    pub(crate) side: Side,
    /// Whether the memory does not exist any more. If false, a key, range or right is wrong.
    pub(crate) fault: bool,
}

impl TransferError {
    fn refused(side: Side) -> TransferError {
        TransferError { side, fault: false }
    }

    fn fault(side: Side) -> TransferError {
        TransferError { side, fault: true }
    }
}

/// What decides whether an element may be used: regions, protection domain and rights.
pub(crate) struct Elements<'a, R> {
    pub(crate) mrs: &'a Mrs<R>,
    pub(crate) pd: PdId,
    pub(crate) rights: Access,
}

impl<R> Clone for Elements<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Elements<'_, R> {}

impl<'a, R> Elements<'a, R> {
    /// Whether all of these elements may be used.
    #[inline]
    pub(crate) fn check(&self, sges: &[Sge]) -> bool {
        sges.iter().all(|sge| sge.length == 0 || self.find(sge, 0, sge.length).is_some())
    }

    /// Looks up bytes of an element. Returns the region and the offset in it, if they may be used.
    #[inline(always)]
    pub(crate) fn find(&self, sge: &Sge, from: u32, length: u32) -> Option<(&'a R, u64)> {
        let addr = sge.addr.checked_add(u64::from(from))?;
        self.mrs.local(sge.lkey, self.pd, self.rights, addr, u64::from(length))
    }
}

/// The part of one side that is still to be copied.
pub(crate) enum Span<'a, R> {
    /// A region, from an offset on. The range was checked.
    Flat(&'a R, u64),
    /// Elements, and how many bytes of the first one are done.
    List(Elements<'a, R>, &'a [Sge], u32),
}

impl<R> Clone for Span<'_, R> {
    fn clone(&self) -> Self {
        match *self {
            Span::Flat(region, offset) => Span::Flat(region, offset),
            Span::List(elements, sges, used) => Span::List(elements, sges, used),
        }
    }
}

impl<'a, R> Span<'a, R> {
    /// Returns the span of elements from byte `offset` on.
    #[inline]
    pub(crate) fn list(elements: Elements<'a, R>, mut sges: &'a [Sge], mut offset: u32) -> Span<'a, R> {
        while let Some((first, rest)) = sges.split_first()
            && offset >= first.length
        {
            offset -= first.length;
            sges = rest;
        }
        Span::List(elements, sges, offset)
    }

    /// Returns the span of `length` bytes of elements from byte `offset` on.
    ///
    /// If the bytes are in one element, it is looked up at once.
    #[inline(always)]
    pub(crate) fn of(elements: Elements<'a, R>, sges: &'a [Sge], offset: u32, length: u32) -> Span<'a, R> {
        if let Some(sge) = sges.first()
            && length != 0
            && sge.length.checked_sub(offset).is_some_and(|rest| rest >= length)
            && let Some((region, at)) = elements.find(sge, offset, length)
        {
            return Span::Flat(region, at);
        }
        Span::list(elements, sges, offset)
    }

    /// Takes the next contiguous piece, of at most `most` bytes (not 0). Returns region, offset and
    /// length.
    ///
    /// Returns `None` if the piece may not be used.
    #[inline(always)]
    pub(crate) fn piece(&mut self, most: u32) -> Option<(&'a R, u64, u32)> {
        match self {
            Span::Flat(region, offset) => {
                let piece = (*region, *offset, most);
                *offset += u64::from(most);
                Some(piece)
            }
            Span::List(elements, sges, used) => {
                while sges.first()?.length == *used {
                    *used = 0;
                    *sges = &sges[1..];
                }
                let sge = sges.first()?;
                let length = most.min(sge.length - *used);
                let (region, offset) = elements.find(sge, *used, length)?;
                *used += length;
                Some((region, offset, length))
            }
        }
    }
}

/// Copies `length` bytes.
///
/// Inlined, so that a side is stored in memory only if it is in several pieces.
#[inline(always)]
pub(crate) fn copy<R: Region>(
    source: Span<'_, R>,
    target: Span<'_, R>,
    length: u32,
) -> Result<(), TransferError> {
    match (&source, &target) {
        (&Span::Flat(from, from_offset), &Span::Flat(to, to_offset)) if length != 0 => {
            let length = u64::from(length);
            let moved = from.copy_to(from_offset, to, to_offset, length);
            moved.map_err(|Fault| TransferError::fault(blame(from, from_offset, length)))
        }
        _ => copy_pieces(source, target, length),
    }
}

/// Copies `length` bytes of which either side is in several pieces.
#[inline(never)]
fn copy_pieces<R: Region>(
    mut source: Span<'_, R>,
    mut target: Span<'_, R>,
    length: u32,
) -> Result<(), TransferError> {
    let mut left = length;
    while left > 0 {
        let (from, mut from_offset, mut at_once) =
            source.piece(left).ok_or(TransferError::refused(Side::Source))?;
        left -= at_once;
        while at_once > 0 {
            let (to, to_offset, part) =
                target.piece(at_once).ok_or(TransferError::refused(Side::Destination))?;
            let length = u64::from(part);
            if from.copy_to(from_offset, to, to_offset, length).is_err() {
                return Err(TransferError::fault(blame(from, from_offset, length)));
            }
            from_offset += length;
            at_once -= part;
        }
    }
    Ok(())
}

/// Whether the next `length` bytes may be used at present.
#[inline(never)]
pub(crate) fn may_be_used<R>(mut span: Span<'_, R>, mut length: u32) -> bool {
    while length > 0 {
        let Some((_, _, part)) = span.piece(length) else { return false };
        length -= part;
    }
    true
}

/// Fills `buf` with the first bytes of `source`.
pub(crate) fn gather<R: Region>(mut source: Span<'_, R>, mut buf: &mut [u8]) -> Result<(), TransferError> {
    while !buf.is_empty() {
        let most = buf.len().min(u32::MAX as usize) as u32;
        let (from, offset, part) = source.piece(most).ok_or(TransferError::refused(Side::Source))?;
        let (now, later) = buf.split_at_mut(part as usize);
        from.read(offset, now).map_err(|Fault| TransferError::fault(Side::Source))?;
        buf = later;
    }
    Ok(())
}

/// Writes `data` to the first bytes of `target`.
#[inline]
pub(crate) fn scatter<R: Region>(mut data: &[u8], mut target: Span<'_, R>) -> Result<(), TransferError> {
    while !data.is_empty() {
        let most = data.len().min(u32::MAX as usize) as u32;
        let (to, offset, part) = target.piece(most).ok_or(TransferError::refused(Side::Destination))?;
        let (now, later) = data.split_at(part as usize);
        to.write(offset, now).map_err(|Fault| TransferError::fault(Side::Destination))?;
        data = later;
    }
    Ok(())
}

/// Copies the first `length` bytes of a pinned region.
pub(crate) fn collect<R: Region>(
    pinned: &dyn PinnedRegion<R>,
    mut target: Span<'_, R>,
    length: u32,
) -> Result<(), TransferError> {
    let mut done = 0;
    while done < length {
        let (to, offset, part) =
            target.piece(length - done).ok_or(TransferError::refused(Side::Destination))?;
        pinned.copy_to(done.into(), to, offset, part.into()).map_err(|Fault| {
            let memory_is_there = pinned.is_there();
            TransferError::fault(if memory_is_there { Side::Destination } else { Side::Source })
        })?;
        done += part;
    }
    Ok(())
}

/// Returns which side of a failed copy has lost its memory.
///
/// It is the source if a byte of any of its pages cannot be read.
#[cold]
fn blame<R: Region>(source: &R, offset: u64, length: u64) -> Side {
    const PAGE: u64 = 4096;
    let last = offset + (length - 1);
    let mut at = offset;
    loop {
        if source.read(at, &mut [0]).is_err() {
            return Side::Source;
        }
        if at == last {
            return Side::Destination;
        }
        at = (at | (PAGE - 1)).saturating_add(1).min(last);
    }
}
