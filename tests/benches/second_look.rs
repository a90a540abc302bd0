//! Measures the cost of the worker's second check of guest memory, alternately with and without it.
//!
//! For a worker that sleeps, it measures a request that arrives when the worker sleeps until a
//! kick. The results are the worker's processor time and the latency of that request. For a worker
//! that never sleeps, and makes the check every 4,096 rounds, it measures the time of a request.

use std::time::{Duration, Instant};
use vrdma_backend::hooks;
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{Data, Request};
use vrdma_tests::{Lab, LabOptions, QpOptions, proc};

/// Number of windows with the second check, and of windows without.
const WINDOWS: usize = 40;
/// Requests in a window if the worker sleeps between them.
const SLEEPS: u32 = 50;
/// Requests in a window if the worker does not sleep.
const POLLS: u32 = 20_000;
/// Pause between two requests, after which the worker has made its second check.
const PAUSE: Duration = Duration::from_millis(4);

/// Results of a window for each request: the worker's processor time, and the latency.
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

/// Measures requests that are so far apart that the worker sleeps until a kick between them.
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

/// Measures back-to-back requests.
fn awake(a: &mut Side, b: &Side) -> Cost {
    let start = Instant::now();
    (0..POLLS).for_each(|id| write(a, b, id));
    let latency = start.elapsed() / POLLS;
    Cost { processor: latency, latency }
}

/// Measures windows with and without the second check, alternately.
///
/// Prints the medians, and the median of the ratios of neighbouring windows.
fn compare(what: &str, mut window: impl FnMut() -> Cost) {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for index in 0..2 * WINDOWS {
        // The order alternates, so neither variant gains by coming first.
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
