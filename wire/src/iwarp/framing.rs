//! How long an FPDU is, and where markers lie (RFC 5044, 4).
//!
//! An FPDU is the length of its ULPDU (2 bytes), the ULPDU, zeros up to a multiple of 4 bytes, and
//! the CRC. Where markers are in use, 4 bytes lie at each 512th byte of the stream, counted from
//! the start of full operation, the first of which is a marker. They belong to the FPDU that they
//! lie in; one that lies between two belongs to the second.

use super::crc;

/// Bytes of the ULPDU length, with which an FPDU begins.
pub const LENGTH_LEN: usize = 2;
/// Bytes of a marker: 2 reserved ones, and the FPDU pointer.
pub const MARKER_LEN: usize = 4;
/// From the beginning of a marker to that of the next.
pub const MARKER_INTERVAL: usize = 512;
/// Longest ULPDU that is sent. The whole FPDU has less than 2^16 bytes with its markers, so that a
/// marker can point to its beginning.
pub const MAX_MULPDU: usize = 64768;
/// Longest FPDU that a length can say, with all markers that may lie in it: what a buffer needs to
/// take any.
pub const MAX_FPDU: usize = Framing { markers: true, crc: true }.fpdu_len(Place::START, u16::MAX as usize);

/// Where in a direction's stream something lies: bytes from the start of full operation, as far as
/// it matters to markers (modulo 512).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place(u16);

impl Place {
    /// Where full operation starts.
    pub const START: Place = Place(0);

    /// So many bytes from the start. As TCP's sequence numbers these may have wrapped at 2^32.
    pub const fn of(offset: u32) -> Place {
        Place((offset % MARKER_INTERVAL as u32) as u16)
    }

    /// The place so many bytes later.
    #[must_use]
    pub const fn after(self, bytes: usize) -> Place {
        Place(((self.0 as usize + bytes % MARKER_INTERVAL) % MARKER_INTERVAL) as u16)
    }

    /// Bytes from a marker's beginning, 0 to 511.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Bytes to where a marker begins: 0 if here.
    pub(super) const fn to_marker(self) -> usize {
        (MARKER_INTERVAL - self.0 as usize) % MARKER_INTERVAL
    }
}

/// How FPDUs of one direction are framed, as set-up agreed. Markers are what the receiver asked
/// for; CRCs are used if either side wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Markers are in use.
    pub markers: bool,
    /// CRCs are in use. Else the field is there, zero, and not looked at.
    pub crc: bool,
}

impl Framing {
    /// Markers in an FPDU that begins there, with its first byte or a marker before it.
    pub const fn markers_in(self, place: Place, ulpdu: usize) -> usize {
        let to_first = place.to_marker();
        let bytes = unmarked_len(ulpdu);
        if !self.markers || bytes <= to_first {
            return 0;
        }
        1 + (bytes - to_first - 1) / (MARKER_INTERVAL - MARKER_LEN)
    }

    /// Length of an FPDU that begins there, with a ULPDU of that length.
    pub const fn fpdu_len(self, place: Place, ulpdu: usize) -> usize {
        unmarked_len(ulpdu) + MARKER_LEN * self.markers_in(place, ulpdu)
    }

    /// Where the length of an FPDU that begins there is: behind a marker, or at once.
    pub(super) const fn length_at(self, place: Place) -> usize {
        if self.markers && place.to_marker() == 0 { MARKER_LEN } else { 0 }
    }

    /// The longest ULPDU that a TCP segment of `emss` bytes has room for, wherever markers lie
    /// (MULPDU; RFC 5044, 4.5).
    pub const fn mulpdu(self, emss: usize) -> usize {
        let markers = if self.markers { emss.div_ceil(MARKER_INTERVAL) } else { 0 };
        let rest = LENGTH_LEN + crc::LEN + MARKER_LEN * markers + emss % 4;
        let most = emss.saturating_sub(rest);
        if most < MAX_MULPDU { most } else { MAX_MULPDU }
    }
}

/// Bytes of zero behind a ULPDU of that length.
pub const fn pad(ulpdu: usize) -> usize {
    (LENGTH_LEN + ulpdu).wrapping_neg() & 3
}

/// Length of an FPDU without its markers.
pub(super) const fn unmarked_len(ulpdu: usize) -> usize {
    LENGTH_LEN + ulpdu + pad(ulpdu) + crc::LEN
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MARKED: Framing = Framing { markers: true, crc: true };
    const BARE: Framing = Framing { markers: false, crc: true };

    /// Markers in an FPDU, counted byte by byte.
    fn counted(place: Place, ulpdu: usize) -> usize {
        let (mut at, mut markers) = (place.number() as usize, 0);
        for _ in 0..unmarked_len(ulpdu) {
            if at % MARKER_INTERVAL == 0 {
                markers += 1;
                at += MARKER_LEN;
            }
            at += 1;
        }
        markers
    }

    #[test]
    fn an_fpdu_of_nothing_has_eight_bytes() {
        assert_eq!(BARE.fpdu_len(Place::START, 0), 8);
        assert_eq!(MARKED.fpdu_len(Place::START, 0), 12);
        // A marker that would lie behind it is the next one's.
        assert_eq!(MARKED.fpdu_len(Place::of(504), 0), 8);
        assert_eq!(MARKED.fpdu_len(Place::of(508), 0), 12);
    }

    #[test]
    fn a_marker_can_point_over_the_longest_fpdu_that_is_sent() {
        let longest = (0..512).step_by(4).map(|at| MARKED.fpdu_len(Place::of(at), MAX_MULPDU)).max();
        assert!(longest.is_some_and(|bytes| bytes <= usize::from(u16::MAX)), "{longest:?}");
        assert_eq!(MAX_FPDU, (0..512).map(|at| MARKED.fpdu_len(Place::of(at), 65535)).max().unwrap());
    }

    /// RFC 5044, 4.5: EMSS - (6 + 4 * Ceiling(EMSS / 512) + EMSS mod 4), or without markers EMSS -
    /// (6 + EMSS mod 4).
    #[test]
    fn mulpdu_is_that_of_the_rfc() {
        for (emss, bare, marked) in
            [(1460, 1454, 1442), (1448, 1442, 1430), (8948, 8942, 8870), (536, 530, 522), (1459, 1450, 1438)]
        {
            assert_eq!((BARE.mulpdu(emss), MARKED.mulpdu(emss)), (bare, marked), "{emss}");
        }
        assert_eq!((BARE.mulpdu(5), MARKED.mulpdu(5), MARKED.mulpdu(0)), (0, 0, 0));
        assert_eq!(MARKED.mulpdu(1 << 20), MAX_MULPDU);
    }

    proptest! {
        #[test]
        fn markers_are_where_one_would_count_them(place in 0u32..512, ulpdu in 0usize..5000) {
            let place = Place::of(place);
            prop_assert_eq!(MARKED.markers_in(place, ulpdu), counted(place, ulpdu));
            prop_assert_eq!(BARE.markers_in(place, ulpdu), 0);
            prop_assert_eq!(BARE.fpdu_len(place, ulpdu) % 4, 0);
        }

        #[test]
        fn mulpdu_fits_wherever_markers_lie(emss in 64usize..60000, place in 0u32..128) {
            let place = Place::of(place * 4);
            prop_assert!(MARKED.fpdu_len(place, MARKED.mulpdu(emss)) <= emss);
            // Without markers, nothing longer would fit.
            let longest = BARE.mulpdu(emss);
            prop_assert!(BARE.fpdu_len(place, longest) <= emss);
            prop_assert!(BARE.fpdu_len(place, longest + 1) > emss);
        }

        #[test]
        fn places_add_up(offset: u32, bytes in 0usize..100_000) {
            prop_assert_eq!(Place::of(offset).after(bytes), Place::of(offset.wrapping_add(bytes as u32)));
        }
    }
}
