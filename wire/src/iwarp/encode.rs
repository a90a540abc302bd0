//! Writes an FPDU (RFC 5044, 4.1 to 4.4).

use super::crc;
use super::framing::{Framing, LENGTH_LEN, MARKER_LEN, StreamOffset, pad};

/// Writes one FPDU. Headers and payload are appended one after the other. Markers are inserted
/// where they belong.
#[derive(Debug)]
pub struct Encoder<'a> {
    framing: Framing,
    /// Position in the stream where the FPDU begins.
    place: StreamOffset,
    buf: &'a mut [u8],
    /// Bytes written.
    len: usize,
    /// Bytes of the ULPDU that are still missing, and the ULPDU's length.
    left: usize,
    ulpdu: usize,
}

impl<'a> Encoder<'a> {
    /// Begins an FPDU with a ULPDU of this length, at this place of the stream.
    ///
    /// `buf` must have room for [`fpdu_len`](Framing::fpdu_len) bytes.
    ///
    /// # Panics
    /// If the ULPDU is longer than the length field allows, or the buffer is too short.
    pub fn new(framing: Framing, place: StreamOffset, ulpdu: usize, buf: &'a mut [u8]) -> Encoder<'a> {
        let length = u16::try_from(ulpdu).expect("a ULPDU is no longer than MULPDU");
        let mut encoder = Encoder { framing, place, buf, len: 0, left: ulpdu, ulpdu };
        encoder.write(&length.to_be_bytes());
        encoder
    }

    /// Appends bytes of the ULPDU.
    ///
    /// # Panics
    /// If they are more than announced, or the buffer is too short.
    pub fn put(&mut self, bytes: &[u8]) {
        self.left = self.left.checked_sub(bytes.len()).expect("a ULPDU is as long as announced");
        self.write(bytes);
    }

    /// Appends padding and CRC. Returns the length of the FPDU.
    ///
    /// # Panics
    /// If the ULPDU is shorter than announced, or the buffer is too short.
    pub fn finish(mut self) -> usize {
        assert!(self.left == 0, "a ULPDU is as long as announced");
        self.write(&[0; 3][..pad(self.ulpdu)]);
        // The CRC covers a marker directly before it.
        self.mark();
        let crc = if self.framing.crc { crc::of(&self.buf[..self.len]) } else { [0; crc::LEN] };
        self.write(&crc);
        self.len
    }

    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.mark();
            let until_marker = match self.place.after(self.len).to_marker() {
                bytes if self.framing.markers && bytes > 0 => bytes,
                _ => bytes.len(),
            };
            let (now, rest) = bytes.split_at(until_marker.min(bytes.len()));
            self.append(now);
            bytes = rest;
        }
    }

    /// Writes a marker, if one belongs here.
    fn mark(&mut self) {
        if self.framing.markers && self.place.after(self.len).to_marker() == 0 {
            let pointer = pointer(self.framing, self.place, self.len);
            self.append(&marker(pointer));
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.buf[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }
}

/// Returns the pointer of a marker: how far it lies behind the FPDU's length field.
///
/// The FPDU begins at `place`, and the marker `at` bytes behind that.
pub(super) fn pointer(framing: Framing, place: StreamOffset, at: usize) -> u16 {
    // The pointer wraps if an FPDU is longer than any that is sent.
    at.saturating_sub(framing.length_at(place)) as u16
}

fn marker(pointer: u16) -> [u8; MARKER_LEN] {
    let [high, low] = pointer.to_be_bytes();
    [0, 0, high, low]
}

/// Returns the length field of an FPDU, for callers that write an FPDU without markers themselves.
///
/// Such an FPDU is the length, the ULPDU, [`pad`] zeros, and the [CRC](crc) of all that. Without
/// CRCs there are zeros in its place.
///
/// # Panics
/// If the ULPDU is longer than the length field allows.
pub fn length(ulpdu: usize) -> [u8; LENGTH_LEN] {
    u16::try_from(ulpdu).expect("a ULPDU is no longer than MULPDU").to_be_bytes()
}
