//! Framing of FPDUs in the record.

use crate::save::{Violation, record};
use vrdma_wire::iwarp::framing::MARKER_INTERVAL;
use vrdma_wire::iwarp::{Framing, StreamOffset};

/// Returns the record of the framing and of the position at which the next FPDU begins.
pub(crate) fn save_framing(framing: Framing, place: StreamOffset) -> record::Framing {
    let Framing { markers, crc } = framing;
    record::Framing { markers, crc, place: place.number() }
}

/// Restores the framing and the position at which the next FPDU begins.
pub(crate) fn to_framing(record: &record::Framing) -> Result<(Framing, StreamOffset), Violation> {
    let record::Framing { markers, crc, place } = *record;
    // FPDUs have multiples of 4 bytes.
    if usize::from(place) >= MARKER_INTERVAL || !place.is_multiple_of(4) {
        return Err(Violation::Stream);
    }
    Ok((Framing { markers, crc }, StreamOffset::of(place.into())))
}
