//! What a mirror shows of messages within an engine: the packets that two engines exchange.

use super::operations::{ALL, IMM, RULES, Topology, Walk};
use super::wire::{A, B};
use super::*;
use vrdma_wire::num::{AethMsn, Imm};
use vrdma_wire::roce::{Body, MAX_FRAME, Packet, Part, Rc as Reliable, ReadPart, Uc, Xrc};

/// Keeps the packets that it is shown, as frames.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) frames: Vec<(MirrorEnds, Vec<u8>)>,
    /// The only QP whose packets are wanted.
    pub(crate) only: Option<Qpn>,
}

impl Mirror for Kept {
    fn wants(&mut self, ends: MirrorEnds) -> bool {
        self.only.is_none_or(|qpn| ends.from.1 == qpn)
    }

    fn packet(&mut self, ends: MirrorEnds, packet: &Packet, payload: &dyn PacketPayload) {
        assert!(self.wants(ends));
        let mut frame = vec![0xee; MAX_FRAME];
        let headers = packet.emit(payload.length(), &mut frame);
        payload.read_first(&mut frame[headers..][..payload.length()]).unwrap();
        frame.truncate(packet.frame_len(payload.length()));
        let padding = headers + payload.length()..frame.len() - vrdma_wire::icrc::LEN;
        frame[padding].fill(0);
        vrdma_wire::icrc::seal(&mut frame);
        // A part of the payload is a part of its bytes.
        let half = payload.length() / 2;
        let mut first = vec![0; half];
        payload.read_first(&mut first).unwrap();
        assert_eq!(first, frame[headers..][..half]);
        self.frames.push((ends, frame));
    }
}

/// What two frames have in common if they are the same packet of two worlds.
///
/// Addresses, QPNs and keys differ between these. Engines count no MSNs within.
#[derive(Debug, PartialEq)]
pub(super) struct Shown {
    psn: u32,
    solicited: bool,
    pub(super) body: Body,
    payload: Vec<u8>,
}

fn shown(frame: &[u8]) -> Shown {
    let parsed = Packet::parse(frame).unwrap();
    assert_eq!(parsed.check_icrc(), Ok(()));
    let Packet { bth, mut body, .. } = parsed.packet;
    match &mut body {
        Body::Rc(rc) => *rc = in_common(*rc),
        Body::Xrc(xrc) => *xrc = Xrc::new(in_common(*xrc.rc()), xrc.srqn()).unwrap(),
        Body::Uc(Uc::Write(Part::First(reth) | Part::Only(reth, _))) => reth.rkey = Rkey(0),
        Body::Ud { deth, .. } => deth.src = Qpn::truncate(0),
        _ => {}
    }
    let psn = bth.psn.number();
    Shown { psn, solicited: bth.solicited, body, payload: parsed.payload.to_vec() }
}

/// Returns a packet of a reliable connection without keys and MSNs.
fn in_common(mut rc: Reliable) -> Reliable {
    match &mut rc {
        Reliable::Write(Part::First(reth) | Part::Only(reth, _))
        | Reliable::ReadRequest(reth)
        | Reliable::AtomicWrite(reth)
        | Reliable::Flush(_, reth) => reth.rkey = Rkey(0),
        Reliable::Atomic(_, atomic) => atomic.rkey = Rkey(0),
        Reliable::Ack(aeth)
        | Reliable::AtomicAck(aeth, _)
        | Reliable::ReadResponse(ReadPart::First(aeth) | ReadPart::Last(aeth) | ReadPart::Only(aeth)) => {
            aeth.msn = AethMsn::default();
        }
        _ => {}
    }
    rc
}

/// Runs, and returns the packets of both ends.
pub(super) fn packets(walk: &mut Walk) -> [Vec<Shown>; 2] {
    match &mut walk.topology {
        Topology::OneEngine(pair) => {
            pair.run();
            let kept = std::mem::take(&mut pair.log.mirror.as_mut().unwrap().frames);
            let of = |at: usize| {
                let own =
                    kept.iter().filter(|(ends, _)| ends.from == (walk.ends[at].device, walk.ends[at].qpn));
                own.map(|(_, frame)| shown(frame)).collect()
            };
            [of(A), of(B)]
        }
        Topology::Packets(net) => {
            let mut found = [Vec::new(), Vec::new()];
            loop {
                let mut is_idle = true;
                for at in [A, B] {
                    net.work(at);
                    net.carry(at, |_, frame| {
                        is_idle = false;
                        found[at].push(shown(frame));
                        true
                    });
                }
                if is_idle {
                    return found;
                }
            }
        }
    }
}

fn walk(service: QpType, has_packets: bool) -> Walk {
    let mut walk = Walk::ready(service, has_packets);
    if let Topology::OneEngine(pair) = &mut walk.topology {
        pair.log.mirror = Some(Kept::default());
    }
    let data: Vec<u8> = (0..500_000u32).map(|at| (at % 251) as u8).collect();
    for end in &walk.ends {
        end.memory.fill(100_000, &data);
    }
    walk
}

/// Posts a request for `length` bytes, in two elements, and returns what both ends send.
fn exchanged(service: QpType, has_packets: bool, op: fn(Remote) -> SendOp, length: u32) -> [Vec<Shown>; 2] {
    let mut walk = walk(service, has_packets);
    let (own, remote) = (walk.ends[A].clone(), walk.ends[B].remote(400_000));
    let first = length / 3;
    let sges = [own.sge(100_001, first), own.sge(500_000, length - first)];
    let is_word = matches!(op(remote), SendOp::Atomic { .. } | SendOp::AtomicWrite { .. });
    let sges = if is_word { vec![own.sge(100_000, length)] } else { sges.to_vec() };
    let is_bare = matches!(op(remote), SendOp::Flush { .. });
    walk.post(A, op(remote), Payload::Sges(if is_bare { &[] } else { &sges })).unwrap();
    let found = packets(&mut walk);
    assert_eq!(walk.end().0, WcStatus::Success);
    found
}

#[test]
fn messages_within_an_engine_are_shown_as_the_packets_of_two_engines() {
    let mut cases = 0;
    for service in ALL {
        for rule in RULES.iter().filter(|rule| rule.services.contains(service)) {
            let lengths: &[u32] = match rule.word || rule.bare {
                true => &[8],
                false if *service == QpType::Ud => &[0, 1, 7, 1024],
                false => &[0, 1, 7, 1024, 1025, 5000, 8192],
            };
            for &length in lengths {
                let of = |has_packets| exchanged(*service, has_packets, rule.op, length);
                assert!(of(false) == of(true), "{service:?}, {}, {length} bytes", rule.name());
                cases += 1;
            }
        }
    }
    assert!(cases > 50);
}

/// Such messages have several segments within an engine.
#[test]
fn long_messages_are_shown_whole() {
    for length in [64 << 10, 300_001] {
        let read = |remote| SendOp::Read { remote };
        let of = |has_packets| exchanged(QpType::Rc, has_packets, read, length);
        let [requests, responses] = of(false);
        assert_eq!((requests.len(), responses.len()), (1, (length as usize).div_ceil(1024)));
        assert!([requests, responses] == of(true));
        let write = |remote| SendOp::Write { remote, imm: IMM };
        let of = |has_packets| exchanged(QpType::Rc, has_packets, write, length);
        let ([requests, answers], [wanted, acknowledges]) = (of(false), of(true));
        assert!(requests == wanted);
        // Between two engines, some acknowledges come before the last one.
        assert_eq!((answers.len(), answers.last()), (1, acknowledges.last()));
    }
}

#[test]
fn inline_data_are_shown() {
    let found = [false, true].map(|has_packets| {
        let mut walk = walk(QpType::Rc, has_packets);
        let remote = walk.ends[B].remote(400_000);
        let write = SendOp::Write { remote, imm: Some(Imm::from_bytes([1, 2, 3, 4])) };
        walk.post(A, write, Payload::Inline(b"inline")).unwrap();
        packets(&mut walk)
    });
    let [[requests, answers], wanted] = found;
    assert_eq!(requests[0].payload, b"inline");
    assert_eq!([requests, answers], wanted);
}

#[test]
fn nothing_is_shown_of_what_is_refused_or_not_wanted() {
    let mut walk = walk(QpType::Rc, false);
    let (own, peer) = (walk.ends[A].clone(), walk.ends[B].clone());
    let Topology::OneEngine(pair) = &mut walk.topology else { unreachable!() };
    pair.log.mirror.as_mut().unwrap().only = Some(peer.qpn);
    let sge = [own.sge(0, 8)];
    let write = SendOp::Write { remote: peer.remote(0), imm: None };
    walk.post(A, write, Payload::Sges(&sge)).unwrap();
    let [requests, answers] = packets(&mut walk);
    assert_eq!((requests.len(), answers.len()), (0, 1), "only the answer is wanted");
    let Topology::OneEngine(pair) = &mut walk.topology else { unreachable!() };
    pair.log.mirror.as_mut().unwrap().only = None;
    let wrong = Remote { rkey: Rkey(0xdead), ..peer.remote(0) };
    walk.post(A, SendOp::Write { remote: wrong, imm: None }, Payload::Sges(&sge)).unwrap();
    assert_eq!(packets(&mut walk), [vec![], vec![]]);
}

#[test]
fn a_part_of_a_payload_is_a_part_of_its_bytes() {
    let bytes: Vec<u8> = (0..100).collect();
    let whole = Pieces::<Mem>::bytes(&bytes);
    for (offset, length) in [(0, 0), (0, 100), (99, 1), (100, 0), (30, 40)] {
        let mut found = vec![0; length as usize];
        whole.part(offset, length).read(&mut found).unwrap();
        assert_eq!(found, bytes[offset as usize..][..length as usize]);
    }
}
