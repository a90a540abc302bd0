//! Guests that break every rule of their Ethernet function. They lose the function, and no other
//! guest loses anything.
//!
//! Shows: hostile-guest.

use std::path::PathBuf;
use std::time::Duration;
use vrdma_backend::config::GuestLimits;
use vrdma_tests::net::{Header, NetGuest, NetOptions, RECEIVE, TRANSMIT, feature, frame, mac};
use vrdma_tests::packets::Packet;
use vrdma_tests::ring::{INDIRECT, NEXT, WRITE};
use vrdma_tests::{Lab, LabOptions, Rng, proc, wait};

const TEST: u16 = 0x88b5;
/// Entries of each virtqueue.
const SIZE: u16 = 64;

fn connect(lab: &Lab, index: u8, features: u64) -> NetGuest {
    let options = NetOptions { features, size: SIZE, buffers: SIZE, ..NetOptions::default() };
    NetGuest::connect(&lab.net_socket(index), options).expect("the daemon accepts the guest")
}

/// Two guests that exchange frames, whatever the lab's first guest does.
struct Bystanders {
    a: NetGuest,
    b: NetGuest,
    count: u32,
}

impl Bystanders {
    fn new(lab: &Lab) -> Bystanders {
        Bystanders { a: connect(lab, 1, feature::ALL), b: connect(lab, 2, feature::MRG_RXBUF), count: 0 }
    }

    /// Exchanges a frame in each direction.
    fn talk(&mut self) {
        self.count += 1;
        self.tell(mac(3), mac(2));
        std::mem::swap(&mut self.a, &mut self.b);
        self.tell(mac(2), mac(3));
        std::mem::swap(&mut self.a, &mut self.b);
    }

    /// Sends a frame from `a` to `b`, and sends again if it is lost.
    ///
    /// Frames may be lost while the hostile guest fills the receiver's buffers.
    fn tell(&mut self, dst: [u8; 6], src: [u8; 6]) {
        let with = |count: u32| frame(dst, src, TEST, &count.to_be_bytes().repeat(50));
        let arrived = wait::within(wait::PATIENCE, || {
            self.a.send(&with(self.count));
            while let Some((_, found)) = self.b.recv_within(Duration::from_millis(20)) {
                if found[6..12] == mac(1) {
                    continue;
                }
                let count = u32::from_be_bytes(found[14..18].try_into().expect("four bytes"));
                assert!(found == with(count) && count <= self.count, "frame {count} of {}", self.count);
                if count == self.count {
                    return Some(());
                }
            }
            None
        });
        assert!(arrived.is_some(), "frame {} was lost again and again", self.count);
    }
}

/// A hostile driver that writes random rings.
struct Vandal {
    rng: Rng,
    guest: NetGuest,
    /// Memory for buffers and tables.
    area: u64,
    next: [u16; 2],
}

/// Bytes of `Vandal::area`.
const AREA: u64 = 256 << 10;

impl Vandal {
    /// Returns an address and a length: mostly in memory, sometimes at its edges, sometimes
    /// anywhere.
    fn place(&mut self) -> (u64, u32) {
        let rng = &mut self.rng;
        match rng.below(20) {
            0 => (rng.nasty(), rng.nasty() as u32),
            1 => (self.area + rng.below(AREA), rng.nasty() as u32),
            2 => ((1 << 32) + (32 << 20) - rng.below(100), rng.below(200) as u32),
            3 => (0x1000 + (1 << 20) - rng.below(100), rng.below(200) as u32),
            _ => (self.area + rng.below(AREA / 2), rng.below(4096) as u32),
        }
    }

    /// Returns flags and next descriptor, which mostly make sense in this queue.
    fn link(&mut self, queue: usize, of: u64) -> (u16, u16) {
        let rng = &mut self.rng;
        let good = if queue == usize::from(RECEIVE) { WRITE } else { 0 };
        let flags = match rng.below(30) {
            0 => rng.next_u32() as u16,
            1 => good ^ WRITE,
            2..6 => INDIRECT,
            6..12 => good | NEXT,
            _ => good,
        };
        let next = if rng.one_in(30) { rng.nasty() as u16 } else { rng.below(of) as u16 };
        (flags, next)
    }

    /// Writes frames that nearly make sense to memory that buffers and tables may point to.
    fn fill(&mut self) {
        let packet = Packet {
            hosts: (1, *self.rng.pick(&[2, 3, 200])),
            v6: self.rng.one_in(2),
            tcp: !self.rng.one_in(4),
            vlan: self.rng.one_in(4).then_some(5),
        };
        let payload = self.rng.below(3000) as usize;
        let size = self.rng.below(2000) as u16;
        let (header, frame) = match self.rng.below(3) {
            0 => (Header::default(), packet.frame(&vec![7; payload])),
            1 => packet.unfinished(&vec![7; payload]),
            _ => packet.uncut(&vec![7; payload], size),
        };
        let mut bytes = [&header.to_bytes()[..], &frame].concat();
        for _ in 0..self.rng.below(4) {
            let at = self.rng.below(bytes.len().min(100) as u64) as usize;
            bytes[at] = self.rng.next_u32() as u8;
        }
        let at = self.area + (self.rng.below(AREA / 2) & !63);
        self.guest.memory.write(at, &bytes);
        for queue in 0..2 {
            let ring = self.guest.queues[queue].ring.clone();
            for _ in 0..4 {
                let index = self.rng.below(SIZE.into()) as u16;
                let (mut gpa, mut len) = self.place();
                let (flags, next) = self.link(queue, SIZE.into());
                if flags & INDIRECT != 0 && !self.rng.one_in(8) {
                    (gpa, len) = self.table(queue);
                } else if self.rng.one_in(3) {
                    (gpa, len) = (at, bytes.len() as u32);
                }
                ring.set_desc(index, gpa, len, flags, next);
            }
        }
    }

    /// Writes an indirect table, and returns its address and length.
    fn table(&mut self, queue: usize) -> (u64, u32) {
        let count = 1 + self.rng.below(20);
        let gpa = self.area + AREA / 2 + (self.rng.below(AREA / 2 - 400) & !15);
        for entry in 0..count {
            let (at, len) = self.place();
            let (flags, next) = self.link(queue, count);
            let rest = u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
            let words = [at.to_le_bytes(), rest.to_le_bytes()].concat();
            self.guest.memory.write(gpa + 16 * entry, &words);
        }
        (gpa, 16 * count as u32)
    }

    /// Makes some entries available, sometimes more than the ring has.
    fn offer(&mut self) {
        for queue in 0..2 {
            let ring = self.guest.queues[queue].ring.clone();
            let count = if self.rng.one_in(100) { self.rng.nasty() as u16 } else { self.rng.below(8) as u16 };
            for entry in 0..count.min(SIZE) {
                let head = if self.rng.one_in(200) {
                    self.rng.nasty() as u16
                } else {
                    self.rng.below(SIZE.into()) as u16
                };
                ring.set_avail_entry(self.next[queue].wrapping_add(entry), head);
            }
            self.next[queue] = self.next[queue].wrapping_add(count);
            ring.set_avail_idx(self.next[queue]);
            ring.set_used_event(self.rng.nasty() as u16);
            ring.set_avail_flags(self.rng.nasty() as u16);
            let _ = self.guest.queues[queue].kick.write(1);
        }
    }

    /// Starts the driver anew with clear rings.
    fn restart(&mut self) {
        self.guest.restart().unwrap();
        self.next = [SIZE, 0];
    }
}

#[test]
fn thousands_of_random_chains_hurt_nobody() {
    let lab = Lab::without_guests(3, LabOptions::default());
    let mut bystanders = Bystanders::new(&lab);
    let guest = connect(&lab, 0, feature::ALL);
    let area = guest.memory.alloc(AREA);
    let mut vandal =
        Vandal { rng: Rng::from_env("thousands_of_random_chains"), guest, area, next: [SIZE, 0] };
    for round in 0..10_000 {
        vandal.fill();
        vandal.offer();
        if round % 4 == 0 {
            bystanders.talk();
            // A frame for the hostile guest.
            bystanders.a.send(&frame(mac(1), mac(2), TEST, &[9; 3000]));
        }
        if vandal.rng.one_in(10) {
            vandal.restart();
        }
    }
    let stats = lab.stats();
    for counter in ["tx_frames", "rx_frames", "tx_broken", "rx_broken", "tx_bad_header", "tx_spoofed"] {
        println!("{counter} {}", stats.net(0, counter));
        assert_ne!(stats.net(0, counter), 0, "the test reaches {counter}");
    }
    bystanders.talk();
    while bystanders.b.recv_within(Duration::ZERO).is_some() {}
    // The guest behaves well after a restart.
    vandal.restart();
    let sent = frame(mac(3), mac(1), TEST, b"sorry");
    vandal.guest.send(&sent);
    assert_eq!(bystanders.b.recv().1, lab.arrives(0, 2, &sent));
    let reply = frame(mac(1), mac(3), TEST, b"never mind");
    bystanders.b.send(&reply);
    assert_eq!(vandal.guest.recv().1, lab.arrives(2, 0, &reply));
    assert_eq!((stats.net(1, "tx_broken"), stats.net(2, "rx_broken")), (0, 0));
}

#[test]
fn a_queue_that_breaks_is_left_alone_until_it_is_started_again() {
    let lab = Lab::without_guests(3, LabOptions::default());
    let mut bystanders = Bystanders::new(&lab);
    let mut guest = connect(&lab, 0, feature::ALL);
    let ring = guest.queues[usize::from(TRANSMIT)].ring.clone();
    let good = frame(mac(2), mac(1), TEST, &[1; 100]);
    let broken = |count| {
        wait::until("the queue to break", || (lab.stats().net(0, "tx_broken") == count).then_some(()))
    };
    // First a loop of descriptors. Later an index more than a ring ahead.
    ring.set_desc(0, 1 << 32, 10, NEXT, 0);
    ring.set_avail_entry(0, 0);
    ring.set_avail_idx(1);
    guest.queues[usize::from(TRANSMIT)].kick.write(1).unwrap();
    broken(1);
    ring.set_desc(0, 1 << 32, 10, 0, 0);
    guest.queues[usize::from(TRANSMIT)].kick.write(1).unwrap();
    bystanders.talk();
    assert_eq!(ring.used_idx(), 0);
    guest.restart().unwrap();
    guest.send(&good);
    assert_eq!(bystanders.a.recv().1, good);
    ring.set_avail_idx(2 + SIZE);
    guest.queues[usize::from(TRANSMIT)].kick.write(1).unwrap();
    broken(2);
    guest.restart().unwrap();
    guest.send(&good);
    assert_eq!(bystanders.a.recv().1, good);
    // Receive buffers too small for the virtio-net header.
    let receive = guest.queues[usize::from(RECEIVE)].ring.clone();
    (0..SIZE).for_each(|index| receive.set_desc(index, 1 << 32, 11, WRITE, 0));
    bystanders.a.send(&frame(mac(1), mac(2), TEST, &[1; 100]));
    wait::until("the queue to break", || (lab.stats().net(0, "rx_broken") == 1).then_some(()));
    bystanders.a.send(&frame(mac(1), mac(2), TEST, &[1; 100]));
    assert_eq!(lab.stats().net(0, "rx_no_driver"), 1);
    bystanders.talk();
}

#[test]
fn a_pause_loses_nothing_that_is_in_the_rings() {
    for event_idx in [true, false] {
        let lab = Lab::without_guests(3, LabOptions::default());
        let mut bystanders = Bystanders::new(&lab);
        let options = NetOptions { event_idx, size: SIZE, buffers: SIZE, ..NetOptions::default() };
        let mut guest = NetGuest::connect(&lab.net_socket(0), options).unwrap();
        for round in 0..100u8 {
            let sent = frame(mac(1), mac(2), TEST, &[round; 2000]);
            bystanders.a.send(&sent);
            let is_there = || lab.stats().net(0, "rx_frames") == u64::from(round) + 1;
            wait::until("the frame to be there", || is_there().then_some(()));
            let bases = guest.pause().unwrap();
            assert_eq!(bases, [(2 * u16::from(round) + 2), round.into()]);
            // A paused guest receives nothing.
            bystanders.a.send(&sent);
            let is_lost = || lab.stats().net(0, "rx_no_driver") == u64::from(round) + 1;
            wait::until("the frame to be lost", || is_lost().then_some(()));
            guest.resume(bases).unwrap();
            assert_eq!(guest.recv().1, sent);
            guest.expect_nothing();
            let reply = frame(mac(2), mac(1), TEST, &[round; 70]);
            guest.send(&reply);
            assert_eq!(bystanders.a.recv().1, reply);
        }
        assert_eq!(lab.stats().net(0, "rx_no_driver"), 100);
    }
}

#[test]
fn memory_that_goes_takes_the_function_with_it() {
    let lab = Lab::without_guests(3, LabOptions::default());
    let mut bystanders = Bystanders::new(&lab);
    let mut guest = connect(&lab, 0, feature::ALL);
    // A region without anything in it is removed and added again.
    let regions = guest.memory.regions().to_vec();
    guest.front_end.remove_region(&guest.memory, &regions[1]).unwrap();
    bystanders.a.send(&frame(mac(1), mac(2), TEST, &[5; 5000]));
    guest.front_end.add_region(&guest.memory, &regions[1]).unwrap();
    assert_eq!(guest.recv().1.len(), 5014);
    // The region of the rings is removed.
    guest.front_end.remove_region(&guest.memory, &regions[0]).unwrap();
    let stats = lab.stats();
    assert_eq!((stats.net(0, "tx_broken"), stats.net(0, "rx_broken")), (1, 1));
    bystanders.a.send(&frame(mac(1), mac(2), TEST, &[5; 5000]));
    bystanders.talk();
    guest.front_end.add_region(&guest.memory, &regions[0]).unwrap();
    guest.restart().unwrap();
    bystanders.a.send(&frame(mac(1), mac(2), TEST, &[6; 5000]));
    assert_eq!(guest.recv().1[14..], [6; 5000]);
    // The file is truncated. This process must not touch its memory either from here on.
    // SAFETY: the call changes the length of a file.
    assert_eq!(unsafe { libc::ftruncate(guest.memory.fd(), 0) }, 0);
    for _ in 0..100 {
        bystanders.a.send(&frame(mac(1), mac(2), TEST, &[7; 5000]));
        let _ = guest.queues[usize::from(TRANSMIT)].kick.write(1);
        bystanders.talk();
    }
}

#[test]
fn guests_that_come_and_go_leave_nothing() {
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")));
    let lab = Lab::without_guests(3, LabOptions { program, ..LabOptions::default() });
    let mut bystanders = Bystanders::new(&lab);
    let pid = lab.daemon.pid();
    let open = || (proc::descriptors(pid), proc::guest_mappings(pid), proc::threads(pid));
    let before = open();
    for round in 0..20u8 {
        let mut guest = connect(&lab, 0, feature::ALL);
        let sent = frame(mac(2), mac(1), TEST, &[round; 100]);
        guest.send(&sent);
        assert_eq!(bystanders.a.recv().1, sent);
        if round % 2 == 0 {
            guest.front_end.disconnect();
        }
        drop(guest);
        bystanders.a.send(&frame(mac(1), mac(2), TEST, &[7; 5000]));
        bystanders.talk();
    }
    let given_back = wait::within(wait::PATIENCE, || {
        let now = open();
        (now.0 <= before.0 && now.1 <= before.1 && now.2 <= before.2).then_some(())
    });
    assert!(given_back.is_some(), "{:?} descriptors, mappings and threads, {before:?} before", open());
}

const ALL: [u8; 6] = [0xff; 6];

#[test]
fn a_frame_to_all_is_not_cut_into_thousands() {
    let lab = Lab::without_guests(3, LabOptions::default());
    let mut bystanders = Bystanders::new(&lab);
    let mut guest = connect(&lab, 0, feature::ALL);
    let packet = Packet { hosts: (1, 2), v6: false, tcp: true, vlan: None };
    let (header, mut sent) = packet.uncut(&[7; 65_000], 48);
    sent[..6].copy_from_slice(&ALL);
    for _ in 0..10 {
        guest.send_with(header, &sent, &[]);
    }
    let stats = lab.stats();
    assert_eq!((stats.net(1, "rx_frames"), stats.net(2, "rx_frames")), (0, 0), "1,355 frames of each");
    assert_eq!(stats.net(0, "tx_flood_limited"), 10);
    bystanders.talk();
    // A frame to one guest, cut into segments as TCP would, is forwarded.
    let (header, mut sent) = packet.uncut(&[7; 60_000], 1448);
    sent[..6].copy_from_slice(&ALL);
    guest.send_with(header, &sent, &[]);
    assert_ne!(bystanders.a.recv().1.len(), 0);
}

#[test]
fn a_storm_is_limited_and_costs_its_sender_alone() {
    let limits = GuestLimits { flood_rate: 1, ..GuestLimits::default() };
    let lab = Lab::without_guests(3, LabOptions { limits, ..LabOptions::default() });
    let mut bystanders = Bystanders::new(&lab);
    let mut guest = connect(&lab, 0, feature::ALL);
    let storm = frame(ALL, mac(1), TEST, &[7; 60]);
    (0..500).for_each(|_| guest.send(&storm));
    let stats = lab.stats();
    let passed = 500 - stats.net(0, "tx_flood_limited");
    assert!((64..400).contains(&passed), "{passed} of 500 passed");
    assert_eq!(stats.net(0, "tx_frames"), 500);
    while bystanders.a.recv_within(Duration::ZERO).is_some() {}
    // The guest can still send to one guest, and another guest can still broadcast.
    let sent = frame(mac(2), mac(1), TEST, &[8; 60]);
    guest.send(&sent);
    assert_eq!(bystanders.a.recv().1, sent);
    while bystanders.b.recv_within(Duration::ZERO).is_some() {}
    let hello = frame(ALL, mac(2), TEST, &[9; 60]);
    bystanders.a.send(&hello);
    assert_eq!(bystanders.b.recv().1, hello);
    bystanders.talk();
}

#[test]
fn crumbs_for_buffers_cost_their_owner_the_frames() {
    let lab = Lab::without_guests(3, LabOptions::default());
    let mut bystanders = Bystanders::new(&lab);
    let options = NetOptions { size: 1024, buffers: 1024, buffer_len: 16, ..NetOptions::default() };
    let mut guest = NetGuest::connect(&lab.net_socket(0), options).expect("the daemon accepts the guest");
    for _ in 0..100 {
        bystanders.a.send(&frame(mac(1), mac(2), TEST, &[7; 9000]));
    }
    let counts = ["rx_frames", "rx_scattered", "rx_no_buffer"].map(|name| lab.stats().net(0, name));
    assert_eq!(counts, [0, 1, 99], "564 buffers for each; they are read once");
    let small = frame(mac(1), mac(2), TEST, &[8; 100]);
    bystanders.a.send(&small);
    assert_eq!(guest.recv().1, small);
    bystanders.talk();
}
