//! Ten thousand random control commands.
//!
//! Each command is answered, those that succeed are counted, and a reset removes all objects.
//!
//! Shows: hostile-guest.

use std::collections::{BTreeMap, BTreeSet};
use vrdma_tests::abi::control::*;
use vrdma_tests::abi::zerocopy::{FromBytes, IntoBytes};
use vrdma_tests::control::run;
use vrdma_tests::pingpong::{Canary, PingPong};
use vrdma_tests::ring::Ring;
use vrdma_tests::wait::PATIENCE;
use vrdma_tests::{Guest, Lab, Rng};

const COMMANDS: usize = 10_000;
/// Kinds of objects, by their names in the daemon's counters.
const KINDS: [&str; 9] = ["contexts", "channels", "pds", "cqs", "mrs", "qps", "mws", "srqs", "xrcds"];
/// Key bits of a window or a fast-registration region that are ignored when it is freed.
const VARIANT: u32 = 0xff;

/// A driver's knowledge of its objects.
struct Model {
    rng: Rng,
    /// Memory for the device to use. Nothing else is there.
    scratch: (u64, u64),
    /// Numbers of the objects of each kind.
    objects: [BTreeSet<u32>; 9],
    /// Regions for fast registration, by their keys without the ignored bits.
    fast: BTreeSet<u32>,
    /// Contexts of PDs and CQs, by kind and number.
    owners: BTreeMap<(usize, u32), u32>,
    /// Channels of the guest that can be bound, each with its ring.
    rings: Vec<Ring>,
    first_channel: u16,
}

/// Returns the kind of objects that an opcode creates (true) or destroys (false).
fn kind(opcode: Opcode) -> Option<(usize, bool)> {
    Some(match opcode {
        Opcode::ALLOC_CONTEXT => (0, true),
        Opcode::DEALLOC_CONTEXT => (0, false),
        Opcode::BIND_CHANNEL => (1, true),
        Opcode::UNBIND_CHANNEL => (1, false),
        Opcode::ALLOC_PD => (2, true),
        Opcode::DEALLOC_PD => (2, false),
        Opcode::CREATE_CQ => (3, true),
        Opcode::DESTROY_CQ => (3, false),
        Opcode::REG_MR | Opcode::GET_DMA_MR | Opcode::ALLOC_FAST_MR => (4, true),
        Opcode::DEREG_MR => (4, false),
        Opcode::CREATE_QP => (5, true),
        Opcode::DESTROY_QP => (5, false),
        Opcode::ALLOC_MW => (6, true),
        Opcode::DEALLOC_MW => (6, false),
        Opcode::CREATE_SRQ => (7, true),
        Opcode::DESTROY_SRQ => (7, false),
        Opcode::ALLOC_XRCD => (8, true),
        Opcode::DEALLOC_XRCD => (8, false),
        _ => return None,
    })
}

impl Model {
    /// Returns an object of a kind, or a number that is none.
    fn object(&mut self, kind: usize) -> u32 {
        let of = &self.objects[kind];
        if of.is_empty() || self.rng.one_in(10) {
            return self.rng.nasty() as u32;
        }
        *of.iter().nth(self.rng.below(of.len() as u64) as usize).unwrap()
    }

    fn context(&mut self) -> u32 {
        match self.rng.below(4) {
            0 => self.object(0),
            1 | 2 => 0,
            _ => self.objects[0].first().copied().unwrap_or(0),
        }
    }

    /// Returns an object of a kind that a context owns, or any object of that kind.
    fn owned(&mut self, kind: usize, context: u32) -> u32 {
        let of = |&(_, owner): &(&(usize, u32), &u32)| *owner == context;
        let range = self.owners.range((kind, 0)..(kind + 1, 0)).filter(of);
        let own: Vec<u32> = range.map(|((_, number), _)| *number).collect();
        if own.is_empty() || self.rng.one_in(10) { self.object(kind) } else { *self.rng.pick(&own) }
    }

    fn small(&mut self) -> u32 {
        if self.rng.one_in(10) { self.rng.nasty() as u32 } else { self.rng.below(9) as u32 }
    }

    /// Returns extents of `len` bytes in all, mostly in the scratch memory.
    fn runs(&mut self, len: u64) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut left = len.min(self.scratch.1);
        while left > 0 && runs.len() < 40 {
            let now = if self.rng.one_in(2) {
                left
            } else {
                (self.rng.below(left) + 1).next_multiple_of(64).min(left)
            };
            let at = self.scratch.0 + (self.rng.below(self.scratch.1 - now + 1) & !63);
            runs.push(run(at, now));
            left -= now;
        }
        if self.rng.one_in(10) && !runs.is_empty() {
            let at = self.rng.below(runs.len() as u64) as usize;
            runs[at] = run(self.rng.nasty(), self.rng.nasty());
        }
        runs
    }

    /// Returns the request structure of a command, and its memory.
    fn body(&mut self, opcode: Opcode) -> (Vec<u8>, Vec<Run>) {
        let object =
            |number: u32| ObjectReq { object: number.into(), reserved: 0.into() }.as_bytes().to_vec();
        if let Some((kind, false)) = kind(opcode) {
            let number = self.object(kind);
            return (object(number), vec![]);
        }
        match opcode {
            Opcode::QUERY_GID | Opcode::DEL_GID => (object(self.small()), vec![]),
            Opcode::ADD_GID => {
                // Neither GID 0 nor another guest's GID.
                let gid = vrdma_tests::guest::gid(100 + self.rng.below(100) as u8);
                let index = self.small().max(1).into();
                let vlan = if self.rng.one_in(4) { self.rng.nasty() as u16 } else { 0xffff }.into();
                let gid_type = if self.rng.one_in(10) { 1 } else { gid_type::ROCE_V2 };
                (AddGidReq { index, gid_type, reserved0: 0, vlan, gid }.as_bytes().to_vec(), vec![])
            }
            Opcode::BIND_CHANNEL => {
                let which = self.rng.below(self.rings.len() as u64) as usize;
                let ring = self.rings[which].clone();
                let queue = self.first_channel + which as u16;
                if !self.objects[1].contains(&queue.into()) {
                    ring.clear();
                    (0..ring.size)
                        .for_each(|i| ring.set_desc(i, self.scratch.0 + 64 * u64::from(i), 64, 0, 0));
                    if self.rng.one_in(8) {
                        let flags = self.rng.below(8) as u16;
                        ring.set_desc(
                            self.rng.below(ring.size.into()) as u16,
                            self.rng.nasty(),
                            64,
                            flags,
                            0,
                        );
                    }
                }
                let queue = if self.rng.one_in(10) { self.rng.nasty() as u16 } else { queue };
                let context = if which == 0 { 0 } else { self.context() };
                let req = BindChannelReq { context: context.into(), queue: queue.into(), reserved: 0.into() };
                (req.as_bytes().to_vec(), vec![run(self.scratch.0, self.scratch.1)])
            }
            Opcode::ALLOC_PD => (object(self.context()), vec![]),
            Opcode::CREATE_CQ => {
                let entries =
                    if self.rng.one_in(10) { self.rng.nasty() as u32 } else { 1 << self.rng.below(12) };
                let req = CreateCqReq {
                    context: self.context().into(),
                    entries: entries.into(),
                    vector: self.rng.below(3).min(self.rng.below(3)).try_into().map(u32::into).unwrap(),
                    flags: if self.rng.one_in(4) { self.rng.below(4) as u32 } else { 0 }.into(),
                };
                (req.as_bytes().to_vec(), self.runs(u64::from(entries) * 32 + 128))
            }
            Opcode::RESIZE_CQ => {
                let entries =
                    if self.rng.one_in(10) { self.rng.nasty() as u32 } else { 1 << self.rng.below(12) };
                let (cqn, held) = (self.object(3).into(), self.small().into());
                let flags = if self.rng.one_in(8) { 2 } else { 0 }.into();
                let req = ResizeCqReq { cqn, entries: entries.into(), held, flags };
                (req.as_bytes().to_vec(), self.runs(u64::from(entries) * 32 + 128))
            }
            Opcode::REG_MR => {
                let length = if self.rng.one_in(10) { self.rng.nasty() } else { 1 + self.rng.below(200_000) };
                let access =
                    if self.rng.one_in(10) { self.rng.nasty() as u32 } else { self.rng.below(16) as u32 };
                let (pdn, iova) = (self.object(2).into(), self.rng.nasty().into());
                let req = RegMrReq { pdn, access: access.into(), iova, length: length.into() };
                (req.as_bytes().to_vec(), self.runs(length))
            }
            Opcode::SET_PORT_MTU => {
                let mtu =
                    if self.rng.one_in(10) { self.rng.nasty() as u32 } else { 256 << self.rng.below(5) };
                (SetPortMtuReq { mtu: mtu.into(), reserved: 0.into() }.as_bytes().to_vec(), vec![])
            }
            Opcode::GET_DMA_MR => {
                let req = DmaMrReq { pdn: self.object(2).into(), access: self.small().into() };
                (req.as_bytes().to_vec(), vec![])
            }
            Opcode::REREG_MR => {
                let flags = 1 + self.rng.below(7) as u32;
                let given = |flag: u32| flags & flag != 0;
                let mut req =
                    ReregMrReq { lkey: self.object(4).into(), flags: flags.into(), ..ReregMrReq::default() };
                if given(rereg::PD) {
                    req.pdn = self.object(2).into();
                }
                if given(rereg::ACCESS) {
                    req.access = (self.rng.below(16) as u32).into();
                }
                let length = if given(rereg::TRANSLATION) { 1 + self.rng.below(200_000) } else { 0 };
                req.length = length.into();
                (req.as_bytes().to_vec(), self.runs(length))
            }
            Opcode::ALLOC_FAST_MR => {
                let req = AllocFastMrReq { pdn: self.object(2).into(), max_pages: self.small().into() };
                (req.as_bytes().to_vec(), vec![])
            }
            Opcode::ALLOC_MW => {
                let mw_type = 1 + self.rng.below(3) as u32;
                let req = AllocMwReq { pdn: self.object(2).into(), mw_type: mw_type.into() };
                (req.as_bytes().to_vec(), vec![])
            }
            Opcode::MODIFY_CQ => {
                let (count, period) = (self.small() as u16, self.small() as u16);
                let req =
                    ModifyCqReq { cqn: self.object(3).into(), count: count.into(), period: period.into() };
                (req.as_bytes().to_vec(), vec![])
            }
            Opcode::CREATE_SRQ => {
                let context = self.context();
                let xrc = self.rng.one_in(3);
                let (xrcdn, cqn) =
                    if xrc { (self.object(8), self.owned(3, context)) } else { (limit::NONE, limit::NONE) };
                let req = CreateSrqReq {
                    context: context.into(),
                    pdn: self.owned(2, context).into(),
                    max_wr: self.small().into(),
                    max_sge: self.small().into(),
                    xrcdn: xrcdn.into(),
                    cqn: cqn.into(),
                };
                (req.as_bytes().to_vec(), vec![])
            }
            Opcode::MODIFY_SRQ => {
                let mask = self.rng.below(4) as u32;
                let req = ModifySrqReq {
                    srqn: self.object(7).into(),
                    mask: mask.into(),
                    max_wr: self.small().into(),
                    limit: self.small().into(),
                };
                (req.as_bytes().to_vec(), vec![])
            }
            Opcode::QUERY_SRQ => (object(self.object(7)), vec![]),
            Opcode::ATTACH_MCAST | Opcode::DETACH_MCAST => {
                let mut gid = [0; 16];
                (gid[0], gid[15]) = (0xff, self.small() as u8);
                let req = McastReq { qpn: self.object(5).into(), mgid: gid, ..McastReq::default() };
                (req.as_bytes().to_vec(), vec![])
            }
            Opcode::CREATE_QP => {
                let context = self.context();
                let (pd, cq, recv_cq) =
                    (self.owned(2, context), self.owned(3, context), self.owned(3, context));
                let qp_type = match self.rng.below(13) {
                    0 => self.small(),
                    1 => QpType::GSI.0,
                    2 | 3 => QpType::UD.0,
                    4 | 5 => QpType::UC.0,
                    6 => QpType::XRC_SEND.0,
                    7 | 8 => QpType::XRC_RECV.0,
                    _ => QpType::RC.0,
                };
                let srqn = if self.rng.one_in(5) { self.object(7) } else { limit::NONE };
                // Mostly, an XRC QP gets only the objects that its half of a connection has.
                let none = limit::NONE;
                let (pd, cq, recv_cq, srqn, xrcdn) = match QpType(qp_type) {
                    _ if self.rng.one_in(10) => (pd, cq, recv_cq, srqn, self.object(8)),
                    QpType::XRC_SEND => (pd, cq, none, none, 0),
                    QpType::XRC_RECV => (none, none, none, none, self.object(8)),
                    _ => (pd, cq, recv_cq, srqn, 0),
                };
                let req = CreateQpReq {
                    context: context.into(),
                    pdn: pd.into(),
                    qp_type: qp_type.into(),
                    send_cqn: cq.into(),
                    recv_cqn: recv_cq.into(),
                    srqn: srqn.into(),
                    max_send_wr: self.small().into(),
                    max_recv_wr: self.small().into(),
                    max_send_sge: self.small().into(),
                    max_recv_sge: self.small().into(),
                    max_inline: self.small().into(),
                    xrcdn: xrcdn.into(),
                };
                (req.as_bytes().to_vec(), vec![])
            }
            Opcode::MODIFY_QP => (self.modify(), vec![]),
            Opcode::QUERY_QP => (object(self.object(5)), vec![]),
            Opcode::SET_AH_TABLE => {
                let entries = self.small();
                let req = AhTableReq { entries: entries.into(), reserved: 0.into() };
                (req.as_bytes().to_vec(), self.runs(64 * u64::from(entries)))
            }
            _ => (vec![], vec![]),
        }
    }

    /// Builds mostly one of the usual state changes, so that QPs reach all states.
    fn modify(&mut self) -> Vec<u8> {
        // To INIT as connected QP, datagram QP and QP1; to RTR as each QP type; to RTS reliable or
        // not; and any other state.
        let steps = [
            (1u8, 0x39),
            (1, 0x71),
            (1, 0x51),
            (2, 0x12_9181),
            (2, 0x10_1181),
            (2, 1),
            (3, 0x1_2e01),
            (3, 0x1_0001),
            (0, 1),
            (4, 1),
            (6, 1),
            (3, 1),
        ];
        let (state, mut mask) = *self.rng.pick(&steps);
        if self.rng.one_in(5) {
            mask ^= 1 << self.rng.below(22);
        }
        let mut attr = QpAttr {
            state,
            access: self.rng.below(16).try_into().map(u32::into).unwrap(),
            port: 1,
            path_mtu: 1 + self.rng.below(5) as u8,
            dest_qpn: self.object(5).into(),
            dgid: vrdma_tests::guest::gid(1),
            vlan: 0xffff.into(),
            ..QpAttr::default()
        };
        if self.rng.one_in(5) {
            self.rng.fill(attr.as_mut_bytes());
        }
        let req = ModifyQpReq { qpn: self.object(5).into(), mask: mask.into(), attr };
        req.as_bytes().to_vec()
    }

    /// Returns any command: its opcode and bytes, and room for the reply.
    fn command(&mut self, cookie: u64) -> (Opcode, Vec<u8>, u64) {
        // More objects are created than destroyed. Otherwise there would hardly be any.
        let (_, number, _) = *self.rng.pick(Opcode::INFO.consts);
        let mut opcode = Opcode(number as u16);
        if matches!(kind(opcode), Some((_, false))) && !self.rng.one_in(3) {
            opcode = *self.rng.pick(&[Opcode::CREATE_CQ, Opcode::CREATE_QP, Opcode::MODIFY_QP]);
        }
        if opcode == Opcode::ALLOC_CONTEXT && !self.rng.one_in(8) {
            opcode = Opcode::CREATE_QP;
        }
        let (body, runs) = self.body(opcode);
        let mut header = ReqHeader {
            opcode: opcode.0.into(),
            reserved: 0.into(),
            num_runs: (runs.len() as u32).into(),
            cookie: cookie.into(),
        };
        if self.rng.one_in(20) {
            header.num_runs = (self.rng.nasty() as u32).into();
        }
        if self.rng.one_in(50) {
            header.reserved = 1.into();
        }
        let mut bytes = [header.as_bytes(), &body, runs.as_bytes()].concat();
        let mut room = 16 + 128;
        if self.rng.one_in(10) {
            match self.rng.below(4) {
                0 => bytes.truncate(self.rng.below(bytes.len() as u64) as usize),
                1 => bytes.extend(self.rng.bytes(24)),
                2 => {
                    let at = self.rng.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << self.rng.below(8);
                }
                _ => room = self.rng.below(40),
            }
        }
        (opcode, bytes, room)
    }

    /// Records what a successful command did.
    ///
    /// The opcode is taken from the request as it was sent, because it may differ from the intended
    /// one.
    fn done(&mut self, request: &[u8], reply: &[u8]) {
        let opcode = Opcode(u16::from_le_bytes([request[0], request[1]]));
        let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        if opcode == Opcode::REREG_MR && word(request, 20) & rereg::TRANSLATION != 0 {
            assert!(self.objects[4].remove(&word(request, 16)), "a region that is none got new memory");
            assert!(self.objects[4].insert(word(reply, 16)), "keys are given out twice");
        }
        let Some((kind, made)) = kind(opcode) else { return };
        let mut number = match opcode {
            // The virtqueue's number follows the context's.
            Opcode::BIND_CHANNEL => word(request, 20) & 0xffff,
            _ if made => word(reply, 16),
            _ => word(request, 16),
        };
        if kind == 6 {
            number &= !VARIANT;
        }
        if opcode == Opcode::ALLOC_FAST_MR {
            number &= !VARIANT;
            self.fast.insert(number);
        }
        if opcode == Opcode::DEREG_MR && self.fast.remove(&(number & !VARIANT)) {
            number &= !VARIANT;
        }
        if made && (kind == 2 || kind == 3) {
            self.owners.insert((kind, number), word(request, 16));
        } else {
            self.owners.remove(&(kind, number));
        }
        let new = if made { self.objects[kind].insert(number) } else { self.objects[kind].remove(&number) };
        assert!(new, "{opcode:?} succeeds for {number:#x}, but the driver knows better");
    }
}

fn check(lab: &Lab, model: &Model) {
    let stats = lab.stats();
    for (kind, objects) in KINDS.iter().zip(&model.objects) {
        assert_eq!(stats.objects(0, kind), objects.len() as u64, "{kind}");
    }
}

fn exchange(guest: &Guest, request: &[u8], room: u64) -> Option<Vec<u8>> {
    if request.is_empty() && room == 0 {
        return None;
    }
    Some(guest.control().exchange(request, room, PATIENCE).expect("an answer to each command"))
}

#[test]
fn ten_thousand_random_commands_are_answered_and_counted() {
    let lab = Lab::new(3);
    let guest = &lab.guests[0];
    let canaries = [1, 2].map(|i| Canary::new(&lab.guests[i].memory, i as u64));
    let pingpong = PingPong::start(&lab.guests[1], &lab.guests[2]);
    let scratch_len = 256 << 10;
    let mut model = Model {
        rng: Rng::from_env("ten_thousand_random_commands"),
        scratch: (guest.memory.alloc(scratch_len), scratch_len),
        objects: Default::default(),
        fast: BTreeSet::new(),
        owners: BTreeMap::new(),
        rings: guest.queues[guest.first_channel().into()..].iter().map(|q| q.ring.clone()).collect(),
        first_channel: guest.first_channel(),
    };
    let mut statuses = [0u32; 10];
    let mut most = [0; 8];
    for n in 0..COMMANDS {
        let cookie = 0xc00c_1e00_0000 + n as u64;
        let (opcode, request, room) = model.command(cookie);
        let Some(reply) = exchange(guest, &request, room) else { continue };
        if room < 16 {
            assert_eq!(reply.len(), 0, "not carried out");
            continue;
        }
        let (header, rest) = RespHeader::read_from_prefix(&reply).expect("a reply has a header");
        if request.len() >= 16 {
            assert_eq!(header.cookie.as_bytes(), &request[8..16]);
        }
        let status = Status(header.status.get());
        assert!(status.name().is_some() && status != Status::INTERNAL, "{opcode:?}: {status:?}");
        statuses[status.0 as usize] += 1;
        match status {
            Status::OK => model.done(&request, &reply),
            _ => assert!(rest.is_empty()),
        }
        for (most, objects) in most.iter_mut().zip(&model.objects) {
            *most = objects.len().max(*most);
        }
        if n % 500 == 0 {
            check(&lab, &model);
        }
    }
    println!("answers by status: {statuses:?}; most of {KINDS:?}: {most:?}");
    assert!(most.iter().all(|most| *most >= 5), "hardly anything was made: {most:?}");
    assert!(statuses[..7].iter().all(|count| *count >= 3), "some refusals never happened: {statuses:?}");
    check(&lab, &model);
    guest.reset().unwrap();
    assert_eq!(lab.stats().all_objects(0), []);
    assert!(guest.query_device().is_ok());
    pingpong.stop();
    canaries.iter().for_each(Canary::check);
}
