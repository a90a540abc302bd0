//! A process that writes garbage into everything that it has mapped.
//!
//! It maps its rings, slots, completion queues and doorbell. Its kernel behaves well: it binds a
//! broken channel again, and creates new queues.
//!
//! Shows: hostile-guest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vrdma_tests::abi::control::{QpState, Status};
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::context::BoundChannel;
use vrdma_tests::memory::Memory;
use vrdma_tests::pingpong::{Canary, PingPong};
use vrdma_tests::ring::Ring;
use vrdma_tests::side::Side;
use vrdma_tests::{Context, Cq, Guest, Lab, Mr, Qp, QpOptions, Rng, connect, wait};

/// Returns how long garbage is written: 3 s, or `VRDMA_SECONDS` seconds.
fn duration() -> Duration {
    let given = std::env::var("VRDMA_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(given.unwrap_or(3.0))
}

/// The memory and objects that a process has mapped.
#[derive(Clone)]
struct Mapped {
    memory: Arc<Memory>,
    ring: Ring,
    slots: u64,
    /// Address and length of the CQ: ring and record.
    cq: (u64, u64),
    kick: Arc<vmm_sys_util::eventfd::EventFd>,
    qpns: Vec<u32>,
    mr: Mr,
    remote: Mr,
}

impl Mapped {
    /// Writes some garbage.
    fn spoil(&self, rng: &mut Rng) {
        match rng.below(10) {
            // A plausible ring with plausible requests.
            0..5 => self.plausible(rng),
            5 => self.scribble(rng, self.ring.avail, 6 + 2 * u64::from(self.ring.size)),
            6 => self.scribble(rng, self.ring.used, 6 + 8 * u64::from(self.ring.size)),
            7 => self.scribble(rng, self.slots, 64 * u64::from(self.ring.size)),
            8 => self.scribble(rng, self.cq.0, self.cq.1),
            // The words of the record, which are at the end.
            _ => self.scribble(rng, self.cq.0 + self.cq.1 - 128, 128),
        }
        if rng.one_in(4) {
            let _ = self.kick.write(1);
        }
    }

    /// Writes random bytes somewhere in a range.
    fn scribble(&self, rng: &mut Rng, start: u64, len: u64) {
        let at = rng.below(len);
        let count = 1 + rng.below((len - at).min(64));
        let bytes = rng.bytes(count as usize);
        self.memory.write(start + at, &bytes);
    }

    fn plausible(&self, rng: &mut Rng) {
        let mut index = self.ring.avail_idx();
        for _ in 0..rng.below(20) {
            let slot =
                if rng.one_in(200) { rng.next_u64() as u16 } else { rng.below(self.ring.size.into()) as u16 };
            let units = if rng.one_in(100) { rng.next_u64() as u8 } else { 1 };
            let qpn = if rng.one_in(10) { rng.next_u32() } else { *rng.pick(&self.qpns) };
            let opcode = if rng.one_in(3) { 128 } else { rng.below(7) };
            let words = [
                opcode | u64::from(units) << 8 | rng.below(16) << 16 | u64::from(qpn) << 32,
                rng.next_u64() & 0xffff_ffff | 1 << 32,
                self.remote.iova + rng.below(self.remote.len),
                self.remote.key.into(),
                self.mr.iova + rng.below(self.mr.len),
                rng.below(5000) | u64::from(self.mr.key) << 32,
            ];
            let at = self.slots + 64 * u64::from(slot % self.ring.size);
            for (i, word) in words.iter().enumerate() {
                self.memory.word64(at + 8 * i as u64).store(word.to_le(), Ordering::Relaxed);
            }
            self.ring.set_avail_entry(index, slot);
            index = index.wrapping_add(1);
        }
        self.ring.set_avail_idx(index);
    }
}

/// The well-behaved kernel's view of the hostile process.
struct Hostage {
    guest: Arc<Guest>,
    process: Context,
    remote: Side,
    cq: Cq,
    mr: Mr,
    remote_mr: Mr,
    pairs: Vec<(Qp, Qp)>,
    rebound: u32,
    remade: u32,
}

fn options() -> QpOptions {
    QpOptions { timeout: 4, retry_cnt: 1, rnr_retry: 1, ..QpOptions::default() }
}

impl Hostage {
    fn new(lab: &Lab, canaries: &mut [Canary; 2]) -> Hostage {
        let guest = lab.guests[0].clone();
        let process = Context::open(&guest).unwrap();
        canaries[0].extend(1);
        let (cq, mr) = (process.cq(64), process.mr(30_000));
        canaries[0].extend(2);
        let remote = Side::new(&lab.guests[1], 4096, &options());
        canaries[1].extend(3);
        let remote_mr = remote.process.mr(30_000);
        canaries[1].extend(4);
        let mut hostage =
            Hostage { guest, process, remote, cq, mr, remote_mr, pairs: Vec::new(), rebound: 0, remade: 0 };
        hostage.make_qps();
        hostage
    }

    fn make_qps(&mut self) {
        for _ in 0..4 {
            let own = self.process.qp(&self.cq, &self.cq, &options());
            let remote = self.remote.process.qp(&self.remote.cq, &self.remote.cq, &options());
            connect(&own, &remote);
            self.pairs.push((own, remote));
        }
    }

    fn mapped(&self) -> Mapped {
        let channel = &self.process.channel;
        let queue = &self.guest.queues[usize::from(channel.queue)];
        Mapped {
            memory: self.guest.memory.clone(),
            ring: channel.ring.clone(),
            slots: channel.slots,
            cq: (self.cq.gpa, u64::from(self.cq.entries()) * 32 + 128),
            kick: queue.kick.clone(),
            qpns: self.pairs.iter().map(|pair| pair.0.number).collect(),
            mr: self.mr.clone(),
            remote: self.remote_mr.clone(),
        }
    }

    /// Repairs what broke. The process does not run meanwhile.
    fn mend(&mut self) {
        let mut lost_cq = false;
        let mut broken = false;
        while let Some(told) = self.guest.async_events().recv_within(Duration::ZERO) {
            match told.kind {
                EventKind::CHANNEL_ERR => broken = true,
                EventKind::CQ_ERR => lost_cq = true,
                EventKind::QP_FATAL | EventKind::QP_ACCESS_ERR | EventKind::QP_REQ_ERR => {}
                kind => panic!("an event {kind:?}"),
            }
        }
        if broken {
            self.rebound += 1;
            self.guest.unbind_channel(self.process.channel.queue).unwrap();
            let slots = self.process.channel.slots;
            let number = self.process.number;
            self.process.channel =
                BoundChannel::bind(&self.guest, number, self.process.channel.queue).unwrap();
            self.guest.memory.free(slots, 64 * u64::from(self.process.channel.ring.size));
        }
        while self.remote.cq.poll().is_some() {}
        if lost_cq
            || self
                .pairs
                .iter()
                .any(|(own, remote)| own.state() != QpState::RTS || remote.state() != QpState::RTS)
        {
            self.remade += 1;
            for (own, remote) in self.pairs.drain(..) {
                own.destroy().unwrap();
                remote.destroy().unwrap();
            }
            let fresh = self.process.cq(64);
            std::mem::replace(&mut self.cq, fresh).destroy().unwrap();
            self.make_qps();
        }
        // The remote side can receive some messages.
        for (_, remote) in &self.pairs {
            let sge = [self.remote_mr.sge(0, 4096)];
            self.remote.process.post(&vrdma_tests::verbs::Request::recv(remote.tag(1), &sge));
        }
    }

    /// Destroys all objects, as the kernel does when the process is killed.
    fn bury(self) {
        for (own, remote) in &self.pairs {
            own.destroy().unwrap();
            remote.destroy().unwrap();
        }
        self.mr.deregister().unwrap();
        self.cq.destroy().unwrap();
        self.process.close().unwrap();
        self.remote_mr.deregister().unwrap();
        self.remote.close();
    }
}

#[test]
fn garbage_in_all_that_a_process_has_mapped_harms_nobody_else() {
    let lab = Lab::new(3);
    let mut rng = Rng::from_env("garbage_in_all_that_a_process_has_mapped");
    let mut canaries = [0, 1].map(|i| Canary::new(&lab.guests[i].memory, i as u64));
    // One ping-pong with a process of the same guest, and one between other guests.
    let pingpongs =
        [PingPong::start(&lab.guests[0], &lab.guests[2]), PingPong::start(&lab.guests[1], &lab.guests[2])];
    let before = lab.stats().all_objects(0);
    let mut hostage = Hostage::new(&lab, &mut canaries);
    let spell = wait::Spell::of(duration());
    let enough = |hostage: &Hostage| hostage.rebound > 5 && hostage.remade > 5;
    while spell.lasts_until(enough(&hostage)) {
        let mapped = hostage.mapped();
        let run = AtomicBool::new(true);
        let seed = rng.next_u64();
        std::thread::scope(|scope| {
            let process = scope.spawn(|| {
                let mut rng = Rng::new(seed);
                while run.load(Ordering::Relaxed) {
                    mapped.spoil(&mut rng);
                }
            });
            wait::pause(
                Duration::from_millis(5),
                "how long garbage is written; it goes on until enough broke",
            );
            run.store(false, Ordering::Relaxed);
            process.join().unwrap();
        });
        hostage.mend();
    }
    let (enough, rebound, remade) = (enough(&hostage), hostage.rebound, hostage.remade);
    hostage.bury();
    for pingpong in pingpongs {
        println!("{} rounds of ping-pong", pingpong.stop());
    }
    let stats = lab.stats();
    println!(
        "channel bound again {rebound} times, QPs made anew {remade} times, {} requests",
        stats.device(0, "requests")
    );
    assert!(enough, "hardly anything broke: {rebound}, {remade}");
    canaries.iter().for_each(Canary::check);
    let left: Vec<_> = stats.all_objects(0);
    assert!(left.len() <= before.len(), "left: {left:?}, before: {before:?}");
    assert_eq!(stats.objects(0, "pending_requests"), 0);
}

/// Breaks a channel in each possible way on purpose, and asserts that the device notices.
#[test]
fn each_way_to_break_a_channel_is_noticed() {
    type Break = fn(&Mapped);
    let ways: [(&str, Break); 6] = [
        ("index too far ahead", |m| m.ring.set_avail_idx(m.ring.size + 1)),
        ("index behind", |m| m.ring.set_avail_idx(0xffff)),
        ("no such slot", |m| {
            m.ring.set_avail_entry(0, m.ring.size);
            m.ring.set_avail_idx(1);
        }),
        ("no units", |m| m.ring.set_avail_idx(1)),
        ("too many units", |m| {
            m.memory.write(m.slots, &[2, 9]);
            m.ring.set_avail_idx(20);
        }),
        ("a part of a request", |m| {
            m.memory.write(m.slots, &[2, 3]);
            m.ring.set_avail_idx(2);
        }),
    ];
    for (what, spoil) in ways {
        let lab = Lab::new(2);
        let mut canaries = [0, 1].map(|i| Canary::new(&lab.guests[i].memory, i as u64));
        let hostage = Hostage::new(&lab, &mut canaries);
        let other = Context::open(&lab.guests[0]).unwrap();
        let mapped = hostage.mapped();
        spoil(&mapped);
        mapped.kick.write(1).unwrap();
        let told = lab.guests[0].async_events().recv();
        assert_eq!(
            (told.kind, told.object),
            (EventKind::CHANNEL_ERR, hostage.process.channel.queue.into()),
            "{what}"
        );
        // The device takes no more requests until the channel is bound again.
        let used = mapped.ring.used_idx();
        mapped.ring.set_avail_idx(used.wrapping_add(1));
        mapped.kick.write(1).unwrap();
        assert!(lab.guests[0].query_port().is_ok());
        assert_eq!((mapped.ring.used_idx(), lab.stats().device(0, "broken_channels")), (used, 1), "{what}");
        assert!(lab.guests[0].unbind_channel(other.channel.queue).is_ok());
    }
}

/// A process cannot use objects of other processes by guessing their numbers.
#[test]
fn other_processes_objects_are_out_of_reach() {
    use vrdma_tests::verbs::{Data, Request};
    let lab = Lab::new(2);
    let (mut a, b) = vrdma_tests::side::pair(&lab, 1, 4096, &QpOptions::default());
    let mut thief = Side::new(&lab.guests[0], 4096, &QpOptions::default());
    let remote = b.process.qp(&b.cq, &b.cq, &QpOptions::default());
    connect(&thief.qp, &remote);
    // With another process' QP: the request is dropped and counted.
    thief.post(&Request::write(a.qp.tag(1), b.mr.remote(0), Data::Inline(b"stolen")).signaled(true));
    thief.process.channel.drain();
    assert_eq!(lab.stats().device(0, "stray_requests"), 1);
    // With its own QP and another process' key: the request is refused.
    let foreign = [a.mr.sge(0, 8)];
    thief.post(&Request::write(thief.qp.tag(2), b.mr.remote(0), Data::Sges(&foreign)));
    thief.cq.expect(thief.qp.number, 2, vrdma_tests::abi::cqe::WcStatus::LOC_PROT_ERR);
    // The victim notices nothing.
    assert_eq!((b.mr.get(0, 6), a.qp.state()), (vec![0; 6], QpState::RTS));
    a.post(&Request::write(a.qp.tag(3), b.mr.remote(0), Data::Inline(b"honest")).signaled(true));
    a.cq.expect_success();
    assert_eq!(b.mr.get(0, 6), b"honest");
    assert_eq!(lab.guests[0].destroy_cq(0xffff), Err(Status::NOT_FOUND));
}
