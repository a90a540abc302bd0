//! The server of `vr-pingpong` (tests/guest-programs) as a guest without a VM.
//!
//! A VM's process plays ping-pong with it. Standard input and output are the link over which both
//! exchange addresses. `cargo xtask test` forwards that link. `vr-pingpong.c` defines what a turn
//! is, and this file uses the same numbers and patterns.

use crate::pingpong::Canary;
use crate::{Context, Cq, Guest, GuestOptions, Mr, Qp, QpOptions, wait};
use anyhow::{Result, bail, ensure};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};
use vrdma_abi::control::access;
use vrdma_abi::cqe::WcStatus;
use vrdma_verbs::{Data, Remote, Request};

const MAGIC: u32 = 0x7672_706f;
/// Path MTU, as `enum ibv_mtu`: 1024 bytes, which suits the Ethernet of the VMs.
const MTU: u8 = 3;
const GAP: u64 = 64;
const POISON: u8 = 0xc5;
const SLOTS: u64 = 2;
const SENDS: usize = 4;
/// Longest time without any progress.
const STALL: Duration = wait::PATIENCE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exchange {
    Send,
    WriteSend,
    WriteImm,
    ReadSend,
    AddSend,
}

/// Buffers that messages come from and go to, in the order of the C program.
#[derive(Clone, Copy, Debug)]
enum Area {
    Receive,
    Target,
    Landing,
    Source,
    Outgoing,
    Counters,
}
const AREAS: usize = 6;

/// The parameters that each side sends to its peer.
#[derive(Clone, Copy, Debug, Default)]
struct Hello {
    qps: u32,
    size: u32,
    rkeys: [u32; AREAS],
    areas: [u64; AREAS],
}

impl Hello {
    const SIZE: usize = 88;

    fn parse(bytes: &[u8; Self::SIZE]) -> Result<Hello> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        ensure!(word(0) == MAGIC, "the client on the link speaks otherwise");
        Ok(Hello {
            qps: word(4),
            size: word(8),
            rkeys: std::array::from_fn(|i| word(12 + 4 * i)),
            areas: std::array::from_fn(|i| long(40 + 8 * i)),
        })
    }

    fn emit(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            [MAGIC, self.qps, self.size].iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(self.rkeys.iter().flat_map(|key| key.to_le_bytes()));
        bytes.resize(40, 0);
        bytes.extend(self.areas.iter().flat_map(|address| address.to_le_bytes()));
        bytes
    }
}

/// A QP and the state of its exchange, including whose turn it is.
#[derive(Debug)]
struct Conn {
    qp: Qp,
    round: u32,
    ours: bool,
    sent: usize,
    sends_done: usize,
    received: u64,
    receives_done: u64,
    added: u64,
    /// For each outstanding request, the exchange of its READ or atomic.
    reads: [Option<Exchange>; SENDS],
}

struct Peer {
    context: Context,
    cq: Cq,
    mrs: [Mr; AREAS],
    canary: Canary,
    conns: Vec<Conn>,
    theirs: Hello,
    size: u64,
    turns: u64,
}

/// Plays until the client ends the game, and returns the number of turns.
///
/// # Errors
/// The daemon or the client fails.
///
/// # Panics
/// A message arrives changed.
pub fn serve(socket: &Path, gid: [u8; 16]) -> Result<u64> {
    let memory = vec![(0x1000, 32 << 20)];
    let guest = Guest::connect(socket, GuestOptions { memory, ..GuestOptions::default() })?;
    guest.add_gid(0, gid).map_err(|status| anyhow::anyhow!("the GID is refused: {status:?}"))?;
    let theirs = Hello::parse(&receive()?)?;
    let mut peer = Peer::create(&guest, theirs);
    peer.meet(gid)?;
    let end = watch_link();
    let turns = peer.run(&end)?;
    peer.canary.check();
    send(b"D")?;
    Ok(turns)
}

fn send(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

fn receive<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    std::io::stdin().lock().read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads the client's next byte in a thread. The channel closes without a byte if the link ends.
fn watch_link() -> Receiver<u8> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || receive().map(|[byte]| sender.send(byte)));
    receiver
}

fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    let value = (value ^ value >> 27).wrapping_mul(0x81da_def4_bc2d_d44d);
    value ^ value >> 33
}

/// Returns the seed of a turn's payload.
fn seed(from_client: bool, qp: usize, round: u32) -> u64 {
    mix((qp as u64) << 33 | u64::from(from_client) << 32 | u64::from(round))
}

/// Returns the seed of the data that READs find.
fn source_seed(from_client: bool, qp: usize) -> u64 {
    mix(!((qp as u64) << 1 | u64::from(from_client)))
}

fn pattern(seed: u64, len: u64) -> Vec<u8> {
    let word = |index: u64| {
        let word = seed.wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word ^ word >> 29
    };
    (0..len.div_ceil(8)).flat_map(|index| word(index).to_le_bytes()).take(len as usize).collect()
}

fn kind_of(qp: usize, round: u32) -> Exchange {
    match (qp as u32).wrapping_add(round) % 5 {
        0 => Exchange::Send,
        1 => Exchange::WriteSend,
        2 => Exchange::WriteImm,
        3 => Exchange::ReadSend,
        _ => Exchange::AddSend,
    }
}

impl Peer {
    fn create(guest: &std::sync::Arc<Guest>, theirs: Hello) -> Peer {
        let context = Context::open(guest).expect("a context");
        let (qps, size) = (u64::from(theirs.qps), u64::from(theirs.size));
        let cq = context.cq(theirs.qps * 8);
        let mut canary = Canary::new(&guest.memory, 1);
        let one = qps * (size + GAP);
        let lens = [one * SLOTS, one, one, one, one * SLOTS, qps * 16];
        let rights = [
            access::LOCAL_WRITE,
            access::LOCAL_WRITE | access::REMOTE_WRITE,
            access::LOCAL_WRITE,
            access::REMOTE_READ,
            0,
            access::LOCAL_WRITE | access::REMOTE_ATOMIC,
        ];
        let mrs = std::array::from_fn(|area| {
            let mr = context.mr_with(lens[area], rights[area]);
            mr.fill(if area == Area::Counters as usize { 0 } else { POISON });
            canary.extend(2 + area as u64);
            mr
        });
        let options =
            QpOptions { send_wr: 8, recv_wr: 8, rd_atomic: 1, path_mtu: MTU, ..QpOptions::default() };
        let conn = |_| {
            let qp = context.qp(&cq, &cq, &options);
            qp.to_init().expect("INIT");
            Conn {
                qp,
                round: 0,
                ours: false,
                sent: 0,
                sends_done: 0,
                received: 0,
                receives_done: 0,
                added: 0,
                reads: [None; SENDS],
            }
        };
        let conns = (0..theirs.qps).map(conn).collect();
        let mut peer = Peer { context, cq, mrs, canary, conns, theirs, size, turns: 0 };
        for qp in 0..peer.conns.len() {
            let offset = peer.offset(Area::Source, qp, 0);
            peer.mr(Area::Source).put(offset, &pattern(source_seed(false, qp), size));
            (0..SLOTS).for_each(|_| peer.post_receive(qp));
        }
        peer
    }

    fn mr(&self, area: Area) -> &Mr {
        &self.mrs[area as usize]
    }

    fn offset(&self, area: Area, qp: usize, slot: u64) -> u64 {
        let qp = qp as u64;
        match area {
            Area::Receive | Area::Outgoing => (qp * SLOTS + slot % SLOTS) * (self.size + GAP),
            Area::Counters => (qp * 2 + slot) * 8,
            _ => qp * (self.size + GAP),
        }
    }

    fn length_of(&self, qp: usize, round: u32) -> u64 {
        let random = mix((qp as u64) * 1_000_003 + u64::from(round));
        if random.is_multiple_of(4) { self.size } else { 1 + (random >> 8) % self.size }
    }

    fn meet(&mut self, gid: [u8; 16]) -> Result<()> {
        let ours = Hello {
            qps: self.theirs.qps,
            size: self.theirs.size,
            rkeys: std::array::from_fn(|area| self.mrs[area].key),
            areas: std::array::from_fn(|area| self.mrs[area].iova),
        };
        send(&ours.emit())?;
        self.theirs = Hello::parse(&receive()?)?;
        for conn in &self.conns {
            let Qp { number, options, .. } = &conn.qp;
            let words = [*number, options.sq_psn, u32::from(options.path_mtu), 0];
            let mut address = words.map(u32::to_le_bytes).concat();
            address.extend(gid);
            send(&address)?;
        }
        for conn in &self.conns {
            let address: [u8; 32] = receive()?;
            let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| address[at + i]));
            let gid = std::array::from_fn(|i| address[16 + i]);
            conn.qp.to_rtr(gid, word(0), word(4)).expect("RTR");
            conn.qp.to_rts().expect("RTS");
        }
        send(b"B")?;
        ensure!(receive()? == *b"B", "the client does not come to the barrier");
        Ok(())
    }

    fn run(&mut self, end: &Receiver<u8>) -> Result<u64> {
        let mut progress = Instant::now();
        loop {
            for qp in 0..self.conns.len() {
                let conn = &self.conns[qp];
                if conn.ours && conn.sent == conn.sends_done {
                    self.take_turn(qp);
                }
            }
            if let Some(wc) = wait::within(Duration::from_millis(20), || self.cq.poll()) {
                assert_eq!(wc.status(), WcStatus::SUCCESS, "{wc:?}");
                self.complete(&wc);
                progress = Instant::now();
                continue;
            }
            match end.try_recv() {
                Ok(b'D') => return Ok(self.turns),
                Ok(byte) => bail!("the client says {byte} at the end"),
                Err(TryRecvError::Disconnected) => bail!("the client went away"),
                Err(TryRecvError::Empty) => {}
            }
            ensure!(progress.elapsed() < STALL, "no progress for {STALL:?}: {:#?}", self.states());
            self.canary.check();
        }
    }

    /// Describes what each QP waits for.
    fn states(&self) -> Vec<String> {
        let state = |conn: &Conn| {
            let whose = if conn.ours { "ours" } else { "the client's" };
            format!(
                "QP {:#x}: turn {} is {whose}; sends {} of {} done, receives {} of {}",
                conn.qp.number, conn.round, conn.sends_done, conn.sent, conn.receives_done, conn.received
            )
        };
        self.conns.iter().map(state).collect()
    }

    fn post_receive(&mut self, qp: usize) {
        let offset = self.offset(Area::Receive, qp, self.conns[qp].received);
        let sge = [self.mr(Area::Receive).sge(offset, self.size as u32)];
        let conn = &mut self.conns[qp];
        let tag = conn.qp.tag((qp as u32) << 16 | (conn.received & 0xffff) as u32);
        self.context.post(&Request::recv(tag, &sge));
        conn.received += 1;
    }

    fn take_turn(&mut self, qp: usize) {
        let Conn { round, qp: ref pair, sent, .. } = self.conns[qp];
        let (kind, length) = (kind_of(qp, round), self.length_of(qp, round));
        let tag = |index: usize| pair.tag((qp as u32) << 16 | ((sent + index) & 0xffff) as u32);
        let out = self.offset(Area::Outgoing, qp, u64::from(round / 2));
        self.mr(Area::Outgoing).put(out, &pattern(seed(false, qp, round), length));
        let data = [self.mr(Area::Outgoing).sge(out, length as u32)];
        let landing = [self.mr(Area::Landing).sge(self.offset(Area::Landing, qp, 0), length as u32)];
        let old = self.mr(Area::Counters).sge(self.offset(Area::Counters, qp, 1), 8);
        let remote = |area: Area| Remote {
            addr: self.theirs.areas[area as usize] + self.offset(area, qp, 0),
            rkey: self.theirs.rkeys[area as usize],
        };
        let imm = round.to_be_bytes();
        let mut requests = Vec::new();
        match kind {
            Exchange::Send => requests.push(Request::send_imm(tag(0), imm, Data::Sges(&data))),
            Exchange::WriteSend => {
                requests.push(Request::write(tag(0), remote(Area::Target), Data::Sges(&data)));
            }
            Exchange::WriteImm => {
                requests.push(Request::write_imm(tag(0), remote(Area::Target), imm, Data::Sges(&data)));
            }
            Exchange::ReadSend => requests.push(Request::read(tag(0), remote(Area::Source), &landing)),
            Exchange::AddSend => {
                requests.push(Request::fetch_add(tag(0), remote(Area::Counters), length, &old));
            }
        }
        if !matches!(kind, Exchange::Send | Exchange::WriteImm) {
            requests.push(Request::send_imm(tag(1), imm, Data::EMPTY));
        }
        for request in &requests {
            self.context.channel.post(&request.signaled(true));
        }
        let count = requests.len();
        let conn = &mut self.conns[qp];
        for index in 0..count {
            let first = index == 0 && matches!(kind, Exchange::ReadSend | Exchange::AddSend);
            conn.reads[(conn.sent + index) % SENDS] = first.then_some(kind);
        }
        conn.sent += count;
        conn.ours = false;
        conn.round += 1;
    }

    fn complete(&mut self, wc: &crate::cq::Wc) {
        let qp = (wc.id() >> 16) as usize;
        let conn = &mut self.conns[qp];
        assert_eq!(wc.qpn(), conn.qp.number, "{wc:?}");
        let index = u64::from(wc.id() & 0xffff);
        if wc.is_recv() {
            assert_eq!(index, conn.receives_done & 0xffff, "receives complete in order");
            conn.receives_done += 1;
            self.check_receive(qp, wc);
        } else {
            assert_eq!(index, conn.sends_done as u64 & 0xffff, "sends complete in order");
            let read = conn.reads[conn.sends_done % SENDS];
            conn.sends_done += 1;
            assert!(conn.sends_done <= conn.sent, "a completion too many");
            if let Some(kind) = read {
                self.check_read(qp, kind);
            }
        }
    }

    fn check_slot(&self, area: Area, qp: usize, slot: u64, length: u64, seed: u64) {
        let offset = self.offset(area, qp, slot);
        let found = self.mr(area).get(offset, self.size + GAP);
        let (data, beyond) = found.split_at(length as usize);
        assert!(data == pattern(seed, length), "QP {qp}: wrong bytes in {area:?}");
        assert!(beyond.iter().all(|byte| *byte == POISON), "QP {qp}: bytes beyond {length} in {area:?}");
        self.mr(area).put(offset, &vec![POISON; length as usize]);
    }

    fn check_receive(&mut self, qp: usize, wc: &crate::cq::Wc) {
        let Conn { round, ours, receives_done, .. } = self.conns[qp];
        let (kind, length) = (kind_of(qp, round), self.length_of(qp, round));
        assert!(!ours, "QP {qp}: a message out of turn");
        assert_eq!(wc.imm(), Some(round.to_be_bytes()), "QP {qp}, turn {round}");
        let whole = matches!(kind, Exchange::Send | Exchange::WriteImm);
        assert_eq!(u64::from(wc.len()), if whole { length } else { 0 }, "QP {qp}, turn {round}");
        let sent = seed(true, qp, round);
        let in_slot = if kind == Exchange::Send { length } else { 0 };
        self.check_slot(Area::Receive, qp, receives_done - 1, in_slot, sent);
        if matches!(kind, Exchange::WriteSend | Exchange::WriteImm) {
            self.check_slot(Area::Target, qp, 0, length, sent);
        }
        self.post_receive(qp);
        let conn = &mut self.conns[qp];
        conn.ours = true;
        conn.round += 1;
        self.turns += 1;
    }

    fn check_read(&mut self, qp: usize, kind: Exchange) {
        let Conn { round, ours, added, .. } = self.conns[qp];
        // The client's answer can arrive before the completion of the local request.
        let turn = round - if ours { 2 } else { 1 };
        let length = self.length_of(qp, turn);
        if kind == Exchange::ReadSend {
            self.check_slot(Area::Landing, qp, 0, length, source_seed(true, qp));
            return;
        }
        let old = self.mr(Area::Counters).get(self.offset(Area::Counters, qp, 1), 8);
        let old = u64::from_le_bytes(std::array::from_fn(|i| old[i]));
        assert_eq!(old, added, "QP {qp}, turn {turn}: FETCH_ADD");
        self.conns[qp].added += length;
    }
}
