//! Measures how much a greedy guest with 16,000 busy QPs disturbs another guest's ping-pong.
//!
//! Each of the greedy guest's QPs has 256 KiB pending. The victim's ping-pong checks each byte. Its
//! rate and latencies are measured alone, beside one busy QP, and beside all QPs. One thread plays
//! both guests.
//!
//! Beside one QP and beside all, the same worker has work waiting all the time. The results
//! therefore differ only by how the worker schedules QPs. The program ends with 1 if a victim gets
//! less than its share.
//!
//! The last parts are not judged: they run over a path that holds many frames. Requests of all
//! 16,000 QPs can be queued there, but a single QP has only its limit of outstanding frames.
//!
//! `cargo bench -p vrdma-tests --bench fairness [-- PART]` runs only the parts whose names contain
//! PART.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use vrdma_tests::abi::control::QpType;
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::qp::connect;
use vrdma_tests::side::{Side, pair_between};
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::wait::PATIENCE;
use vrdma_tests::{CableOptions, Context, Cq, Lab, LabOptions, Mr, Qp, QpOptions, Rng, proc};

/// QPs of the greedy guest.
const QPS: usize = 16_000;
/// Bytes that each of the many QPs has pending.
const PENDING: u32 = 256 << 10;
/// Bytes that the one busy QP has pending, so that it is never without work.
const PENDING_OF_ONE: u32 = 4 * PENDING;
/// Shortest time of a measurement.
const TIME: Duration = Duration::from_secs(6);
/// Longest time of a measurement that has not reached [`ENOUGH`] rounds.
const LONGEST: Duration = Duration::from_secs(20);
/// Rounds of the ping-pong that a 99.9th percentile needs.
const ENOUGH: usize = 3000;
/// Bytes of a small message, which the worker may execute as soon as it is posted.
const SMALL: u32 = 1000;
/// Bytes of a long message, which waits for its turn.
const LONG: u32 = 80_000;
/// Random bytes that messages are parts of.
const BYTES: u64 = 1 << 20;
/// Most frames in flight between the two hosts: as many as one QP may have outstanding.
///
/// Scheduling no longer affects frames in rings. If two workers and this program share two
/// processors, a worker fills the rings while the peer does not run.
const RINGS: usize = 128;
/// Completions taken, and requests posted, between two polls of the ping-pong.
const STEP: usize = 8;

/// Lowest accepted rate, as a fraction of the rate beside one busy QP.
const RATE: f64 = 0.4;
/// Highest accepted 99.9th percentile, as a multiple of that beside one busy QP.
const LATENCY: f64 = 10.0;

/// A process of the greedy guest, which always has more work.
struct Greedy {
    process: Context,
    cq: Cq,
    from: Mr,
    to: Mr,
    /// Its QPs, each with its peer in another guest.
    qps: Vec<(Qp, Qp)>,
    /// QPs without a pending request, by position. A QP appears once for each request to post.
    idle: Vec<u32>,
    /// Number of QPs in use.
    used: usize,
    /// Bytes that each QP in use has pending.
    pending: u32,
    outstanding: usize,
    /// Bytes of completed requests.
    bytes: u64,
    /// Status of the first completion that was no success.
    failed: Option<WcStatus>,
}

impl Greedy {
    fn new(lab: &Lab, to: usize, service: QpType) -> Greedy {
        let (from, to) = (&lab.guests[0], &lab.guests[to]);
        let process = Context::open(from).expect("a context");
        let peer = Context::open(to).expect("a context");
        let (cq, peer_cq) = (process.cq(2 * QPS as u32), peer.cq(16));
        let options = QpOptions { send_wr: 4, recv_wr: 1, sges: 1, inline: 0, ..QpOptions::of(service) };
        let pairs = (0..QPS).map(|_| {
            let ends = (process.qp(&cq, &cq, &options), peer.qp(&peer_cq, &peer_cq, &options));
            connect(&ends.0, &ends.1);
            ends
        });
        let qps = pairs.collect();
        // All QPs use the same two buffers.
        let (from, to) = (process.mr(PENDING.into()), peer.mr(PENDING.into()));
        Greedy {
            process,
            cq,
            from,
            to,
            qps,
            idle: Vec::new(),
            used: 0,
            pending: 0,
            outstanding: 0,
            bytes: 0,
            failed: None,
        }
    }

    /// Starts traffic: each of `used` QPs has `pending` bytes to send. Returns when all are posted.
    fn begin(&mut self, used: usize, pending: u32) {
        (self.used, self.pending, self.bytes) = (used, pending, 0);
        let requests = pending / PENDING;
        self.idle = (0..requests).flat_map(|_| 0..used as u32).collect();
        while !self.idle.is_empty() {
            self.step();
        }
    }

    /// Posts a few requests, and takes a few completions.
    fn step(&mut self) {
        let mut posted = false;
        for _ in 0..STEP {
            let Some(&at) = self.idle.last() else { break };
            let own = [self.from.sge(0, PENDING)];
            let request =
                Request::write(self.qps[at as usize].0.tag(at), self.to.remote(0), Data::Sges(&own));
            if self.process.channel.driver.push(&request.signaled(true)).is_err() {
                break;
            }
            posted = true;
            self.outstanding += 1;
            self.idle.pop();
        }
        if posted {
            self.process.channel.driver.ring();
        }
        self.reap();
    }

    fn reap(&mut self) {
        for _ in 0..STEP {
            let Some(wc) = self.cq.poll() else { break };
            self.outstanding -= 1;
            self.bytes += u64::from(PENDING);
            if wc.status() == WcStatus::SUCCESS {
                self.idle.push(wc.id());
            } else {
                self.failed.get_or_insert(wc.status());
            }
        }
    }

    /// Stops posting, and waits until all requests have completed.
    fn end(&mut self) {
        let start = Instant::now();
        while self.outstanding > 0 {
            self.reap();
            assert!(start.elapsed() < 8 * PATIENCE, "{} requests do not end", self.outstanding);
        }
        self.idle.clear();
    }
}

/// The results of a ping-pong.
struct Figures {
    /// Rounds per second.
    rate: f64,
    /// 99.9th percentile of the duration of a round.
    tail: Duration,
}

/// The guest that has to get its share.
struct Victim {
    a: Side,
    b: Side,
    bytes: Vec<u8>,
    rng: Rng,
}

impl Victim {
    fn new(lab: &Lab, a: usize, b: usize) -> Victim {
        let options = QpOptions::default();
        let (a, b) = pair_between(&lab.guests[a], &lab.guests[b], 2 * BYTES, &options);
        let mut rng = Rng::new(7);
        let bytes = rng.bytes(BYTES as usize);
        a.mr.put(0, &bytes);
        b.mr.put(0, &bytes);
        Victim { a, b, bytes, rng }
    }

    /// Sends `there` bytes and gets `back` bytes in return. Each message is checked on arrival.
    fn round(&mut self, there: u32, back: u32, meanwhile: &mut impl FnMut()) -> Result<(), WcStatus> {
        let Victim { a, b, bytes, rng } = self;
        let offset = rng.below(BYTES - u64::from(there.max(back)));
        send(a, b, offset, there, bytes, meanwhile)?;
        send(b, a, offset, back, bytes, meanwhile)
    }

    /// Plays rounds for some time and measures them. `meanwhile` plays the greedy guest.
    fn measure(&mut self, mut meanwhile: impl FnMut()) -> Result<Figures, WcStatus> {
        let start = Instant::now();
        let mut times = Vec::new();
        let mut last = start;
        while start.elapsed() < TIME || (times.len() < ENOUGH && start.elapsed() < LONGEST) {
            let (there, back) = if times.len() % 2 == 0 { (SMALL, SMALL) } else { (LONG, SMALL) };
            self.round(there, back, &mut meanwhile)?;
            let now = Instant::now();
            times.push(now - last);
            last = now;
        }
        let rate = times.len() as f64 / start.elapsed().as_secs_f64();
        times.sort_unstable();
        Ok(Figures { rate, tail: times[(times.len() - 1) * 999 / 1000] })
    }
}

/// Sends bytes at `offset`, and checks them at the receiver.
fn send(
    from: &mut Side,
    to: &mut Side,
    offset: u64,
    len: u32,
    bytes: &[u8],
    meanwhile: &mut impl FnMut(),
) -> Result<(), WcStatus> {
    to.recv(1, &[to.mr.sge(BYTES, len)]);
    let own = [from.mr.sge(offset, len)];
    from.post(&Request::send(from.qp.tag(2), Data::Sges(&own)).signaled(true));
    for cq in [&mut to.cq, &mut from.cq] {
        let wc = loop {
            match cq.poll() {
                Some(wc) => break wc,
                None => meanwhile(),
            }
        };
        if wc.status() != WcStatus::SUCCESS {
            return Err(wc.status());
        }
    }
    let range = offset as usize..offset as usize + len as usize;
    assert!(to.mr.get(BYTES, len.into()) == bytes[range], "wrong bytes");
    Ok(())
}

/// A path and a QP type to measure.
struct Part {
    name: &'static str,
    service: QpType,
    cable: Option<CableOptions>,
    /// Whether the part fails if the victim does not get its share.
    judged: bool,
}

/// Measures one part, and returns whether the victim got its share.
fn run(Part { name, service, cable, judged }: Part) -> bool {
    let pin = cable.is_none();
    let options = LabOptions { cable, ..LabOptions::default() };
    // With a cable, guests with odd numbers are on the remote host.
    let lab = Lab::with(4, options);
    if pin && let Some(worker) = proc::thread_named("worker") {
        proc::pin(worker, 1);
        proc::pin(0, 0);
    }
    let mut victim = Victim::new(&lab, 2, 3);
    let mut greedy = Greedy::new(&lab, 1, service);
    let show = |what: &str, figures: &Result<Figures, WcStatus>, beside: f64| match figures {
        Ok(Figures { rate, tail }) => println!(
            "{name:<14} {what:<24} {rate:>10.0} rounds/s   99.9th percentile {tail:>10.2?}   beside it {beside:>6.2} GB/s"
        ),
        Err(status) => println!("{name:<14} {what:<24} failed: {status:?}"),
    };
    let alone = victim.measure(std::thread::yield_now);
    show("alone", &alone, 0.0);
    let mut beside = |used: usize, pending: u32, what: &str| {
        greedy.begin(used, pending);
        let start = Instant::now();
        let before = greedy.bytes;
        let figures = victim.measure(|| greedy.step());
        let speed = (greedy.bytes - before) as f64 / start.elapsed().as_secs_f64() / 1e9;
        show(what, &figures, speed);
        greedy.end();
        figures
    };
    let one = beside(1, PENDING_OF_ONE, "beside one busy QP");
    let all = beside(QPS, PENDING, &format!("beside {QPS} QPs"));
    if let Some(status) = greedy.failed {
        println!("{name:<14} of the many QPs one failed: {status:?}");
        return false;
    }
    let (Ok(one), Ok(all)) = (one, all) else { return false };
    let rate = all.rate / one.rate;
    let tail = all.tail.as_secs_f64() / one.tail.as_secs_f64();
    let passed = rate >= RATE && tail <= LATENCY;
    let verdict = match (passed, judged) {
        (_, false) => "not judged, what lies in long rings is past all turns",
        (true, true) => "passed",
        (false, true) => "FAILED",
    };
    println!(
        "{name:<14} {QPS} beside one: rate {rate:.2} (at least {RATE}), 99.9th percentile {tail:.2} (at most {LATENCY}): {verdict}"
    );
    passed || !judged
}

fn main() -> ExitCode {
    // cargo passes "--bench".
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let same_host = |name, service| Part { name, service, cable: None, judged: true };
    let wire = |name, service, depth, judged| {
        let cable = Some(CableOptions { depth, ..CableOptions::default() });
        Part { name, service, cable, judged }
    };
    let long = CableOptions::default().depth;
    let parts = [
        same_host("same host RC", QpType::RC),
        same_host("same host UC", QpType::UC),
        wire("wire RC", QpType::RC, RINGS, true),
        wire("wire UC", QpType::UC, RINGS, true),
        wire("long rings RC", QpType::RC, long, false),
        wire("long rings UC", QpType::UC, long, false),
    ];
    let mut passed = true;
    for part in parts {
        if wanted.is_empty() || wanted.iter().any(|word| part.name.contains(word.as_str())) {
            // Each part has a thread of its own. Pinning in one part must not pin the threads of
            // the next.
            passed &= thread::scope(|scope| scope.spawn(|| run(part)).join().expect("it does not panic"));
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
