//! Positions of a packet in its message, with the headers of the first and the last packet.

use crate::ext::{Aeth, len};
use crate::num::{Imm, Rkey};
use crate::rw::Writer;
use zerocopy::big_endian::U32;

/// Position of a packet in its message, with the headers of the first packet and of the last one.
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

/// The end of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendTail {
    /// Nothing more.
    Plain,
    /// With immediate data.
    Imm(Imm),
    /// Invalidates a key of the receiver.
    Invalidate(Rkey),
}

/// The end of a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTail {
    /// Nothing more.
    Plain,
    /// With immediate data.
    Imm(Imm),
}

/// The end of a UC message.
pub type UcTail = WriteTail;

/// Position of a packet in a READ's response.
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
    /// Returns the headers of the first packet, if this is the first packet.
    #[inline]
    pub fn head(&self) -> Option<&F> {
        match self {
            Part::First(head) | Part::Only(head, _) => Some(head),
            Part::Middle | Part::Last(_) => None,
        }
    }

    /// Returns the headers of the last packet, if this is the last packet.
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
