//! How FPDUs are framed, in the record.

use crate::save::{Violation, record};
use vrdma_wire::iwarp::framing::MARKER_INTERVAL;
use vrdma_wire::iwarp::{Framing, Place};

/// The record of how FPDUs are framed, and where the next begins.
pub(crate) fn save_framing(framing: Framing, place: Place) -> record::Framing {
    let Framing { markers, crc } = framing;
    record::Framing { markers, crc, place: place.number() }
}

/// How FPDUs are framed, and where the next begins, from the record.
pub(crate) fn to_framing(record: &record::Framing) -> Result<(Framing, Place), Violation> {
    let record::Framing { markers, crc, place } = *record;
    // FPDUs have multiples of 4 bytes.
    if usize::from(place) >= MARKER_INTERVAL || !place.is_multiple_of(4) {
        return Err(Violation::Stream);
    }
    Ok((Framing { markers, crc }, Place::of(place.into())))
}
