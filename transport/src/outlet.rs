//! Where packets go: the caller's outlet for them, and their payload.

use crate::memory::{Fault, Region};
use crate::message::transfer::Span;
use vrdma_wire::icrc::Icrc;
use vrdma_wire::roce::Packet;

/// Takes packets to the wire; passed in each call, as a [`Sink`](crate::Sink) is.
pub trait Outlet<R: Region> {
    /// Whether the next packet will be taken. Asked before a packet is made.
    fn has_room(&mut self) -> bool;

    /// Takes a packet. Keys, ranges and rights of the payload have been checked; padding and ICRC are the outlet's business
    /// ([`write_frame`] does both for those that copy). `Fault` if the payload's memory does not exist any more: then nothing was sent.
    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, R>) -> Result<(), Fault>;
}

/// The outlet of packets that are lost, such as while the link is down.
pub(crate) struct DiscardOutlet;

impl<R: Region> Outlet<R> for DiscardOutlet {
    fn has_room(&mut self) -> bool {
        true
    }

    fn send(&mut self, _: &Packet, _: &Pieces<'_, R>) -> Result<(), Fault> {
        Ok(())
    }
}

/// An outlet without room: what is to go over the wire waits for its turn in [`Engine::transmit`](crate::Engine::transmit).
pub(crate) struct NoOutlet;

impl<R: Region> Outlet<R> for NoOutlet {
    fn has_room(&mut self) -> bool {
        false
    }

    fn send(&mut self, _: &Packet, _: &Pieces<'_, R>) -> Result<(), Fault> {
        Err(Fault)
    }
}

/// What a packet carries: bytes of the engine's own, or stretches of regions.
pub struct Pieces<'a, R> {
    source: Source<'a, R>,
    length: u32,
}

enum Source<'a, R> {
    Bytes(&'a [u8]),
    /// Checked before.
    Memory(Span<'a, R>),
}

/// One piece of a payload.
pub enum Piece<'a, R> {
    /// Bytes that are there during the call alone.
    Bytes(&'a [u8]),
    /// A stretch of a region.
    Memory {
        /// Which.
        region: &'a R,
        /// Its first byte in the region.
        offset: u64,
        /// Its bytes; not 0.
        length: u32,
    },
}

impl<'a, R> Pieces<'a, R> {
    /// Bytes, at most a path MTU of them.
    pub fn bytes(bytes: &'a [u8]) -> Pieces<'a, R> {
        Pieces { source: Source::Bytes(bytes), length: bytes.len() as u32 }
    }

    /// The first `length` bytes of `span`, or `None` if a part of them may not be used.
    pub(crate) fn memory(span: Span<'a, R>, length: u32) -> Option<Pieces<'a, R>> {
        if length == 0 {
            return Some(Pieces::bytes(&[]));
        }
        let (first, offset, together) = span.clone().piece(length)?;
        if together == length {
            return Some(Pieces { source: Source::Memory(Span::Flat(first, offset)), length });
        }
        let mut rest = span.clone();
        let mut left = length;
        while left > 0 {
            left -= rest.piece(left)?.2;
        }
        Some(Pieces { source: Source::Memory(span), length })
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The pieces, in order.
    pub fn iter(&self) -> impl Iterator<Item = Piece<'a, R>> {
        let mut left = self.length;
        let (bytes, mut memory) = match &self.source {
            Source::Bytes(bytes) => {
                left = 0;
                (Some(*bytes).filter(|bytes| !bytes.is_empty()), None)
            }
            Source::Memory(span) => (None, Some(span.clone())),
        };
        let stretches = core::iter::from_fn(move || {
            let (region, offset, length) = memory.as_mut().filter(|_| left > 0)?.piece(left)?;
            left -= length;
            Some(Piece::Memory { region, offset, length })
        });
        bytes.map(Piece::Bytes).into_iter().chain(stretches)
    }
}

impl<R: Region> Pieces<'_, R> {
    /// Copies all into the beginning of `buf`. Panics if that is shorter.
    pub fn read(&self, buf: &mut [u8]) -> Result<(), Fault> {
        let mut rest = &mut buf[..self.len()];
        for piece in self.iter() {
            let length = match piece {
                Piece::Bytes(bytes) => {
                    rest[..bytes.len()].copy_from_slice(bytes);
                    bytes.len()
                }
                Piece::Memory { region, offset, length } => {
                    region.read(offset, &mut rest[..length as usize])?;
                    length as usize
                }
            };
            rest = &mut rest[length..];
        }
        Ok(())
    }
}

/// Writes the whole frame, from the Ethernet header to the ICRC, into the beginning of `buf`; returns its length. Panics if `buf` is shorter than
/// [`Packet::frame_len`].
pub fn write_frame<R: Region>(
    packet: &Packet,
    payload: &Pieces<'_, R>,
    buf: &mut [u8],
) -> Result<usize, Fault> {
    let total = packet.frame_len(payload.len());
    let headers = packet.emit(payload.len(), buf);
    let (head, body) = buf[..total].split_at_mut(headers);
    payload.read(body)?;
    let end = body.len() - 4;
    body[payload.len()..end].fill(0);
    let mut icrc = Icrc::new(head);
    icrc.update(&body[..end]);
    body[end..].copy_from_slice(&icrc.finish());
    Ok(total)
}
