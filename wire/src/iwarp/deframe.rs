//! Reads the FPDUs of an in-order stream, in pieces of any size.

use super::decode;
use super::fault::Fault;
use super::framing::{Framing, StreamOffset};

/// Extracts FPDUs from one direction's stream, from the start of full operation on.
///
/// Its state is a few bytes of plain data. An incomplete FPDU lies in a buffer that the caller
/// passes with each call. While no bytes are held, any buffer will do, so many connections may
/// share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deframer {
    framing: Framing,
    /// Where the next FPDU begins, or the one that is held in part.
    place: StreamOffset,
    /// Held bytes of that FPDU.
    held: usize,
    /// The stream's fault. After it no further FPDU is returned.
    fault: Option<Fault>,
}

impl Deframer {
    /// Returns a deframer at the start of a stream.
    pub const fn new(framing: Framing) -> Deframer {
        Deframer::resume(framing, StreamOffset::START, 0)
    }

    /// Returns a deframer in the middle of a stream.
    ///
    /// The next FPDU begins at `place`. The caller's buffer holds its first `held` bytes.
    pub const fn resume(framing: Framing, place: StreamOffset, held: usize) -> Deframer {
        Deframer { framing, place, held, fault: None }
    }

    /// Returns the framing of its FPDUs.
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Returns where the next FPDU begins, or the one that is held in part.
    pub const fn place(&self) -> StreamOffset {
        self.place
    }

    /// Returns the number of held bytes of an FPDU: the first bytes of the buffer.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Extracts the next FPDU from the front of `input`. Returns its ULPDU, or `None` at the end of
    /// the input.
    ///
    /// A ULPDU that is contiguous in the input is returned from there. Any other is assembled in
    /// `buffer`, whose first [`held`](Self::held) bytes must be unchanged since the last call.
    ///
    /// # Errors
    /// The stream is malformed, and all later calls return this fault. An FPDU that is longer than
    /// `buffer` is refused, too. With [`MAX_FPDU`](super::framing::MAX_FPDU) bytes none is.
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

    /// Continues behind an FPDU of this length that was read before its turn. It must have no
    /// markers.
    ///
    /// # Errors
    /// [`Fault::Marker`] if an FPDU is held in part, so that it extends into this one. An earlier
    /// fault of the stream is returned again.
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
            // Bytes are copied one by one until the length is known.
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

    /// Returns the length of the FPDU that begins with these bytes, if they suffice.
    ///
    /// # Errors
    /// The length is more than `most`.
    fn length(&self, bytes: &[u8], most: usize) -> Result<Option<usize>, Fault> {
        match decode::fpdu_len(self.framing, self.place, bytes) {
            Some(length) if length > most => Err(Fault::FpduTooLong),
            length => Ok(length),
        }
    }

    /// Continues behind an FPDU of this length. Returns where that FPDU began.
    fn begin_next(&mut self, length: usize) -> StreamOffset {
        let begin = self.place;
        self.place = begin.after(length);
        self.held = 0;
        begin
    }
}
