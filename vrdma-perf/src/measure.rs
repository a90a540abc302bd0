//! One measurement: windows of operations and of their limit in turns.

use crate::args::{Connection, DaemonArgs, Figure, Run};
use crate::copying::Copying;
use crate::floor::Floor;
use crate::flow::Flows;
use crate::helper::Helper;
use crate::host::{ENTRIES, Host};
use crate::line;
use crate::load::{self, Load};
use crate::plan::{Operation, Plan};
use crate::stats::Quartiles;
use crate::turns::{self, Turns, Until};
use anyhow::Result;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::{Duration, Instant};
use vrdma_guest::memory::Memory;

/// Milliseconds of a window: short, so that processors seldom change places in it.
const WINDOW_MS: f64 = 5.;
/// Operations before those that count: they wake the worker, and fill caches.
const WARM_UP: u32 = 200;
/// Operations by which it is found out how long one takes.
const TRIAL: u32 = 2000;
/// Bytes of a trial at most.
const TRIAL_BYTES: u32 = 256 << 20;
/// After so long without work the worker is asleep, and leaves its processor to the limit.
const ASLEEP: Duration = Duration::from_millis(3);
/// Messages of so many bytes are limited by their copy, shorter ones by their way.
const LONG: u32 = 4096;

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What was posted.
    pub operation: &'static str,
    /// What of it was measured.
    pub figure: Figure,
    /// Service.
    pub connection: Connection,
    /// Bytes of a message.
    pub size: u32,
    /// QPs in each direction.
    pub qps: u32,
    /// Guests.
    pub guests: u8,
    /// Operations that were measured.
    pub iterations: u64,
    /// Of latencies: their distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// Of rates: operations per second, of windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Quartiles>,
    /// The best window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<f64>,
    /// What limits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Both beside each other: microseconds, operations per second, or bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
}

/// A distribution of times in microseconds.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "each is what its name says")]
pub struct Latency {
    pub min: f64,
    pub max: f64,
    pub typical: f64,
    pub average: f64,
    pub deviation: f64,
    pub p99: f64,
    pub p999: f64,
}

impl Latency {
    fn of(times: &Histogram<u64>) -> Latency {
        let us = |nanos: u64| nanos as f64 / 1e3;
        Latency {
            min: us(times.min()),
            max: us(times.max()),
            typical: us(times.value_at_quantile(0.5)),
            average: times.mean() / 1e3,
            deviation: times.stdev() / 1e3,
            p99: us(times.value_at_quantile(0.99)),
            p999: us(times.value_at_quantile(0.999)),
        }
    }
}

/// A load whose windows are measured.
pub struct Windows<'a, L> {
    load: L,
    figure: Figure,
    size: u32,
    /// Operations of a window.
    count: u32,
    times: &'a mut Histogram<u64>,
    /// Operations of all windows, and the rate of each.
    operations: u64,
    rates: Vec<f64>,
}

impl<'a, L: Load> Windows<'a, L> {
    /// Finds out how many operations make a window; `most` at most.
    fn new(load: L, plan: &Plan, figure: Figure, most: u32, times: &'a mut Histogram<u64>) -> Result<Self> {
        let mut windows =
            Windows { load, figure, size: plan.size, count: 1, times, operations: 0, rates: Vec::new() };
        windows.count = TRIAL.min(TRIAL_BYTES / plan.size.max(1)).clamp(1, most);
        windows.window()?;
        let start = Instant::now();
        windows.window()?;
        let each = start.elapsed().as_secs_f64() * 1e3 / f64::from(windows.count);
        windows.count = ((WINDOW_MS / each) as u32).clamp(1, most);
        windows.forget();
        Ok(windows)
    }

    /// Forgets what was measured so far.
    fn forget(&mut self) {
        self.times.reset();
        self.operations = 0;
        self.rates.clear();
    }

    /// A window: its median in microseconds, or its rate in operations or bytes per second.
    fn window(&mut self) -> Result<f64> {
        self.operations += u64::from(self.count);
        let warm_up = WARM_UP.min(self.count);
        if self.figure == Figure::Lat {
            load::latency(&mut self.load, warm_up, |_| ())?;
            let (times, mut window) = (&mut *self.times, Vec::with_capacity(self.count as usize));
            load::latency(&mut self.load, self.count, |time| {
                window.push(time.as_nanos() as f64);
                times.saturating_record(time.as_nanos() as u64);
            })?;
            return Ok(Quartiles::of(window).median / 1e3);
        }
        load::rate(&mut self.load, warm_up)?;
        let time = load::rate(&mut self.load, self.count)?;
        let rate = f64::from(self.count) / time.as_secs_f64();
        self.rates.push(rate);
        Ok(if self.figure == Figure::Bw { rate * f64::from(self.size) } else { rate })
    }
}

/// What operations are to be held against.
#[derive(Clone, Copy, Debug)]
pub enum Beside<'a> {
    /// Nothing.
    Nothing,
    /// What the machine can do at best.
    Limit,
    /// Other operations between the same guests.
    Plan(&'a Plan),
    /// The same operations through another daemon.
    Daemon(&'a DaemonArgs),
}

/// The same, ready to be measured.
enum Limit<'a> {
    Floor(Windows<'a, Floor>),
    Copy(Copying),
    Operations(Windows<'a, Flows>, String),
}

impl<'a> Limit<'a> {
    /// What the machine can do: copies between the same buffers that the messages go through, or the ring floor.
    fn new(
        helper: &Helper,
        flows: &Flows,
        plan: &Plan,
        figure: Figure,
        times: &'a mut Histogram<u64>,
    ) -> Result<Self> {
        if figure == Figure::Bw && plan.size >= LONG {
            let copying = Copying::new(helper, flows.buffers(), plan.size, plan.stride, plan.span, WINDOW_MS);
            return Ok(Limit::Copy(copying));
        }
        let memory = Memory::new(&[(0, (1 << 20) + 4 * plan.span)])?;
        let floor = Floor::new(&memory, ENTRIES, plan.size, plan.depth);
        floor.begin(helper);
        let windows = Windows::new(floor, plan, figure, u32::MAX, times)?;
        windows.load.end(helper);
        Ok(Limit::Floor(windows))
    }

    fn name(&self) -> String {
        match self {
            Limit::Floor(_) => "ring floor".to_owned(),
            Limit::Operations(_, name) => name.clone(),
            Limit::Copy(copying) => format!("copy by {}", copying.name),
        }
    }

    fn window(&mut self, helper: &Helper) -> Result<f64> {
        match self {
            Limit::Floor(windows) => {
                windows.load.begin(helper);
                let value = windows.window();
                windows.load.end(helper);
                value
            }
            Limit::Copy(copying) => Ok(copying.window(helper)),
            Limit::Operations(windows, _) => windows.window_alone(),
        }
    }
}

/// Measures what a plan says.
///
/// # Errors
/// The daemon does not start, refuses something, or ends; an operation fails.
pub fn measure(
    plan: &Plan,
    figure: Figure,
    run: &Run,
    daemon: &DaemonArgs,
    beside: Beside<'_>,
) -> Result<Measured> {
    let room = match beside {
        Beside::Plan(other) => plan.memory() + other.memory(),
        _ => plan.memory(),
    };
    let host = Host::new(daemon, plan.guests, room)?;
    let other_host = match beside {
        Beside::Daemon(args) => Some(Host::new(args, plan.guests, room)?),
        _ => None,
    };
    let flows = Flows::new(&host, plan)?;
    let [mut times, mut floor_times] = [(); 2].map(|()| histogram());
    let most = run.iters.unwrap_or(u32::MAX);
    let mut windows = Windows::new(flows, plan, figure, most, &mut times)?;
    let until = match run.iters {
        Some(count) => Until::Pairs(count.div_ceil(windows.count) as usize),
        None => Until::Time(Duration::from_secs_f64(run.duration)),
    };
    let (mut limit_name, mut taken) = (None, None);
    if matches!(beside, Beside::Nothing) {
        windows.alone(until)?;
    } else {
        std::thread::sleep(ASLEEP);
        let helper = Helper::start(daemon.cpus.1);
        let mut limit = match beside {
            Beside::Plan(other) => {
                let flows = Flows::new(&host, other)?;
                let windows = Windows::new(flows, other, figure, most, &mut floor_times)?;
                Limit::Operations(windows, other.operation.name().to_owned())
            }
            Beside::Daemon(_) => {
                let host = other_host.as_ref().expect("started above");
                let windows = Windows::new(Flows::new(host, plan)?, plan, figure, most, &mut floor_times)?;
                Limit::Operations(windows, "the other".to_owned())
            }
            Beside::Limit | Beside::Nothing => {
                Limit::new(&helper, &windows.load, plan, figure, &mut floor_times)?
            }
        };
        std::thread::sleep(ASLEEP);
        let own = || windows.window_alone();
        taken = Some(turns::take(until, || line::round_trip(&helper), own, || limit.window(&helper))?);
        limit_name = Some(limit.name());
    }
    let mut measured = windows.result(plan);
    (measured.limit, measured.turns) = (limit_name, taken);
    Ok(measured)
}

impl<L: Load> Windows<'_, L> {
    /// What all windows gave, without a limit.
    fn result(&self, plan: &Plan) -> Measured {
        let lat = self.figure == Figure::Lat;
        Measured {
            operation: plan.operation.name(),
            figure: self.figure,
            connection: plan.connection,
            size: plan.size,
            qps: plan.qps,
            guests: plan.guests,
            iterations: self.operations,
            latency_us: lat.then(|| Latency::of(self.times)),
            rate: (!lat).then(|| Quartiles::of(self.rates.iter().copied())),
            peak: (!lat).then(|| self.rates.iter().copied().fold(0., f64::max)),
            limit: None,
            turns: None,
        }
    }
}

impl Windows<'_, Flows> {
    /// A window, after which the worker gets time to go to sleep.
    fn window_alone(&mut self) -> Result<f64> {
        let value = self.window();
        std::thread::sleep(ASLEEP);
        value
    }
}

impl<L: Load> Windows<'_, L> {
    /// Windows one after the other.
    fn alone(&mut self, until: Until) -> Result<()> {
        let (start, mut count) = (Instant::now(), 0);
        loop {
            let enough = match until {
                Until::Time(time) => start.elapsed() >= time,
                Until::Pairs(pairs) => count >= pairs,
            };
            if enough {
                return Ok(());
            }
            self.window()?;
            count += 1;
        }
    }
}

/// Measures an operation in all sizes that are asked for, and hands on each result as soon as it is there.
///
/// # Errors
/// As of [`measure`], or what is asked for makes no sense.
pub fn all(
    operation: Operation,
    args: &crate::args::Measure,
    mut each: impl FnMut(&Plan, Measured) -> Result<()>,
) -> Result<()> {
    let beside = if args.run.no_limits { Beside::Nothing } else { Beside::Limit };
    for plan in Plan::all(operation, args.figure, &args.load)? {
        each(&plan, measure(&plan, args.figure, &args.run, &args.daemon, beside)?)?;
    }
    Ok(())
}

/// Of nanoseconds up to a minute, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("possible bounds")
}
