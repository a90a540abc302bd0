//! What a guest notices of another whose process has 16,000 QPs with 256 KiB pending each: rate and
//! latencies of its ping-pong, in which each byte is checked, alone, beside one busy QP, and beside
//! all. One thread plays both guests. Beside one and beside all the same work is waiting for the
//! same worker, so what differs is how turns are given. Ends with 1 if a victim gets less than its
//! share. Last without a verdict: the same over a path that holds many frames, in which requests of
//! 16,000 QPs may lie, of one QP only as many as it may have outstanding.
//!
//! `cargo bench -p vrdma-tests --bench fairness [-- PART]`: only the parts whose names contain
//! this.

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

/// QPs of the guest that wants more than its share.
const QPS: usize = 16_000;
/// What is pending of each,
const PENDING: u32 = 256 << 10;
/// and of the single one, which is never without work.
const PENDING_OF_ONE: u32 = 4 * PENDING;
/// How long each measurement takes, at least.
const TIME: Duration = Duration::from_secs(6);
/// A measurement goes on for so long if it has not had enough rounds.
const LONGEST: Duration = Duration::from_secs(20);
/// Rounds of the ping-pong that a 99.9th percentile needs.
const ENOUGH: usize = 3000;
/// Bytes of a small message, which may be carried where it is posted,
const SMALL: u32 = 1000;
/// and of a long one, which waits for its turn.
const LONG: u32 = 80_000;
/// Random bytes of which messages are parts.
const BYTES: u64 = 1 << 20;
/// Frames that lie between the two hosts at most: as many as one QP may have outstanding. What lies
/// in rings is past all turns, and where two workers and this program share two processors, a
/// worker fills them while the other does not run.
const RINGS: usize = 128;
/// Completions that are taken, and requests that are posted, between two looks at the ping-pong.
const STEP: usize = 8;

/// The least rate, as a part of that beside one busy QP,
const RATE: f64 = 0.4;
/// and the most that the 99.9th percentile may be, in multiples of that.
const LATENCY: f64 = 10.0;

/// A guest's process that always wants more.
struct Greedy {
    process: Context,
    cq: Cq,
    from: Mr,
    to: Mr,
    /// All its QPs, and their peers of another guest.
    qps: Vec<(Qp, Qp)>,
    /// QPs that have nothing pending, by position.
    idle: Vec<u32>,
    /// How many of them are used,
    used: usize,
    /// and how much is to be pending of each.
    pending: u32,
    outstanding: usize,
    /// Bytes that arrived.
    bytes: u64,
    /// The first completion that was no success.
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
        // All name the same buffers.
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

    /// From now on `used` QPs have `pending` bytes to send; returns when they have.
    fn begin(&mut self, used: usize, pending: u32) {
        (self.used, self.pending, self.bytes) = (used, pending, 0);
        let requests = pending / PENDING;
        self.idle = (0..requests).flat_map(|_| 0..used as u32).collect();
        while !self.idle.is_empty() {
            self.step();
        }
    }

    /// Posts and takes completions, a few of each.
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

    /// Posts nothing more, and waits until all has ended.
    fn end(&mut self) {
        let start = Instant::now();
        while self.outstanding > 0 {
            self.reap();
            assert!(start.elapsed() < 8 * PATIENCE, "{} requests do not end", self.outstanding);
        }
        self.idle.clear();
    }
}

/// What a ping-pong reached.
struct Figures {
    /// Rounds a second.
    rate: f64,
    /// 99.9th percentile of what a round took.
    tail: Duration,
}

/// The guest that is to have its share.
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

    /// There with a message of `there` bytes and back with one of `back`, each checked when it has
    /// come.
    fn round(&mut self, there: u32, back: u32, meanwhile: &mut impl FnMut()) -> Result<(), WcStatus> {
        let Victim { a, b, bytes, rng } = self;
        let offset = rng.below(BYTES - u64::from(there.max(back)));
        send(a, b, offset, there, bytes, meanwhile)?;
        send(b, a, offset, back, bytes, meanwhile)
    }

    /// Rounds for some time; `meanwhile` is what the other guest does.
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

/// A SEND of bytes at `offset`, which the receiver checks.
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

/// One way and one service.
struct Part {
    name: &'static str,
    service: QpType,
    cable: Option<CableOptions>,
    /// Whether there is a share that the victim has to get.
    judged: bool,
}

/// Whether the victim got its share.
fn run(Part { name, service, cable, judged }: Part) -> bool {
    let pin = cable.is_none();
    let options = LabOptions { cable, ..LabOptions::default() };
    // On the wire the odd ones are behind it.
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
    // cargo says "--bench".
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
            // On a thread of its own: where one part keeps it, the threads of the next shall not be
            // kept.
            passed &= thread::scope(|scope| scope.spawn(|| run(part)).join().expect("it does not panic"));
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
