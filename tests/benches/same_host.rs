//! WRITE between two guests of one host, through the real rings: the driver on one processor, the daemon's worker on
//! another. Each figure stands beside the ring floor and the best plain copy, measured in the same run (ARCHITECTURE.md, "What one 8-byte WRITE touches").

use std::time::{Duration, Instant};
use vrdma_tests::floor::{Floor, copies};
use vrdma_tests::memory::Memory;
use vrdma_tests::proc;
use vrdma_tests::side::pair;
use vrdma_tests::verbs::{Channel, Cq, Data, Doorbell, Remote, Request, Sge, Tag};
use vrdma_tests::{Lab, LabOptions, QpOptions};

/// Processor of the driver.
const DRIVER: usize = 0;
/// Processor of the worker, or of the floor's device.
const WORKER: usize = 1;
/// Rounds, in each of which all are measured in turn.
const ROUNDS: usize = 7;
/// Windows of each round, and what is measured in each of them.
const WINDOWS: usize = 20;
const WINDOW_OPERATIONS: u32 = 10_000;
const WINDOW_BYTES: u64 = 64 << 20;
/// Requests outstanding when a rate is measured.
const DEPTH: u32 = 128;
const ENTRIES: u16 = 256;
const SIZES: [u64; 2] = [64 << 10, 1 << 20];

/// One end of a connection as the loops below need it.
struct End<'a, D> {
    channel: &'a mut Channel<D>,
    cq: &'a mut Cq,
    qpn: u32,
    from: Sge,
    to: Remote,
}

impl<D: Doorbell> End<'_, D> {
    #[inline]
    fn push(&mut self, id: u32, len: u32) -> bool {
        let own = [Sge { length: len, ..self.from }];
        let tag = Tag { qpn: self.qpn, wqe_id: id };
        self.channel.push(&Request::write(tag, self.to, Data::Sges(&own)).signaled(true)).is_ok()
    }

    /// Median time from post to completion, with one request outstanding.
    fn latency(&mut self, len: u32, count: u32) -> Duration {
        let mut times = Vec::with_capacity(count as usize);
        let mut before = Instant::now();
        for id in 0..count {
            assert!(self.push(id, len), "the channel is empty");
            self.channel.ring();
            let cqe = loop {
                match self.cq.poll() {
                    Some(cqe) => break cqe,
                    None => std::hint::spin_loop(),
                }
            };
            assert_eq!((cqe.wqe_id.get(), cqe.status), (id, 0));
            let now = Instant::now();
            times.push(now - before);
            before = now;
        }
        times.sort_unstable();
        times[times.len() / 2]
    }

    /// Operations per second, with many outstanding.
    fn rate(&mut self, len: u32, count: u32) -> f64 {
        let (mut posted, mut done) = (0, 0);
        let start = Instant::now();
        while done < count {
            while posted < count && posted - done < DEPTH && self.push(posted, len) {
                posted += 1;
            }
            self.channel.ring();
            self.cq.poll_batch(DEPTH as usize, |cqe| {
                assert_eq!((cqe.wqe_id.get(), cqe.status), (done, 0));
                done += 1;
            });
        }
        f64::from(count) / start.elapsed().as_secs_f64()
    }
}

/// What a device gives.
#[derive(Clone, Copy, Default)]
struct Figures {
    /// Microseconds.
    latency: f64,
    /// Million operations per second.
    rate: f64,
    /// Bytes per second for each of the sizes.
    bandwidth: [f64; 2],
}

impl Figures {
    /// Each in windows of a few milliseconds, in which the scheduler lets two threads have their processors even on a
    /// machine with other work; the best of them.
    fn measure<D: Doorbell>(end: &mut End<'_, D>) -> Figures {
        let windows = 0..WINDOWS;
        let mut rate = |len: u64, count: u64| {
            windows.clone().map(|_| end.rate(len as u32, count as u32)).fold(0.0, f64::max)
        };
        let bandwidth = SIZES.map(|size| rate(size, WINDOW_BYTES / size) * size as f64);
        let rate = rate(8, WINDOW_OPERATIONS.into()) / 1e6;
        let latency = windows.map(|_| end.latency(8, WINDOW_OPERATIONS)).min().unwrap_or_default();
        Figures { latency: latency.as_nanos() as f64 / 1e3, rate, bandwidth }
    }

    fn best(rounds: &[Figures]) -> Figures {
        let max = |of: fn(&Figures) -> f64| rounds.iter().map(of).fold(0.0, f64::max);
        Figures {
            latency: rounds.iter().map(|round| round.latency).fold(f64::MAX, f64::min),
            rate: max(|round| round.rate),
            bandwidth: [max(|round| round.bandwidth[0]), max(|round| round.bandwidth[1])],
        }
    }
}

/// Bytes per second of the fastest plain copy, and which that is.
fn best_copy(from: *const u8, to: *mut u8, len: u64) -> (f64, &'static str) {
    let mut best = (0.0, "");
    for (name, copy) in copies().into_iter().flat_map(|copy| [copy; WINDOWS / 2]) {
        let count = WINDOW_BYTES / len;
        let start = Instant::now();
        for _ in 0..count {
            // SAFETY: the caller's two buffers have `len` bytes each, a multiple of 32, and begin with pages.
            unsafe { copy(from, to, len as usize) };
        }
        let speed = (count * len) as f64 / start.elapsed().as_secs_f64();
        if speed > best.0 {
            best = (speed, name);
        }
    }
    best
}

/// Through the daemon, whose worker has a processor for itself.
fn through_the_daemon() -> Figures {
    proc::pin(0, DRIVER);
    let mut options = LabOptions { busy_poll: true, ..LabOptions::default() };
    options.guest.channel_size = ENTRIES;
    let lab = Lab::with(2, options);
    proc::pin(proc::thread_named("worker").expect("the daemon's worker"), WORKER);
    let qp = QpOptions { send_wr: DEPTH, ..QpOptions::default() };
    let (mut a, b) = pair(&lab, 1, 2 << 20, &qp);
    a.mr.fill(1);
    b.mr.fill(2);
    let (channel, cq) = (&mut a.process.channel.driver, &mut a.cq.driver);
    Figures::measure(&mut End { channel, cq, qpn: a.qp.number, from: a.mr.sge(0, 8), to: b.mr.remote(0) })
}

/// Through the floor, and by plain copies between the same buffers.
fn limits(copied: &mut [(f64, &'static str); 2]) -> Figures {
    let memory = Memory::new(&[(0, 8 << 20)]).expect("some memory");
    let [from, to] = [1, 2].map(|byte| {
        let gpa = memory.alloc(2 << 20);
        memory.fill(gpa, 2 << 20, byte);
        memory.host(gpa, 2 << 20).as_ptr()
    });
    for (best, size) in copied.iter_mut().zip(SIZES) {
        let found = best_copy(from, to, size);
        if found.0 > best.0 {
            *best = found;
        }
    }
    let mut floor = Floor::start(&memory, ENTRIES, WORKER);
    let from = Sge { addr: from.expose_provenance() as u64, length: 8, lkey: 0 };
    let to = Remote { addr: to.expose_provenance() as u64, rkey: 0 };
    let (channel, cq) = (&mut floor.channel, &mut floor.cq);
    Figures::measure(&mut End { channel, cq, qpn: 1, from, to })
}

fn main() {
    let start = Instant::now();
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    if cpus < 2 {
        println!("driver and worker need a processor each, there is {cpus}");
        return;
    }
    let (mut measured, mut floors, mut copied) = (Vec::new(), Vec::new(), [(0.0, ""); 2]);
    for _ in 0..ROUNDS {
        measured.push(through_the_daemon());
        floors.push(limits(&mut copied));
    }
    report(&Figures::best(&measured), &Figures::best(&floors), &copied);
    println!(
        "\n{ROUNDS} rounds in {:.1} s; each figure is the best of all windows",
        start.elapsed().as_secs_f64()
    );
}

fn report(measured: &Figures, floor: &Figures, copied: &[(f64, &'static str); 2]) {
    println!(
        "{:>8}  {:<22} {:>10} {:>10} {:>7}  target",
        "#bytes", "WRITE, same host", "measured", "limit", "ratio"
    );
    let line = |bytes: u64, what: &str, measured: f64, limit: f64, target: &str| {
        println!("{bytes:>8}  {what:<22} {measured:>10.3} {limit:>10.3} {:>7.2}  {target}", measured / limit);
    };
    line(8, "latency [us]", measured.latency, floor.latency, "<= 1.6 of the ring floor");
    line(8, "rate [million/s]", measured.rate, floor.rate, ">= 0.6 of the ring floor");
    for (i, size) in SIZES.into_iter().enumerate() {
        let (own, ring, (copy, how)) = (measured.bandwidth[i] / 1e9, floor.bandwidth[i] / 1e9, copied[i]);
        line(size, "bandwidth [GB/s]", own, ring, "(the ring floor)");
        line(size, "bandwidth [GB/s]", own, copy / 1e9, &format!(">= 0.9 of the best copy ({how})"));
    }
}
