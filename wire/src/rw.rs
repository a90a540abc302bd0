//! Headers one after the other: taken from a frame, put into a buffer.

use crate::Drop;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The rest of a frame, from which headers are taken.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next header, as a view of the frame.
    #[inline]
    pub fn take<T: FromBytes + KnownLayout + Immutable + Unaligned>(&mut self) -> Result<&'a T, Drop> {
        let (header, rest) = T::ref_from_prefix(self.0).map_err(|_| Drop::Truncated)?;
        self.0 = rest;
        Ok(header)
    }
}

/// A buffer that headers are put into.
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
    /// If the buffer is full: whoever has packets written gives room for
    /// [`MAX_HEADERS`](crate::roce::MAX_HEADERS), or what iWARP names.
    #[inline]
    pub fn put<T: IntoBytes + Immutable + ?Sized>(&mut self, header: &T) {
        let bytes = header.as_bytes();
        let end = self.len + bytes.len();
        self.buf[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    /// Bytes written.
    pub fn len(&self) -> usize {
        self.len
    }
}
