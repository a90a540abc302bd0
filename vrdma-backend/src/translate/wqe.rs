//! Translates the WQE of a channel to a work request of the engine.

use crate::queue::channel::RequestWords;
use vrdma_abi::ah::AhEntry;
use vrdma_abi::width;
use vrdma_abi::wqe::{
    AtomicOperands, BindMwBody, BindMwRange, FlushBody, FlushRange, ListBody, RdmaBody, RegMrBody,
    RegMrMemory, Sge as AbiSge, UdBody, WqeHeader, WrOpcode, XrcBody, flags, flush_level, unit,
};
use vrdma_abi::zerocopy::little_endian::U32;
use vrdma_abi::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use vrdma_transport::{
    Access, Atomic, Bind, Destination, FlushScope, Payload, PdId, Placement, Queue, RecvRequest, Remote,
    SendOp, SendRequest, Sge, SrqId,
};
use vrdma_wire::num::{Gid, Imm, Lkey, Mac, Qkey, Qpn, Rkey, Srqn};

/// Largest number of elements of a request.
pub const MAX_SGE: usize = unit::MAX_SGE_V1_1 as usize;

/// The ids of the requests of a list.
pub type ListIds = [u32; unit::LIST_MAX as usize];

/// Flags that a list of SENDs may have.
const SEND_LIST: u16 = flags::LIST | flags::SIGNALED | flags::SOLICITED | flags::FENCE;

/// Flags of a request whose layout depends on the opcode alone.
const SIMPLE: u16 = flags::SIGNALED | flags::SOLICITED | flags::FENCE;
/// The last of the opcodes of SEND, WRITE and READ, which come first. They accept any number of
/// elements.
const LAST_SIMPLE: WrOpcode = WrOpcode::RDMA_READ;

/// A parsed request of a channel.
#[derive(Debug)]
pub enum Request<'a> {
    /// A request for a send queue. An XRC request also names the peer's shared receive queue.
    Send(Qpn, Option<Srqn>, SendRequest<'a>),
    /// A request for a receive queue.
    Recv(Qpn, RecvRequest<'a>),
    /// A request for a shared receive queue.
    SrqRecv(SrqId, RecvRequest<'a>),
    /// Several requests that share 64-byte units.
    List(List<'a>),
    /// An invalid request with a valid destination: the QP, the id and the queue.
    Invalid(Qpn, u32, Queue),
    /// An invalid request for a shared receive queue.
    InvalidSrq(SrqId),
    /// An invalid request whose number cannot be a QP number.
    Stray,
}

/// Requests of one element each. Only as many ids are valid as there are elements.
#[derive(Debug)]
pub enum List<'a> {
    /// SENDs. The `SendRequest` is the first one, and holds what all have in common.
    Sends(Qpn, SendRequest<'a>, ListIds, &'a [Sge]),
    /// Receives for a receive queue.
    Recvs(Qpn, ListIds, &'a [Sge]),
    /// Receives for a shared receive queue.
    SrqRecvs(SrqId, ListIds, &'a [Sge]),
}

/// Returns the QP that an unparsed request names, unless it is for a shared receive queue.
///
/// The caller uses it as a hint only.
#[inline]
pub fn qpn(words: &RequestWords) -> Option<Qpn> {
    let header: &WqeHeader = view(words.as_bytes(), 0);
    Qpn::new(header.object.get()).filter(|_| header.opcode != WrOpcode::SRQ_RECV.0)
}

/// Returns the QP whose send queue an unparsed request is for, as a hint only.
pub fn send_queue(words: &RequestWords) -> Option<Qpn> {
    let header: &WqeHeader = view(words.as_bytes(), 0);
    qpn(words).filter(|_| header.opcode < WrOpcode::RECV.0)
}

/// Returns the key of the peer's memory that an unparsed request names, as a hint only.
#[inline]
pub fn rkey(words: &RequestWords) -> Option<Rkey> {
    let bytes = words.as_bytes();
    let header: &WqeHeader = view(bytes, 0);
    let body: &RdmaBody = view(bytes, unit::BODY_OFFSET as usize);
    WrOpcode(header.opcode).names_memory().then(|| Rkey(body.rkey.get()))
}

/// Parses a request of `units` 64-byte units. `sges` is room for its elements.
#[inline]
pub fn parse<'a>(words: &'a RequestWords, units: usize, sges: &'a mut Vec<Sge>) -> Request<'a> {
    let bytes = &words.as_bytes()[..units * unit::UNIT_SIZE as usize];
    let header: &WqeHeader = view(bytes, 0);
    if header.opcode == WrOpcode::SRQ_RECV.0 {
        return srq_recv(bytes, header, sges);
    }
    let Some(qpn) = Qpn::new(header.object.get()) else { return Request::Stray };
    let bits = header.flags.get();
    // The fast path for most requests. Such a request passes all checks of `general`.
    if header.opcode <= LAST_SIMPLE.0 && bits & !SIMPLE == 0 && header.sge_count == 1 {
        let sge: &AbiSge = view(bytes, unit::DATA_OFFSET as usize);
        sges.clear();
        sges.push(element(sge));
        return operation(bytes, 0, header, (qpn, None), Payload::Sges(sges));
    }
    general(bytes, header, qpn, sges)
}

/// Parses a request of a QP with any layout.
#[inline(never)]
fn general<'a>(bytes: &'a [u8], header: &WqeHeader, qpn: Qpn, sges: &'a mut Vec<Sge>) -> Request<'a> {
    let (id, bits) = (header.wqe_id.get(), header.flags.get());
    let opcode = WrOpcode(header.opcode);
    let queue = if header.opcode >= WrOpcode::RECV.0 { Queue::Recv } else { Queue::Send };
    let inline = bits & flags::INLINE != 0;
    if matches!(opcode, WrOpcode::BIND_MW | WrOpcode::REG_MR | WrOpcode::FLUSH) {
        return without_payload(bytes, header, qpn);
    }
    let atomic = opcode.is_atomic();
    let recv = opcode == WrOpcode::RECV;
    if bits & flags::LIST != 0 {
        return queue_list(bytes, header, qpn, sges);
    }
    let (srqn, shift) = xrc(bytes, bits);
    let invalid = bits & !flags::ALL != 0
        || recv && bits != 0
        || opcode == WrOpcode::LOCAL_INV && (inline || header.sge_count != 0 || srqn.is_some())
        || inline && (header.sge_count != 0 || atomic || opcode == WrOpcode::RDMA_READ)
        || atomic && header.sge_count != 1;
    let data = shift + if atomic { unit::ATOMIC_SGE_OFFSET } else { unit::DATA_OFFSET } as usize;
    let payload = if inline { inline_data(bytes, data, header) } else { elements(bytes, data, header, sges) };
    let (false, Some(payload)) = (invalid, payload) else { return Request::Invalid(qpn, id, queue) };
    operation(bytes, shift, header, (qpn, srqn), payload)
}

/// Assembles a request for a QP from its parsed payload.
///
/// `srqn` is set for an XRC request. Its operands are then `shift` bytes further on.
#[inline(always)]
fn operation<'a>(
    bytes: &[u8],
    shift: usize,
    header: &WqeHeader,
    (qpn, srqn): (Qpn, Option<Srqn>),
    payload: Payload<'a>,
) -> Request<'a> {
    let (id, bits) = (header.wqe_id.get(), header.flags.get());
    let send = |op| Request::Send(qpn, srqn, send_request(id, bits, op, payload));
    let body: &RdmaBody = view(bytes, unit::BODY_OFFSET as usize);
    let remote = Remote { addr: body.remote_addr.get(), rkey: Rkey(body.rkey.get()) };
    let imm = Some(Imm::from_bytes(body.imm.to_bytes()));
    let operands: &AtomicOperands = view(bytes, shift + unit::DATA_OFFSET as usize);
    let (compare, swap) = (operands.compare_add.get(), operands.swap.get());
    // Each arm makes a whole request. If the operation were chosen first and moved later, it would
    // be copied through memory.
    match WrOpcode(header.opcode) {
        WrOpcode::SEND => send(SendOp::Send { imm: None }),
        WrOpcode::SEND_WITH_IMM => send(SendOp::Send { imm }),
        WrOpcode::RDMA_WRITE => send(SendOp::Write { remote, imm: None }),
        WrOpcode::RDMA_WRITE_WITH_IMM => send(SendOp::Write { remote, imm }),
        WrOpcode::RDMA_READ => send(SendOp::Read { remote }),
        WrOpcode::ATOMIC_CMP_AND_SWP => send(SendOp::atomic(remote, Atomic::CompareSwap { compare, swap })),
        WrOpcode::ATOMIC_FETCH_AND_ADD => send(SendOp::atomic(remote, Atomic::FetchAdd { add: compare })),
        WrOpcode::ATOMIC_WRITE => send(SendOp::AtomicWrite { remote }),
        WrOpcode::SEND_WITH_INV => send(SendOp::SendInvalidate { key: remote.rkey }),
        WrOpcode::LOCAL_INV => send(SendOp::LocalInvalidate { key: remote.rkey }),
        WrOpcode::RECV => match payload {
            Payload::Sges(sges) => Request::Recv(qpn, RecvRequest { id, sges }),
            Payload::Inline(_) => Request::Invalid(qpn, id, Queue::Recv),
        },
        other => {
            let is_recv = other.0 >= WrOpcode::RECV.0;
            Request::Invalid(qpn, id, if is_recv { Queue::Recv } else { Queue::Send })
        }
    }
}

/// Returns the shared receive queue that an XRC request names, and the shift of what follows.
///
/// The shift is in bytes. It is 0 for requests that are not XRC.
#[inline]
fn xrc(bytes: &[u8], bits: u16) -> (Option<Srqn>, usize) {
    if bits & flags::XRC == 0 {
        return (None, 0);
    }
    let body: &XrcBody = view(bytes, unit::DATA_OFFSET as usize);
    (Some(Srqn::truncate(body.remote_srqn.get())), unit::XRC_SHIFT as usize)
}

/// Parses a request that has a body of its own and no payload.
fn without_payload<'a>(bytes: &[u8], header: &WqeHeader, qpn: Qpn) -> Request<'a> {
    let (id, bits) = (header.wqe_id.get(), header.flags.get());
    let (srqn, shift) = xrc(bytes, bits);
    let op = match WrOpcode(header.opcode) {
        WrOpcode::FLUSH => flush(bytes, shift),
        // REG_MR and BIND_MW name nothing of the peer, so they cannot be XRC requests.
        _ if srqn.is_some() => None,
        WrOpcode::REG_MR => reg_mr(bytes),
        _ => Some(bind_mw(bytes)),
    };
    let is_bare =
        bits & !flags::ALL == 0 && bits & (flags::INLINE | flags::LIST) == 0 && header.sge_count == 0;
    let Some(op) = op.filter(|_| is_bare) else { return Request::Invalid(qpn, id, Queue::Send) };
    Request::Send(qpn, srqn, send_request(id, bits, op, Payload::Sges(&[])))
}

/// Makes a request of a send queue with the flags in `bits`.
#[inline]
fn send_request(id: u32, bits: u16, op: SendOp, payload: Payload<'_>) -> SendRequest<'_> {
    SendRequest {
        id,
        signaled: bits & flags::SIGNALED != 0,
        solicited: bits & flags::SOLICITED != 0,
        fence: bits & flags::FENCE != 0,
        op,
        payload,
    }
}

/// Parses a bind of a memory window.
fn bind_mw(bytes: &[u8]) -> SendOp {
    let body: &BindMwBody = view(bytes, unit::BODY_OFFSET as usize);
    let range: &BindMwRange = view(bytes, unit::DATA_OFFSET as usize);
    SendOp::BindMw(Bind {
        rkey: Rkey(body.rkey.get()),
        new_rkey: Rkey(body.new_rkey.get()),
        lkey: Lkey(body.lkey.get()),
        access: Access(body.access.get()),
        addr: range.addr.get(),
        length: range.length.get(),
    })
}

/// Parses a FLUSH. Returns `None` if its placement or level is unknown.
fn flush(bytes: &[u8], shift: usize) -> Option<SendOp> {
    let body: &FlushBody = view(bytes, unit::BODY_OFFSET as usize);
    let range: &FlushRange = view(bytes, shift + unit::DATA_OFFSET as usize);
    let whole = match body.level {
        flush_level::RANGE => false,
        flush_level::REGION => true,
        _ => return None,
    };
    let placement = Placement::from_bits(body.placement.into())?;
    let remote = Remote { addr: body.remote_addr.get(), rkey: Rkey(body.rkey.get()) };
    Some(SendOp::Flush { remote, scope: FlushScope { placement, whole, length: range.length.get() } })
}

/// Parses a fast registration. The engine checks who may ask for it.
fn reg_mr(bytes: &[u8]) -> Option<SendOp> {
    let body: &RegMrBody = view(bytes, unit::BODY_OFFSET as usize);
    let memory: &RegMrMemory = view(bytes, unit::DATA_OFFSET as usize);
    (body.reserved == [0; 7]).then(|| SendOp::RegMr {
        key: Rkey(body.key.get()),
        access: Access(body.access.get()),
        iova: memory.iova.get(),
        length: memory.length.get(),
        list: memory.page_list.get(),
        page_shift: body.page_shift,
    })
}

/// Parses a receive, or a list of receives, for a shared receive queue.
fn srq_recv<'a>(bytes: &[u8], header: &WqeHeader, sges: &'a mut Vec<Sge>) -> Request<'a> {
    let srq = SrqId(header.object.get());
    if header.flags.get() == flags::LIST {
        return match list(bytes, header, sges) {
            Some((ids, sges)) => Request::List(List::SrqRecvs(srq, ids, sges)),
            None => Request::InvalidSrq(srq),
        };
    }
    match elements(bytes, unit::DATA_OFFSET as usize, header, sges) {
        Some(Payload::Sges(sges)) if header.flags.get() == 0 => {
            Request::SrqRecv(srq, RecvRequest { id: header.wqe_id.get(), sges })
        }
        _ => Request::InvalidSrq(srq),
    }
}

/// Parses a list of requests of a QP.
#[inline]
fn queue_list<'a>(bytes: &[u8], header: &WqeHeader, qpn: Qpn, sges: &'a mut Vec<Sge>) -> Request<'a> {
    let (id, bits) = (header.wqe_id.get(), header.flags.get());
    let is_recv = header.opcode >= WrOpcode::RECV.0;
    match (list(bytes, header, sges), WrOpcode(header.opcode)) {
        (Some((ids, sges)), WrOpcode::RECV) if bits == flags::LIST => {
            Request::List(List::Recvs(qpn, ids, sges))
        }
        (Some((ids, sges)), WrOpcode::SEND) if bits & !SEND_LIST == 0 => {
            let like = send_request(id, bits, SendOp::Send { imm: None }, Payload::Sges(&sges[..1]));
            Request::List(List::Sends(qpn, like, ids, sges))
        }
        _ => Request::Invalid(qpn, id, if is_recv { Queue::Recv } else { Queue::Send }),
    }
}

/// Parses the ids and elements of a list. Returns `None` if there are too few or too many, or more
/// than the request holds.
#[inline]
fn list<'a>(bytes: &[u8], header: &WqeHeader, sges: &'a mut Vec<Sge>) -> Option<(ListIds, &'a [Sge])> {
    if !(2..=ListIds::default().len()).contains(&usize::from(header.sge_count)) {
        return None;
    }
    let Some(Payload::Sges(sges)) = elements(bytes, unit::DATA_OFFSET as usize, header, sges) else {
        return None;
    };
    let [second, third, fourth, fifth] =
        view::<ListBody>(bytes, unit::BODY_OFFSET as usize).wqe_ids.map(U32::get);
    Some(([header.wqe_id.get(), second, third, fourth, fifth], sges))
}

/// Returns the destination of a SEND of a UD QP. `handle` looks up an entry of the address handle
/// table.
///
/// Returns `None` if the request names no entry in use, or if the entry is invalid.
pub fn destination(words: &RequestWords, handle: impl FnOnce(u32) -> Option<AhEntry>) -> Option<Destination> {
    let body: &UdBody = view(words.as_bytes(), unit::BODY_OFFSET as usize);
    let entry = handle(body.ah.get())?;
    let vlan = match entry.vlan.get() {
        0xffff => None,
        id if (1..=4094).contains(&id) => Some(id),
        _ => return None,
    };
    Some(Destination {
        pd: PdId(entry.pdn.get()),
        qpn: Qpn::truncate(body.remote_qpn.get()),
        qkey: Qkey(body.qkey.get()),
        dgid: Gid(entry.dgid),
        dmac: Mac(entry.dmac),
        sgid_index: entry.sgid_index,
        sl: entry.sl & width::SL,
        hop_limit: entry.hop_limit,
        traffic_class: entry.traffic_class,
        flow_label: entry.flow_label.get() & width::FLOW_LABEL,
        udp_sport: entry.udp_sport.get(),
        vlan,
    })
}

/// Returns the inline data at `offset`, or `None` if the request holds fewer bytes.
#[inline]
fn inline_data<'a>(bytes: &'a [u8], offset: usize, header: &WqeHeader) -> Option<Payload<'a>> {
    bytes.get(offset..offset + usize::from(header.inline_len.get())).map(Payload::Inline)
}

/// Parses the elements at `offset`. Returns `None` if the request holds fewer.
#[inline]
fn elements<'a>(
    bytes: &[u8],
    offset: usize,
    header: &WqeHeader,
    out: &'a mut Vec<Sge>,
) -> Option<Payload<'a>> {
    out.clear();
    let end = offset + usize::from(header.sge_count) * AbiSge::SIZE;
    for raw in bytes.get(offset..end)?.chunks_exact(AbiSge::SIZE) {
        out.push(element(view(raw, 0)));
    }
    Some(Payload::Sges(out))
}

#[inline]
fn element(sge: &AbiSge) -> Sge {
    Sge { addr: sge.addr.get(), length: sge.length.get(), lkey: Lkey(sge.lkey.get()) }
}

/// Views a structure at an offset that is in the first unit, or was checked.
#[inline]
fn view<T: FromBytes + KnownLayout + Immutable + vrdma_abi::zerocopy::Unaligned>(
    bytes: &[u8],
    offset: usize,
) -> &T {
    T::ref_from_prefix(&bytes[offset..]).expect("a unit holds header, body and operands").0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::channel::NO_WORDS;

    /// Lays out a request from parts, as a driver does.
    fn words(header: WqeHeader, parts: &[(usize, &[u8])]) -> RequestWords {
        let mut words = NO_WORDS;
        let bytes = words.as_mut_bytes();
        bytes[..16].copy_from_slice(header.as_bytes());
        for (offset, part) in parts {
            bytes[*offset..offset + part.len()].copy_from_slice(part);
        }
        words
    }

    fn header(opcode: WrOpcode, bits: u16, sge_count: u8, inline_len: u16) -> WqeHeader {
        WqeHeader {
            opcode: opcode.0,
            units: 1,
            flags: bits.into(),
            object: 0x1234.into(),
            wqe_id: 0x5678.into(),
            sge_count,
            reserved: 0,
            inline_len: inline_len.into(),
        }
    }

    const BODY: RdmaBody = RdmaBody {
        remote_addr: vrdma_abi::zerocopy::little_endian::U64::from_bytes([1, 2, 3, 4, 5, 6, 7, 8]),
        rkey: vrdma_abi::zerocopy::little_endian::U32::from_bytes([9, 10, 11, 12]),
        imm: vrdma_abi::zerocopy::big_endian::U32::from_bytes([13, 14, 15, 16]),
    };

    fn sge(n: u8) -> AbiSge {
        AbiSge {
            addr: (0x100 + u64::from(n)).into(),
            length: (0x200 + u32::from(n)).into(),
            lkey: (0x300 + u32::from(n)).into(),
        }
    }

    #[test]
    fn each_field_of_a_write_lands_where_it_belongs() {
        let sges: Vec<u8> = (0..3).flat_map(|n| sge(n).as_bytes().to_vec()).collect();
        let bits = flags::SIGNALED | flags::SOLICITED;
        let words =
            words(header(WrOpcode::RDMA_WRITE_WITH_IMM, bits, 3, 0), &[(16, BODY.as_bytes()), (32, &sges)]);
        let mut room = Vec::new();
        let Request::Send(qpn, None, request) = parse(&words, 2, &mut room) else { panic!() };
        assert_eq!((qpn.number(), request.id), (0x1234, 0x5678));
        assert!(request.signaled && request.solicited && !request.fence);
        let SendOp::Write { remote, imm } = request.op else { panic!() };
        assert_eq!((remote.addr, remote.rkey.0), (0x0807_0605_0403_0201, 0x0c0b_0a09));
        assert_eq!(imm, Some(Imm::from_bytes([13, 14, 15, 16])));
        let Payload::Sges(list) = request.payload else { panic!() };
        let list: Vec<_> = list.iter().map(|s| (s.addr, s.length, s.lkey.0)).collect();
        assert_eq!(list, [(0x100, 0x200, 0x300), (0x101, 0x201, 0x301), (0x102, 0x202, 0x302)]);
    }

    #[test]
    fn atomics_have_operands_before_their_element() {
        let operands = AtomicOperands { compare_add: 5.into(), swap: 6.into() };
        let element = sge(7);
        let parts = [(16, BODY.as_bytes()), (32, operands.as_bytes()), (48, element.as_bytes())];
        let mut room = Vec::new();
        let request = words(header(WrOpcode::ATOMIC_CMP_AND_SWP, 0, 1, 0), &parts);
        let Request::Send(_, None, request) = parse(&request, 1, &mut room) else { panic!() };
        assert!(matches!(request.op, SendOp::Atomic { op: Atomic::CompareSwap { compare: 5, swap: 6 }, .. }));
        let Payload::Sges([only]) = request.payload else { panic!() };
        assert_eq!(only.addr, 0x107);
    }

    #[test]
    fn an_atomic_write_has_its_value_where_others_have_their_payload() {
        let element = sge(7);
        let value = 0x0807_0605_0403_0201u64.to_le_bytes();
        let cases = [
            (header(WrOpcode::ATOMIC_WRITE, 0, 1, 0), element.as_bytes()),
            (header(WrOpcode::ATOMIC_WRITE, flags::INLINE, 0, 8), &value),
        ];
        for (header, data) in cases {
            let request = words(header, &[(16, BODY.as_bytes()), (32, data)]);
            let mut room = Vec::new();
            let Request::Send(_, None, request) = parse(&request, 1, &mut room) else { panic!() };
            let SendOp::AtomicWrite { remote } = request.op else { panic!() };
            assert_eq!((remote.addr, remote.rkey.0), (0x0807_0605_0403_0201, 0x0c0b_0a09));
            match request.payload {
                Payload::Sges([only]) => assert_eq!((only.addr, only.length), (0x107, 0x207)),
                Payload::Sges(_) => panic!("one element"),
                Payload::Inline(found) => assert_eq!(found, value),
            }
        }
    }

    #[test]
    fn keys_that_are_changed_lie_where_they_belong() {
        let body = BindMwBody { rkey: 1.into(), new_rkey: 2.into(), lkey: 3.into(), access: 4.into() };
        let range = BindMwRange { addr: 5.into(), length: 6.into() };
        let request = words(
            header(WrOpcode::BIND_MW, flags::SIGNALED | flags::FENCE, 0, 0),
            &[(16, body.as_bytes()), (32, range.as_bytes())],
        );
        let mut room = Vec::new();
        let Request::Send(_, None, request) = parse(&request, 1, &mut room) else { panic!() };
        assert!(request.signaled && request.fence && request.payload == Payload::Sges(&[]));
        let expected =
            Bind { rkey: Rkey(1), new_rkey: Rkey(2), lkey: Lkey(3), access: Access(4), addr: 5, length: 6 };
        assert_eq!(request.op, SendOp::BindMw(expected));
        let body = RegMrBody { key: 1.into(), access: 2.into(), page_shift: 13, reserved: [0; 7] };
        let memory = RegMrMemory { iova: 3.into(), length: 4.into(), page_list: 5.into() };
        let parts = [(16, body.as_bytes()), (32, memory.as_bytes())];
        let request = words(header(WrOpcode::REG_MR, flags::SIGNALED, 0, 0), &parts);
        let Request::Send(_, None, request) = parse(&request, 1, &mut room) else { panic!() };
        let (key, access) = (Rkey(1), Access(2));
        let expected = SendOp::RegMr { key, access, iova: 3, length: 4, list: 5, page_shift: 13 };
        assert_eq!((request.op, request.payload), (expected, Payload::Sges(&[])));
        let odd = RegMrBody { reserved: [0, 0, 0, 0, 0, 0, 1], ..body };
        let request = words(header(WrOpcode::REG_MR, 0, 0, 0), &[(16, odd.as_bytes())]);
        assert!(matches!(parse(&request, 1, &mut Vec::new()), Request::Invalid(_, 0x5678, Queue::Send)));
        let key = Rkey(0x0c0b_0a09);
        for (opcode, op) in [
            (WrOpcode::LOCAL_INV, SendOp::LocalInvalidate { key }),
            (WrOpcode::SEND_WITH_INV, SendOp::SendInvalidate { key }),
        ] {
            let request = words(header(opcode, 0, 0, 0), &[(16, BODY.as_bytes())]);
            let mut room = Vec::new();
            let Request::Send(_, None, request) = parse(&request, 1, &mut room) else { panic!() };
            assert_eq!(request.op, op);
        }
    }

    #[test]
    fn a_flush_says_what_and_how_far() {
        let of = |placement, level, bits, sges| {
            let body =
                FlushBody { remote_addr: 7.into(), rkey: 8.into(), placement, level, reserved: 0.into() };
            let range = FlushRange { length: 9.into(), reserved: [0; 12] };
            let header = header(WrOpcode::FLUSH, bits, sges, 0);
            let request = words(header, &[(16, body.as_bytes()), (32, range.as_bytes())]);
            match parse(&request, 1, &mut Vec::new()) {
                Request::Send(_, None, request) => {
                    assert!(request.payload == Payload::Sges(&[]) && request.fence);
                    Some(request.op)
                }
                Request::Invalid(qpn, 0x5678, Queue::Send) if qpn.number() == 0x1234 => None,
                other => panic!("{other:?}"),
            }
        };
        let remote = Remote { addr: 7, rkey: Rkey(8) };
        let places = [(1, Placement::Global), (2, Placement::Persistent), (3, Placement::Both)];
        for (bits, placement) in places {
            for (level, whole) in [(0, false), (1, true)] {
                let scope = FlushScope { placement, whole, length: 9 };
                assert_eq!(of(bits, level, flags::FENCE, 0), Some(SendOp::Flush { remote, scope }));
            }
        }
        for (placement, level) in [(0, 0), (4, 0), (5, 1), (255, 0), (1, 2), (1, 255)] {
            assert_eq!(of(placement, level, flags::FENCE, 0), None, "{placement} {level}");
        }
        assert_eq!(of(1, 0, flags::FENCE, 1), None);
        assert_eq!(of(1, 0, flags::FENCE | flags::INLINE, 0), None);
        assert_eq!(of(1, 0, flags::FENCE | 0x20, 0), None);
    }

    #[test]
    fn what_names_a_queue_of_the_peer_moves_the_rest_on() {
        // Bits above the 24 of the number are ignored.
        let named = XrcBody { remote_srqn: 0xff12_3456.into(), reserved: [0; 12] };
        let operands = AtomicOperands { compare_add: 5.into(), swap: 6.into() };
        let (range, element) = (FlushRange { length: 9.into(), reserved: [0; 12] }, sge(7));
        let how = FlushBody {
            remote_addr: 7.into(),
            rkey: 8.into(),
            placement: 1,
            level: flush_level::RANGE,
            reserved: 0.into(),
        };
        let (rdma, xrc) = (BODY.as_bytes(), flags::XRC);
        let named = (32, named.as_bytes());
        let inline = [(16, rdma), named, (48, &b"inline"[..])];
        let elements = [(16, rdma), named, (48, element.as_bytes())];
        let atomic = [(16, rdma), named, (48, operands.as_bytes()), (64, element.as_bytes())];
        let flush = [(16, how.as_bytes()), named, (48, range.as_bytes())];
        let cases = [
            (header(WrOpcode::SEND, xrc | flags::INLINE, 0, 6), &inline[..]),
            (header(WrOpcode::RDMA_READ, xrc, 1, 0), &elements),
            (header(WrOpcode::ATOMIC_CMP_AND_SWP, xrc, 1, 0), &atomic),
            (header(WrOpcode::FLUSH, xrc, 0, 0), &flush),
        ];
        for (header, parts) in cases {
            let (request, mut room) = (words(header, parts), Vec::new());
            let Request::Send(_, Some(srqn), request) = parse(&request, 2, &mut room) else { panic!() };
            assert_eq!(srqn.number(), 0x12_3456);
            match (request.op, request.payload) {
                (SendOp::Send { imm: None }, Payload::Inline(data)) => assert_eq!(data, b"inline"),
                (
                    SendOp::Atomic { op: Atomic::CompareSwap { compare: 5, swap: 6 }, .. }
                    | SendOp::Read { .. },
                    Payload::Sges([only]),
                ) => assert_eq!(only.addr, 0x107),
                (SendOp::Flush { scope, .. }, Payload::Sges([])) => assert_eq!(scope.length, 9),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn inline_data_is_a_slice_of_the_request() {
        let data: Vec<u8> = (0..96).collect();
        let words = words(header(WrOpcode::SEND, flags::INLINE, 0, 96), &[(32, &data)]);
        let mut room = Vec::new();
        let Request::Send(_, None, request) = parse(&words, 2, &mut room) else { panic!() };
        let Payload::Inline(found) = request.payload else { panic!() };
        assert_eq!(found, data);
    }

    #[test]
    fn receives_of_shared_queues_name_them() {
        let element = sge(7);
        let fine = header(WrOpcode::SRQ_RECV, 0, 1, 0);
        let parts: &[(usize, &[u8])] = &[(32, element.as_bytes())];
        let mut room = Vec::new();
        let words_of = |header| words(header, parts);
        let fine = words_of(fine);
        let Request::SrqRecv(SrqId(0x1234), request) = parse(&fine, 1, &mut room) else { panic!() };
        assert_eq!((request.id, request.sges[0].addr, request.sges.len()), (0x5678, 0x107, 1));
        for wrong in [header(WrOpcode::SRQ_RECV, flags::SIGNALED, 1, 0), header(WrOpcode::SRQ_RECV, 0, 3, 0)]
        {
            let words = words_of(wrong);
            let mut room = Vec::new();
            assert!(matches!(parse(&words, 1, &mut room), Request::InvalidSrq(SrqId(0x1234))), "{wrong:?}");
        }
    }

    #[test]
    fn what_does_not_fit_or_is_unknown_is_invalid() {
        let cases = [
            (header(WrOpcode(77), 0, 0, 0), Queue::Send),
            (header(WrOpcode(200), 0, 0, 0), Queue::Recv),
            (header(WrOpcode::SEND, 0x20, 0, 0), Queue::Send),
            (header(WrOpcode::SEND, 0, 3, 0), Queue::Send),
            (header(WrOpcode::SEND, flags::INLINE, 0, 33), Queue::Send),
            (header(WrOpcode::SEND, flags::INLINE, 1, 4), Queue::Send),
            (header(WrOpcode::RDMA_READ, flags::INLINE, 0, 4), Queue::Send),
            (header(WrOpcode::ATOMIC_FETCH_AND_ADD, 0, 2, 0), Queue::Send),
            (header(WrOpcode::RECV, flags::SIGNALED, 0, 0), Queue::Recv),
            (header(WrOpcode::BIND_MW, 0, 1, 0), Queue::Send),
            (header(WrOpcode::BIND_MW, flags::INLINE, 0, 0), Queue::Send),
            (header(WrOpcode::BIND_MW, 0x20, 0, 0), Queue::Send),
            (header(WrOpcode::BIND_MW, flags::XRC, 0, 0), Queue::Send),
            (header(WrOpcode::LOCAL_INV, flags::XRC, 0, 0), Queue::Send),
            (header(WrOpcode::REG_MR, flags::XRC, 0, 0), Queue::Send),
            (header(WrOpcode::RECV, flags::XRC, 0, 0), Queue::Recv),
            (header(WrOpcode::LOCAL_INV, 0, 1, 0), Queue::Send),
            (header(WrOpcode::LOCAL_INV, flags::INLINE, 0, 0), Queue::Send),
            (header(WrOpcode::REG_MR, flags::INLINE, 0, 0), Queue::Send),
            (header(WrOpcode::REG_MR, 0, 1, 0), Queue::Send),
        ];
        for (header, wanted) in cases {
            match parse(&words(header, &[]), 1, &mut Vec::new()) {
                Request::Invalid(qpn, 0x5678, queue) if qpn.number() == 0x1234 && queue == wanted => {}
                other => panic!("{header:?}: {other:?}"),
            }
        }
        let stray = WqeHeader { object: 0x0100_0000.into(), ..header(WrOpcode::SEND, 0, 0, 0) };
        assert!(matches!(parse(&words(stray, &[]), 1, &mut Vec::new()), Request::Stray));
    }

    #[test]
    fn a_list_is_understood_whole_or_not_at_all() {
        let mut room = Vec::new();
        let elements: Vec<u8> = (0..6).flat_map(|n| sge(n).as_bytes().to_vec()).collect();
        let body = ListBody { wqe_ids: [11, 12, 13, 14].map(U32::new) };
        let list = |opcode, bits, count: u8| {
            let parts = [(16, body.as_bytes()), (32, &elements[..16 * usize::from(count)])];
            words(header(opcode, bits | flags::LIST, count, 0), &parts)
        };
        for count in 0..=6u8 {
            let units = (32 + 16 * usize::from(count)).div_ceil(64);
            let ids = [0x5678, 11, 12, 13, 14];
            let fits = (2..=5).contains(&count);
            let addresses: Vec<u64> = (0..count.into()).map(|n| 0x100 + n).collect();
            let are_all = |sges: &[Sge]| sges.iter().map(|sge| sge.addr).eq(addresses.iter().copied());
            match parse(&list(WrOpcode::RECV, 0, count), units, &mut room) {
                Request::List(List::Recvs(qpn, found, sges)) if fits => {
                    assert_eq!((qpn.number(), found), (0x1234, ids));
                    assert!(are_all(sges));
                }
                Request::Invalid(_, 0x5678, Queue::Recv) if !fits => {}
                other => panic!("{count} receives: {other:?}"),
            }
            match parse(&list(WrOpcode::SRQ_RECV, 0, count), units, &mut room) {
                Request::List(List::SrqRecvs(SrqId(0x1234), found, sges)) if fits => {
                    assert_eq!(found, ids);
                    assert!(are_all(sges));
                }
                Request::InvalidSrq(SrqId(0x1234)) if !fits => {}
                other => panic!("{count} shared receives: {other:?}"),
            }
            match parse(&list(WrOpcode::SEND, flags::SIGNALED | flags::FENCE, count), units, &mut room) {
                Request::List(List::Sends(_, like, found, sges)) if fits => {
                    assert_eq!(
                        (like.id, like.signaled, like.solicited, like.fence),
                        (ids[0], true, false, true)
                    );
                    assert_eq!((like.op, found), (SendOp::Send { imm: None }, ids));
                    assert!(are_all(sges));
                }
                Request::Invalid(_, 0x5678, Queue::Send) if !fits => {}
                other => panic!("{count} SENDs: {other:?}"),
            }
        }
        // The list has more elements than its units hold.
        assert!(matches!(parse(&list(WrOpcode::RECV, 0, 3), 1, &mut room), Request::Invalid(..)));
        for (opcode, bits) in [
            (WrOpcode::RECV, flags::SIGNALED),
            (WrOpcode::SRQ_RECV, flags::SOLICITED),
            (WrOpcode::SEND, flags::INLINE),
            (WrOpcode::SEND, flags::XRC),
            (WrOpcode::SEND, 64),
            (WrOpcode::SEND_WITH_IMM, 0),
            (WrOpcode::SEND_WITH_INV, 0),
            (WrOpcode::RDMA_WRITE, 0),
            (WrOpcode::RDMA_READ, 0),
            (WrOpcode::ATOMIC_CMP_AND_SWP, 0),
            (WrOpcode::LOCAL_INV, 0),
            (WrOpcode::BIND_MW, 0),
            (WrOpcode::REG_MR, 0),
            (WrOpcode::FLUSH, 0),
        ] {
            let list = list(opcode, bits, 2);
            let found = parse(&list, 1, &mut room);
            assert!(matches!(found, Request::Invalid(..) | Request::InvalidSrq(_)), "{opcode:?} {found:?}");
        }
    }
}
