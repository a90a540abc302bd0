//! Provokes each reason to drop a frame alone.

mod support;

use vrdma_wire::DropReason;
use vrdma_wire::num::*;
use vrdma_wire::roce::*;

const IP: usize = 14;

fn packet(v4: bool, body: Body) -> Packet {
    let gid = |last| match v4 {
        true => Gid::from_ipv4([10, 0, 0, last]),
        false => Gid([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]),
    };
    let path = Path {
        src_mac: Mac([2, 0, 0, 0, 0, 1]),
        dst_mac: Mac([2, 0, 0, 0, 0, 2]),
        vlan: None,
        src: gid(1),
        dst: gid(2),
        traffic_class: 0,
        flow_label: FlowLabel::default(),
        hop_limit: 64,
        src_port: 0xc001,
    };
    let bth = Bth { dest: Qpn::new(0x11).unwrap(), psn: Psn::truncate(0x123), ..Bth::default() };
    Packet { path, bth, body }
}

fn send() -> Body {
    Body::Rc(Rc::Send(Part::Only((), SendTail::Plain)))
}

/// Returns the result of reading a frame with a SEND of 6 bytes that `bend` has changed.
fn bent(v4: bool, bend: impl FnOnce(&mut Vec<u8>)) -> Result<(), DropReason> {
    bent_packet(packet(v4, send()), b"abcdef", bend)
}

fn bent_packet(packet: Packet, payload: &[u8], bend: impl FnOnce(&mut Vec<u8>)) -> Result<(), DropReason> {
    let mut frame = support::frame(&packet, payload);
    bend(&mut frame);
    Packet::parse(&frame)?.check_icrc()
}

/// Corrects the checksum of the IPv4 header.
fn mend_checksum(frame: &mut [u8]) {
    frame[IP + 10..IP + 12].fill(0);
    let sum: u32 = frame[IP..IP + 20].chunks(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
}

/// Returns the result of reading a packet with a payload (and no padding) that its opcode does not
/// allow.
fn with_payload(body: Body, payload: &[u8]) -> Result<(), DropReason> {
    bent_packet(packet(true, body), payload, |_| ())
}

#[test]
fn each_fault_has_its_reason() {
    let set = |at: usize, value: u8| move |f: &mut Vec<u8>| f[at] = value;
    for v4 in [true, false] {
        let udp = IP + if v4 { 20 } else { 40 };
        let bth = udp + 8;
        assert_eq!(bent(v4, |_| ()), Ok(()));
        assert_eq!(bent(v4, set(12, 0x88)), Err(DropReason::NotRoce));
        assert_eq!(bent(v4, set(udp + 2, 0)), Err(DropReason::NotRoce));
        assert_eq!(bent(v4, set(IP, 0x55)), Err(DropReason::IpVersion));
        assert_eq!(bent(v4, |f| f.truncate(f.len() - 1)), Err(DropReason::Truncated));
        assert_eq!(bent(v4, |f| f[udp + 5] += 4), Err(DropReason::UdpLength));
        assert_eq!(bent(v4, |f| f[udp + 5] -= 4), Err(DropReason::UdpLength));
        assert_eq!(bent(v4, set(bth + 1, 0x21)), Err(DropReason::BthVersion));
        for opcode in
            [0x15, 0x18, 0x1b, 0x1e, 0x2c, 0x44, 0x63, 0x66, 0x80, 0x82, 0xb5, 0xb8, 0xbb, 0xbe, 0xc4, 0xff]
        {
            assert_eq!(bent(v4, set(bth, opcode)), Err(DropReason::UnknownOpcode), "{opcode:#x}");
        }
        assert_eq!(bent(v4, set(bth + 12, b'x')), Err(DropReason::Icrc));
    }
}

#[test]
fn faults_of_ip() {
    assert_eq!(bent(true, |f| f[IP + 8] -= 1), Err(DropReason::IpChecksum));
    let header = |at: usize, value: u8| {
        bent(true, |f| {
            f[IP + at] = value;
            mend_checksum(f);
        })
    };
    assert_eq!(header(0, 0x46), Err(DropReason::IpHeaderLength));
    assert_eq!(header(0, 0x44), Err(DropReason::IpHeaderLength));
    assert_eq!(header(3, 19), Err(DropReason::IpLength));
    assert_eq!(header(9, 6), Err(DropReason::NotRoce));
    assert_eq!(header(6, 0x20), Err(DropReason::Fragment));
    assert_eq!(header(7, 1), Err(DropReason::Fragment));
    // A router decrements TTL and adjusts the sum. That is not a fault.
    assert_eq!(header(8, 3), Ok(()));
    // An extension header before UDP.
    assert_eq!(bent(false, |f| f[IP + 6] = 44), Err(DropReason::NotRoce));
    for at in [8, 24] {
        let mapped = |f: &mut Vec<u8>| f[IP + at..IP + at + 16].copy_from_slice(&Gid::from_ipv4([9; 4]).0);
        assert_eq!(bent(false, mapped), Err(DropReason::MappedAddress));
    }
}

#[test]
fn faults_of_payloads() {
    let bth = IP + 28;
    // The payload has 6 bytes, and 2 bytes of padding.
    let cut = |bytes: usize| {
        bent(true, |f| {
            f.drain(bth + 12..bth + 12 + bytes);
            f[IP + 3] -= bytes as u8;
            f[IP + 28 - 3] -= bytes as u8;
            mend_checksum(f);
        })
    };
    assert_eq!(cut(3), Err(DropReason::Pad));
    assert_eq!(cut(8), Err(DropReason::Pad));
    assert_eq!(cut(4), Err(DropReason::Icrc));
    let aeth = Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn: AethMsn::truncate(7) };
    let reth = Reth { va: 0x1000, rkey: Rkey(1), length: 8 };
    let atomic = AtomicEth { va: 0x1000, rkey: Rkey(1), swap_or_add: 2, compare: 3 };
    let bare = [
        Rc::Ack(aeth),
        Rc::AtomicAck(aeth, 5),
        Rc::ReadRequest(reth),
        Rc::Atomic(AtomicKind::CompareSwap, atomic),
        Rc::Atomic(AtomicKind::FetchAdd, atomic),
        Rc::Flush(Feth::new(true, false, false), reth),
    ];
    for body in bare.map(Body::Rc).into_iter().chain([Body::Cnp]) {
        assert_eq!(with_payload(body, b""), Ok(()));
        assert_eq!(with_payload(body, b"abcd"), Err(DropReason::PayloadLength), "{body:?}");
    }
    let atomic_write = Body::Rc(Rc::AtomicWrite(reth));
    assert_eq!(with_payload(atomic_write, &[7; 8]), Ok(()));
    assert_eq!(with_payload(atomic_write, &[7; 4]), Err(DropReason::PayloadLength));
    for syndrome in [0x40, 0x5f, 0x65, 0x7f, 0x80, 0xff] {
        let bent = bent_packet(packet(true, Body::Rc(Rc::Ack(aeth))), b"", |f| f[bth + 12] = syndrome);
        assert_eq!(bent, Err(DropReason::Syndrome), "{syndrome:#x}");
    }
}

#[test]
fn requests_of_xrc_name_a_queue_and_answers_none() {
    let aeth = Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn: AethMsn::truncate(7) };
    let reth = Reth { va: 0x1000, rkey: Rkey(1), length: 8 };
    let srqn = Srqn::new(0xabcdef);
    let requests =
        [Rc::Send(Part::Middle), Rc::Write(Part::Middle), Rc::ReadRequest(reth), Rc::AtomicWrite(reth)];
    for request in requests {
        assert!(Xrc::new(request, None).is_none() && Xrc::new(request, srqn).is_some(), "{request:?}");
    }
    for answer in [Rc::Ack(aeth), Rc::AtomicAck(aeth, 5), Rc::ReadResponse(ReadPart::Middle)] {
        assert!(Xrc::new(answer, srqn).is_none() && Xrc::new(answer, None).is_some(), "{answer:?}");
    }
    // The XRCETH is directly behind the BTH. Its reserved bits are ignored.
    let (at, body) = (IP + 28 + 12, Body::Xrc(Xrc::new(Rc::ReadRequest(reth), srqn).unwrap()));
    let mut frame = support::frame(&packet(true, body), b"");
    assert_eq!(frame[at..at + 4], [0, 0xab, 0xcd, 0xef]);
    frame[at] = 0xff;
    assert_eq!(Packet::parse(&frame).unwrap().packet.body, body);
    assert_eq!(with_payload(body, b"abcd"), Err(DropReason::PayloadLength));
}

#[test]
fn the_switch_sees_roce_at_first_sight() {
    for v4 in [true, false] {
        let mut frame = support::frame(&packet(v4, send()), b"hello");
        assert!(is_roce(&frame));
        let udp = IP + if v4 { 20 } else { 40 };
        assert!(is_roce(&frame[..udp + 8]) && !is_roce(&frame[..udp + 7]));
        if v4 {
            // A packet with IP options still counts as RoCE. A fragment does not: RoCE has no
            // fragments.
            let mut options = frame.clone();
            options[IP] = 0x46;
            options.splice(udp..udp, [1; 4]);
            assert!(is_roce(&options));
            frame[IP + 6] = 0x20;
            assert!(!is_roce(&frame));
        }
        frame[udp + 3] = 0;
        assert!(!is_roce(&frame));
    }
}

#[test]
fn a_receiver_sees_the_ip_header_as_it_came() {
    for (v4, len) in [(true, 20), (false, 40)] {
        let frame = support::frame(&packet(v4, send()), b"hello");
        assert_eq!(Packet::parse(&frame).unwrap().ip_header(), &frame[IP..IP + len]);
        let mut written = [0; 40];
        assert_eq!(packet(v4, send()).emit_ip(5, &mut written), len);
        assert_eq!(written[..len], frame[IP..IP + len]);
    }
}
