//! The FPDUs of a stream that comes in order, in pieces of any size.

use super::decode;
use super::fault::Fault;
use super::framing::{Framing, Place};

/// Takes FPDUs out of a direction's stream from the start of full operation on.
///
/// What it knows is a few bytes of plain data. The beginning of an FPDU whose end has not come lies
/// in a buffer that the caller gives with each call: while none is held, any buffer will do, so
/// that many connections may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deframer {
    framing: Framing,
    /// Where the next FPDU begins, or the one that is held in part.
    place: Place,
    /// Bytes of it that are held.
    held: usize,
    /// What was wrong with the stream, from when on there is no more to be had of it.
    fault: Option<Fault>,
}

impl Deframer {
    /// Of a stream that begins.
    pub const fn new(framing: Framing) -> Deframer {
        Deframer::resume(framing, Place::START, 0)
    }

    /// Of a stream in the midst of it: the next FPDU begins at `place`, and the caller's buffer
    /// holds its first `held` bytes.
    pub const fn resume(framing: Framing, place: Place, held: usize) -> Deframer {
        Deframer { framing, place, held, fault: None }
    }

    /// How its FPDUs are framed.
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Where the next FPDU begins, or the one that is held in part.
    pub const fn place(&self) -> Place {
        self.place
    }

    /// Bytes that are held of an FPDU: the first ones of the buffer.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Takes the next FPDU off the front of `input`; returns its ULPDU, or `None` once the input is
    /// used up.
    ///
    /// A ULPDU that lies in the input in one piece is lent from there, any other is put together in
    /// `buffer`, whose first [`held`](Self::held) bytes have to be as they were left. An FPDU that
    /// is longer than the buffer is refused; of [`MAX_FPDU`](super::framing::MAX_FPDU) bytes none
    /// is. A fault is for good.
    pub fn next<'b, 'i: 'b>(
        &mut self,
        input: &mut &'i [u8],
        buffer: &'b mut [u8],
    ) -> Result<Option<&'b [u8]>, Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let result = self.try_next(input, buffer);
        self.fault = result.err();
        result
    }

    /// Goes on behind an FPDU of that length, without markers, that was taken out of the stream
    /// before its turn. [`Fault::Marker`] if the one before it goes on there.
    pub fn skip(&mut self, length: usize) -> Result<(), Fault> {
        if self.held != 0 {
            self.fault.get_or_insert(Fault::Marker);
        }
        match self.fault {
            Some(fault) => Err(fault),
            None => {
                self.begin_next(length);
                Ok(())
            }
        }
    }

    fn try_next<'b, 'i: 'b>(
        &mut self,
        input: &mut &'i [u8],
        buffer: &'b mut [u8],
    ) -> Result<Option<&'b [u8]>, Fault> {
        if self.held == 0
            && let Some(length) = self.length(input, buffer.len())?
            && let Some((fpdu, rest)) = input.split_at_checked(length)
        {
            *input = rest;
            return decode::ulpdu(self.framing, self.begin_next(length), fpdu, buffer).map(Some);
        }
        loop {
            // Until its length is known it comes byte by byte.
            let length = self.length(&buffer[..self.held], buffer.len())?;
            let wanted = length.unwrap_or(self.held + 1) - self.held;
            if wanted == 0 {
                let fpdu = &mut buffer[..self.held];
                let place = self.begin_next(self.held);
                return decode::ulpdu_in_place(self.framing, place, fpdu).map(Some);
            }
            if input.is_empty() {
                return Ok(None);
            }
            let (now, rest) = input.split_at(wanted.min(input.len()));
            let room = buffer.get_mut(self.held..self.held + now.len()).ok_or(Fault::FpduTooLong)?;
            room.copy_from_slice(now);
            self.held += now.len();
            *input = rest;
        }
    }

    /// The length of the FPDU that begins with these bytes, if they tell; refused if it is more
    /// than `most`.
    fn length(&self, bytes: &[u8], most: usize) -> Result<Option<usize>, Fault> {
        match decode::fpdu_len(self.framing, self.place, bytes) {
            Some(length) if length > most => Err(Fault::FpduTooLong),
            length => Ok(length),
        }
    }

    /// Goes on behind an FPDU of that length; returns where that began.
    fn begin_next(&mut self, length: usize) -> Place {
        let begin = self.place;
        self.place = begin.after(length);
        self.held = 0;
        begin
    }
}
