//! Arbitrary packets, for property tests.
#![allow(dead_code, reason = "each test takes what it needs")]

use proptest::prelude::*;
use vrdma_wire::icrc::Icrc;
use vrdma_wire::num::*;
use vrdma_wire::roce::*;

/// Returns a whole frame: headers, payload, padding, ICRC.
pub fn frame(packet: &Packet, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xee; MAX_HEADERS];
    let len = packet.emit(payload.len(), &mut frame);
    frame.truncate(len);
    let mut icrc = Icrc::new(&frame);
    let zeros = [0; 3];
    let zeros = &zeros[..pad(payload.len())];
    icrc.update(payload);
    icrc.update(zeros);
    frame.extend_from_slice(payload);
    frame.extend_from_slice(zeros);
    frame.extend_from_slice(&icrc.finish());
    frame
}

/// Any packet, with a payload that it allows.
pub fn packet() -> impl Strategy<Value = (Packet, Vec<u8>)> {
    (path(), bth(), body()).prop_flat_map(|(path, bth, body)| {
        let packet = Packet { path, bth, body };
        (Just(packet), payload(&body))
    })
}

fn payload(body: &Body) -> BoxedStrategy<Vec<u8>> {
    use proptest::collection::vec;
    match body {
        Body::Xrc(xrc) => payload(&Body::Rc(*xrc.rc())),
        Body::Rc(Rc::Send(_) | Rc::Write(_) | Rc::ReadResponse(_)) | Body::Uc(_) | Body::Ud { .. } => {
            prop_oneof![vec(any::<u8>(), 0..200), vec(any::<u8>(), 0..=MAX_PAYLOAD)].boxed()
        }
        Body::Rc(Rc::AtomicWrite(_)) => vec(any::<u8>(), 8).boxed(),
        _ => Just(Vec::new()).boxed(),
    }
}

fn path() -> impl Strategy<Value = Path> {
    let v4 = any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (Gid::from_ipv4(a), Gid::from_ipv4(b), 0));
    let v6 = any::<([u8; 16], [u8; 16], u32)>()
        .prop_filter("not mapped", |(a, b, _)| Gid(*a).ipv4().is_none() && Gid(*b).ipv4().is_none())
        .prop_map(|(a, b, label)| (Gid(a), Gid(b), label));
    let gids = prop_oneof![v4, v6];
    (any::<([u8; 6], [u8; 6])>(), any::<Option<u16>>(), gids, any::<(u8, u8, u16)>()).prop_map(
        |((src_mac, dst_mac), vlan, (src, dst, label), (traffic_class, hop_limit, src_port))| Path {
            src_mac: Mac(src_mac),
            dst_mac: Mac(dst_mac),
            vlan: vlan.map(VlanTag),
            src,
            dst,
            traffic_class,
            flow_label: FlowLabel::truncate(label),
            hop_limit,
            src_port,
        },
    )
}

fn bth() -> impl Strategy<Value = Bth> {
    (any::<[bool; 5]>(), any::<(u16, u32, u32)>()).prop_map(
        |([solicited, mig, fecn, becn, ack_req], (pkey, dest, psn))| Bth {
            solicited,
            mig,
            pkey: Pkey(pkey),
            fecn,
            becn,
            dest: Qpn::truncate(dest),
            ack_req,
            psn: Psn::truncate(psn),
        },
    )
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        10 => rc().prop_map(Body::Rc),
        5 => (rc(), any::<u32>()).prop_map(|(rc, srqn)| {
            let srqn = rc.is_request().then(|| Srqn::truncate(srqn));
            Body::Xrc(Xrc::new(rc, srqn).expect("a request has a queue"))
        }),
        3 => prop_oneof![
            part(Just(()), write_tail()).prop_map(|p| Body::Uc(Uc::Send(p))),
            part(reth(), write_tail()).prop_map(|p| Body::Uc(Uc::Write(p))),
        ],
        2 => (any::<(u32, u32)>(), proptest::option::of(imm())).prop_map(|((qkey, src), imm)| Body::Ud {
            deth: Deth { qkey: Qkey(qkey), src: Qpn::truncate(src) },
            imm
        }),
        1 => Just(Body::Cnp),
    ]
}

fn rc() -> impl Strategy<Value = Rc> {
    let send_tail = prop_oneof![
        Just(SendTail::Plain),
        imm().prop_map(SendTail::Imm),
        any::<u32>().prop_map(|k| SendTail::Invalidate(Rkey(k))),
    ];
    prop_oneof![
        part(Just(()), send_tail).prop_map(Rc::Send),
        part(reth(), write_tail()).prop_map(Rc::Write),
        reth().prop_map(Rc::ReadRequest),
        Just(Rc::ReadResponse(ReadPart::Middle)),
        aeth().prop_map(|a| Rc::ReadResponse(ReadPart::First(a))),
        aeth().prop_map(|a| Rc::ReadResponse(ReadPart::Last(a))),
        aeth().prop_map(|a| Rc::ReadResponse(ReadPart::Only(a))),
        aeth().prop_map(Rc::Ack),
        (aeth(), any::<u64>()).prop_map(|(a, v)| Rc::AtomicAck(a, v)),
        atomic().prop_map(|a| Rc::Atomic(AtomicKind::CompareSwap, a)),
        atomic().prop_map(|a| Rc::Atomic(AtomicKind::FetchAdd, a)),
        reth().prop_map(Rc::AtomicWrite),
        (any::<u8>(), reth()).prop_map(|(f, r)| Rc::Flush(Feth::from_bits(f), r)),
    ]
}

fn part<F: Clone + std::fmt::Debug, L: Clone + std::fmt::Debug>(
    head: impl Strategy<Value = F>,
    tail: impl Strategy<Value = L>,
) -> impl Strategy<Value = Part<F, L>> {
    (0..4, head, tail).prop_map(|(kind, head, tail)| match kind {
        0 => Part::First(head),
        1 => Part::Middle,
        2 => Part::Last(tail),
        _ => Part::Only(head, tail),
    })
}

fn write_tail() -> impl Strategy<Value = WriteTail> {
    prop_oneof![Just(WriteTail::Plain), imm().prop_map(WriteTail::Imm)]
}

fn imm() -> impl Strategy<Value = Imm> {
    any::<[u8; 4]>().prop_map(Imm::from_bytes)
}

fn reth() -> impl Strategy<Value = Reth> {
    any::<(u64, u32, u32)>().prop_map(|(va, rkey, length)| Reth { va, rkey: Rkey(rkey), length })
}

fn atomic() -> impl Strategy<Value = AtomicEth> {
    any::<(u64, u32, u64, u64)>().prop_map(|(va, rkey, swap_or_add, compare)| AtomicEth {
        va,
        rkey: Rkey(rkey),
        swap_or_add,
        compare,
    })
}

fn aeth() -> impl Strategy<Value = Aeth> {
    let syndrome = prop_oneof![
        (0..32u8).prop_map(|c| Syndrome::Ack(Credits::new(c).unwrap())),
        (0..32u8).prop_map(|c| Syndrome::Rnr(RnrTimer::new(c).unwrap())),
        prop_oneof![
            Just(NakCode::PsnSequenceError),
            Just(NakCode::InvalidRequest),
            Just(NakCode::RemoteAccessError),
            Just(NakCode::RemoteOperationalError),
            Just(NakCode::InvalidRdRequest),
        ]
        .prop_map(Syndrome::Nak),
    ];
    (syndrome, any::<u32>()).prop_map(|(syndrome, msn)| Aeth { syndrome, msn: AethMsn::truncate(msn) })
}
