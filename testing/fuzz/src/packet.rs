//! Fuzzes the parser of packets.

use vrdma_wire::head::{FrameKind, Head};
use vrdma_wire::icmp::PacketTooBig;
use vrdma_wire::icrc::Icrc;
use vrdma_wire::roce::{self, MAX_HEADERS, Packet};

/// Parses `data` as a frame. A parsed packet is written again, and must parse to an equal one.
///
/// A frame that parses as an ICMP error about the MTU must be classified as one.
pub fn packet(data: &[u8]) {
    let head = Head::parse(data);
    let kind = head.map(|head| head.kind);
    assert!(
        PacketTooBig::parse(data).is_none() || kind == Ok(FrameKind::TooLong),
        "a complaint looks like one"
    );
    let Ok(parsed) = Packet::parse(data) else { return };
    assert_eq!(head, Ok(parsed.packet.head()), "what parses looks like RoCE");
    let _ = parsed.check_icrc();
    assert!(parsed.ip_header().len() >= 20);
    if parsed.payload.len() > roce::MAX_PAYLOAD {
        return;
    }

    let mut headers = [0; MAX_HEADERS];
    let length = parsed.packet.emit(parsed.payload.len(), &mut headers);
    assert_eq!(length, parsed.packet.header_len());
    let mut frame = headers[..length].to_vec();
    let mut icrc = Icrc::new(&frame);
    frame.extend_from_slice(parsed.payload);
    frame.resize(length + parsed.payload.len() + roce::pad(parsed.payload.len()), 0);
    icrc.update(&frame[length..]);
    frame.extend_from_slice(&icrc.finish());
    assert_eq!(frame.len(), parsed.packet.frame_len(parsed.payload.len()));

    let again = Packet::parse(&frame).expect("what was written parses");
    assert_eq!(again.packet, parsed.packet);
    assert_eq!(again.payload, parsed.payload);
    assert_eq!(again.check_icrc(), Ok(()));
}
