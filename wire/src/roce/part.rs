//! Which packet of a message one is, and what comes with the first and the last.

use crate::ext::{Aeth, len};
use crate::num::{Imm, Rkey};
use crate::rw::Writer;
use zerocopy::big_endian::U32;

/// Which packet of a message: what comes with the first one, and with the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<F, L> {
    /// The first of several.
    First(F),
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last(L),
    /// The only one.
    Only(F, L),
}

/// How a SEND ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendTail {
    /// As it is.
    Plain,
    /// With immediate data.
    Imm(Imm),
    /// Invalidating a key of the receiver.
    Invalidate(Rkey),
}

/// How a WRITE ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTail {
    /// As it is.
    Plain,
    /// With immediate data.
    Imm(Imm),
}

/// How a message of UC ends.
pub type UcTail = WriteTail;

/// Which packet of a READ's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPart {
    /// The first of several.
    First(Aeth),
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last(Aeth),
    /// The only one.
    Only(Aeth),
}

impl<F, L> Part<F, L> {
    /// What comes with the first packet, if it is that.
    #[inline]
    pub fn head(&self) -> Option<&F> {
        match self {
            Part::First(head) | Part::Only(head, _) => Some(head),
            Part::Middle | Part::Last(_) => None,
        }
    }

    /// What comes with the last packet, if it is that.
    #[inline]
    pub fn tail(&self) -> Option<&L> {
        match self {
            Part::Last(tail) | Part::Only(_, tail) => Some(tail),
            Part::First(_) | Part::Middle => None,
        }
    }
}

impl SendTail {
    #[inline]
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        match self {
            SendTail::Plain => {}
            SendTail::Imm(imm) => w.put(&imm.to_bytes()),
            SendTail::Invalidate(rkey) => w.put(&U32::new(rkey.0)),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            SendTail::Plain => 0,
            SendTail::Imm(_) => len::IMM,
            SendTail::Invalidate(_) => len::IETH,
        }
    }
}

impl WriteTail {
    #[inline]
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        if let WriteTail::Imm(imm) = self {
            w.put(&imm.to_bytes());
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            WriteTail::Plain => 0,
            WriteTail::Imm(_) => len::IMM,
        }
    }
}
