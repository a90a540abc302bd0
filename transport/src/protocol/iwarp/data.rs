//! The payload of a received segment, and what a segment means for rates.

use vrdma_wire::iwarp::Segment;

/// Whether a segment is the last one of a request.
pub(crate) fn ends_request(segment: &Segment) -> bool {
    match segment {
        Segment::Write(to) => to.last,
        Segment::Send { part, .. } => part.last,
        Segment::Immediate { .. } | Segment::ReadRequest(..) | Segment::AtomicRequest(..) => true,
        Segment::ReadResponse(_) | Segment::AtomicResponse(..) | Segment::Terminate(..) => false,
    }
}

/// The payload of a received segment.
#[derive(Copy, Clone)]
pub(super) enum Data<'a> {
    /// The bytes.
    Bytes(&'a [u8]),
    /// This many bytes, which are at their destination already.
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
