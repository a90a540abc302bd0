//! Fuzzes the commands of drivers about iWARP connections.
//!
//! The peers are hostile programs on the host's TCP, or two guests of a worker connect to each
//! other without TCP.

use super::driver::*;
use super::{command, request};
use crate::fuzzing::input::Input;
use crate::fuzzing::lab::{ADDRESSES, Lab, MACS, with};
use crate::queue::channel::{NO_WORDS, RequestWords};
use crate::worker::Worker;
use socket2::{Domain, Socket, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;
use std::time::Duration;
use vrdma_abi::control::*;
use vrdma_abi::cqe::Cqe;
use vrdma_abi::wqe::{RdmaBody, Sge, WqeHeader, WrOpcode, flags};
use vrdma_abi::zerocopy::{FromBytes, FromZeros, IntoBytes};
use vrdma_transport::OwnerId;
use vrdma_wire::num::Mac;

/// The peers' own address. The guests have 127.0.0.1 and 127.0.0.2.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// The number of ports with listeners, of guests and of peers.
const PORTS: usize = 3;
/// The ports at which guests listen for each other.
const GUEST_PORTS: [u16; PORTS] = [4001, 4002, 4001];
/// The length in bytes of the region that each driver has from the beginning. All addresses of
/// requests are in it.
const LENGTH: u32 = 0x3000;
/// The length of an SGE that is large enough for a direct copy from memory to memory.
const LONG: u32 = 0xc00;
/// The number of entries of each driver's CQ.
const ENTRIES: u32 = 16;
/// The number of 64-byte units of a channel that a request takes.
const UNITS: u8 = 2;
/// The owner of objects without context.
const KERNEL: OwnerId = OwnerId::KERNEL;
/// Longer than an initiator is silent at first.
const SILENCE: Duration = Duration::from_millis(30);
/// The number of turns after which data in the host's TCP has been seen.
const TURNS: usize = 10;

/// Fuzzes commands about connections, most of them nearly right, while peers connect, answer and
/// leave and time passes. The first byte chooses the peers.
///
/// The invariants of [`control`] hold. A connection is known from the command or event that reports
/// it first until it is released or rejected, and only to its guest. Its events are reported in
/// order, once each. The worker goes on, whatever a peer says.
pub fn connections(data: &[u8]) {
    match data.split_first() {
        Some((first, rest)) if first % 2 == 1 => between_guests(rest),
        Some((_, rest)) => over_the_host(rest),
        None => {}
    }
}

/// Two guests of one worker connect to each other and to themselves, send arbitrary data, and
/// leave.
fn between_guests(data: &[u8]) {
    let lab = Rc::new(Lab::of_local_way());
    let mut drivers =
        [(data, 0), (&[][..], 1)].map(|(data, at)| GuestDriver::of(Input::new(data), &lab, at, false));
    let mut sides = [0, 1].map(Side::of_guest);
    for (driver, side) in drivers.iter_mut().zip(&mut sides) {
        driver.set_up();
        driver.listen_as_meant(side);
    }
    for _ in 0..200 {
        let [one, other] = &mut drivers;
        if one.input.is_empty() {
            break;
        }
        let choice = one.input.byte();
        let at = usize::from(choice >> 7);
        // The guest that acts reads the rest of the input.
        if at == 1 {
            std::mem::swap(&mut one.input, &mut other.input);
        }
        let peer = (drivers[1 - at].qpns.clone(), drivers[1 - at].keys.clone());
        let (driver, side) = (&mut drivers[at], &mut sides[at]);
        match choice % 16 {
            0..=6 => driver.connect_something(side),
            7 | 8 => driver.connect_as_meant(side),
            9..=11 => driver.send(&peer),
            12 => with(Worker::take_turn),
            13 => {
                with(|worker| worker.pass(SILENCE));
                with(Worker::take_turn);
            }
            14 if driver.front_end_or_act() => side.forget(),
            _ => driver.command(),
        }
        if at == 1 {
            let [one, other] = &mut drivers;
            std::mem::swap(&mut one.input, &mut other.input);
        }
    }
    lab.end();
}

/// One guest, whose peers are programs on the host.
fn over_the_host(data: &[u8]) {
    let mut driver = GuestDriver::new(Input::new(data), Lab::of_iwarp());
    let mut side = Side::new();
    driver.set_up();
    for _ in 0..200 {
        match driver.input.byte() % 16 {
            _ if driver.input.is_empty() => break,
            0..=6 => driver.connect_something(&mut side),
            7..=11 => side.act(&mut driver.input),
            12 | 13 => (0..TURNS).for_each(|_| with(Worker::take_turn)),
            14 if driver.front_end_or_act() => side.forget(),
            _ => driver.command(),
        }
    }
    driver.lab.end();
}

/// The state of a connection, as the driver was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connects,
    Requested,
    Accepted,
    Open,
    Disconnected,
    Over,
}

/// What the driver knows of connections, and the peers.
struct Side {
    listeners: BTreeSet<u32>,
    known: BTreeMap<u32, Stage>,
    /// The ports to which connections are made at random.
    ports: [u16; PORTS],
    /// The socket at which peers on the host listen. `None` if there are only guests.
    outside: Option<Socket>,
    peers: Vec<Socket>,
    /// Its own address, and that of its peers.
    own: Ipv4Addr,
    others: Ipv4Addr,
    /// The next-hop MAC addresses to itself and to its peer, if the driver gives them.
    hops: Option<[Mac; 2]>,
}

impl Side {
    fn new() -> Side {
        let ports = PORTS_IN_USE.with(|ports| *ports);
        let outside = socket();
        outside.set_reuse_address(true).expect("an option of sockets");
        // Another process may have taken the port. Then no connection comes.
        if outside.bind(&SocketAddrV4::new(OUTSIDE, ports[2]).into()).is_ok() {
            outside.listen(8).expect("it is bound");
        }
        let (listeners, known) = Default::default();
        let (own, others, outside) = (Ipv4Addr::LOCALHOST, OUTSIDE, Some(outside));
        Side { listeners, known, ports, outside, peers: Vec::new(), own, others, hops: None }
    }

    /// The side of a guest whose peer is the other guest.
    fn of_guest(at: usize) -> Side {
        let (listeners, known) = Default::default();
        let [own, others] = [at, 1 - at].map(|guest| ADDRESSES[guest].into());
        let hops = Some([at, 1 - at].map(|guest| MACS[guest]));
        Side { listeners, known, ports: GUEST_PORTS, outside: None, peers: Vec::new(), own, others, hops }
    }

    /// Forgets everything, because the driver began anew.
    fn forget(&mut self) {
        self.listeners.clear();
        self.known.clear();
    }

    /// Lets a peer do something.
    fn act(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0 | 1 => {
                let port = input.pick(&self.ports);
                let at = input.pick(&[Ipv4Addr::LOCALHOST, OUTSIDE]);
                let peer = socket();
                // It is in progress, or refused. Both show later.
                let _ = peer.connect(&SocketAddrV4::new(at, port).into());
                self.peers.push(peer);
            }
            2 => {
                let accepted = self.outside.as_ref().and_then(|outside| outside.accept().ok());
                self.peers.extend(accepted.map(|(peer, _)| nonblocking(peer)));
            }
            choice => {
                let count = self.peers.len();
                let at = input.below(count);
                let Some(peer) = self.peers.get_mut(at) else { return };
                match choice {
                    // The connection may have ended.
                    3..=5 => _ = peer.send_with_flags(&says(input), libc::MSG_NOSIGNAL),
                    6 if input.once_in(2) => _ = peer.read(&mut [0; 4096]),
                    6 => _ = peer.shutdown(std::net::Shutdown::Write),
                    _ => drop(self.peers.swap_remove(at)),
                }
            }
        }
    }

    /// Returns the number of a known connection or listener, or a number near it.
    fn number(&self, input: &mut Input<'_>, is_listener: bool) -> u32 {
        let numbers: Vec<u32> = match is_listener {
            true => self.listeners.iter().copied().collect(),
            false => self.known.keys().copied().collect(),
        };
        let at = input.below(numbers.len());
        input.near(numbers.get(at).copied().unwrap_or_default())
    }

    /// Checks and notes the reply to a command about this number.
    fn answered(&mut self, opcode: Opcode, number: u32, status: Status) {
        let stage = self.known.get(&number).copied();
        match (opcode, status) {
            (Opcode::CM_CLOSE_LISTENER, Status::OK) => assert!(self.listeners.remove(&number)),
            (Opcode::CM_CLOSE_LISTENER, Status::NOT_FOUND) => assert!(!self.listeners.contains(&number)),
            (Opcode::CM_RELEASE, Status::OK) => assert!(self.known.remove(&number).is_some()),
            (Opcode::CM_REJECT, Status::OK) => {
                assert_eq!(self.known.remove(&number), Some(Stage::Requested));
            }
            (Opcode::CM_ACCEPT, Status::OK) => {
                assert_eq!(self.known.insert(number, Stage::Accepted), Some(Stage::Requested));
            }
            (Opcode::CM_RELEASE | Opcode::CM_REJECT, Status::NOT_FOUND) => assert_eq!(stage, None),
            _ => {}
        }
    }

    /// Checks and notes a fetched event.
    fn told(&mut self, event: &CmEventResp) {
        let (kind, number) = (CmEventKind(event.kind.get()), event.connection.get());
        let is_ok = event.status.get() == CmStatus::OK.0;
        let before = self.known.get(&number).copied();
        let next = match (kind, before) {
            (CmEventKind::NONE, _) => return assert_eq!(number, limit::NONE),
            (CmEventKind::CONNECT_REQUEST, None) => {
                assert!(self.listeners.contains(&event.listener.get()), "of a listener that is gone");
                Stage::Requested
            }
            (CmEventKind::CONNECT_REPLY, Some(Stage::Connects)) if is_ok => Stage::Open,
            (CmEventKind::CONNECT_REPLY, Some(Stage::Connects)) => Stage::Over,
            (CmEventKind::ESTABLISHED, Some(Stage::Accepted)) => Stage::Open,
            (CmEventKind::DISCONNECT, Some(Stage::Open)) => Stage::Disconnected,
            (CmEventKind::CLOSE, Some(Stage::Disconnected)) => Stage::Over,
            other => panic!("connection {number}: {other:?}"),
        };
        self.known.insert(number, next);
    }
}

impl GuestDriver<'_> {
    /// Does what the VMM or a driver may do at any time. Returns true if the driver began anew.
    fn front_end_or_act(&mut self) -> bool {
        match self.input.byte() % 8 {
            0 => return self.begin_anew(),
            1 => {
                let id = self.lab.guests[0].id;
                let suspended = self.input.once_in(2);
                with(|worker| match suspended {
                    true => worker.suspend_device(id),
                    false => worker.start_device(id, false, None),
                });
            }
            2..=4 => {
                let time = Duration::from_nanos(1 << (self.input.byte() % 40));
                with(|worker| worker.pass(time));
                with(Worker::take_turn);
            }
            5 | 6 => self.post(),
            _ => {
                self.hostile();
                // It may have been a command about a connection, which is then not known here.
                return self.begin_anew();
            }
        }
        false
    }

    fn begin_anew(&mut self) -> bool {
        self.start();
        self.set_up();
        true
    }

    /// Creates three QPs that can be connected.
    fn set_up(&mut self) {
        let none = |context: u32| ObjectReq { object: context.into(), reserved: 0.into() };
        let pd = self.give(Opcode::ALLOC_PD, none(0).as_bytes(), &[]);
        let cq =
            CreateCqReq { context: 0.into(), entries: ENTRIES.into(), vector: 0.into(), flags: 0.into() };
        let ring = Run { addr: CQS.into(), len: (32 * u64::from(ENTRIES) + 128).into() };
        self.consumer = 0;
        let cq = self.give(Opcode::CREATE_CQ, cq.as_bytes(), &[ring]);
        let (Some(pd), Some(cq)) = (pd, cq) else { return };
        self.pds.push(pd);
        self.cqs.push(cq);
        let (pdn, access, iova) = (pd.into(), access::REGION.into(), command::IOVA.into());
        let req = RegMrReq { pdn, access, iova, length: u64::from(LENGTH).into() };
        let run = Run { addr: DATA.into(), len: u64::from(LENGTH).into() };
        let key = self.give(Opcode::REG_MR, req.as_bytes(), &[run]);
        self.keys.extend(key);
        for _ in 0..3 {
            let req = CreateQpReq {
                pdn: pd.into(),
                qp_type: QpType::RC.0.into(),
                send_cqn: cq.into(),
                recv_cqn: cq.into(),
                srqn: limit::NONE.into(),
                max_send_wr: 4.into(),
                max_recv_wr: 4.into(),
                max_send_sge: 1.into(),
                max_recv_sge: 1.into(),
                ..CreateQpReq::new_zeroed()
            };
            let Some(qpn) = self.give(Opcode::CREATE_QP, req.as_bytes(), &[]) else { return };
            self.qpns.push(qpn);
            self.init_qp(qpn);
        }
    }

    /// Makes the guest listen for the other guest.
    fn listen_as_meant(&mut self, side: &mut Side) {
        let (addr, port) = (mapped(side.own), side.ports[0].into());
        let req = CmListenReq { addr, port, backlog: 4.into(), ..CmListenReq::new_zeroed() };
        let made = self.give(Opcode::CM_LISTEN, req.as_bytes(), &[]);
        side.listeners.extend(made);
    }

    /// Takes a step towards a connection, if one is possible.
    fn connect_as_meant(&mut self, side: &mut Side) {
        let at = self.input.below(self.qpns.len());
        let Some(&qpn) = self.qpns.get(at) else { return };
        let (opcode, number, body) = match self.input.byte() % 4 {
            0 => {
                let req = CmConnectReq {
                    qpn: qpn.into(),
                    flags: (cm_flags::PEER_TO_PEER | cm_flags::NEXT_HOP).into(),
                    local_addr: mapped(side.own),
                    remote_addr: mapped(side.others),
                    next_hop: side.hops.expect("it is of a guest")[1].0,
                    remote_port: side.ports[0].into(),
                    ird: 4.into(),
                    ord: 4.into(),
                    ..CmConnectReq::new_zeroed()
                };
                (Opcode::CM_CONNECT, 0, req.as_bytes().to_vec())
            }
            1 => {
                let asks = side.known.iter().find(|(_, stage)| **stage == Stage::Requested);
                let Some((&number, _)) = asks else { return };
                let (connection, qpn, ird, ord) = (number.into(), qpn.into(), 4.into(), 4.into());
                let req = CmAcceptReq { connection, qpn, ird, ord, ..CmAcceptReq::new_zeroed() };
                (Opcode::CM_ACCEPT, number, req.as_bytes().to_vec())
            }
            _ => (Opcode::CM_GET_EVENT, 0, Vec::new()),
        };
        self.ask(side, opcode, number, body);
    }

    /// Posts requests, and takes completions.
    ///
    /// Half of the requests are plausible. Others end the connection.
    fn send(&mut self, (peer, peer_keys): &(Vec<u32>, Vec<u32>)) {
        let id = self.lab.guests[self.at].id;
        for _ in 0..1 + self.input.below(4) {
            let (qpns, keys) = (&self.qpns[..], &self.keys[..]);
            let (iova, length) = (command::IOVA, LONG);
            let objects = request::Objects { qpns, srqns: &[], keys, iova, length, peer, peer_keys };
            let words = match self.input.once_in(2) {
                true => meant(&mut self.input, &objects),
                false => request::request(&mut self.input, &objects, UNITS),
            };
            with(|worker| worker.post_words(id, KERNEL, &words, UNITS.into()));
        }
        // All completions count as taken. Another target checks which ones come.
        let taken = self.taken();
        self.ram.write(CQS + 32 * u64::from(ENTRIES) + 64, &taken.to_le_bytes());
    }

    /// Returns the number of completions so far in its CQ.
    fn taken(&mut self) -> u32 {
        let is_new = |consumer: u32| {
            let at = CQS + 32 * u64::from(consumer % ENTRIES);
            let cqe = Cqe::read_from_bytes(&self.ram.read::<{ Cqe::SIZE }>(at)).expect("its size");
            (cqe.phase & 1 != 0) != (consumer & ENTRIES != 0)
        };
        let new = (0..ENTRIES).find(|&new| !is_new(self.consumer.wrapping_add(new)));
        self.consumer = self.consumer.wrapping_add(new.unwrap_or(ENTRIES));
        self.consumer
    }

    fn init_qp(&mut self, qpn: u32) {
        let mask = qp_attr::STATE | qp_attr::PKEY_INDEX | qp_attr::PORT | qp_attr::ACCESS_FLAGS;
        let state = QpState::INIT.0 as u8;
        let attr = QpAttr { state, access: access::ALL.into(), port: 1, ..QpAttr::default() };
        let req = ModifyQpReq { qpn: qpn.into(), mask: mask.into(), attr };
        self.give(Opcode::MODIFY_QP, req.as_bytes(), &[]);
    }

    /// Executes a valid command. Returns the number of the object that it made.
    fn give(&mut self, opcode: Opcode, body: &[u8], runs: &[Run]) -> Option<u32> {
        self.cookie += 1;
        let header = ReqHeader {
            opcode: opcode.0.into(),
            num_runs: (runs.len() as u32).into(),
            cookie: self.cookie.into(),
            ..ReqHeader::default()
        };
        let request = [header.as_bytes(), body, runs.as_bytes()].concat();
        let (status, reply) = self.call(opcode, &request);
        reply.first_chunk().filter(|_| status == Status::OK).map(|number| u32::from_le_bytes(*number))
    }

    /// Executes a command about connections.
    fn connect_something(&mut self, side: &mut Side) {
        let (opcode, number, body) = match self.input.byte() % 16 {
            0 | 1 => (Opcode::CM_LISTEN, 0, self.listen(side)),
            2..=4 => (Opcode::CM_CONNECT, 0, self.connect(side)),
            5 | 6 => {
                let number = side.number(&mut self.input, false);
                (Opcode::CM_ACCEPT, number, self.accept(number))
            }
            7 => {
                let number = side.number(&mut self.input, false);
                let mut req = CmRejectReq { connection: number.into(), ..CmRejectReq::new_zeroed() };
                req.private_data_len = (self.input.near(4) as u16).into();
                (Opcode::CM_REJECT, number, req.as_bytes().to_vec())
            }
            8 | 9 => {
                let number = side.number(&mut self.input, false);
                (Opcode::CM_RELEASE, number, object(number))
            }
            10 => {
                let number = side.number(&mut self.input, true);
                (Opcode::CM_CLOSE_LISTENER, number, object(number))
            }
            11 => {
                let at = self.input.below(self.qpns.len());
                let qpn = self.qpns.get(at).copied().unwrap_or_default();
                let qpn = self.input.near(qpn);
                (Opcode::CM_DISCONNECT, qpn, object(qpn))
            }
            12 => {
                // A QP that was connected is used again.
                let at = self.input.below(self.qpns.len());
                let Some(&qpn) = self.qpns.get(at) else { return };
                let attr = QpAttr { state: QpState::RESET.0 as u8, ..QpAttr::default() };
                let req = ModifyQpReq { qpn: qpn.into(), mask: qp_attr::STATE.into(), attr };
                self.give(Opcode::MODIFY_QP, req.as_bytes(), &[]);
                return self.init_qp(qpn);
            }
            _ => (Opcode::CM_GET_EVENT, 0, Vec::new()),
        };
        self.ask(side, opcode, number, body);
    }

    fn ask(&mut self, side: &mut Side, opcode: Opcode, number: u32, mut body: Vec<u8>) {
        if self.input.once_in(32) {
            let at = self.input.below(body.len());
            let (byte, is_whole) = (self.input.byte(), self.input.once_in(2));
            match body.get_mut(at) {
                // The number of another connection would make another command of it.
                Some(there) if is_whole && at >= 4 => *there = byte,
                _ => body.truncate(at),
            }
        }
        self.cookie += 1;
        let (opcode_no, cookie) = (opcode.0.into(), self.cookie.into());
        let header = ReqHeader { opcode: opcode_no, cookie, ..ReqHeader::default() };
        let (status, reply) = self.call(opcode, &[header.as_bytes(), &body].concat());
        side.answered(opcode, number, status);
        let made = reply.first_chunk().filter(|_| status == Status::OK).copied().map(u32::from_le_bytes);
        match (opcode, made) {
            (Opcode::CM_LISTEN, Some(made)) => {
                assert!(side.listeners.insert(made), "it has another's number")
            }
            (Opcode::CM_CONNECT, Some(made)) => {
                assert_eq!(side.known.insert(made, Stage::Connects), None, "it has another's number");
            }
            (Opcode::CM_GET_EVENT, Some(_)) => {
                side.told(CmEventResp::ref_from_bytes(&reply).expect("all of it"));
            }
            _ => {}
        }
    }

    fn listen(&mut self, side: &Side) -> Vec<u8> {
        let mut req = CmListenReq::new_zeroed();
        req.addr = mapped(self.input.pick(&[side.own, Ipv4Addr::UNSPECIFIED, side.others]));
        let port = self.input.pick(&side.ports[..2]);
        req.port = (self.input.near(port.into()) as u16).into();
        req.backlog = self.input.near(2).into();
        req.as_bytes().to_vec()
    }

    fn connect(&mut self, side: &Side) -> Vec<u8> {
        let mut req = CmConnectReq::new_zeroed();
        let at = self.input.below(self.qpns.len());
        let qpn = self.qpns.get(at).copied().unwrap_or_default();
        req.qpn = self.input.near(qpn).into();
        let with_hop = if side.hops.is_some() { cm_flags::NEXT_HOP } else { 0 };
        req.flags = self.input.near(cm_flags::PEER_TO_PEER | with_hop).into();
        req.local_addr = mapped(self.input.pick(&[side.own, side.others]));
        let remote = self.input.pick(&[side.others, side.others, side.own]);
        req.remote_addr = mapped(remote);
        if let Some(hops) = side.hops {
            req.next_hop = hops[usize::from(remote == side.others)].0;
        }
        let port = self.input.pick(&[side.ports[2], side.ports[2], side.ports[0], side.ports[1], 1]);
        req.remote_port = port.into();
        self.depths(&mut req.ird, &mut req.ord, &mut req.private_data_len);
        req.as_bytes().to_vec()
    }

    fn accept(&mut self, number: u32) -> Vec<u8> {
        let mut req = CmAcceptReq { connection: number.into(), ..CmAcceptReq::new_zeroed() };
        let at = self.input.below(self.qpns.len());
        let qpn = self.qpns.get(at).copied().unwrap_or_default();
        req.qpn = self.input.near(qpn).into();
        self.depths(&mut req.ird, &mut req.ord, &mut req.private_data_len);
        req.as_bytes().to_vec()
    }

    fn depths(&mut self, ird: &mut Word, ord: &mut Word, private_data_len: &mut Word) {
        for (field, right) in [(ird, 4), (ord, 4), (private_data_len, 8)] {
            *field = (self.input.near(right) as u16).into();
        }
    }
}

type Word = vrdma_abi::zerocopy::little_endian::U16;

/// Returns a request with one SGE, often a long one, within the regions of both sides.
fn meant(input: &mut Input<'_>, objects: &request::Objects<'_>) -> RequestWords {
    let of = |input: &mut Input<'_>, numbers: &[u32]| {
        let at = input.below(numbers.len());
        numbers.get(at).copied().unwrap_or_default()
    };
    let opcode = input.pick(&[WrOpcode::RDMA_WRITE, WrOpcode::SEND, WrOpcode::RDMA_READ, WrOpcode::RECV]);
    let header = WqeHeader {
        opcode: opcode.0,
        units: UNITS,
        flags: if input.once_in(2) { flags::SIGNALED } else { 0 }.into(),
        object: of(input, objects.qpns).into(),
        wqe_id: 1.into(),
        sge_count: 1,
        reserved: 0,
        inline_len: 0.into(),
    };
    let mut addr = || (objects.iova + 8 * u64::from(input.byte())).into();
    let (remote_addr, addr) = (addr(), addr());
    let body = RdmaBody { remote_addr, rkey: of(input, objects.peer_keys).into(), imm: 0.into() };
    let length = input.pick(&[objects.length, 2 * objects.length, 16]);
    let sge = Sge { addr, length: length.into(), lkey: of(input, objects.keys).into() };
    let mut words = NO_WORDS;
    let all = [header.as_bytes(), body.as_bytes(), sge.as_bytes()].concat();
    words.as_mut_bytes()[..all.len()].copy_from_slice(&all);
    words
}

/// Returns what a peer sends: MPA, nearly right, or anything.
fn says(input: &mut Input<'_>) -> Vec<u8> {
    let name: &[u8] = if input.once_in(2) { b"MPA ID Rep Frame" } else { b"MPA ID Req Frame" };
    let mut bytes = match input.byte() % 4 {
        // CRCs, the revision of RFC 6581, and its depths.
        0 | 1 => [name, &[0x40, 2, 0, 4, 0, 4, 0, 4]].concat(),
        2 => [name, &[input.byte(), input.byte(), 0, input.byte()], input.bytes(16)].concat(),
        _ => input.bytes(64).to_vec(),
    };
    if input.once_in(8) {
        bytes.truncate(input.below(bytes.len()));
    }
    bytes
}

fn object(number: u32) -> Vec<u8> {
    ObjectReq { object: number.into(), reserved: 0.into() }.as_bytes().to_vec()
}

fn mapped(address: Ipv4Addr) -> [u8; 16] {
    address.to_ipv6_mapped().octets()
}

fn socket() -> Socket {
    nonblocking(Socket::new(Domain::IPV4, Type::STREAM, None).expect("descriptors are left"))
}

/// Makes a socket nonblocking. It ends by a RST, and leaves no state on the host.
fn nonblocking(socket: Socket) -> Socket {
    socket.set_nonblocking(true).expect("an option of sockets");
    socket.set_linger(Some(Duration::ZERO)).expect("an option of sockets");
    socket
}

thread_local! {
    /// Ports that were free when the fuzzer began.
    static PORTS_IN_USE: [u16; PORTS] = {
        let sockets = [(); PORTS].map(|()| {
            let socket = socket();
            socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into()).expect("ports are left");
            socket
        });
        sockets.map(|socket| socket.local_addr().ok().and_then(|at| at.as_socket()).expect("it is bound").port())
    };
}
