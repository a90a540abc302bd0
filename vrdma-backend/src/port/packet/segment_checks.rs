//! Checks that coalesced segments are cut into what they were. For tests and for the fuzz target.

use super::cut::{Cut, Whole};
use super::header::{HEADER, shift, to_virtio};
use super::join::{Candidate, JoinedFrames, JoinedHead, run};
use crate::frames::{HEAD, Ip, VirtioOffload};
use crate::port::ETHERNET;
use vrdma_wire::checksum::Sum;

/// Coalesces the segments at the beginning of `frames`. Returns the kernel's header and the frame.
///
/// None of their checksums is still to be filled in.
pub fn joined(frames: &[Vec<u8>]) -> Option<(JoinedFrames, [u8; HEADER], Vec<u8>)> {
    let mut head: JoinedHead = [0; HEADER + HEAD];
    let candidates = frames.iter().map(|bytes| Candidate { bytes, is_open: false });
    let run = run(candidates, &mut head)?;
    let mut header = [0; HEADER];
    header.copy_from_slice(&head[..HEADER]);
    let mut whole = head[HEADER..HEADER + run.headers].to_vec();
    frames[..run.frames].iter().for_each(|frame| whole.extend(&frame[run.headers..]));
    Some((run, header, whole))
}

/// Cuts a frame that the kernel gives with `held` bytes in one place.
///
/// `None` if it is not to be cut, or its segments do not fit the buffers. `tag` is the number of
/// bytes that were inserted since. Buffers have the room that a port with this MTU gives them.
pub fn cut(header: [u8; HEADER], whole: &[u8], held: usize, tag: u16, mtu: usize) -> Option<Vec<Vec<u8>>> {
    let mut room = vec![0xee; mtu + ETHERNET];
    let (head, held) = (&whole[..whole.len().min(HEAD)], held.min(whole.len()).min(room.len()));
    let mut virtio = to_virtio(&header);
    shift(&mut virtio, tag);
    let offload = VirtioOffload::parse(&virtio, u64::MAX, head, whole.len(), mtu);
    let Ok(VirtioOffload::Segments { tcp, size }) = offload else { return None };
    let mut cut = Cut::new(tcp, size, head, whole.len(), room.len())?;
    let (mut first, rest) = whole.split_at(held);
    let mut frames = Vec::new();
    while cut.next_len().is_some() {
        let len = if cut.is_in_place(held) {
            room[..held].copy_from_slice(first);
            cut.finish(&mut room[..held]);
            first = &[];
            held
        } else {
            cut.write(Whole { first, held, rest }, &mut room).expect("the first had room")
        };
        frames.push(room[..len].to_vec());
    }
    Some(frames)
}

/// Coalesces frames and cuts them again. Returns how many were coalesced with others.
///
/// Frames that are too long for a buffer do not come out.
///
/// # Panics
/// A frame differs afterwards, so our own rules are broken. The IPv4 identification may differ,
/// because the kernel numbers the packets.
pub fn check(frames: &[Vec<u8>], held: usize, mtu: usize) -> usize {
    let (mut left, mut together) = (frames, 0);
    while !left.is_empty() {
        let Some((JoinedFrames { frames: count, headers }, header, whole)) = joined(left) else {
            left = &left[1..];
            continue;
        };
        let came = cut(header, &whole, held.max(headers), 0, mtu);
        let sent = (0..).zip(&left[..count]).map(|(number, frame)| numbered(frame, &left[0], number));
        let first = &left[0];
        let ip = Ip::parse(&first[..first.len().min(HEAD)]).expect("it went with others");
        let fits = first.len() - ip.start <= mtu && first.len() <= mtu + ETHERNET;
        assert_eq!(came, fits.then(|| sent.collect::<Vec<_>>()));
        (left, together) = (&left[count..], together + count);
    }
    together
}

/// Returns a frame with the IPv4 identification that the kernel gives it. It counts from that of
/// the first.
pub fn numbered(frame: &[u8], first: &[u8], number: u16) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let ip = Ip::parse(&frame[..frame.len().min(HEAD)]).expect("it went with others");
    if !ip.v6 {
        let at = ip.start;
        let id = u16::from_be_bytes([first[at + 4], first[at + 5]]).wrapping_add(number);
        frame[at + 4..at + 6].copy_from_slice(&id.to_be_bytes());
        frame[at + 10..at + 12].fill(0);
        let checksum = Sum::of(&frame[at..ip.l4]).finish();
        frame[at + 10..at + 12].copy_from_slice(&checksum.to_be_bytes());
    }
    frame
}
