//! Reading a whole FPDU.

use super::crc;
use super::encode;
use super::fault::Fault;
use super::framing::{Framing, LENGTH_LEN, MARKER_INTERVAL, MARKER_LEN, Place};

/// The length of the FPDU that begins with these bytes, at that place of the stream; `None` if they
/// are too few to tell.
pub fn fpdu_len(framing: Framing, place: Place, bytes: &[u8]) -> Option<usize> {
    Some(framing.fpdu_len(place, ulpdu_len(framing, place, bytes)?))
}

/// The length of the ULPDU of the FPDU that begins with these bytes.
fn ulpdu_len(framing: Framing, place: Place, bytes: &[u8]) -> Option<usize> {
    let (_, bytes) = bytes.split_at_checked(framing.length_at(place))?;
    let length = bytes.first_chunk::<LENGTH_LEN>()?;
    Some(usize::from(u16::from_be_bytes(*length)))
}

/// The ULPDU of a whole FPDU that begins at that place of the stream, if its CRC and its markers
/// are right. It is part of `fpdu`, or, if markers lie in that, in `buffer`, which has to be as
/// long as `fpdu`: else that is [`Fault::FpduTooLong`]. One of no bytes is valid (RFC 6581).
///
/// # Panics
/// If `fpdu` is not of the length that [`fpdu_len`] says.
pub fn ulpdu<'a>(
    framing: Framing,
    place: Place,
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

/// The same of an FPDU that lies in a buffer, out of which markers are taken.
pub(super) fn ulpdu_in_place(framing: Framing, place: Place, fpdu: &mut [u8]) -> Result<&[u8], Fault> {
    let ulpdu = whole(framing, place, fpdu);
    check_crc(framing, fpdu)?;
    let begin = framing.length_at(place) + LENGTH_LEN;
    if framing.markers {
        take_markers(framing, place, fpdu, begin)?;
    }
    Ok(&fpdu[begin..begin + ulpdu])
}

/// The length of its ULPDU.
fn whole(framing: Framing, place: Place, fpdu: &[u8]) -> usize {
    let ulpdu = ulpdu_len(framing, place, fpdu).expect("an FPDU is longer than its length field");
    assert!(fpdu.len() == framing.fpdu_len(place, ulpdu), "an FPDU is as long as it says");
    ulpdu
}

fn check_crc(framing: Framing, fpdu: &[u8]) -> Result<(), Fault> {
    let (covered, crc) = fpdu.split_last_chunk::<{ crc::LEN }>().expect("an FPDU ends with a CRC");
    if framing.crc && crc::of(covered) != *crc { Err(Fault::Crc) } else { Ok(()) }
}

/// Checks all markers of an FPDU, and moves what lies behind each to where `begin` bytes and what
/// was moved before end.
fn take_markers(framing: Framing, place: Place, fpdu: &mut [u8], begin: usize) -> Result<(), Fault> {
    // All before the first marker, but for one at the very beginning, is where it belongs.
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

/// What the marker with which these bytes begin points with. Its last two bits do not count, nor do
/// those reserved.
pub(super) fn read_pointer(bytes: &[u8]) -> Option<u16> {
    let [_, _, high, low] = bytes.first_chunk::<MARKER_LEN>()?;
    Some(u16::from_be_bytes([*high, *low]) & !3)
}
