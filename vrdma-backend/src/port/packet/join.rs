//! Frames to send that pass the kernel as one: segments of TCP that follow each other (TSO).
//!
//! The kernel, or the device, cuts them again where they were cut: what goes by the wire are the
//! same segments, with their checksums computed anew. So a frame whose checksum is wrong stays
//! alone.

use super::header::{HEADER, from_virtio};
use crate::frames::{HEAD, Tcp, VirtioOffload};

/// The longest IP packet.
const LONGEST: usize = 65535;

/// What goes before the payloads of a run: the kernel's header, and headers of all of them
/// together.
pub type Head = [u8; HEADER + HEAD];

/// A frame that may be part of a run.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// Its TCP checksum is to be filled in, and is the pseudo header's sum now.
    pub is_open: bool,
}

/// Frames that go as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How many they are: two at least.
    pub frames: usize,
    /// Bytes of headers in each of them, which are left out.
    pub headers: usize,
}

/// The run that begins with the first of these, if it is one; its head is written to `head`.
pub fn run<'a>(mut frames: impl Iterator<Item = Candidate<'a>>, head: &mut Head) -> Option<Run> {
    let first = frames.next()?;
    let tcp = Tcp::of(&first.bytes[..first.bytes.len().min(HEAD)]).filter(|tcp| tcp.is_plain(first.bytes))?;
    let headers = tcp.payload();
    let size = first.bytes.len() - headers;
    // A receiver of ours takes none that are shorter, as Linux sends none.
    if size < VirtioOffload::MIN_SEGMENT {
        return None;
    }
    let pattern = pattern(&tcp, first.bytes);
    let seq = tcp.seq(first.bytes);
    let (mut count, mut payload, mut pushes) = (1, size, tcp.pushes(first.bytes));
    for next in frames {
        // What is shorter than the others, or pushes, is the last.
        let is_full = payload == count * size;
        let length = next.bytes.len().saturating_sub(headers);
        let fits = (1..=size).contains(&length) && headers - tcp.ip() + payload + length <= LONGEST;
        if pushes || !is_full || !fits || next.bytes.len() < headers {
            break;
        }
        let follows = self::pattern(&tcp, next.bytes) == pattern
            && tcp.seq(next.bytes) == seq.wrapping_add(payload as u32)
            && tcp.is_plain(next.bytes)
            // The first is summed up when another follows: most frames are alone.
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
    Some(Run { frames: count, headers })
}

/// Whether its checksum is right, or will be.
fn is_sound(tcp: &Tcp, frame: &Candidate<'_>) -> bool {
    frame.is_open || tcp.is_sound(frame.bytes)
}

/// The headers without what differs from segment to segment.
fn pattern(tcp: &Tcp, frame: &[u8]) -> [u8; HEAD] {
    let mut pattern = [0; HEAD];
    pattern[..tcp.payload()].copy_from_slice(&frame[..tcp.payload()]);
    tcp.blank(&mut pattern);
    pattern
}
