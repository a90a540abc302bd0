//! Writes and reads packets of other implementations.
//!
//! scapy wrote them and tshark read them (see `vectors/README.md`). Linux's soft-RoCE sent some
//! more.
//!
//! Shows: wire-format.

mod support;

use std::collections::BTreeMap;
use std::net::IpAddr;
use vrdma_wire::num::*;
use vrdma_wire::roce::*;

/// A line of `packets.txt`: the value of each field.
struct Vector<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Vector<'a> {
    fn text(&self, key: &str) -> &'a str {
        self.0[key]
    }

    fn number(&self, key: &str) -> u64 {
        u64::from_str_radix(self.text(key).trim_start_matches("0x"), 16).unwrap()
    }

    fn flag(&self, key: &str) -> bool {
        self.number(key) == 1
    }

    fn bytes(&self, key: &str) -> Vec<u8> {
        let text = self.text(key);
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    }

    fn mac(&self, key: &str) -> Mac {
        let bytes: Vec<u8> = self.text(key).split(':').map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
        Mac(bytes.try_into().unwrap())
    }

    fn gid(&self, key: &str) -> Gid {
        match self.text(key).parse().unwrap() {
            IpAddr::V4(v4) => Gid(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Gid(v6.octets()),
        }
    }

    fn path(&self) -> Path {
        Path {
            src_mac: self.mac("src_mac"),
            dst_mac: self.mac("dst_mac"),
            vlan: self.0.contains_key("vlan").then(|| VlanTag(self.number("vlan") as u16)),
            src: self.gid("src"),
            dst: self.gid("dst"),
            traffic_class: self.number("traffic_class") as u8,
            flow_label: FlowLabel::truncate(self.number("flow_label") as u32),
            hop_limit: self.number("hop_limit") as u8,
            src_port: self.number("src_port") as u16,
        }
    }

    fn bth(&self) -> Bth {
        Bth {
            solicited: self.flag("solicited"),
            mig: self.flag("mig"),
            pkey: Pkey(self.number("pkey") as u16),
            fecn: self.flag("fecn"),
            becn: self.flag("becn"),
            dest: Qpn::new(self.number("dest") as u32).unwrap(),
            ack_req: self.flag("ack_req"),
            psn: Psn::new(self.number("psn") as u32).unwrap(),
        }
    }

    fn imm(&self) -> Imm {
        Imm::from_bytes((self.number("imm") as u32).to_be_bytes())
    }

    fn reth(&self) -> Reth {
        let (va, rkey) = (self.number("va"), Rkey(self.number("rkey") as u32));
        Reth { va, rkey, length: self.number("length") as u32 }
    }

    fn atomic(&self) -> AtomicEth {
        AtomicEth {
            va: self.number("atomic_va"),
            rkey: Rkey(self.number("atomic_rkey") as u32),
            swap_or_add: self.number("swap"),
            compare: self.number("compare"),
        }
    }

    fn aeth(&self) -> Aeth {
        let number = self.number("syndrome") as u8;
        let syndrome = match number {
            0..0x20 => Syndrome::Ack(Credits::new(number).unwrap()),
            0x20..0x40 => Syndrome::Rnr(RnrTimer::new(number - 0x20).unwrap()),
            0x60 => Syndrome::Nak(NakCode::PsnSequenceError),
            0x61 => Syndrome::Nak(NakCode::InvalidRequest),
            0x62 => Syndrome::Nak(NakCode::RemoteAccessError),
            0x63 => Syndrome::Nak(NakCode::RemoteOperationalError),
            0x64 => Syndrome::Nak(NakCode::InvalidRdRequest),
            _ => panic!("syndrome {number:#x}"),
        };
        Aeth { syndrome, msn: AethMsn::truncate(self.number("msn") as u32) }
    }

    fn body(&self) -> Body {
        let name = self.text("name");
        let (service, rest) = name.split_once('_').unwrap_or((name, ""));
        let write_tail = || if rest.ends_with("imm") { WriteTail::Imm(self.imm()) } else { WriteTail::Plain };
        let send_tail = || match () {
            () if rest.ends_with("invalidate") => {
                SendTail::Invalidate(Rkey(self.number("invalidate") as u32))
            }
            () if rest.ends_with("imm") => SendTail::Imm(self.imm()),
            () => SendTail::Plain,
        };
        let rc = |rest: &str| match rest {
            "read_request" => Rc::ReadRequest(self.reth()),
            "read_response_first" => Rc::ReadResponse(ReadPart::First(self.aeth())),
            "read_response_middle" => Rc::ReadResponse(ReadPart::Middle),
            "read_response_last" => Rc::ReadResponse(ReadPart::Last(self.aeth())),
            "read_response_only" => Rc::ReadResponse(ReadPart::Only(self.aeth())),
            "ack" => Rc::Ack(self.aeth()),
            "atomic_ack" => Rc::AtomicAck(self.aeth(), self.number("original")),
            "compare_swap" => Rc::Atomic(AtomicKind::CompareSwap, self.atomic()),
            "fetch_add" => Rc::Atomic(AtomicKind::FetchAdd, self.atomic()),
            "atomic_write" => Rc::AtomicWrite(self.reth()),
            "flush" => {
                let (plt, sel) = (self.number("plt"), self.number("sel"));
                Rc::Flush(Feth::new(plt & 1 != 0, plt & 2 != 0, sel == 1), self.reth())
            }
            send if send.starts_with("send") => Rc::Send(part(send, || (), send_tail)),
            write => Rc::Write(part(write, || self.reth(), write_tail)),
        };
        match service {
            "rc" => Body::Rc(rc(rest)),
            "xrc" => {
                let srqn =
                    self.0.contains_key("srqn").then(|| Srqn::new(self.number("srqn") as u32).unwrap());
                Body::Xrc(Xrc::new(rc(rest), srqn).expect("a request has a queue"))
            }
            "uc" if rest.starts_with("send") => Body::Uc(Uc::Send(part(rest, || (), write_tail))),
            "uc" => Body::Uc(Uc::Write(part(rest, || self.reth(), write_tail))),
            "ud" => Body::Ud {
                deth: Deth {
                    qkey: Qkey(self.number("qkey") as u32),
                    src: Qpn::new(self.number("srcqp") as u32).unwrap(),
                },
                imm: rest.ends_with("imm").then(|| self.imm()),
            },
            "cnp" => Body::Cnp,
            _ => panic!("{name}"),
        }
    }
}

/// Returns the position in a message that a packet's name tells.
fn part<F, L>(name: &str, head: impl Fn() -> F, tail: impl Fn() -> L) -> Part<F, L> {
    match name.split('_').nth(1).unwrap() {
        "first" => Part::First(head()),
        "middle" => Part::Middle,
        "last" => Part::Last(tail()),
        "only" => Part::Only(head(), tail()),
        _ => panic!("{name}"),
    }
}

#[test]
fn packets_of_others_are_written_and_read_alike() {
    let mut seen = 0;
    for line in include_str!("vectors/packets.txt").lines() {
        let vector = Vector(line.split(' ').map(|f| f.split_once('=').unwrap()).collect());
        let name = format!("{} over IPv{}", vector.text("name"), vector.text("version"));
        let packet = Packet { path: vector.path(), bth: vector.bth(), body: vector.body() };
        let (payload, theirs) = (vector.bytes("payload"), vector.bytes("frame"));

        assert_eq!(support::frame(&packet, &payload), theirs, "{name}");
        let parsed = Packet::parse(&theirs).unwrap();
        assert_eq!(parsed.packet, packet, "{name}");
        assert_eq!(parsed.payload, payload, "{name}");
        assert_eq!(parsed.check_icrc(), Ok(()), "{name}");
        seen += 1;
    }
    // Others have packets of IBTA's opcodes only. XRC has the operations of RC. RC's opcodes are
    // those below UC's.
    let numbers = Opcode::ALL.iter().map(|&opcode| opcode as u8).filter(|&number| Opcode::is_of_ibta(number));
    let of_rc = numbers.clone().filter(|&number| number < 0x20).count();
    assert_eq!(seen, 2 * (numbers.count() + of_rc));
}

/// Returns the frames of a pcap file (little-endian, Ethernet).
fn frames(pcap: &[u8]) -> Vec<&[u8]> {
    let (head, mut rest) = pcap.split_at(24);
    assert_eq!(head[..4], [0xd4, 0xc3, 0xb2, 0xa1]);
    let mut frames = Vec::new();
    while let Some((record, after)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes(record[8..12].try_into().unwrap()) as usize;
        let (frame, after) = after.split_at(length);
        frames.push(frame);
        rest = after;
    }
    frames
}

/// Reads a capture of two machines that communicate by `rdma_rxe`.
#[test]
fn packets_of_rxe_are_read_and_written_alike() {
    let frames = frames(include_bytes!("../../testing/conformance/checks/rxe.pcap"));
    assert!(frames.len() > 50);
    for (n, theirs) in frames.into_iter().enumerate() {
        let parsed = Packet::parse(theirs).unwrap_or_else(|reason| panic!("frame {n}: {reason}"));
        assert_eq!(parsed.check_icrc(), Ok(()), "frame {n}");
        let mut ours = support::frame(&parsed.packet, parsed.payload);
        if parsed.packet.path.is_ipv4() {
            // The IP identification is arbitrary. So are the checksum and the ICRC, which cover it.
            for range in [18..20, 24..26, theirs.len() - 4..theirs.len()] {
                ours[range.clone()].copy_from_slice(&theirs[range]);
            }
        }
        assert_eq!(ours, theirs, "frame {n}: {:?}", parsed.packet);
    }
}
