//! The payload of a segment that came.

/// The payload of a segment.
#[derive(Copy, Clone)]
pub(super) enum Data<'a> {
    /// Its bytes.
    Bytes(&'a [u8]),
    /// So many bytes, which were placed.
    Placed(u32),
}

impl Data<'_> {
    pub(super) fn len(self) -> u32 {
        match self {
            Data::Bytes(bytes) => bytes.len() as u32,
            Data::Placed(length) => length,
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self.len() == 0
    }
}
