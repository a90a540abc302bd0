//! What it costs that the worker looks once more at what guests wrote, with that look and without,
//! in turns. Of a worker that sleeps: the processor time of a request that comes when it sleeps for
//! good, and its latency. Of one that never sleeps, and looks every 4,096 turns: the time of a
//! request.

use std::time::{Duration, Instant};
use vrdma_backend::hooks;
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{Lab, LabOptions, QpOptions, proc};

/// Windows with the look, and as many without.
const WINDOWS: usize = 40;
/// Requests in a window while the worker sleeps between them,
const SLEEPS: u32 = 50;
/// and while it does not.
const POLLS: u32 = 20_000;
/// From one to the next: it has looked once more by then.
const PAUSE: Duration = Duration::from_millis(4);

/// What a window gives, by the processor time of the worker and by the clock, for each request.
#[derive(Clone, Copy, Debug)]
struct Cost {
    processor: Duration,
    latency: Duration,
}

fn write(a: &mut Side, b: &Side, id: u32) {
    a.process.post(&Request::write(a.qp.tag(id), b.mr.remote(0), Data::Inline(&[1; 8])).signaled(true));
    while a.cq.poll().is_none() {
        std::hint::spin_loop();
    }
}

/// Requests so far apart that the worker sleeps for good between them.
fn asleep(a: &mut Side, b: &Side) -> Cost {
    let used = || proc::thread_cpu_time(std::process::id(), "worker");
    let (before, mut latency) = (used(), Duration::ZERO);
    for id in 0..SLEEPS {
        std::thread::sleep(PAUSE);
        let start = Instant::now();
        write(a, b, id);
        latency += start.elapsed();
    }
    std::thread::sleep(PAUSE);
    Cost { processor: (used() - before) / SLEEPS, latency: latency / SLEEPS }
}

/// Requests one after the other.
fn awake(a: &mut Side, b: &Side) -> Cost {
    let start = Instant::now();
    (0..POLLS).for_each(|id| write(a, b, id));
    let latency = start.elapsed() / POLLS;
    Cost { processor: latency, latency }
}

/// Windows with the second look and without, in turns; the medians, and that of the ratios of
/// neighbours.
fn compare(what: &str, mut window: impl FnMut() -> Cost) {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for index in 0..2 * WINDOWS {
        // Whichever comes first has no advantage.
        let look = (index / 2 + index) % 2 == 0;
        hooks::set_second_looks(look);
        let windows = if look { &mut with } else { &mut without };
        windows.push(window());
    }
    hooks::set_second_looks(true);
    for (name, of) in [("processor", Cost::processor as fn(&Cost) -> f64), ("latency", Cost::latency)] {
        let [looks, none] = [&with, &without].map(|all| all.iter().map(of).collect::<Vec<f64>>());
        let ratios = looks.iter().zip(&none).map(|(with, without)| with / without).collect();
        let (looks, none, ratio) = (median(looks), median(none), median(ratios));
        println!("{what:<8} {name:<10} with {looks:>8.3} us, without {none:>8.3} us, ratio {ratio:.3}");
    }
}

impl Cost {
    fn processor(&self) -> f64 {
        self.processor.as_secs_f64() * 1e6
    }

    fn latency(&self) -> f64 {
        self.latency.as_secs_f64() * 1e6
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    proc::pin(0, 0);
    {
        let lab = Lab::with(2, LabOptions { poll_us: 0, ..LabOptions::default() });
        let (mut a, b) = pair(&lab, 1, 4096, &QpOptions::default());
        compare("asleep", || asleep(&mut a, &b));
    }
    let lab = Lab::with(2, LabOptions { busy_poll: true, ..LabOptions::default() });
    let (mut a, b) = pair(&lab, 1, 4096, &QpOptions::default());
    compare("awake", || awake(&mut a, &b));
}
