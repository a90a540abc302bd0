//! Fuzzes the frames of a packet socket: joining segments, and splitting what the kernel has
//! joined.

use super::input::Input;
use super::lab::{ADDRESSES, MACS, MTU};
use crate::frames::{HEAD, TcpLayout};
use crate::port::packet::segment_checks::{check, cut};
use vrdma_wire::checksum::Sum;
use vrdma_wire::num::{Gid, VlanTag};
use vrdma_wire::tcp::{Flags, Options, TcpHeader, TcpPacket};

/// Fuzzes joining with nearly right successive segments, or splitting with arbitrary headers.
///
/// Joined segments must come out unchanged.
pub fn segments(data: &[u8]) {
    let mut input = Input::new(data);
    if input.once_in(4) {
        let mut header = [0; 10];
        header.iter_mut().for_each(|byte| *byte = input.byte());
        let (held, tag) = (input.word().into(), input.pick(&[0, 4]));
        let mut frame = frame(&mut input, 0, 600);
        edit(&mut input, &mut frame);
        frame.extend(input.bytes(4096));
        cut(header, &frame, held, tag, MTU.into());
        return;
    }
    let mut seq = input.long();
    // In half of the cases the length is nearly what the MTU and one tag leave room for.
    let most = match input.below(200) {
        most @ 100.. => 1336 + most,
        most => most,
    };
    let mut frames = Vec::new();
    // More steps would only make an input slow.
    while frames.len() < 50 && (frames.is_empty() || !input.is_empty()) {
        let length = input.near(most as u32) as usize % 1500;
        let mut frame = frame(&mut input, seq, length);
        seq = seq.wrapping_add(length as u32);
        if input.once_in(8) {
            edit(&mut input, &mut frame);
        }
        frames.push(frame);
    }
    check(&frames, input.word().into(), MTU.into());
}

/// Returns a segment, mostly like all others.
fn frame(input: &mut Input<'_>, seq: u32, length: usize) -> Vec<u8> {
    let kind = input.byte();
    let gid = |host: usize| match kind & 3 {
        1 => Gid([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host as u8]),
        _ => Gid::from_ipv4(ADDRESSES[host]),
    };
    let options = Options { timestamps: (kind & 4 != 0).then_some((1, 2)), ..Options::default() };
    let flags = if kind & 0xe0 == 0xe0 { Flags(input.byte()) } else { Flags::ACK };
    let header = TcpHeader { src_port: 1, dst_port: 2, seq, ack: 3, flags, window: 4, urgent: 0, options };
    let vlan = (kind & 8 != 0).then_some(VlanTag(5));
    let packet = TcpPacket {
        src_mac: MACS[0],
        dst_mac: MACS[1],
        vlan,
        src: gid(0),
        dst: gid(1),
        traffic_class: 0,
        header,
    };
    let begin = packet.len();
    let mut frame = vec![0; begin];
    frame.extend((0..length).map(|at| (seq as usize).wrapping_add(at) as u8));
    packet.emit(Sum::of(&frame[begin..]), &mut frame);
    if kind & 0x10 != 0 {
        frame.splice(12..12, [0x88, 0xa8, 0, 9].repeat(1 + usize::from(kind >> 5)));
    }
    frame
}

/// Changes some bytes of a frame. Mostly its lengths and checksums are then made right again.
fn edit(input: &mut Input<'_>, frame: &mut Vec<u8>) {
    for _ in 0..=input.below(3) {
        let at = input.below(frame.len());
        frame[at] = input.byte();
    }
    if input.once_in(4) {
        frame.truncate(input.below(frame.len() + 1));
    }
    if !input.once_in(3)
        && let Some(tcp) = TcpLayout::of(&frame[..frame.len().min(HEAD)])
    {
        tcp.adapt(frame, 0, 0, true);
    }
}
