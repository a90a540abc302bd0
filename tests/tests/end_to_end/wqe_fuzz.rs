//! A hundred thousand random work requests.
//!
//! Each request gets an answer or is dropped. None accesses memory that was not registered for it.
//!
//! Shows: hostile-guest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use vrdma_tests::abi::ah::AhEntry;
use vrdma_tests::abi::control::{CreateSrqReq, QpState, QpType, access, limit};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::abi::wqe::{self, WrOpcode};
use vrdma_tests::abi::zerocopy::IntoBytes;
use vrdma_tests::ah::{AhTable, entry};
use vrdma_tests::pingpong::{Canary, PingPong};
use vrdma_tests::raw::RawPoster;
use vrdma_tests::side::Side;
use vrdma_tests::verbs::Request;
use vrdma_tests::{Guest, Lab, Mr, Qp, QpOptions, Rng, connect};

const REQUESTS: u32 = 100_000;

/// QPs of a process, each connected to a QP of the remote side, and keys of both sides.
struct Field {
    own: Side,
    remote: Side,
    pairs: Vec<(Qp, Qp)>,
    mrs: Vec<Mr>,
    remote_mrs: Vec<Mr>,
    /// Memory windows of the own side. Binds mostly do not change their keys.
    windows: Vec<u32>,
    /// SRQ of the remote side that XRC requests name.
    srqn: u32,
    /// Receives queued in each QP of the remote side.
    receives: Vec<u32>,
    handles: AhTable,
}

/// Types of the QPs after the first one.
const SERVICES: [QpType; 7] =
    [QpType::RC, QpType::UC, QpType::UD, QpType::RC, QpType::UC, QpType::UD, QpType::RC];
/// Number of valid address handles. The handles after them are rewritten all the time.
const GOOD: u32 = 4;
const HANDLES: u32 = 16;

/// Bytes of each region.
const LEN: u64 = 20_000;
/// Rights of the regions of each side.
const RIGHTS: [u32; 4] = [access::REGION, access::LOCAL_WRITE, access::REMOTE_READ, 0];

impl Field {
    fn new(lab: &Lab, canaries: &mut [Canary; 2]) -> Field {
        let options = QpOptions { timeout: 4, retry_cnt: 1, rnr_retry: 1, ..QpOptions::default() };
        // The CQ holds all completions, however late it is polled.
        let [own, remote] = [0, 1].map(|at| Side::with_cq(&lab.guests[at], 4096, 4096, &options));
        connect(&own.qp, &remote.qp);
        let mut pairs = vec![(own.qp.clone(), remote.qp.clone())];
        for n in 0..7 {
            let qp_type = SERVICES[usize::from(n)];
            let sges = 1 + u32::from(n);
            let options = QpOptions { qp_type, path_mtu: 1 + n % 5, sges, ..options.clone() };
            let make = |side: &Side| side.process.qp(&side.cq, &side.cq, &options);
            // One pair is within the process.
            pairs.push((make(&own), make(if n == 0 { &own } else { &remote })));
            connect(&pairs.last().unwrap().0, &pairs.last().unwrap().1);
        }
        let (srqn, xrc) = xrc_pair(&own, &remote, &options);
        pairs.push(xrc);
        let regions = |side: &Side, canary: &mut Canary| -> Vec<Mr> {
            let each = RIGHTS.iter().map(|rights| {
                canary.extend(u64::from(*rights));
                let mr = side.process.mr_with(LEN, *rights);
                mr.fill(*rights as u8 + 0x40);
                mr
            });
            each.collect()
        };
        let mrs = regions(&own, &mut canaries[0]);
        let remote_mrs = regions(&remote, &mut canaries[1]);
        canaries.iter_mut().for_each(|canary| canary.extend(99));
        let receives = vec![0; pairs.len()];
        let handles = AhTable::new(&lab.guests[0], HANDLES).unwrap();
        for index in 0..GOOD {
            let guest = if index == 0 { own.guest() } else { remote.guest() };
            handles.put(index, &entry(own.process.pd, guest.gid()));
        }
        // A window of type 2 accepts one bind, and rejects further binds until it is invalidated.
        let window = |mw_type: u32| own.guest().alloc_mw(own.process.pd, mw_type).unwrap();
        let windows = [1, 1, 1, 1, 1, 2].map(window).to_vec();
        Field { own, remote, pairs, mrs, remote_mrs, windows, srqn, receives, handles }
    }

    /// Takes completions, reconnects QPs with an error, and posts receives of the remote side.
    fn repair(&mut self) {
        let mut broken = BTreeSet::new();
        for cq in [&mut self.own.cq, &mut self.remote.cq] {
            while let Some(wc) = cq.poll() {
                let failed = wc.status() != WcStatus::SUCCESS;
                if failed {
                    broken.insert(wc.qpn());
                }
                let at = self.pairs.iter().position(|p| wc.is_recv() && p.1.number == wc.qpn());
                if let Some(at) = at.filter(|at| !failed || is_xrc(&self.pairs[*at].0)) {
                    self.receives[at] = self.receives[at].saturating_sub(1);
                }
            }
        }
        for (at, (own, remote)) in self.pairs.iter().enumerate() {
            if broken.contains(&own.number) || broken.contains(&remote.number) {
                own.to_state(QpState::RESET).unwrap();
                remote.to_state(QpState::RESET).unwrap();
                connect(own, remote);
                // Receives of an SRQ stay there.
                if !is_xrc(own) {
                    self.receives[at] = 0;
                }
            }
            while self.receives[at] < 16 {
                let sge = [self.remote.mr.sge(0, 4096)];
                self.remote.process.post(&match is_xrc(own) {
                    true => Request::srq_recv(self.srqn, self.receives[at], &sge),
                    false => Request::recv(remote.tag(self.receives[at]), &sge),
                });
                self.receives[at] += 1;
            }
        }
    }

    /// Builds a request of 1 to 8 units, with some nonsense in it.
    fn request(&self, rng: &mut Rng) -> Vec<u64> {
        let opcode = match rng.below(16) {
            0 if rng.one_in(4) => WrOpcode::REG_MR.0,
            0 => rng.next_u64() as u8,
            1..5 => 128,
            _ => {
                *rng.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 9, WrOpcode::FLUSH.0, WrOpcode::ATOMIC_WRITE.0])
            }
        };
        // A bind, an invalidation, a registration or a FLUSH has no payload.
        let bare = matches!(opcode, 7 | 8 | 10 | 14);
        let flags = if rng.one_in(20) { rng.next_u64() as u16 } else { 1 | (rng.below(4) << 1) as u16 };
        let write = opcode == WrOpcode::ATOMIC_WRITE.0;
        let inline = rng.one_in(5) && (opcode < 3 || write);
        let flags = if inline { flags | 8 } else { flags };
        let atomic = opcode == 5 || opcode == 6;
        let sges = match rng.below(12) {
            _ if atomic || write && !inline => 1,
            _ if bare && !rng.one_in(10) => 0,
            0 => rng.next_u64() as u8,
            1 => rng.below(31) as u8,
            _ => rng.below(3) as u8,
        };
        let sges = if inline && !rng.one_in(20) { 0 } else { sges };
        // A list of requests, mostly of a permitted length.
        let list = rng.one_in(4) && (opcode == 2 || opcode == 128) && !inline;
        let (flags, sges) = match list {
            true if opcode == 128 && !rng.one_in(10) => (wqe::flags::LIST, rng.below(7) as u8),
            true => (flags | wqe::flags::LIST, rng.below(7) as u8),
            false => (flags, sges),
        };
        let most = if rng.one_in(10) { 1000 } else { 200 };
        let inline_len = match inline {
            true if write && !rng.one_in(10) => 8,
            true => rng.below(most) as u16,
            false => 0,
        };
        let bytes = if atomic {
            32
        } else if inline {
            inline_len.into()
        } else {
            16 * usize::from(sges)
        };
        let pair = rng.pick(&self.pairs);
        // The number of the peer's SRQ shifts the fields after it.
        let xrc = is_xrc(&pair.0) != rng.one_in(40);
        let (flags, shift) = if xrc { (flags | XRC, 2) } else { (flags, 0) };
        let units = (32 + 8 * shift + bytes).div_ceil(64).clamp(1, 8);
        let qp = match rng.below(20) {
            0 => rng.nasty() as u32,
            1 => pair.1.number,
            _ => pair.0.number,
        };
        let mut words = vec![0u64; 8 * units];
        words[0] = u64::from(opcode) | (units as u64) << 8 | u64::from(flags) << 16 | u64::from(qp) << 32;
        words[1] = rng.next_u64() & 0xffff_ffff | u64::from(sges) << 32 | u64::from(inline_len) << 48;
        let (at, _, rkey) = element(rng, &self.remote_mrs);
        words[2] = if (atomic || write) && !rng.one_in(10) { at & !7 } else { at };
        words[3] = u64::from(rkey) | rng.next_u64() << 32;
        if pair.0.options.qp_type == QpType::UD && !rng.one_in(20) {
            (words[2], words[3]) = target(rng, &pair.1);
        }
        if xrc {
            words[4] = if rng.one_in(20) { rng.nasty() } else { self.srqn.into() };
        }
        let mut next = 4 + shift;
        if atomic {
            (words[next], words[next + 1]) = (rng.nasty(), rng.nasty());
            next += 2;
        }
        while !inline && next + 1 < words.len() {
            let (addr, length, lkey) = element(rng, &self.mrs);
            let length = if atomic || write && !rng.one_in(10) { 8 } else { length };
            (words[next], words[next + 1]) = (addr, u64::from(length) | u64::from(lkey) << 32);
            next += 2;
        }
        if (7..=9).contains(&opcode) {
            let window = u64::from(*rng.pick(&self.windows));
            words[3] = window;
            if opcode == 8 {
                // A bind may change a window's key, and a later one may restore its first key.
                let [old, new] = [8, 50].map(|one| if rng.one_in(one) { window ^ 1 } else { window });
                words[2] = old | new << 32;
                let (addr, length, lkey) = element(rng, &self.mrs);
                let length = if rng.one_in(2) { 0 } else { length };
                words[3] = u64::from(lkey) | rng.below(8) << 33;
                (words[4], words[5]) = (addr, length.into());
            }
        }
        if opcode == WrOpcode::FLUSH.0 {
            let (placement, level) = (rng.below(5), rng.below(3));
            words[3] = u64::from(rkey) | placement << 32 | level << 40;
            words[4 + shift] = u64::from(element(rng, &self.remote_mrs).1);
        }
        if opcode == WrOpcode::REG_MR.0 {
            // An existing region and list: the registration is refused all the same.
            let mr = &self.mrs[0];
            words[2] = u64::from(mr.key) | 7 << 32;
            words[3..8].copy_from_slice(&[12, mr.iova, 4096, mr.gpa(0), 0]);
        }
        if rng.one_in(50) {
            let at = rng.below(words.len() as u64) as usize;
            // The number of units stays: other tests break it.
            words[at] ^= rng.next_u64() & if at == 0 { !0xff00 } else { u64::MAX };
        }
        words
    }
}

/// Flag of a request that names an SRQ of the peer.
const XRC: u16 = wqe::flags::XRC;

fn is_xrc(qp: &Qp) -> bool {
    qp.options.qp_type == QpType::XRC_SEND
}

/// Creates an XRC SRQ of the remote side, with an initiator and a target that can use it.
fn xrc_pair(own: &Side, remote: &Side, options: &QpOptions) -> (u32, (Qp, Qp)) {
    let guest = remote.guest();
    let xrcdn = guest.alloc_xrcd().unwrap();
    let queue = CreateSrqReq {
        context: remote.process.number.into(),
        pdn: remote.process.pd.into(),
        max_wr: 64.into(),
        max_sge: 1.into(),
        xrcdn: xrcdn.into(),
        cqn: remote.cq.number.into(),
    };
    let srqn = guest.create_srq(&queue).unwrap();
    let [send, recv] =
        [QpType::XRC_SEND, QpType::XRC_RECV].map(|qp_type| QpOptions { qp_type, ..options.clone() });
    let recv = QpOptions { xrcdn, ..recv };
    let process = &own.process;
    let send =
        Qp::create(own.guest(), process.number, process.pd, own.cq.number, limit::NONE, &send).unwrap();
    let none = limit::NONE;
    let recv = Qp::create(guest, limit::KERNEL_CONTEXT, none, none, none, &recv).unwrap();
    connect(&send, &recv);
    (srqn, (send, recv))
}

/// Returns the address handle, QP and `Q_Key` of a datagram, mostly valid ones.
fn target(rng: &mut Rng, remote: &Qp) -> (u64, u64) {
    let handle = match rng.below(20) {
        0 => rng.nasty() as u32,
        1..5 => rng.below(HANDLES.into()) as u32,
        _ => 1,
    };
    let qpn = if rng.one_in(20) { rng.nasty() as u32 } else { remote.number };
    // Valid `Q_Key`s are frequent enough that some datagrams surely arrive. Few do.
    let qkey = if rng.one_in(4) { rng.nasty() as u32 } else { remote.options.qkey };
    (u64::from(handle) | u64::from(qpn) << 32, u64::from(qkey) | rng.next_u64() << 32)
}

/// A kernel that writes address handles without any rules while the device reads them.
struct Scribbler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Scribbler {
    fn start(guests: &[Arc<Guest>], table: &AhTable, pd: u32, mut rng: Rng) -> Scribbler {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, memory, gpa) = (stop.clone(), guests[0].memory.clone(), table.gpa);
        let gids: Vec<_> = guests.iter().map(|guest| guest.gid()).collect();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let mut bytes = [0; AhEntry::SIZE];
                let sound = AhEntry { valid: 1.into(), ..entry(pd, *rng.pick(&gids)) };
                bytes.copy_from_slice(sound.as_bytes());
                if rng.one_in(2) {
                    let at = rng.below(AhEntry::SIZE as u64) as usize;
                    rng.fill(&mut bytes[at..]);
                }
                let index = u64::from(GOOD) + rng.below(u64::from(HANDLES - GOOD));
                memory.write(gpa + index * AhEntry::SIZE as u64, &bytes);
                std::thread::yield_now();
            }
        });
        Scribbler { stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// Returns the address, length and key of an element, mostly valid ones.
fn element(rng: &mut Rng, mrs: &[Mr]) -> (u64, u32, u32) {
    let mr = if rng.one_in(10) { rng.pick(mrs) } else { &mrs[0] };
    let length = if rng.one_in(40) { rng.nasty() as u32 } else { rng.below(4000) as u32 };
    let addr = if rng.one_in(40) { mr.iova.wrapping_add(rng.nasty()) } else { mr.iova + rng.below(16_000) };
    let key = if rng.one_in(40) { rng.next_u32() } else { mr.key };
    (addr, length, key)
}

#[test]
fn a_hundred_thousand_random_requests_reach_nothing_that_is_not_registered() {
    let lab = Lab::new(3);
    let mut rng = Rng::from_env("a_hundred_thousand_random_requests");
    let mut canaries = [0, 1].map(|i| Canary::new(&lab.guests[i].memory, i as u64));
    let bystander = Canary::new(&lab.guests[2].memory, 2);
    // One ping-pong between other guests, and one with a process of the hostile process' own guest.
    let pingpongs =
        [PingPong::start(&lab.guests[1], &lab.guests[2]), PingPong::start(&lab.guests[0], &lab.guests[2])];
    let mut field = Field::new(&lab, &mut canaries);
    let scribbler =
        Scribbler::start(&lab.guests, &field.handles, field.own.process.pd, Rng::new(rng.next_u64()));
    let mut poster = RawPoster::default();
    for n in 0..REQUESTS {
        let request = field.request(&mut rng);
        poster.post(&mut field.own.process.channel, &request);
        if n % 48 == 0 {
            field.repair();
        }
    }
    let channel = &field.own.process.channel;
    poster.drain(channel);
    scribbler.stop();
    let stats = lab.stats();
    assert_eq!(stats.device(0, "broken_channels"), 0, "what a request says breaks no channel");
    let moved = |counter| stats.transport(0, counter);
    let done = [
        "sends",
        "writes",
        "reads",
        "fetch_adds",
        "compare_swaps",
        "atomic_writes",
        "binds",
        "naks_access",
        "errors",
        "flushes",
    ];
    println!("{:?}", done.map(|counter| (counter, moved(counter))));
    let lost = ["drop_qkey", "drop_no_qp", "drop_service", "drop_access", "drop_length", "drop_invalid"];
    println!("{:?}", lost.map(|counter| (counter, stats.transport(1, counter))));
    let bad = stats.device(0, "bad_address_handles");
    println!("bad address handles: {bad}");
    assert!(bad > 50, "some handles have to be read while they are written: {bad}");
    assert!(stats.transport(1, "drop_qkey") > 0);
    for counter in ["sends", "writes", "reads", "fetch_adds", "atomic_writes", "binds"] {
        assert!(moved(counter) > 100, "most were nonsense: {counter} {}", moved(counter));
    }
    while let Some(told) = lab.guests[0].async_events().recv_within(std::time::Duration::ZERO) {
        assert_ne!(told.kind, EventKind::DEVICE_FATAL);
    }
    pingpongs.into_iter().for_each(|pingpong| {
        pingpong.stop();
    });
    canaries.iter().chain([&bystander]).for_each(Canary::check);
    // Regions without the right to write are unchanged.
    for mr in field.mrs[2..].iter().chain(&field.remote_mrs[1..]) {
        let first = mr.get(0, 1)[0];
        assert!(
            first >= 0x40 && mr.get(0, LEN).iter().all(|byte| *byte == first),
            "written without the right"
        );
    }
    // After the guest's reset it has no objects, and no request is in progress.
    lab.guests[0].reset().unwrap();
    assert_eq!(lab.stats().all_objects(0), []);
    for (_, remote) in &field.pairs {
        let _ = remote.destroy();
    }
    // The receives queued in the SRQ go with it.
    field.remote.guest().destroy_srq(field.srqn).unwrap();
    assert_eq!(lab.stats().objects(1, "pending_requests"), 0);
}
