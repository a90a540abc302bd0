//! Measures windows of operations and of their limit alternately.

use crate::args::{Connection, DaemonArgs, Figure, Run};
use crate::floor::Floor;
use crate::flow::Flows;
use crate::helper::Helper;
use crate::host::Host;
use crate::line;
use crate::plan::{Operation, Plan};
use crate::reference::{ASLEEP, Beside, Reference, alone};
use crate::stats::Quartiles;
use crate::turns::{self, Turns, Until};
use crate::ucx::Ucx;
use crate::windows::{Kind, Latency, Windows, histogram};
use anyhow::Result;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// The result of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Name of the operation.
    pub operation: &'static str,
    /// The measured quantity.
    pub figure: Figure,
    /// Transport service.
    pub connection: Connection,
    /// Size of a message in bytes.
    pub size: u32,
    /// Number of QPs in each direction.
    pub qps: u32,
    /// Number of guests.
    pub guests: u8,
    /// Whether guests' memory is in huge pages.
    pub huge_pages: bool,
    /// Number of operations that were measured.
    pub iterations: u64,
    /// Distribution of latencies, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// Quartiles of the windows' rates, in operations per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Quartiles>,
    /// Rate of the best window, in operations per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<f64>,
    /// Name of the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Measurement and limit compared: in microseconds, operations per second, or bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
}

/// Measures what a plan describes.
///
/// # Errors
/// The daemon does not start, refuses a command, or ends. Or an operation fails.
pub fn measure(
    plan: &Plan,
    figure: Figure,
    run: &Run,
    daemon: &DaemonArgs,
    beside: Beside<'_>,
) -> Result<Measured> {
    let (guests, room) = match beside {
        Beside::Plan(other) => {
            assert_eq!(plan.transport, other.transport, "the same guests have one transport");
            (plan.guests.max(other.guests), plan.memory() + other.memory())
        }
        _ => (plan.guests, plan.memory()),
    };
    let host = Host::new(daemon, guests, room, plan.transport)?;
    let other_host = match beside {
        Beside::Daemon(args) => Some(Host::new(args, plan.guests, room, plan.transport)?),
        Beside::Apart(other) => Some(Host::new(daemon, other.guests, other.memory(), other.transport)?),
        _ => None,
    };
    let flows = Flows::new(&host, plan)?;
    let [mut times, mut limit_times] = [(); 2].map(|()| histogram());
    let most = run.iters.unwrap_or(u32::MAX);
    let mut windows = Windows::new(flows, Kind::of(plan, figure), most, &mut times)?;
    let until = match run.iters {
        Some(count) => Until::Pairs(count.div_ceil(windows.count) as usize),
        None => Until::Time(Duration::from_secs_f64(run.duration)),
    };
    let hosts = [&host, other_host.as_ref().unwrap_or(&host)];
    let compared = match beside {
        Beside::Nothing => {
            windows.alone(until)?;
            None
        }
        Beside::Median => Some(tails(&mut windows, until, daemon.cpus.1)?),
        _ => {
            let helper = Helper::start(daemon.cpus.1);
            std::thread::sleep(ASLEEP);
            let limits = Limits { plan, figure, most, cpus: daemon.cpus, beside };
            let mut limit = limits.limit(&helper, hosts, &windows.load, &mut limit_times)?;
            std::thread::sleep(ASLEEP);
            let line = || line::round_trip(&helper);
            let name = limit.name();
            let turns = match (&mut limit, beside) {
                (Reference::Floor(floor), Beside::FloorTail) => {
                    tails_of_both(&mut windows, floor, until, &helper)?
                }
                _ => turns::take(until, line, || alone(&mut windows), || limit.window(&helper))?,
            };
            Some((name, turns))
        }
    };
    let huge_pages = hosts.iter().all(|host| host.has_huge_pages());
    Ok(Measured { huge_pages, ..measured(&windows, plan, figure, compared) })
}

/// The parameters for finding the limit.
struct Limits<'a> {
    plan: &'a Plan,
    figure: Figure,
    most: u32,
    cpus: (usize, usize),
    beside: Beside<'a>,
}

impl Limits<'_> {
    /// Prepares the limit. Operations of a reference use the guests of the first or the second
    /// host.
    fn limit<'t>(
        &self,
        helper: &Helper,
        [host, other_host]: [&Host; 2],
        own: &Flows,
        times: &'t mut Histogram<u64>,
    ) -> Result<Reference<'t>> {
        let &Limits { plan, figure, most, cpus, beside } = self;
        let (host, plan, name) = match beside {
            Beside::Plan(other) => (host, other, other.operation.name().to_owned()),
            Beside::Apart(other) if other.transport != plan.transport => {
                (other_host, other, format!("{} {}", other.transport.name(), other.operation.name()))
            }
            Beside::Apart(other) => (other_host, other, other.operation.name().to_owned()),
            Beside::Daemon(_) => (other_host, plan, "the other".to_owned()),
            Beside::Ucx => return Ok(Reference::Ucx(Ucx::new(figure, plan.size, cpus)?)),
            Beside::Reference | Beside::Nothing | Beside::Median | Beside::FloorTail => {
                return Reference::new(helper, own, plan, figure, times);
            }
        };
        let windows = Windows::new(Flows::new(host, plan)?, Kind::of(plan, figure), most, times)?;
        Ok(Reference::Operations(windows, name))
    }
}

/// Compares the 99.9th percentile of each window with the window's median.
fn tails(windows: &mut Windows<'_, Flows>, until: Until, cpu: usize) -> Result<(String, Turns)> {
    let helper = Helper::start(cpu);
    std::thread::sleep(ASLEEP);
    windows.for_tails();
    let window = || {
        let median = alone(windows)?;
        Ok((windows.tail, median))
    };
    let turns = turns::take_both(until, || line::round_trip(&helper), window)?;
    Ok(("the median of the same windows".to_owned(), turns))
}

/// Compares the 99.9th percentile of each window with that of a window of the ring floor.
///
/// Interruptions by the machine delay both.
fn tails_of_both(
    windows: &mut Windows<'_, Flows>,
    floor: &mut Windows<'_, Floor>,
    until: Until,
    helper: &Helper,
) -> Result<Turns> {
    windows.for_tails();
    floor.for_tails();
    let own = || alone(windows).map(|_| windows.tail);
    let other = || {
        floor.load.begin(helper);
        let window = floor.window();
        floor.load.end(helper);
        window.map(|_| floor.tail)
    };
    turns::take(until, || line::round_trip(helper), own, other)
}

/// Sums up the results of all windows.
fn measured(
    windows: &Windows<'_, Flows>,
    plan: &Plan,
    figure: Figure,
    compared: Option<(String, Turns)>,
) -> Measured {
    let (latency_us, rate, peak) = windows.results();
    let (limit, turns) = compared.unzip();
    Measured {
        operation: plan.operation.name(),
        figure,
        connection: plan.connection,
        size: plan.size,
        qps: plan.qps,
        guests: plan.guests,
        huge_pages: false,
        iterations: windows.operations,
        latency_us,
        rate,
        peak,
        limit,
        turns,
    }
}

/// Measures an operation in all requested sizes. Passes on each result as soon as it is measured.
///
/// # Errors
/// The errors of [`measure`]. Also invalid arguments.
pub fn all(
    operation: Operation,
    args: &crate::args::Measure,
    mut each: impl FnMut(&Plan, Measured) -> Result<()>,
) -> Result<()> {
    let beside = if args.run.no_limits { Beside::Nothing } else { Beside::Reference };
    for plan in Plan::all(operation, args.figure, &args.load)? {
        each(&plan, measure(&plan, args.figure, &args.run, &args.daemon, beside)?)?;
    }
    Ok(())
}
