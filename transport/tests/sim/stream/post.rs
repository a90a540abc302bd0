//! The requests of a stream, which the model executes when they are posted.

use super::{Expected, Landing, Posted, Stream};
use crate::journal::Place;
use crate::world::World;
use vrdma_transport::*;
use vrdma_wire::num::{Imm, Lkey, Rkey};

impl Stream {
    /// Reserves `length` bytes of the landing area for the next request, 8-byte aligned for
    /// atomics.
    pub(super) fn land(&mut self, length: u64) -> Option<u64> {
        let size = self.landing.memory.len() as u64;
        while self.places.front().is_some_and(|p| p.last_user < self.ended) {
            self.places.pop_front();
        }
        let rounded = (length.max(1) + 7) & !7;
        let mut start = self.land_at;
        if start + rounded > size {
            start = 0;
        }
        let free = |p: &Landing| p.end <= start || start + rounded <= p.start;
        if !self.places.iter().all(free) {
            return None;
        }
        self.land_at = start + rounded;
        let request = self.posted.len();
        self.places.push_back(Landing { start, end: start + rounded, request, last_user: request });
        Some(start)
    }

    /// Returns SGEs of the source with this total length, and their bytes.
    pub(super) fn gather(&mut self, length: u64) -> (Vec<Sge>, Vec<u8>) {
        let (mut sges, mut bytes, mut left) = (Vec::new(), Vec::with_capacity(length as usize), length);
        let size = self.source.memory.len() as u64;
        while left > 0 {
            let piece = if sges.len() < 3 && self.rng.one_in(2) { self.rng.range(1..=left) } else { left };
            let at = self.rng.range(0..=size - piece);
            sges.push(self.source.sge(at, piece));
            self.source.memory.with(|s| bytes.extend_from_slice(&s[at as usize..(at + piece) as usize]));
            left -= piece;
        }
        if sges.is_empty() && self.rng.one_in(2) {
            sges.push(Sge { addr: 0, length: 0, lkey: Lkey(1) });
        }
        (sges, bytes)
    }

    /// Posts one request, and executes it in the model. Returns false if its results have no room
    /// at present.
    pub(super) fn post(&mut self, world: &mut World) -> bool {
        let last =
            self.posted.len() as u64 + 1 >= u64::from(self.shape.requests) && self.bytes >= self.shape.bytes;
        if last && self.shape.poison {
            self.post_poison(world);
            return true;
        }
        if !self.shape.one_way
            && self.rng.one_in(6)
            && let Some((op, opcode, role)) = self.change_own_window()
        {
            self.bytes += 1;
            let (receives, fence) = (self.consuming, self.rng.one_in(4));
            if fence {
                self.unfenced.clear();
            }
            let role = Some(role);
            self.posted.push(Posted {
                opcode,
                signaled: true,
                lands: None,
                changes: None,
                stores: None,
                receives,
                fails: None,
                role,
            });
            self.post_request(world, op, Payload::Sges(&[]), (true, false, fence));
            return true;
        }
        let length = self.rng.length(self.shape.longest);
        let mut imm = self.rng.one_in(2).then(|| Imm::from_bytes((self.rng.next() as u32).to_be_bytes()));
        let solicited = self.rng.one_in(4);
        let mut fence = self.rng.one_in(8);
        let mut expected = None;
        let mut lands = None;
        let mut changes = None;
        let mut role = None;
        let mut invalidates = None;
        let (op, opcode, sges, bytes);
        let choice = match self.rng.range(0..=11) {
            9 if self.is_plain => 3,
            10 if self.is_plain => 8,
            choice if self.shape.one_way => choice % 6,
            choice => choice,
        };
        match choice {
            0..=2 => {
                (sges, bytes) = self.gather(length);
                if self.rng.one_in(4) {
                    invalidates = self.give_up_window();
                }
                op = match invalidates {
                    // READs by this window may still be in progress.
                    Some(key) => {
                        (imm, fence) = (None, true);
                        SendOp::SendInvalidate { key }
                    }
                    None => SendOp::Send { imm },
                };
                opcode = WcOpcode::Send;
                expected = Some((WcOpcode::Recv, bytes.clone()));
            }
            3..=5 => {
                let reach = self.reach(Access::REMOTE_WRITE, length, 1);
                let range = reach.range;
                role = reach.role;
                (sges, bytes) = self.gather(range.end - range.start);
                (op, opcode) = (SendOp::Write { remote: reach.remote, imm }, WcOpcode::Write);
                self.shadow[range.start as usize..range.end as usize].copy_from_slice(&bytes);
                expected = imm.map(|_| (WcOpcode::RecvWriteImm, Vec::new()));
                changes = Some(range);
            }
            6..=7 => {
                let Some(at) = self.land(length) else { return false };
                let reach = self.reach(Access::REMOTE_READ, length, 1);
                let range = reach.range;
                role = reach.role;
                (op, opcode) = (SendOp::Read { remote: reach.remote }, WcOpcode::Read);
                sges = self.landing.elements(&mut self.rng, at, range.end - range.start);
                bytes = Vec::new();
                let data = self.shadow[range.start as usize..range.end as usize].to_vec();
                lands = Some((at, data));
                if fence {
                    self.unfenced.clear();
                }
                self.unfenced.push(range);
            }
            8 => {
                let Some(at) = self.land(8) else { return false };
                let reach = self.reach(Access::REMOTE_ATOMIC, 8, 8);
                let (remote, word) = (reach.remote, reach.range.start);
                role = reach.role;
                let here = word as usize..word as usize + 8;
                let before = self.shadow[here.clone()].to_vec();
                let value = u64::from_ne_bytes(before.clone().try_into().unwrap());
                let after = if self.rng.one_in(2) {
                    let add = self.rng.next();
                    (op, opcode) = (SendOp::atomic(remote, Atomic::FetchAdd { add }), WcOpcode::FetchAdd);
                    value.wrapping_add(add)
                } else {
                    let swap = self.rng.next();
                    let compare = if self.rng.one_in(2) { value } else { self.rng.next() };
                    (op, opcode) = (
                        SendOp::atomic(remote, Atomic::CompareSwap { compare, swap }),
                        WcOpcode::CompareSwap,
                    );
                    if compare == value { swap } else { value }
                };
                self.shadow[here].copy_from_slice(&after.to_ne_bytes());
                sges = vec![self.landing.sge(at, 8)];
                bytes = Vec::new();
                lands = Some((at, before));
                changes = Some(word..word + 8);
            }
            9 => {
                (sges, bytes) = self.gather(8);
                let reach = self.reach(Access::REMOTE_WRITE, 8, 8);
                let (remote, word) = (reach.remote, reach.range.start);
                role = reach.role;
                (op, opcode) = (SendOp::AtomicWrite { remote }, WcOpcode::AtomicWrite);
                self.shadow[word as usize..word as usize + 8].copy_from_slice(&bytes);
                changes = Some(word..word + 8);
            }
            10 => {
                let at = self.rng.range(0..=self.shape.window);
                let length = self.rng.range(0..=self.shape.window - at) as u32;
                let whole = self.rng.one_in(4);
                let scope = FlushScope { placement: Placement::Global, whole, length };
                (op, opcode) = (SendOp::Flush { remote: self.target.remote(at), scope }, WcOpcode::Flush);
                (sges, bytes) = (Vec::new(), Vec::new());
            }
            _ => {
                // Sends back what the READ before it fetches. Only a fence makes this correct.
                let last = self.posted.len().checked_sub(1);
                let found = last.and_then(|request| {
                    let place = self.places.iter_mut().find(|p| p.request == request)?;
                    let (at, data) = self.posted[request].lands.clone()?;
                    place.last_user = request + 1;
                    Some((at, data))
                });
                let Some((at, data)) = found else { return true };
                fence = true;
                sges = self.landing.elements(&mut self.rng, at, data.len() as u64);
                (op, opcode) = (SendOp::Send { imm }, WcOpcode::Send);
                bytes = data.clone();
                expected = Some((WcOpcode::Recv, data));
            }
        }
        if let Some(range) = &changes
            && self.unfenced.iter().any(|r| r.start < range.end && range.start < r.end)
        {
            fence = true;
        }
        if fence && !matches!(op, SendOp::Read { .. }) {
            self.unfenced.clear();
        }
        let length =
            if lands.is_some() { lands.as_ref().map_or(0, |l| l.1.len()) } else { bytes.len() } as u64;
        self.bytes += length.max(1);
        let mut stores = changes.clone().map(|range| (Place::Target, range));
        if let Some((opcode, bytes)) = expected {
            if opcode == WcOpcode::Recv {
                let at = self.consuming % u64::from(self.shape.receives) * self.slot;
                stores = Some((Place::Slots, at..at + length));
            }
            self.consuming += 1;
            let solicited = solicited && (opcode == WcOpcode::Recv || imm.is_some());
            self.expected.push_back(Expected {
                opcode,
                bytes,
                length,
                imm,
                solicited,
                invalidates,
                fails: None,
            });
        }
        let payload = match lands.is_none() && opcode != WcOpcode::Send && length <= 64 && self.rng.one_in(3)
        {
            true => Payload::Inline(&bytes),
            false => Payload::Sges(&sges),
        };
        let signaled = self.must_signal() || self.rng.one_in(self.shape.signal_every);
        let receives = self.consuming;
        self.posted.push(Posted { opcode, signaled, lands, changes, stores, receives, fails: None, role });
        self.post_request(world, op, payload, (signaled, solicited, fence));
        true
    }

    /// Returns whether the next request must be signaled.
    ///
    /// Otherwise the queue could fill with requests whose end is not reported.
    pub(super) fn must_signal(&self) -> bool {
        let silent = self.posted.iter().rev().take_while(|p| !p.signaled).count();
        let last =
            self.posted.len() as u64 + 1 >= u64::from(self.shape.requests) && self.bytes >= self.shape.bytes;
        last || silent + 1 >= (self.shape.depth as usize).div_ceil(2)
    }

    pub(super) fn post_request(
        &mut self,
        world: &mut World,
        op: SendOp,
        payload: Payload<'_>,
        (signaled, solicited, fence): (bool, bool, bool),
    ) {
        let id = self.posted.len() as u32 - 1;
        if world.verbose {
            eprintln!("{:>12} {}: {id} {op:?} signaled {signaled} fence {fence}", world.now.0, self.name);
        }
        let request = SendRequest { id, signaled, solicited, fence, op, payload };
        let result = world.post_send(self.from, self.qpn, self.srqn, &request);
        assert_eq!(result, Ok(()), "{}: {id}", self.name);
    }

    /// Posts a request that must fail.
    pub(super) fn post_poison(&mut self, world: &mut World) {
        let window = self.shape.window;
        let (op, opcode, status);
        let mut sges = vec![self.source.sge(0, 8)];
        let land = |stream: &Stream| vec![stream.landing.sge(0, 8)];
        let beside = if self.rng.one_in(3) { self.beside_window() } else { None };
        let choice = match self.rng.range(0..=9) {
            7 | 8 if self.is_plain => 0,
            choice => choice,
        };
        match choice {
            _ if beside.is_some() => {
                (op, opcode) = beside.expect("it was looked at");
                status = WcStatus::RemAccess;
            }
            0 => {
                (op, opcode) = (SendOp::Write { remote: self.barred.remote(0), imm: None }, WcOpcode::Write);
                status = WcStatus::RemAccess;
            }
            1 => {
                (op, opcode) =
                    (SendOp::Write { remote: self.target.remote(window - 4), imm: None }, WcOpcode::Write);
                status = WcStatus::RemAccess;
            }
            2 => {
                (op, opcode) = (SendOp::Read { remote: self.barred.remote(0) }, WcOpcode::Read);
                (sges, status) = (land(self), WcStatus::RemAccess);
            }
            3 => {
                let remote = Remote { rkey: Rkey(self.target.key ^ 0x5500), ..self.target.remote(0) };
                (op, opcode) = (SendOp::Read { remote }, WcOpcode::Read);
                (sges, status) = (land(self), WcStatus::RemAccess);
            }
            4 => {
                (op, opcode) =
                    (SendOp::atomic(self.target.remote(4), Atomic::FetchAdd { add: 1 }), WcOpcode::FetchAdd);
                (sges, status) = (land(self), WcStatus::RemInvReq);
            }
            5 => {
                let (compare, swap) = (0, 1);
                let remote = self.barred.remote(0);
                (op, opcode) =
                    (SendOp::atomic(remote, Atomic::CompareSwap { compare, swap }), WcOpcode::CompareSwap);
                (sges, status) = (land(self), WcStatus::RemAccess);
            }
            6 => {
                (op, opcode) = (SendOp::Send { imm: None }, WcOpcode::Send);
                sges[0].lkey = Lkey(self.source.key ^ 0x5500);
                status = WcStatus::LocProt;
            }
            7 => {
                (op, opcode) = (SendOp::AtomicWrite { remote: self.target.remote(4) }, WcOpcode::AtomicWrite);
                status = WcStatus::RemInvReq;
            }
            8 => {
                (op, opcode) = (SendOp::AtomicWrite { remote: self.barred.remote(0) }, WcOpcode::AtomicWrite);
                status = WcStatus::RemAccess;
            }
            _ => {
                // More than the receive holds.
                (op, opcode) = (SendOp::Send { imm: None }, WcOpcode::Send);
                sges = vec![self.source.sge(0, self.shape.longest), self.source.sge(0, 8)];
                status = WcStatus::RemInvReq;
                self.consuming += 1;
                self.expected.push_back(Expected {
                    opcode: WcOpcode::Recv,
                    bytes: Vec::new(),
                    length: 0,
                    imm: None,
                    solicited: false,
                    invalidates: None,
                    fails: Some(WcStatus::LocLen),
                });
            }
        }
        self.bytes += 1;
        let receives = self.consuming;
        let fails = Some(status);
        self.posted.push(Posted {
            opcode,
            signaled: false,
            lands: None,
            changes: None,
            stores: None,
            receives,
            fails,
            role: None,
        });
        self.post_request(world, op, Payload::Sges(&sges), (false, false, false));
    }
}
