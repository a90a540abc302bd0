//! Messages of both hosts, and checks of memory afterwards.

use super::host::{Host, IOVA, OWNER, PART};
use crate::rng::Rng;
use vrdma_transport::*;
use vrdma_wire::num::{Imm, Lkey, Rkey};

/// The operation of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Send,
    Write,
    WriteImm,
    Read,
    Add,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    kind: Kind,
    /// The offset in the memory of the sender, or for a READ in that of the responder.
    from: usize,
    to: usize,
    length: usize,
}

/// The messages of one host.
#[derive(Debug, Default)]
struct Side {
    messages: Vec<Message>,
    posted: usize,
    sent: usize,
    /// The receives for messages of the peer: how many were posted, and how many were consumed.
    receives: usize,
    received: usize,
    adds: u64,
}

/// The lengths of messages.
#[derive(Clone, Copy, Debug)]
pub enum Lengths {
    /// Each length in bytes is as likely as its double.
    Any,
    /// Several segments each.
    Long,
}

/// All messages.
#[derive(Debug)]
pub struct Traffic([Side; 2]);

const WRITES: usize = PART;
const SENDS: usize = 2 * PART;
const READS: usize = 3 * PART;
/// The word that atomics add to: the last of the part of WRITEs.
const WORD: usize = 2 * PART - 8;
/// Where atomics return the former value.
const FOUND: usize = 4 * PART - 8;
/// Maximum bytes of a message.
const LONGEST: u64 = 24_000;
/// Maximum number of pending requests.
const DEPTH: usize = 24;

impl Traffic {
    /// Makes this many messages of each host, and clears the results of earlier ones.
    pub fn new(hosts: &[Host; 2], count: usize, lengths: Lengths, rng: &mut Rng) -> Traffic {
        assert_eq!(hosts[0].memory.len(), 4 * PART);
        hosts.iter().for_each(|host| host.memory.write(PART as u64, &vec![0; 3 * PART]).unwrap());
        Traffic([Side::new(count, lengths, rng), Side::new(count, lengths, rng)])
    }

    /// Returns the bytes of all messages.
    pub fn bytes(&self) -> u64 {
        self.0.iter().flat_map(|side| &side.messages).map(|message| message.length as u64).sum()
    }

    pub fn is_posted(&self) -> bool {
        self.0.iter().all(|side| side.posted == side.messages.len())
    }

    pub fn is_over(&self) -> bool {
        let [a, b] = &self.0;
        [(a, b), (b, a)]
            .iter()
            .all(|(own, peer)| own.sent == own.messages.len() && peer.received == own.consuming().count())
    }

    /// Posts the next requests, and checks completions.
    pub fn go_on(&mut self, hosts: &mut [Host; 2], rng: &mut Rng) {
        if !hosts.iter().all(Host::is_connected) || self.0.iter().all(|side| side.posted == 0) {
            // At least the receives must exist when a message arrives.
            for (at, host) in hosts.iter_mut().enumerate() {
                let peers = self.0[1 - at].consuming().collect();
                post_receives(host, &mut self.0[at], peers, rng);
            }
        }
        if !hosts.iter().all(Host::is_connected) {
            return;
        }
        for at in 0..2 {
            let [own_keys, peers_keys] = [hosts[at].key, hosts[1 - at].key];
            let side = &mut self.0[at];
            while side.posted < side.messages.len() && side.posted - side.sent < DEPTH && !rng.one_in(4) {
                post(&mut hosts[at], side.messages[side.posted], side.posted as u32, (own_keys, peers_keys));
                side.posted += 1;
            }
            let peers: Vec<Message> = self.0[1 - at].consuming().collect();
            let side = &mut self.0[at];
            assert!(hosts[at].log.events.is_empty(), "{:?}", hosts[at].log.events);
            for (_, _, completion) in hosts[at].log.completions.drain(..) {
                assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
                let number = completion.id as usize;
                match completion.opcode {
                    WcOpcode::Recv | WcOpcode::RecvWriteImm => {
                        assert_eq!(number, side.received, "receives end in order");
                        let message = peers[number];
                        assert_eq!(completion.byte_len as usize, message.length, "{message:?}");
                        let is_imm = message.kind == Kind::WriteImm;
                        assert_eq!(completion.imm.is_some(), is_imm);
                        side.received += 1;
                    }
                    _ => {
                        assert_eq!(number, side.sent, "requests end in order");
                        side.sent += 1;
                    }
                }
            }
        }
    }

    /// Checks that memory is as if everything had happened in order.
    pub fn check(&self, hosts: &[Host; 2], seed: u64) {
        assert!(self.is_over(), "seed {seed} came to rest too early: {self:?}");
        for at in 0..2 {
            let (own, peer) = (&hosts[at], &hosts[1 - at]);
            for message in &self.0[at].messages {
                let Message { kind, from, to, length } = *message;
                let (source, target) = if kind == Kind::Read { (peer, own) } else { (own, peer) };
                if kind != Kind::Add {
                    let same = source.memory.bytes(from, length) == target.memory.bytes(to, length);
                    assert!(same, "seed {seed}, host {at}: {message:?}");
                }
            }
            let word = peer.memory.bytes(WORD, 8).try_into().expect("8 bytes");
            assert_eq!(u64::from_ne_bytes(word), self.0[at].adds, "seed {seed}: atomics of host {at}");
        }
    }
}

impl Side {
    fn new(count: usize, lengths: Lengths, rng: &mut Rng) -> Side {
        let mut side = Side::default();
        let mut next = [WRITES, SENDS, READS];
        for number in 0..count {
            let kind = rng.pick(&[Kind::Send, Kind::Write, Kind::WriteImm, Kind::Read, Kind::Add]);
            let length = match (kind, lengths) {
                (Kind::Add, _) => 8,
                (_, Lengths::Any) => rng.length(LONGEST) as usize,
                (_, Lengths::Long) => rng.range(LONGEST / 2..=LONGEST) as usize,
            };
            let from = rng.index(PART - length);
            let place = match kind {
                Kind::Write | Kind::WriteImm => &mut next[0],
                Kind::Send => &mut next[1],
                Kind::Read => &mut next[2],
                Kind::Add => &mut { WORD },
            };
            let to = *place;
            *place += length;
            if kind == Kind::Add {
                side.adds += number as u64;
            }
            side.messages.push(Message { kind, from, to, length });
        }
        side
    }

    /// Returns the messages that consume a receive.
    fn consuming(&self) -> impl Iterator<Item = Message> {
        self.messages.iter().copied().filter(|m| matches!(m.kind, Kind::Send | Kind::WriteImm))
    }
}

fn sge(at: usize, length: usize, key: u32) -> Sge {
    Sge { addr: IOVA + at as u64, length: length as u32, lkey: Lkey(key) }
}

/// Posts receives for all messages of the peer that consume one.
///
/// All are posted at once, or those from one on when the engine asks.
fn post_receives(host: &mut Host, side: &mut Side, peers: Vec<Message>, rng: &mut Rng) {
    let at_once = if rng.one_in(3) { rng.index(peers.len() + 1) } else { usize::MAX };
    for message in &peers[side.receives..] {
        // In two SGEs.
        let (half, key) = (message.length / 3, host.key);
        let sges = match message.kind {
            Kind::Send => {
                vec![sge(message.to, half, key), sge(message.to + half, message.length - half, key)]
            }
            _ => vec![],
        };
        let id = side.receives as u32;
        side.receives += 1;
        if side.receives > at_once {
            host.later.push_back((id, sges));
            continue;
        }
        host.post_recv(0, id, &sges);
    }
}

fn post(host: &mut Host, message: Message, id: u32, (own, peers): (u32, u32)) {
    let Message { kind, from, to, length } = message;
    let remote = |at: usize| Remote { addr: IOVA + at as u64, rkey: Rkey(peers) };
    let local = |at: usize| [sge(at, length / 2, own), sge(at + length / 2, length - length / 2, own)];
    let (op, sges) = match kind {
        Kind::Send => (SendOp::Send { imm: None }, local(from)),
        Kind::Write => (SendOp::Write { remote: remote(to), imm: None }, local(from)),
        Kind::WriteImm => {
            let imm = Some(Imm::from_bytes(id.to_be_bytes()));
            (SendOp::Write { remote: remote(to), imm }, local(from))
        }
        Kind::Read => (SendOp::Read { remote: remote(from) }, local(to)),
        Kind::Add => (SendOp::atomic(remote(WORD), Atomic::FetchAdd { add: id.into() }), local(FOUND)),
    };
    let payload = Payload::Sges(&sges);
    let request = SendRequest { id, signaled: true, solicited: false, fence: false, op, payload };
    host.engine.post_send(Instant(0), host.device, OWNER, host.qpn, &request, &mut host.log).unwrap();
}
