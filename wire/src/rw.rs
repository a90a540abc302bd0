//! Reads headers from a frame, and writes headers to a buffer, one after the other.

use crate::DropReason;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The rest of a frame, from which headers are read.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Returns the next header, as a view of the frame.
    #[inline]
    pub fn take<T: FromBytes + KnownLayout + Immutable + Unaligned>(&mut self) -> Result<&'a T, DropReason> {
        let (header, rest) = T::ref_from_prefix(self.0).map_err(|_| DropReason::Truncated)?;
        self.0 = rest;
        Ok(header)
    }
}

/// A buffer to which headers are written.
pub(crate) struct Writer<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    pub fn new(buf: &'a mut [u8]) -> Writer<'a> {
        Writer { buf, len: 0 }
    }

    /// Appends a header.
    ///
    /// # Panics
    /// If the buffer is full. Callers provide a buffer of
    /// [`MAX_HEADERS`](crate::roce::MAX_HEADERS), or of iWARP's equivalent.
    #[inline]
    pub fn put<T: IntoBytes + Immutable + ?Sized>(&mut self, header: &T) {
        let bytes = header.as_bytes();
        let end = self.len + bytes.len();
        self.buf[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    /// Returns the number of bytes written.
    pub fn len(&self) -> usize {
        self.len
    }
}
