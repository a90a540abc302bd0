//! The caller's outlet, which takes packets and FPDUs, and the payload that it takes.

mod fpdu;

pub use fpdu::{Fpdu, PlacedFpdu, StreamEnd};

use crate::base::id::DeviceId;
use crate::base::inter_worker::InterWorkerPart;
use crate::base::memory::{Fault, Region};
use crate::message::transfer::{Span, copy, may_be_used, scatter};
use crate::objects::qp::entry::WholeQpLines;
use vrdma_wire::icrc;
use vrdma_wire::iwarp::crc;
use vrdma_wire::iwarp::encode::{self, Encoder};
use vrdma_wire::iwarp::framing::{self, LENGTH_LEN};
use vrdma_wire::iwarp::rdmap::MAX_HEADERS;
use vrdma_wire::num::{Mac, Qpn};
use vrdma_wire::roce::{Packet, pad};

/// The properties of the way to a MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Whether the outlet takes the packets of one turn.
    ///
    /// If not, the QP waits for another turn, among all QPs that have packets to send. An outlet
    /// whose packets all go one way reports its room by [`Outlet::has_room`].
    pub has_room: bool,
    /// Whether the way leads to another engine of this process.
    ///
    /// A connection with timeout 0 then retransmits at intervals, for ever, as it does if both QPs
    /// are on one engine. Nothing else would recover a packet that came while the peer's device was
    /// suspended.
    pub stays_here: bool,
    /// Whether packets go this way as inter-worker packets, by [`PacketOutlet::send_inter_worker`].
    pub is_near: bool,
}

impl Default for Way {
    fn default() -> Way {
        Way { has_room: true, stays_here: false, is_near: false }
    }
}

/// The part of an outlet that reports its room. [`PacketOutlet`] and [`StreamOutlet`] extend it.
///
/// An outlet is passed in each call, as a [`Sink`](crate::Sink) is.
pub trait Outlet {
    /// Whether the outlet takes the next packet or FPDU. The engine asks before it makes one.
    fn has_room(&mut self) -> bool;

    /// Whether a rate limits what goes through the outlet. The engine's own outlets know of rates.
    fn has_rate(&self) -> bool {
        false
    }

    /// Whether rates allow a request for data, which its answer brings. The engine's own outlets
    /// know of rates.
    fn may_ask(&self) -> bool {
        true
    }

    /// Tells that the next packet asks for nothing but data that were asked for before. Rates do
    /// not count them again. The engine's own outlets know of rates.
    fn asks_again(&mut self) {}

    /// Returns how many bytes rates leave for what goes through the outlet. One packet may have
    /// more. The engine's own outlets know of rates.
    fn rate_leaves(&self) -> u64 {
        u64::MAX
    }

    /// Whether a packet with this payload may be the last one for a while, because of a rate.
    /// `begins` tells that it is the first one of its message.
    fn ends_with(&self, payload: usize, begins: bool) -> bool {
        let _ = (payload, begins);
        false
    }

    /// Names the QP whose turn may come next, and its cache lines.
    ///
    /// The outlet may prefetch them, and its own data about that QP.
    fn expect(&mut self, device: DeviceId, qpn: Qpn, lines: WholeQpLines) {
        let _ = (device, qpn, lines);
    }
}

/// Takes RoCE packets, to the wire or to another engine of this process.
pub trait PacketOutlet<R: Region>: Outlet {
    /// Describes the way to a MAC address.
    ///
    /// The engine asks before each turn of a connected QP, and before it sends a datagram that is
    /// not for a multicast group.
    fn way_to(&mut self, dst: Mac) -> Way {
        let _ = dst;
        Way::default()
    }

    /// Takes a packet.
    ///
    /// The engine has checked keys, ranges and rights of the payload. The outlet adds padding and
    /// ICRC ([`write_frame`] does both).
    ///
    /// # Errors
    /// `Fault`: the payload's memory does not exist any more. Then nothing was sent.
    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, R>) -> Result<(), Fault>;

    /// Whether [`PacketOutlet::send_inter_worker`] takes this payload of more than a path MTU.
    fn carries(&mut self, payload: &Pieces<'_, R>) -> bool {
        let _ = payload;
        false
    }

    /// Takes an inter-worker packet of this device. Called only if [`Way::is_near`] is set.
    ///
    /// # Errors
    /// `Fault`: the payload's memory does not exist any more. Then nothing was sent.
    fn send_inter_worker(
        &mut self,
        device: DeviceId,
        packet: &Packet,
        part: InterWorkerPart,
        payload: &Pieces<'_, R>,
    ) -> Result<(), Fault> {
        let _ = (device, packet, part, payload);
        Err(Fault)
    }

    /// Takes a packet of this device, by [`PacketOutlet::send_inter_worker`] if `part` is set, or
    /// else by [`PacketOutlet::send`].
    ///
    /// # Errors
    /// `Fault`: the payload's memory does not exist any more. Then nothing was sent.
    fn pass(
        &mut self,
        device: DeviceId,
        packet: &Packet,
        part: Option<InterWorkerPart>,
        payload: &Pieces<'_, R>,
    ) -> Result<(), Fault> {
        match part {
            Some(part) => self.send_inter_worker(device, packet, part, payload),
            None => self.send(packet, payload),
        }
    }
}

/// Takes iWARP FPDUs to streams. A stream is identified by its QP.
///
/// The default methods are those of an outlet without streams.
pub trait StreamOutlet<R: Region>: Outlet {
    /// Whether the stream of this QP takes another FPDU of the greatest length (see
    /// [`StreamAttr::mss`](crate::StreamAttr::mss)).
    ///
    /// If not, the QP waits until [`Engine::stream_has_room`](crate::Engine::stream_has_room) is
    /// called.
    fn stream_has_room(&mut self, device: DeviceId, qpn: Qpn) -> bool {
        let _ = (device, qpn);
        false
    }

    /// Appends an FPDU to a stream that has room.
    ///
    /// The engine has checked the payload like that of a packet. The outlet reads it before this
    /// returns ([`write_fpdu`] does so). The request may complete then, and TCP retransmits what
    /// was sent.
    ///
    /// # Errors
    /// `Fault`: the payload's memory does not exist any more. Then nothing was taken.
    fn send_fpdu(
        &mut self,
        device: DeviceId,
        qpn: Qpn,
        fpdu: &Fpdu,
        payload: &Pieces<'_, R>,
    ) -> Result<(), Fault> {
        let _ = (device, qpn, fpdu, payload);
        Err(Fault)
    }

    /// Whether a stream takes an FPDU by [`StreamOutlet::send_placed`].
    ///
    /// The engine asks this for a stream that has room and is part of a loopback connection
    /// ([`Engine::connect_loopback`](crate::Engine::connect_loopback)).
    fn takes_placed(&mut self, device: DeviceId, qpn: Qpn) -> bool {
        let _ = (device, qpn);
        false
    }

    /// Appends an FPDU to a stream. The FPDU's payload is at the peer already.
    ///
    /// The peer executes it in its turn ([`Engine::handle_placed`](crate::Engine::handle_placed)).
    /// Called only right after [`StreamOutlet::takes_placed`] agreed.
    fn send_placed(&mut self, device: DeviceId, qpn: Qpn, placed: PlacedFpdu) {
        let _ = (device, qpn, placed);
        unreachable!("it takes none");
    }

    /// Ends a stream. The engine sends nothing more in it.
    fn end_stream(&mut self, device: DeviceId, qpn: Qpn, end: StreamEnd) {
        let _ = (device, qpn, end);
    }
}

/// An outlet that loses all packets, for instance while the link is down.
pub(crate) struct DiscardOutlet;

impl Outlet for DiscardOutlet {
    fn has_room(&mut self) -> bool {
        true
    }
}

impl<R: Region> PacketOutlet<R> for DiscardOutlet {
    fn send(&mut self, _: &Packet, _: &Pieces<'_, R>) -> Result<(), Fault> {
        Ok(())
    }
}

impl<R: Region> StreamOutlet<R> for DiscardOutlet {}

/// An outlet without room. Packets wait for their turn in
/// [`Engine::transmit`](crate::Engine::transmit).
pub(crate) struct NoOutlet;

impl Outlet for NoOutlet {
    fn has_room(&mut self) -> bool {
        false
    }
}

impl<R: Region> PacketOutlet<R> for NoOutlet {
    fn send(&mut self, _: &Packet, _: &Pieces<'_, R>) -> Result<(), Fault> {
        Err(Fault)
    }
}

/// The payload of a packet or FPDU: bytes of the engine, or extents of regions.
pub struct Pieces<'a, R> {
    source: Source<'a, R>,
    length: u32,
}

enum Source<'a, R> {
    Bytes(&'a [u8]),
    /// Memory whose keys, ranges and rights were checked.
    Memory(Span<'a, R>),
}

/// One piece of a payload.
pub enum Piece<'a, R> {
    /// Bytes that exist only during the call.
    Bytes(&'a [u8]),
    /// An extent of a region.
    Memory {
        /// The region.
        region: &'a R,
        /// Offset of the first byte in the region.
        offset: u64,
        /// Length in bytes. Not 0.
        length: u32,
    },
}

impl<'a, R> Pieces<'a, R> {
    /// Makes a payload of bytes, at most a path MTU.
    pub fn bytes(bytes: &'a [u8]) -> Pieces<'a, R> {
        Pieces { source: Source::Bytes(bytes), length: bytes.len() as u32 }
    }

    /// Makes a payload of the first `length` bytes of `span`. Returns `None` if a part of them may
    /// not be used.
    ///
    /// Inlined, so that a span of one piece is never stored in memory. To load it at once would
    /// wait for the stores of its narrow fields.
    #[inline(always)]
    pub(crate) fn memory(span: Span<'a, R>, length: u32) -> Option<Pieces<'a, R>> {
        if length == 0 {
            return Some(Pieces::bytes(&[]));
        }
        let mut rest = span.clone();
        let (first, offset, together) = rest.piece(length)?;
        if together == length {
            return Some(Pieces { source: Source::Memory(Span::Flat(first, offset)), length });
        }
        may_be_used(rest, length - together).then_some(Pieces { source: Source::Memory(span), length })
    }

    /// Copies the whole payload to `there`. Returns false if a part of either side cannot be
    /// reached.
    ///
    /// Some bytes may have been copied then.
    pub(crate) fn move_to(&self, there: Span<'_, R>) -> bool
    where
        R: Region,
    {
        let moved = match &self.source {
            Source::Bytes(bytes) => scatter(bytes, there),
            Source::Memory(span) => copy(span.clone(), there, self.length),
        };
        moved.is_ok()
    }

    /// Returns the payload of `length` bytes from `offset` on.
    ///
    /// # Panics
    /// This payload is shorter.
    pub(crate) fn part(&self, offset: u32, length: u32) -> Pieces<'a, R> {
        assert!(u64::from(offset) + u64::from(length) <= u64::from(self.length), "it is a part of this one");
        match &self.source {
            Source::Bytes(bytes) => Pieces::bytes(&bytes[offset as usize..][..length as usize]),
            Source::Memory(span) => {
                let (mut span, mut left) = (span.clone(), offset);
                while left > 0 {
                    let Some((.., skipped)) = span.piece(left) else { break };
                    left -= skipped;
                }
                Pieces { source: Source::Memory(span), length }
            }
        }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the pieces, in order.
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
    /// Copies the payload into the beginning of `buf`. Panics if `buf` is shorter than the payload.
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

/// Writes the whole frame, from the Ethernet header to the ICRC, into the beginning of `buf`.
///
/// Returns the frame's length. Panics if `buf` is shorter than [`Packet::frame_len`].
pub fn write_frame<R: Region>(
    packet: &Packet,
    payload: &Pieces<'_, R>,
    buf: &mut [u8],
) -> Result<usize, Fault> {
    let headers = packet.emit(payload.len(), buf);
    let padded = payload.len() + pad(payload.len());
    let total = headers + padded + icrc::LEN;
    let body = &mut buf[headers..][..padded];
    payload.read(body)?;
    body[payload.len()..].fill(0);
    icrc::seal(&mut buf[..total]);
    Ok(total)
}

/// Writes the whole FPDU into the beginning of `buf`, and returns its length.
///
/// Panics if `buf` is shorter than [`Fpdu::len`].
pub fn write_fpdu<R: Region>(fpdu: &Fpdu, payload: &Pieces<'_, R>, buf: &mut [u8]) -> Result<usize, Fault> {
    let mut headers = [0; MAX_HEADERS];
    let emitted = fpdu.segment.as_ref().map_or(0, |segment| segment.emit(&mut headers));
    let headers = &headers[..emitted];
    if fpdu.framing.markers {
        return write_marked(fpdu, headers, payload, buf);
    }
    let ulpdu = headers.len() + payload.len();
    let begin = LENGTH_LEN + headers.len();
    let end = LENGTH_LEN + ulpdu;
    let covered = end + framing::pad(ulpdu);
    let buf = &mut buf[..covered + crc::LEN];
    buf[..LENGTH_LEN].copy_from_slice(&encode::length(ulpdu));
    buf[LENGTH_LEN..begin].copy_from_slice(headers);
    payload.read(&mut buf[begin..end])?;
    buf[end..covered].fill(0);
    let crc = if fpdu.framing.crc { crc::of(&buf[..covered]) } else { [0; crc::LEN] };
    buf[covered..].copy_from_slice(&crc);
    Ok(buf.len())
}

/// Writes an FPDU with markers. The payload is copied in parts, so that markers can go between.
fn write_marked<R: Region>(
    fpdu: &Fpdu,
    headers: &[u8],
    payload: &Pieces<'_, R>,
    buf: &mut [u8],
) -> Result<usize, Fault> {
    let mut encoder = Encoder::new(fpdu.framing, fpdu.place, headers.len() + payload.len(), buf);
    encoder.put(headers);
    let mut part = [0; 1024];
    for piece in payload.iter() {
        match piece {
            Piece::Bytes(bytes) => encoder.put(bytes),
            Piece::Memory { region, offset, length } => {
                for begin in (0..length).step_by(part.len()) {
                    let bytes = &mut part[..(length - begin).min(1024) as usize];
                    region.read(offset + u64::from(begin), bytes)?;
                    encoder.put(bytes);
                }
            }
        }
    }
    Ok(encoder.finish())
}
