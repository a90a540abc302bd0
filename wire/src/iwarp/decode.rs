//! Reads a whole FPDU.

use super::crc;
use super::encode;
use super::fault::Fault;
use super::framing::{Framing, LENGTH_LEN, MARKER_INTERVAL, MARKER_LEN, StreamOffset};

/// Returns the length of the FPDU that begins with these bytes, at this place of the stream.
///
/// Returns `None` if there are too few bytes to tell.
pub fn fpdu_len(framing: Framing, place: StreamOffset, bytes: &[u8]) -> Option<usize> {
    Some(framing.fpdu_len(place, ulpdu_len(framing, place, bytes)?))
}

/// Returns the length of the ULPDU of the FPDU that begins with these bytes.
fn ulpdu_len(framing: Framing, place: StreamOffset, bytes: &[u8]) -> Option<usize> {
    let (_, bytes) = bytes.split_at_checked(framing.length_at(place))?;
    let length = bytes.first_chunk::<LENGTH_LEN>()?;
    Some(usize::from(u16::from_be_bytes(*length)))
}

/// Returns the ULPDU of a whole FPDU that begins at this place of the stream.
///
/// CRC and markers are checked. The ULPDU is part of `fpdu`. If markers lie in it, it is copied to
/// `buffer`, which must be as long as `fpdu` ([`Fault::FpduTooLong`] otherwise). A ULPDU of no
/// bytes is valid (RFC 6581).
///
/// # Panics
/// If `fpdu` does not have the length of [`fpdu_len`].
pub fn ulpdu<'a>(
    framing: Framing,
    place: StreamOffset,
    fpdu: &'a [u8],
    buffer: &'a mut [u8],
) -> Result<&'a [u8], Fault> {
    let ulpdu = whole(framing, place, fpdu);
    if framing.markers_in(place, ulpdu) == 0 {
        check_crc(framing, fpdu)?;
        return Ok(&fpdu[LENGTH_LEN..LENGTH_LEN + ulpdu]);
    }
    let buffer = buffer.get_mut(..fpdu.len()).ok_or(Fault::FpduTooLong)?;
    buffer.copy_from_slice(fpdu);
    ulpdu_in_place(framing, place, buffer)
}

/// Returns the ULPDU of a whole FPDU in a buffer. Removes the markers from the buffer.
///
/// CRC and markers are checked.
pub(super) fn ulpdu_in_place(framing: Framing, place: StreamOffset, fpdu: &mut [u8]) -> Result<&[u8], Fault> {
    let ulpdu = whole(framing, place, fpdu);
    check_crc(framing, fpdu)?;
    let begin = framing.length_at(place) + LENGTH_LEN;
    if framing.markers {
        take_markers(framing, place, fpdu, begin)?;
    }
    Ok(&fpdu[begin..begin + ulpdu])
}

/// Returns the length of the ULPDU. Panics if `fpdu` is not one whole FPDU.
fn whole(framing: Framing, place: StreamOffset, fpdu: &[u8]) -> usize {
    let ulpdu = ulpdu_len(framing, place, fpdu).expect("an FPDU is longer than its length field");
    assert!(fpdu.len() == framing.fpdu_len(place, ulpdu), "an FPDU is as long as it says");
    ulpdu
}

fn check_crc(framing: Framing, fpdu: &[u8]) -> Result<(), Fault> {
    let (covered, crc) = fpdu.split_last_chunk::<{ crc::LEN }>().expect("an FPDU ends with a CRC");
    if framing.crc && crc::of(covered) != *crc { Err(Fault::Crc) } else { Ok(()) }
}

/// Checks all markers of an FPDU, and removes them by moving the bytes behind each one.
///
/// The first `begin` bytes stay where they are.
fn take_markers(framing: Framing, place: StreamOffset, fpdu: &mut [u8], begin: usize) -> Result<(), Fault> {
    // The bytes before the first marker stay, except if a marker is at the very beginning.
    let mut at = place.to_marker();
    let mut end = at.max(begin);
    while at < fpdu.len() {
        let next = fpdu.len().min(at + MARKER_INTERVAL);
        if read_pointer(&fpdu[at..]) != Some(encode::pointer(framing, place, at) & !3) {
            return Err(Fault::Marker);
        }
        let rest = (at + MARKER_LEN).max(begin);
        fpdu.copy_within(rest..next, end);
        end += next - rest;
        at = next;
    }
    Ok(())
}

/// Returns the pointer of the marker at the beginning of these bytes.
///
/// The last two bits of the pointer, and the reserved bytes, are ignored.
pub(super) fn read_pointer(bytes: &[u8]) -> Option<u16> {
    let [_, _, high, low] = bytes.first_chunk::<MARKER_LEN>()?;
    Some(u16::from_be_bytes([*high, *low]) & !3)
}
