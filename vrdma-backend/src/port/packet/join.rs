//! Coalesces TCP segments to send, so that they pass the kernel as one (TSO).
//!
//! Only segments that follow each other are coalesced. The kernel or the device cuts them again at
//! the same places. The wire carries the same segments, with new checksums. So a frame with a wrong
//! checksum stays alone.

use super::header::{HEADER, from_virtio};
use crate::frames::{HEAD, TcpLayout, VirtioOffload};

/// The longest IP packet, in bytes.
const LONGEST: usize = 65535;

/// What precedes the payloads of coalesced segments: the kernel's header, and the common headers.
pub type JoinedHead = [u8; HEADER + HEAD];

/// A frame that may be one of several coalesced segments.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The whole frame.
    pub bytes: &'a [u8],
    /// Whether its TCP checksum is still to be filled in. The field holds the sum of the pseudo
    /// header.
    pub is_open: bool,
}

/// Segments that are sent as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedFrames {
    /// The number of segments, at least two.
    pub frames: usize,
    /// The number of header bytes in each segment, which are left out.
    pub headers: usize,
}

/// Returns how many frames from the first on can be coalesced, if any. Writes their head to `head`.
pub fn run<'a>(
    mut frames: impl Iterator<Item = Candidate<'a>>,
    head: &mut JoinedHead,
) -> Option<JoinedFrames> {
    let first = frames.next()?;
    let tcp =
        TcpLayout::of(&first.bytes[..first.bytes.len().min(HEAD)]).filter(|tcp| tcp.is_plain(first.bytes))?;
    let headers = tcp.payload();
    let size = first.bytes.len() - headers;
    // Shorter segments are left alone. Linux sends none, and the receive path of this program takes
    // none.
    if size < VirtioOffload::MIN_SEGMENT {
        return None;
    }
    let pattern = pattern(&tcp, first.bytes);
    let seq = tcp.seq(first.bytes);
    let (mut count, mut payload, mut pushes) = (1, size, tcp.pushes(first.bytes));
    for next in frames {
        // A segment that is shorter than the others, or has PSH, is the last.
        let is_full = payload == count * size;
        let length = next.bytes.len().saturating_sub(headers);
        let fits = (1..=size).contains(&length) && headers - tcp.ip() + payload + length <= LONGEST;
        if pushes || !is_full || !fits || next.bytes.len() < headers {
            break;
        }
        let follows = self::pattern(&tcp, next.bytes) == pattern
            && tcp.seq(next.bytes) == seq.wrapping_add(payload as u32)
            && tcp.is_plain(next.bytes)
            // The first checksum is verified only if another segment follows. Most frames are
            // alone.
            && (count > 1 || is_sound(&tcp, &first))
            && is_sound(&tcp, &next);
        if !follows {
            break;
        }
        count += 1;
        payload += length;
        pushes = tcp.pushes(next.bytes);
    }
    if count == 1 {
        return None;
    }
    let offload = VirtioOffload::Segments { tcp, size: size as u16 };
    head[..HEADER].copy_from_slice(&from_virtio(&offload));
    let whole = &mut head[HEADER..HEADER + headers];
    whole.copy_from_slice(&first.bytes[..headers]);
    tcp.make_whole(whole, payload, pushes);
    Some(JoinedFrames { frames: count, headers })
}

/// Whether the frame's checksum is right, or will be.
fn is_sound(tcp: &TcpLayout, frame: &Candidate<'_>) -> bool {
    frame.is_open || tcp.is_sound(frame.bytes)
}

/// Returns the headers without the fields that differ from segment to segment.
fn pattern(tcp: &TcpLayout, frame: &[u8]) -> [u8; HEAD] {
    let mut pattern = [0; HEAD];
    pattern[..tcp.payload()].copy_from_slice(&frame[..tcp.payload()]);
    tcp.blank(&mut pattern);
    pattern
}
