//! Writing an FPDU (RFC 5044, 4.1 to 4.4).

use super::crc;
use super::framing::{Framing, LENGTH_LEN, MARKER_LEN, Place, pad};

/// An FPDU in the making. Headers and payload are put into it one after the other; markers go
/// between them where they belong.
#[derive(Debug)]
pub struct Encoder<'a> {
    framing: Framing,
    /// Where in the stream the FPDU begins.
    place: Place,
    buf: &'a mut [u8],
    /// Bytes written.
    len: usize,
    /// Bytes of the ULPDU that are still to come, and its length.
    left: usize,
    ulpdu: usize,
}

impl<'a> Encoder<'a> {
    /// Begins an FPDU for a ULPDU of that length, at that place of the stream. `buf` has to have
    /// room for [`fpdu_len`](Framing::fpdu_len) bytes.
    ///
    /// # Panics
    /// If the ULPDU is longer than an FPDU can say, or the buffer is too short.
    pub fn new(framing: Framing, place: Place, ulpdu: usize, buf: &'a mut [u8]) -> Encoder<'a> {
        let length = u16::try_from(ulpdu).expect("a ULPDU is no longer than MULPDU");
        let mut encoder = Encoder { framing, place, buf, len: 0, left: ulpdu, ulpdu };
        encoder.write(&length.to_be_bytes());
        encoder
    }

    /// Goes on with these bytes of the ULPDU.
    ///
    /// # Panics
    /// If these are more than were announced, or the buffer is too short.
    pub fn put(&mut self, bytes: &[u8]) {
        self.left = self.left.checked_sub(bytes.len()).expect("a ULPDU is as long as announced");
        self.write(bytes);
    }

    /// Ends it with padding and CRC; returns its length.
    ///
    /// # Panics
    /// If the ULPDU is shorter than was announced, or the buffer is too short.
    pub fn finish(mut self) -> usize {
        assert!(self.left == 0, "a ULPDU is as long as announced");
        self.write(&[0; 3][..pad(self.ulpdu)]);
        // A marker that lies before the CRC is covered by it.
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

/// What a marker `at` bytes from the beginning of an FPDU that begins at `place` points with: how
/// far behind it the ULPDU length is.
pub(super) fn pointer(framing: Framing, place: Place, at: usize) -> u16 {
    // Of an FPDU that is longer than what is sent, the pointer wraps.
    at.saturating_sub(framing.length_at(place)) as u16
}

fn marker(pointer: u16) -> [u8; MARKER_LEN] {
    let [high, low] = pointer.to_be_bytes();
    [0, 0, high, low]
}

/// The length with which an FPDU begins, for who writes one without markers by himself: length,
/// ULPDU, [`pad`] zeros, and the [CRC](crc) of all that (or zeros, if CRCs are not in use).
///
/// # Panics
/// If the ULPDU is longer than an FPDU can say.
pub fn length(ulpdu: usize) -> [u8; LENGTH_LEN] {
    u16::try_from(ulpdu).expect("a ULPDU is no longer than MULPDU").to_be_bytes()
}
