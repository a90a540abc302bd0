//! Fast registration: a request of the kernel sets the memory of a region.
//!
//! Peers and the kernel can access that memory until the region is invalidated. A process cannot
//! register.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use vrdma_backend::config::GuestLimits;
use vrdma_tests::abi::control::{QpState, Status, access};
use vrdma_tests::abi::cqe::{WcOpcode, WcStatus};
use vrdma_tests::abi::wqe::WrOpcode;
use vrdma_tests::memory::PAGE;
use vrdma_tests::pingpong::{Canary, PingPong};
use vrdma_tests::raw::{self, RawPoster, RegMr};
use vrdma_tests::side::Side;
use vrdma_tests::verbs::{Remote, Sge};
use vrdma_tests::{CableOptions, Context, Guest, Lab, LabOptions, QpOptions, Rng, connect};

/// Most pages of a registration.
const MOST: u32 = 512;
/// Bytes of each side's ordinary region.
const LEN: u64 = 4 << 20;
/// First guest-physical address of a gap in the guest's memory.
const HOLE: u64 = (32 << 20) + 0x1000;
/// I/O virtual address of a registration's first byte, 16 bytes into a page.
const FIRST: u64 = 0x6000_0000_0010;

/// A kernel or a process that writes its requests word by word.
struct Poster {
    side: Side,
    poster: RawPoster,
    /// A page for page lists.
    list: u64,
}

impl Poster {
    fn new(side: Side) -> Poster {
        let list = side.guest().memory.alloc(PAGE);
        Poster { side, poster: RawPoster::default(), list }
    }

    /// Creates a guest's kernel with a QP of its own.
    fn kernel(guest: &Arc<Guest>) -> Poster {
        let process = Context::kernel(guest).expect("the kernel's channel");
        let (cq, mr) = (process.cq(256), process.mr(LEN));
        let qp = process.qp(&cq, &cq, &QpOptions::default());
        Poster::new(Side { process, cq, mr, qp })
    }

    fn ends_as(&mut self, words: &[u64]) -> (WcStatus, WcOpcode) {
        self.poster.post(&mut self.side.process.channel, words);
        let wc = self.side.cq.wait();
        (wc.status(), wc.opcode())
    }

    /// Posts a request, waits for its completion and returns the status.
    fn ends(&mut self, words: &[u64]) -> WcStatus {
        self.ends_as(words).0
    }

    fn of(&self, id: u32) -> (u32, u32) {
        (self.side.qp.number, id)
    }

    /// Allocates a region for registrations of up to `max_pages` pages, and returns its key.
    fn region(&self, max_pages: u32) -> u32 {
        let keys = self.side.guest().alloc_fast_mr(self.side.process.pd, max_pages).expect("a region");
        assert_eq!(keys.lkey, keys.rkey);
        keys.lkey.get()
    }

    fn write_list(&self, pages: &[u64]) {
        let list: Vec<u8> = pages.iter().flat_map(|page| page.to_le_bytes()).collect();
        self.side.guest().memory.write(self.list, &list);
    }

    /// Returns a registration of `length` bytes of the list's pages.
    fn reg(&self, key: u32, length: u64) -> RegMr {
        let (access, page_list) = (access::ALL, self.list);
        RegMr { key, access, page_shift: 12, iova: FIRST, length, page_list }
    }

    fn register(&mut self, reg: &RegMr) -> WcStatus {
        self.ends(&raw::reg_mr(self.of(1), reg))
    }

    fn invalidate(&mut self, key: u32) -> WcStatus {
        self.ends(&raw::key(WrOpcode::LOCAL_INV, self.of(2), key, None))
    }

    /// WRITEs bytes to an address of the peer.
    fn write(&mut self, remote: Remote, bytes: &[u8]) -> WcStatus {
        self.side.mr.put(0, bytes);
        let sge = Some(self.side.mr.sge(0, bytes.len() as u32));
        self.ends(&raw::remote(WrOpcode::RDMA_WRITE, self.of(3), remote, sge))
    }
}

fn at(rkey: u32, offset: u64) -> Remote {
    Remote { addr: FIRST + offset, rkey }
}

/// Connects the kernels of the first two guests.
fn kernels(lab: &Lab) -> [Poster; 2] {
    let [a, b] = [0, 1].map(|guest| Poster::kernel(&lab.guests[guest]));
    connect(&a.side.qp, &b.side.qp);
    [a, b]
}

/// Resets and reconnects both QPs, and empties the CQs.
fn connect_again(a: &mut Poster, b: &mut Poster) {
    for poster in [&mut *a, &mut *b] {
        poster.side.qp.to_state(QpState::RESET).unwrap();
        while poster.side.cq.poll().is_some() {}
    }
    connect(&a.side.qp, &b.side.qp);
}

/// Returns a lab on one host, and one on two hosts.
fn labs() -> [Lab; 2] {
    let cable = Some(CableOptions::default());
    [Lab::new(2), Lab::with(2, LabOptions { cable, ..LabOptions::default() })]
}

#[test]
fn memory_is_registered_used_here_and_there_and_invalidated() {
    for lab in labs() {
        let [mut a, mut b] = kernels(&lab);
        let memory = b.side.guest().memory.clone();
        let pages = memory.alloc(8 * PAGE);
        let pages = [pages + 5 * PAGE, pages + PAGE, pages + 2 * PAGE, pages + 7 * PAGE];
        let free = b.region(4);
        assert_eq!(a.write(at(free, 0), b"too soon"), WcStatus::REM_ACCESS_ERR);
        connect_again(&mut a, &mut b);
        b.write_list(&pages);
        let length = 3 * PAGE + 100;
        let key = free ^ 0x42;
        let reg = raw::reg_mr(b.of(1), &b.reg(key, length));
        assert_eq!(b.ends_as(&reg), (WcStatus::SUCCESS, WcOpcode::REG_MR));
        // The device reads the list only once, so a later change has no effect.
        b.write_list(&[HOLE; 4]);
        let data = Rng::new(7).bytes(length as usize);
        assert_eq!(a.write(at(key, 0), &data), WcStatus::SUCCESS);
        let found: Vec<u8> = pages.iter().flat_map(|page| memory.bytes(*page, PAGE)).collect();
        assert!(found[16..16 + length as usize] == data, "each byte in its page");
        assert!(found[..16].iter().chain(&found[16 + length as usize..]).all(|byte| *byte == 0));
        // Access by the local key.
        let sge = Sge { addr: FIRST + 100, length: 9000, lkey: key };
        let to = a.side.mr.remote(1 << 20);
        let request = raw::remote(WrOpcode::RDMA_WRITE, b.of(4), to, Some(sge));
        assert_eq!(b.ends(&request), WcStatus::SUCCESS);
        assert!(a.side.mr.get(1 << 20, 9000) == data[100..9100]);
        a.side.mr.put(1 << 20, &[9; 9000]);
        let request = raw::remote(WrOpcode::RDMA_READ, b.of(5), to, Some(sge));
        assert_eq!(b.ends(&request), WcStatus::SUCCESS);
        let found: Vec<u8> = pages.iter().flat_map(|page| memory.bytes(*page, PAGE)).collect();
        assert!(found[116..9116] == [9; 9000]);
        // Access past the end fails, and so does any access after invalidation.
        assert_eq!(a.write(at(key, length - 7), b"past it."), WcStatus::REM_ACCESS_ERR);
        connect_again(&mut a, &mut b);
        assert_eq!(b.invalidate(key), WcStatus::SUCCESS);
        assert_eq!(a.write(at(key, 0), b"too late"), WcStatus::REM_ACCESS_ERR);
        connect_again(&mut a, &mut b);
        let request = raw::remote(WrOpcode::RDMA_WRITE, b.of(6), to, Some(sge));
        assert_eq!(b.ends(&request), WcStatus::LOC_PROT_ERR);
        connect_again(&mut a, &mut b);
        let now: Vec<u8> = pages.iter().flat_map(|page| memory.bytes(*page, PAGE)).collect();
        assert!(found == now, "not a byte");
        assert_eq!((lab.transport(1, "registrations"), lab.transport(1, "invalidations")), (1, 1));
        b.side.guest().dereg_mr(key).unwrap();
    }
}

#[test]
fn a_send_of_the_peer_invalidates_and_the_kernel_is_told_which_key() {
    for lab in labs() {
        let [mut a, mut b] = kernels(&lab);
        let key = b.region(1);
        b.write_list(&[b.side.guest().memory.alloc(PAGE)]);
        assert_eq!(b.register(&b.reg(key, 64)), WcStatus::SUCCESS);
        let receive = raw::recv(b.of(5), Some(b.side.mr.sge(0, 16)));
        b.poster.post(&mut b.side.process.channel, &receive);
        let sge = Some(a.side.mr.sge(0, 16));
        assert_eq!(a.ends(&raw::key(WrOpcode::SEND_WITH_INV, a.of(6), key, sge)), WcStatus::SUCCESS);
        let wc = b.side.cq.wait();
        assert_eq!((wc.status(), wc.opcode()), (WcStatus::SUCCESS, WcOpcode::RECV));
        assert_eq!(wc.invalidated(), Some(key));
        assert_eq!(a.write(at(key, 0), b"too late"), WcStatus::REM_ACCESS_ERR);
        connect_again(&mut a, &mut b);
        // The region is free already. A local invalidation that does not know that does no harm.
        assert_eq!(b.invalidate(key), WcStatus::SUCCESS);
        assert_eq!(b.register(&b.reg(key ^ 1, 64)), WcStatus::SUCCESS);
        assert_eq!(a.write(at(key ^ 1, 0), b"in time."), WcStatus::SUCCESS);
        assert_eq!(lab.transport(1, "peer_invalidations"), 1);
    }
}

#[test]
fn many_pages_and_large_ones_are_registered() {
    let lab = Lab::new(2);
    let [mut a, mut b] = kernels(&lab);
    let memory = b.side.guest().memory.clone();
    let key = b.region(MOST);
    let pages = memory.alloc(u64::from(MOST) * PAGE);
    // Pages in descending order.
    let list: Vec<u64> = (0..u64::from(MOST)).rev().map(|page| pages + page * PAGE).collect();
    b.write_list(&list);
    let whole = u64::from(MOST) * PAGE - 16;
    assert_eq!(b.register(&b.reg(key, whole)), WcStatus::SUCCESS);
    let data = Rng::new(8).bytes(whole as usize);
    assert_eq!(a.write(at(key, 0), &data), WcStatus::SUCCESS);
    let found: Vec<u8> = list.iter().flat_map(|page| memory.bytes(*page, PAGE)).collect();
    assert!(found[16..] == data);
    assert_eq!(b.invalidate(key), WcStatus::SUCCESS);
    let size = 1 << 16;
    let first = pages.next_multiple_of(size);
    b.write_list(&[first + 3 * size, first]);
    assert_eq!(b.register(&RegMr { page_shift: 16, ..b.reg(key, size) }), WcStatus::SUCCESS);
    assert_eq!(a.write(at(key, size - 17), b"both"), WcStatus::SUCCESS);
    assert_eq!(memory.bytes(first + 4 * size - 1, 1), b"b");
    assert_eq!(memory.bytes(first, 3), b"oth");
}

#[test]
fn a_process_cannot_register() {
    let lab = Lab::new(2);
    let [mut a, mut b] = kernels(&lab);
    let guest = lab.guests[1].clone();
    let mut thief = Poster::new(Side::new(&guest, 4096, &QpOptions::default()));
    let mut peer = Poster::new(Side::new(&lab.guests[0], 4096, &QpOptions::default()));
    connect(&thief.side.qp, &peer.side.qp);
    assert_eq!(guest.alloc_fast_mr(thief.side.process.pd, 8).err(), Some(Status::DENIED));
    let key = b.region(8);
    let page = guest.memory.alloc(PAGE);
    let list = guest.memory.alloc(PAGE);
    guest.memory.write(list, &page.to_le_bytes());
    let reg = RegMr { page_list: list, ..b.reg(key, 64) };
    // By its own channel for its own QP: first the kernel's region, then its own.
    for key in [key, thief.side.mr.key] {
        let words = raw::reg_mr(thief.of(1), &RegMr { key, ..reg });
        assert_eq!(thief.ends(&words), WcStatus::LOC_QP_OP_ERR);
        connect_again(&mut thief, &mut peer);
    }
    assert_eq!(lab.transport(1, "refused_registrations"), 2);
    // By its own channel for the kernel's QP.
    let words = raw::reg_mr(b.of(1), &reg);
    thief.poster.post(&mut thief.side.process.channel, &words);
    thief.poster.drain(&thief.side.process.channel);
    assert_eq!(lab.transport(1, "post_not_owner"), 1);
    // By the kernel's channel, as a kernel without checks would post for the process.
    let words = raw::reg_mr(thief.of(1), &reg);
    b.poster.post(&mut b.side.process.channel, &words);
    assert_eq!(thief.side.cq.wait().status(), WcStatus::LOC_QP_OP_ERR);
    connect_again(&mut thief, &mut peer);
    assert_eq!((lab.transport(1, "refused_registrations"), lab.transport(1, "registrations")), (3, 0));
    // The process can neither invalidate nor access what the kernel registered.
    b.write_list(&[page]);
    assert_eq!(b.register(&b.reg(key, 64)), WcStatus::SUCCESS);
    assert_eq!(thief.invalidate(key), WcStatus::LOC_QP_OP_ERR);
    connect_again(&mut thief, &mut peer);
    let sge = Sge { addr: FIRST, length: 8, lkey: key };
    let steal = raw::remote(WrOpcode::RDMA_WRITE, thief.of(2), peer.side.mr.remote(0), Some(sge));
    assert_eq!(thief.ends(&steal), WcStatus::LOC_PROT_ERR);
    connect_again(&mut thief, &mut peer);
    assert_eq!(peer.write(at(key, 0), b"not mine"), WcStatus::REM_ACCESS_ERR);
    assert_eq!(a.write(at(key, 0), b"kernel's"), WcStatus::SUCCESS);
    assert_eq!(guest.memory.bytes(page + 16, 8), b"kernel's");
}

#[test]
fn bad_registrations_end_with_their_status_and_change_nothing() {
    let lab = Lab::new(2);
    let [mut a, mut b] = kernels(&lab);
    let memory = b.side.guest().memory.clone();
    let (page, key, mr_key) = (memory.alloc(PAGE), b.region(4), b.side.mr.key);
    let other_pd = b.side.guest().alloc_pd(0).unwrap();
    let foreign = b.side.guest().alloc_fast_mr(other_pd, 4).unwrap().lkey.get();
    let good = b.reg(key, 64);
    type Case = (&'static str, RegMr, u64, WcStatus);
    let (bind, prot) = (WcStatus::MW_BIND_ERR, WcStatus::LOC_PROT_ERR);
    let cases: [Case; 16] = [
        ("a region that is none for that", RegMr { key: mr_key, ..good }, page, bind),
        ("a region of another PD", RegMr { key: foreign, ..good }, page, bind),
        ("no region", RegMr { key: key + 0x5500, ..good }, page, bind),
        ("more pages than it has", RegMr { length: 4 * PAGE - 15, ..good }, page, bind),
        ("more pages than any has", RegMr { length: 1 << 40, ..good }, page, bind),
        ("all bytes that there are", RegMr { length: u64::MAX, ..good }, page, bind),
        ("addresses that wrap", RegMr { iova: u64::MAX - 15, ..good }, page, bind),
        ("small pages", RegMr { page_shift: 11, ..good }, page, bind),
        ("large pages", RegMr { page_shift: 32, ..good }, page, bind),
        ("windows", RegMr { access: access::REGION, ..good }, page, bind),
        ("a right that nobody knows", RegMr { access: 1 << 20, ..good }, page, bind),
        ("a list in a hole", RegMr { page_list: HOLE, ..good }, page, prot),
        ("a list at the end", RegMr { page_list: u64::MAX - 7, ..good }, page, prot),
        ("a page in a hole", good, HOLE & !(PAGE - 1), prot),
        ("a page beyond all", good, u64::MAX - 0xfff, prot),
        ("a page that begins elsewhere", good, page + 8, prot),
    ];
    for (case, reg, page, status) in cases {
        b.write_list(&[page; 8]);
        assert_eq!(b.register(&reg), status, "{case}");
        assert_eq!(b.side.qp.state(), QpState::ERR, "{case}");
        connect_again(&mut a, &mut b);
    }
    let odd = {
        let mut words = raw::reg_mr(b.of(1), &good);
        words[3] |= 1 << 8;
        words
    };
    b.write_list(&[page]);
    assert_eq!(b.ends(&odd), WcStatus::LOC_QP_OP_ERR);
    connect_again(&mut a, &mut b);
    assert_eq!(lab.transport(1, "registrations"), 0);
    assert_eq!(b.register(&good), WcStatus::SUCCESS);
    assert_eq!(b.register(&good), bind, "it is not free");
    connect_again(&mut a, &mut b);
    assert_eq!(a.write(at(key, 0), b"as it is"), WcStatus::SUCCESS);
    assert_eq!(memory.bytes(page + 16, 8), b"as it is");
}

/// A third region of guest memory, which can be removed.
const EXTRA: (u64, u64) = (0x2_0000_0000, 1 << 20);

fn lab_with_extra() -> Lab {
    let mut options = LabOptions::default();
    options.guest.memory.push(EXTRA);
    Lab::with(3, options)
}

fn take_away(guest: &Guest) {
    let extra = guest.memory.regions()[2];
    guest.front_end().remove_region(&guest.memory, &extra).unwrap();
}

fn give_back(guest: &Guest) {
    let extra = guest.memory.regions()[2];
    guest.front_end().add_region(&guest.memory, &extra).unwrap();
}

#[test]
fn what_is_registered_goes_and_comes_with_its_memory() {
    let lab = lab_with_extra();
    let [mut a, mut b] = kernels(&lab);
    let guest = b.side.guest().clone();
    assert!(guest.memory.reserve(EXTRA.0, EXTRA.1));
    let key = b.region(4);
    b.write_list(&[EXTRA.0 + PAGE, EXTRA.0]);
    assert_eq!(b.register(&b.reg(key, 2 * PAGE - 16)), WcStatus::SUCCESS);
    assert_eq!(a.write(at(key, 0), b"before"), WcStatus::SUCCESS);
    take_away(&guest);
    let status = a.write(at(key, 0), b"during");
    assert!([WcStatus::REM_OP_ERR, WcStatus::REM_ACCESS_ERR].contains(&status), "{status:?}");
    connect_again(&mut a, &mut b);
    assert_eq!(guest.memory.bytes(EXTRA.0 + PAGE + 16, 6), b"before", "what is gone is not written");
    // Removed memory cannot be registered, and cannot hold a page list.
    let second = b.region(4);
    assert_eq!(b.register(&b.reg(second, 64)), WcStatus::LOC_PROT_ERR);
    connect_again(&mut a, &mut b);
    let gone = RegMr { page_list: EXTRA.0 + 64, ..b.reg(second, 64) };
    assert_eq!(b.register(&gone), WcStatus::LOC_PROT_ERR);
    connect_again(&mut a, &mut b);
    give_back(&guest);
    assert_eq!(a.write(at(key, 0), b"after."), WcStatus::SUCCESS);
    assert_eq!(guest.memory.bytes(EXTRA.0 + PAGE + 16, 6), b"after.");
    assert_eq!(b.register(&b.reg(second, 64)), WcStatus::SUCCESS);
    assert_eq!(a.write(at(second, 0), b"second"), WcStatus::SUCCESS);
}

/// Registers pages while the memory table changes all the time.
///
/// In each table, a key names what was registered last.
#[test]
fn tables_change_while_memory_is_registered() {
    let lab = lab_with_extra();
    let bystanders = PingPong::start(&lab.guests[2], &lab.guests[0]);
    let [mut a, mut b] = kernels(&lab);
    let guest = b.side.guest().clone();
    let (stop, changes) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let (stop, changes) = (&stop, &changes);
        scope.spawn(move || {
            let memory = b.side.guest().memory.clone();
            let (pages, key) = (memory.alloc(16 * PAGE), b.region(1));
            let enough = |round: u64| round >= 500 && changes.load(Ordering::Relaxed) > 20;
            for round in (0..).take_while(|&round| !enough(round)) {
                let page = pages + round % 16 * PAGE;
                b.write_list(&[page]);
                assert_eq!(b.register(&b.reg(key, 64)), WcStatus::SUCCESS);
                assert_eq!(a.write(at(key, 0), &round.to_le_bytes()), WcStatus::SUCCESS);
                assert_eq!(memory.bytes(page + 16, 8), round.to_le_bytes(), "round {round}");
                assert_eq!(b.invalidate(key), WcStatus::SUCCESS);
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            take_away(&guest);
            give_back(&guest);
            changes.fetch_add(1, Ordering::Relaxed);
        }
    });
    bystanders.stop();
}

#[test]
fn regions_for_registration_count_as_regions_and_their_pages_as_runs() {
    let limits = GuestLimits { total_runs: 1200, ..GuestLimits::default() };
    let lab = Lab::with(1, LabOptions { limits, ..LabOptions::default() });
    let guest = &lab.guests[0];
    let pd = guest.alloc_pd(0).unwrap();
    assert_eq!(guest.query_device_ex().unwrap().max_fast_reg_pages.get(), MOST);
    for (pdn, pages, status) in [
        (pd, 0, Status::INVALID),
        (pd, MOST + 1, Status::INVALID),
        (pd, u32::MAX, Status::INVALID),
        (pd + 1, 1, Status::NOT_FOUND),
    ] {
        assert_eq!(guest.alloc_fast_mr(pdn, pages).err(), Some(status), "{pages}");
    }
    let count = |kind| lab.stats().objects(0, kind);
    let before = (count("mrs"), count("runs"));
    let keys = [(); 2].map(|()| guest.alloc_fast_mr(pd, MOST).unwrap().lkey.get());
    assert_eq!((count("mrs"), count("runs")), (before.0 + 2, before.1 + 2 * u64::from(MOST)));
    assert_eq!(guest.alloc_fast_mr(pd, MOST).err(), Some(Status::NO_RESOURCES));
    assert_eq!(guest.dealloc_pd(pd), Err(Status::BUSY));
    assert_eq!(guest.dealloc_mw(keys[0]), Err(Status::NOT_FOUND), "it is no window");
    // The tag does not matter: a flushed request may have been meant to change it.
    guest.dereg_mr(keys[0] ^ 0xff).unwrap();
    assert_eq!(guest.dereg_mr(keys[0]), Err(Status::NOT_FOUND));
    guest.alloc_fast_mr(pd, MOST).unwrap();
    guest.reset().unwrap();
    assert_eq!(lab.stats().all_objects(0), []);
}

/// A kernel that registers anything, with lists that change meanwhile, harms no other guest.
#[test]
fn random_registrations_reach_no_other_guest() {
    let lab = Lab::new(3);
    let canaries = [0, 2].map(|guest| Canary::new(&lab.guests[guest].memory, guest as u64));
    let bystanders = PingPong::start(&lab.guests[2], &lab.guests[0]);
    let [mut a, mut b] = kernels(&lab);
    let memory = b.side.guest().memory.clone();
    let (mut rng, stop) = (Rng::from_env("random_registrations"), AtomicBool::new(false));
    let (pages, list) = (memory.alloc(64 * PAGE), b.list);
    let keys: Vec<u32> = [1, 8, MOST].map(|most| b.region(most)).to_vec();
    let (mut registered, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let (stop, scribbled, mut scribbler) = (&stop, memory.clone(), Rng::new(rng.next_u64()));
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let page = if scribbler.one_in(200) {
                    scribbler.nasty()
                } else {
                    pages + scribbler.below(64) * PAGE
                };
                scribbled.write(list + 8 * scribbler.below(512), &page.to_le_bytes());
            }
        });
        for _ in 0..400 {
            let key = *rng.pick(&keys) ^ rng.below(4) as u32;
            let most = if rng.one_in(4) { 3 << 20 } else { 8 * PAGE };
            let mut reg = b.reg(key, rng.below(most));
            match rng.below(40) {
                0 => reg.length = rng.nasty(),
                1 => reg.iova = rng.nasty(),
                2 => reg.page_list = rng.nasty(),
                3 => reg.page_shift = rng.next_u64() as u8,
                4 => reg.access = rng.next_u32(),
                5 => reg.key = rng.next_u32(),
                _ => {}
            }
            let words = if rng.one_in(3) {
                raw::key(WrOpcode::LOCAL_INV, b.of(1), key, None)
            } else {
                raw::reg_mr(b.of(1), &reg)
            };
            match b.ends(&words) {
                WcStatus::SUCCESS => registered += 1,
                _ => {
                    refused += 1;
                    connect_again(&mut a, &mut b);
                    continue;
                }
            }
            if a.write(Remote { addr: reg.iova, rkey: key }, &[0x77; 2000]) != WcStatus::SUCCESS {
                connect_again(&mut a, &mut b);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(registered > 10 && refused > 10, "{registered} and {refused}");
    canaries.iter().for_each(Canary::check);
    bystanders.stop();
}
