//! A guest kernel, with its VMM, that does anything at all.
//!
//! It writes garbage into every ring and page, and sends commands and requests made of garbage. Its
//! queues start and stop at any index, and its memory comes and goes. Two other guests play
//! ping-pong meanwhile.
//!
//! Shows: hostile-guest.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vrdma_tests::abi::control::{ReqHeader, Run};
use vrdma_tests::abi::zerocopy::IntoBytes;
use vrdma_tests::control::run;
use vrdma_tests::memory::{PAGE, Region};
use vrdma_tests::pingpong::{Canary, PingPong};
use vrdma_tests::ring::Ring;
use vrdma_tests::side::{Side, pair_between};
use vrdma_tests::verbs::{Arm, Data, Request};
use vrdma_tests::{Guest, Lab, LabOptions, QpOptions, Rng, proc, wait};

/// Returns how long the test runs: 5 s, or `VRDMA_SECONDS` seconds.
fn duration() -> Duration {
    let given = std::env::var("VRDMA_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(given.unwrap_or(5.0))
}

/// A guest that does random things.
struct Hostile {
    guest: Arc<Guest>,
    rng: Rng,
    /// Address at which requests of commands are written.
    scratch: u64,
    /// Numbers that mean something to the device.
    numbers: Vec<u32>,
}

impl Hostile {
    /// Returns an address, mostly of guest memory.
    fn address(&mut self) -> u64 {
        if self.rng.one_in(20) {
            return self.rng.nasty();
        }
        let region = *self.rng.pick(self.guest.memory.regions());
        // Memory in use is at the beginning of each region.
        region.gpa + self.rng.below(region.len.min(4 << 20))
    }

    fn number(&mut self) -> u32 {
        if self.rng.one_in(5) { self.rng.nasty() as u32 } else { *self.rng.pick(&self.numbers) }
    }

    fn ring(&mut self) -> (usize, Ring) {
        // The control queue and the first channels are the most interesting ones.
        let all = self.guest.queues.len() as u64;
        let end = if self.rng.one_in(4) { all } else { 6 };
        let index = self.rng.below(end) as usize;
        (index, self.guest.queues[index].ring.clone())
    }

    fn kick(&mut self, index: usize) {
        let _ = self.guest.queues[index].kick.write(1);
    }

    /// Does something random. Returns false if the daemon has closed the connection.
    fn act(&mut self) -> bool {
        match self.rng.below(16) {
            0..4 => self.scribble(),
            4..8 => self.command(),
            8..11 => self.requests(),
            11 => self.chain(),
            12 => self.indices(),
            13 => {
                let index = self.ring().0;
                self.kick(index);
            }
            14 if self.rng.one_in(10) => return self.start_and_stop(),
            15 if self.rng.one_in(10) => self.change_memory(),
            _ => {}
        }
        true
    }

    /// Writes random bytes into a ring or anywhere else.
    fn scribble(&mut self) {
        let ring = self.ring().1;
        let (start, len) = match self.rng.below(4) {
            0 => (ring.desc, 16 * u64::from(ring.size)),
            1 => (ring.avail, 6 + 2 * u64::from(ring.size)),
            2 => (ring.used, 6 + 8 * u64::from(ring.size)),
            _ => (self.address() & !(PAGE - 1), PAGE),
        };
        let offset = self.rng.below(len);
        let at = start.wrapping_add(offset);
        let count = 1 + self.rng.below((len - offset).min(64));
        let bytes = self.rng.bytes(count as usize);
        if self.guest.memory.try_host(at, count).is_some() {
            self.guest.memory.write(at, &bytes);
        }
    }

    /// Posts a control command with a known opcode and plausible numbers, after those already
    /// queued.
    fn command(&mut self) {
        let ring = self.guest.queues[0].ring.clone();
        let runs: Vec<Run> = (0..self.rng.below(4))
            .map(|_| {
                let len = if self.rng.one_in(8) { self.rng.nasty() } else { self.rng.below(1 << 18) };
                run(self.address() & !63, len)
            })
            .collect();
        let header = ReqHeader {
            opcode: (self.rng.below(50) as u16).into(),
            reserved: 0.into(),
            num_runs: (runs.len() as u32).into(),
            cookie: 0.into(),
        };
        let words = *self.rng.pick(&[0, 2, 2, 2, 4, 4, 6, 12, 22]);
        let body: Vec<u32> = (0..words).map(|_| self.number()).collect();
        let request = [header.as_bytes(), body.as_bytes(), runs.as_bytes()].concat();
        let slot = self.scratch + self.rng.below(16) * 512;
        self.guest.memory.write(slot, &request);
        let reply = if self.rng.one_in(10) { self.address() } else { slot + 256 };
        let first = self.rng.below(u64::from(ring.size) - 1) as u16;
        ring.set_desc(first, slot, request.len() as u32, 1, first + 1);
        ring.set_desc(first + 1, reply, 256, 2, 0);
        ring.set_avail_entry(ring.avail_idx(), first);
        ring.set_avail_idx(ring.avail_idx().wrapping_add(1));
        self.kick(0);
    }

    /// Posts requests with plausible numbers in a channel.
    fn requests(&mut self) {
        let index = usize::from(self.guest.first_channel()) + self.rng.below(3) as usize;
        let ring = self.guest.queues[index].ring.clone();
        for _ in 0..self.rng.below(10) {
            let next = ring.avail_idx();
            let slot = self.rng.below(ring.size.into()) as u16;
            // At the address in its descriptor, if that is in memory.
            let desc = ring.desc + 16 * u64::from(slot);
            let at = u64::from_le(self.guest.memory.word64(desc).load(Ordering::Relaxed));
            let opcode = if self.rng.one_in(3) { 128 } else { self.rng.below(8) };
            let words = [
                opcode | 1 << 8 | self.rng.below(16) << 16 | u64::from(self.number()) << 32,
                self.rng.next_u64() & 0xffff_ffff | self.rng.below(3) << 32,
                self.address(),
                self.number().into(),
                self.address(),
                self.rng.below(5000) | u64::from(self.number()) << 32,
            ];
            if self.guest.memory.try_host(at, 64).is_some() {
                self.guest.memory.write(at, words.as_bytes());
            }
            ring.set_avail_entry(next, slot);
            ring.set_avail_idx(next.wrapping_add(1));
        }
        self.kick(index);
    }

    /// Writes a random chain of descriptors.
    fn chain(&mut self) {
        let (index, ring) = self.ring();
        for _ in 0..1 + self.rng.below(6) {
            let at = self.rng.below(ring.size.into()) as u16;
            let len = if self.rng.one_in(4) { self.rng.nasty() as u32 } else { self.rng.below(4096) as u32 };
            let (flags, next) = (self.rng.below(8) as u16, self.rng.below(u64::from(ring.size) + 2) as u16);
            ring.set_desc(at, self.address(), len, flags, next);
            ring.set_avail_entry(ring.avail_idx(), at);
        }
        ring.set_avail_idx(ring.avail_idx().wrapping_add(1));
        self.kick(index);
    }

    fn indices(&mut self) {
        let (index, ring) = self.ring();
        let step = if self.rng.one_in(2) { self.rng.below(64) as u16 } else { self.rng.next_u64() as u16 };
        match self.rng.below(4) {
            0 => ring.set_avail_idx(ring.avail_idx().wrapping_add(step)),
            1 => ring.set_used_event(step),
            2 => ring.set_avail_flags(step),
            _ => ring.set_avail_idx(step),
        }
        self.kick(index);
    }

    /// Stops and starts a virtqueue. Returns false if the daemon refused and closed the connection.
    fn start_and_stop(&mut self) -> bool {
        let index = self.rng.below(self.guest.queues.len() as u64) as u16;
        let mut front_end = self.guest.front_end();
        let base = front_end.stop(index).expect("a queue can always be stopped");
        let base = match self.rng.below(3) {
            0 => 0,
            1 => base,
            _ => self.rng.next_u64() as u16,
        };
        // The ring may be in memory that is missing.
        front_end.start(index, &self.guest.queues[usize::from(index)], base).is_ok()
    }

    fn change_memory(&mut self) {
        let all = self.guest.memory.regions();
        let left: Vec<Region> = all.iter().copied().filter(|_| !self.rng.one_in(3)).collect();
        let left = if left.is_empty() { all.to_vec() } else { left };
        self.guest
            .front_end()
            .set_memory(&self.guest.memory, &left)
            .expect("regions of a memory that exists");
    }
}

/// Connects the hostile guest with another guest, and starts work between them.
fn begin(hostile: &mut Hostile, other: &Arc<Guest>) -> Side {
    let options = QpOptions { timeout: 4, retry_cnt: 1, rnr_retry: 1, ..QpOptions::default() };
    let (mut a, mut b) = pair_between(&hostile.guest, other, 64 << 10, &options);
    (0..8).for_each(|id| {
        a.recv_any(id);
        b.recv_any(id);
    });
    assert_eq!(a.cq.arm(Arm::Next), None);
    for id in 0..4 {
        let own = [a.mr.sge(0, 60_000)];
        a.post(&Request::write(a.qp.tag(id), b.mr.remote(0), Data::Sges(&own)).signaled(true));
        b.post(&Request::send(b.qp.tag(id), Data::Inline(b"hello")).signaled(true));
    }
    hostile.numbers =
        vec![0, 1, 2, 3, a.qp.number, a.mr.key, a.cq.number, a.process.pd, a.process.number, 6, 1 << 20];
    hostile.numbers.extend([b.qp.number, b.mr.key, u32::MAX]);
    b
}

#[test]
fn a_guest_that_does_anything_at_all_harms_nobody_else() {
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")));
    let mut lab = Lab::without_guests(3, LabOptions { program, ..LabOptions::default() });
    lab.guests = vec![lab.connect(1), lab.connect(2)];
    let canaries = [0, 1].map(|i| Canary::new(&lab.guests[i].memory, i as u64));
    let pingpong = PingPong::start(&lab.guests[0], &lab.guests[1]);
    let open = || (proc::descriptors(lab.daemon.pid()), proc::guest_mappings(lab.daemon.pid()));
    let before = open();
    let mut rng = Rng::from_env("a_guest_that_does_anything");
    let (mut lives, mut requests) = (0, 0);
    let spell = wait::Spell::of(duration());
    while spell.lasts_until(lives > 5) {
        let guest = lab.connect(0);
        let scratch = guest.memory.alloc(16 * 512);
        let mut hostile = Hostile { guest, rng: Rng::new(rng.next_u64()), scratch, numbers: vec![] };
        for _ in 0..1 + rng.below(4) {
            let mut b = begin(&mut hostile, &lab.guests[0]);
            let connected = (0..rng.below(4000)).all(|_| hostile.act());
            if connected {
                // The VMM resets the hostile guest.
                let guest = &hostile.guest;
                guest.front_end().set_memory(&guest.memory, guest.memory.regions()).unwrap();
                guest.reset().unwrap();
                assert_eq!(lab.stats().all_objects(0), []);
                guest.set_gid();
            } else {
                lab.expect_nothing_left(0);
            }
            // Whatever happened, the peer gets a completion.
            b.post(&Request::send(b.qp.tag(99), Data::EMPTY).signaled(true));
            wait::until("the end of what was under way", || b.cq.poll().filter(|wc| wc.id() == 99));
            b.close();
            lives += 1;
            if !connected {
                break;
            }
        }
        requests = lab.stats().device(0, "requests");
        if rng.one_in(2) {
            hostile.guest.front_end().disconnect();
        }
        drop(hostile);
        lab.expect_nothing_left(0);
    }
    println!("{lives} lives, {requests} requests, {} rounds of ping-pong", pingpong.stop());
    assert!(lives > 5, "only {lives}");
    canaries.iter().for_each(Canary::check);
    let same = wait::within(wait::PATIENCE, || (open().0 <= before.0 && open().1 <= before.1).then_some(()));
    assert!(same.is_some(), "{:?} descriptors and mappings, not {before:?}", open());
    assert!(lab.connect(0).query_device().is_ok());
}
