//! Lengths of FPDUs, and positions of markers (RFC 5044, 4).
//!
//! An FPDU is the length of its ULPDU (2 bytes), the ULPDU, zeros up to a multiple of 4 bytes, and
//! the CRC. If markers are in use, one of 4 bytes lies at each 512th byte of the stream, counted
//! from the start of full operation. The first byte of full operation begins a marker. A marker
//! belongs to the FPDU in which it lies. A marker between two FPDUs belongs to the second one.

use super::crc;

/// Length of the ULPDU length field, with which an FPDU begins.
pub const LENGTH_LEN: usize = 2;
/// Length of a marker: 2 reserved bytes, and the FPDU pointer.
pub const MARKER_LEN: usize = 4;
/// Distance from the beginning of a marker to that of the next one.
pub const MARKER_INTERVAL: usize = 512;
/// Length of the longest ULPDU that is sent.
///
/// The whole FPDU has less than 2^16 bytes with its markers, so that a marker can point to its
/// beginning.
pub const MAX_MULPDU: usize = 64768;
/// Length of the longest FPDU that a length field allows, with the most markers.
///
/// A buffer of this size takes any FPDU.
pub const MAX_FPDU: usize =
    Framing { markers: true, crc: true }.fpdu_len(StreamOffset::START, u16::MAX as usize);

/// A position in one direction's stream, relative to the markers.
///
/// It is the number of bytes from the start of full operation, modulo 512.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamOffset(u16);

impl StreamOffset {
    /// The start of full operation.
    pub const START: StreamOffset = StreamOffset(0);

    /// Returns the place `offset` bytes from the start.
    ///
    /// Like TCP's sequence numbers, `offset` may have wrapped at 2^32.
    pub const fn of(offset: u32) -> StreamOffset {
        StreamOffset((offset % MARKER_INTERVAL as u32) as u16)
    }

    /// Returns the place `bytes` later.
    #[must_use]
    pub const fn after(self, bytes: usize) -> StreamOffset {
        StreamOffset(((self.0 as usize + bytes % MARKER_INTERVAL) % MARKER_INTERVAL) as u16)
    }

    /// Returns the distance from the last marker's beginning, 0 to 511 bytes.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Returns the number of bytes to the next marker's beginning; 0 if it is here.
    pub(super) const fn to_marker(self) -> usize {
        (MARKER_INTERVAL - self.0 as usize) % MARKER_INTERVAL
    }
}

/// Framing of one direction's FPDUs, as set-up agreed.
///
/// The receiver of a direction decides about markers. CRCs are used if either side wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Markers are in use.
    pub markers: bool,
    /// CRCs are in use. Otherwise the CRC field is zero and is not checked.
    pub crc: bool,
}

impl Framing {
    /// Returns the number of markers in an FPDU that begins at `place`.
    ///
    /// `place` is that of its first byte, or of a marker before it.
    pub const fn markers_in(self, place: StreamOffset, ulpdu: usize) -> usize {
        let to_first = place.to_marker();
        let bytes = unmarked_len(ulpdu);
        if !self.markers || bytes <= to_first {
            return 0;
        }
        1 + (bytes - to_first - 1) / (MARKER_INTERVAL - MARKER_LEN)
    }

    /// Returns the length of an FPDU that begins at `place`, with a ULPDU of this length.
    pub const fn fpdu_len(self, place: StreamOffset, ulpdu: usize) -> usize {
        unmarked_len(ulpdu) + MARKER_LEN * self.markers_in(place, ulpdu)
    }

    /// Returns the offset of the length field in an FPDU that begins at `place`: behind a marker,
    /// or 0.
    pub(super) const fn length_at(self, place: StreamOffset) -> usize {
        if self.markers && place.to_marker() == 0 { MARKER_LEN } else { 0 }
    }

    /// Returns the longest ULPDU that fits into a TCP segment of `emss` bytes, wherever markers
    /// lie.
    ///
    /// This is the MULPDU (RFC 5044, 4.5).
    pub const fn mulpdu(self, emss: usize) -> usize {
        let markers = if self.markers { emss.div_ceil(MARKER_INTERVAL) } else { 0 };
        let rest = LENGTH_LEN + crc::LEN + MARKER_LEN * markers + emss % 4;
        let most = emss.saturating_sub(rest);
        if most < MAX_MULPDU { most } else { MAX_MULPDU }
    }
}

/// Returns the number of zero bytes behind a ULPDU of this length.
pub const fn pad(ulpdu: usize) -> usize {
    (LENGTH_LEN + ulpdu).wrapping_neg() & 3
}

/// Returns the length of an FPDU without its markers.
pub(super) const fn unmarked_len(ulpdu: usize) -> usize {
    LENGTH_LEN + ulpdu + pad(ulpdu) + crc::LEN
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MARKED: Framing = Framing { markers: true, crc: true };
    const BARE: Framing = Framing { markers: false, crc: true };

    /// Counts the markers in an FPDU byte by byte.
    fn counted(place: StreamOffset, ulpdu: usize) -> usize {
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
        assert_eq!(BARE.fpdu_len(StreamOffset::START, 0), 8);
        assert_eq!(MARKED.fpdu_len(StreamOffset::START, 0), 12);
        // A marker directly behind the FPDU belongs to the next one.
        assert_eq!(MARKED.fpdu_len(StreamOffset::of(504), 0), 8);
        assert_eq!(MARKED.fpdu_len(StreamOffset::of(508), 0), 12);
    }

    #[test]
    fn a_marker_can_point_over_the_longest_fpdu_that_is_sent() {
        let longest = (0..512).step_by(4).map(|at| MARKED.fpdu_len(StreamOffset::of(at), MAX_MULPDU)).max();
        assert!(longest.is_some_and(|bytes| bytes <= usize::from(u16::MAX)), "{longest:?}");
        assert_eq!(MAX_FPDU, (0..512).map(|at| MARKED.fpdu_len(StreamOffset::of(at), 65535)).max().unwrap());
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
            let place = StreamOffset::of(place);
            prop_assert_eq!(MARKED.markers_in(place, ulpdu), counted(place, ulpdu));
            prop_assert_eq!(BARE.markers_in(place, ulpdu), 0);
            prop_assert_eq!(BARE.fpdu_len(place, ulpdu) % 4, 0);
        }

        #[test]
        fn mulpdu_fits_wherever_markers_lie(emss in 64usize..60000, place in 0u32..128) {
            let place = StreamOffset::of(place * 4);
            prop_assert!(MARKED.fpdu_len(place, MARKED.mulpdu(emss)) <= emss);
            // Without markers, no longer ULPDU fits.
            let longest = BARE.mulpdu(emss);
            prop_assert!(BARE.fpdu_len(place, longest) <= emss);
            prop_assert!(BARE.fpdu_len(place, longest + 1) > emss);
        }

        #[test]
        fn places_add_up(offset: u32, bytes in 0usize..100_000) {
            prop_assert_eq!(StreamOffset::of(offset).after(bytes), StreamOffset::of(offset.wrapping_add(bytes as u32)));
        }
    }
}
