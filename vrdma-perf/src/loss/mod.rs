//! Two daemons on a link with faults, beside two on a link without.
//!
//! The packets go through the kernel's veth, whose cost hides some of what the daemons do. So the
//! ratios count, and not the values.

mod pair;
mod rows;

use crate::args::Loss;
use crate::flow::{Flows, one_of_each};
use crate::host::refused;
use crate::load;
use crate::machine;
use crate::missing::missing;
use crate::network::{bring_up, make_veth, own_network};
use crate::plan::Plan;
use crate::process::Process;
use crate::report::plan;
use crate::stats::Quartiles;
use crate::windows::histogram;
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use pair::{Counters, Pair};
use rows::{LossFigure, LossRow, ROWS};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};
use vrdma_backend::port::FaultsConfig;
use vrdma_guest::Qp;
use vrdma_guest::abi::control::{QpType, limit};
use vrdma_guest::verbs::{Data, Remote, Request, Tag};

/// Head of the table.
const HEAD: &str = "| figure | with faults | without | ratio (quartiles) | lost | sent again | timeouts | target |\n|---|---|---|---|---|---|---|---|";
/// Number of operations before those that count.
const WARM_UP: u32 = 200;
/// Time limit for the first packets of all QPs.
const PATIENCE: Duration = Duration::from_secs(60);
/// An address that no guest has.
const NOBODY: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 200];

/// Measures all rows, and prints each as soon as it is measured.
///
/// # Errors
/// No row matches, there can be no veth, or a measurement fails.
pub fn report(args: &Loss) -> Result<()> {
    let rows: Vec<&LossRow> = ROWS.iter().filter(|row| row.name.contains(&args.only)).collect();
    ensure!(
        !rows.is_empty(),
        "no row has {:?} in its name: {}",
        args.only,
        ROWS.iter().map(|row| row.name).collect::<Vec<_>>().join("; ")
    );
    let link = own_network().and_then(|()| make_veth()).and_then(|()| bring_up(args.mtu));
    link.map_err(|error| missing(format!("this machine has no veth: {error:#}")))?;
    println!("{}\n\n{HEAD}", machine::describe());
    for row in rows {
        let cells = match row.what {
            LossFigure::Bandwidth(command) => bandwidth(args, row, command),
            LossFigure::Latency(command) => latency(args, row, command),
            LossFigure::OneLoss(command, each) => one_loss(args, row, command, each),
            LossFigure::Silence(qps) => silence(args, qps),
        };
        println!("| {} | {} | {} |", row.name, cells.context(row.name)?.join(" | "), row.target);
    }
    println!(
        "\nMedians of {} runs of {} s. Each run has daemons and connections of its own; runs with and without faults alternate. Lost and sent again are those of the last run.",
        args.runs, args.duration
    );
    Ok(())
}

/// The cells of a row, without its name and its target.
type Cells = [String; 6];

/// A measurement, and what it cost.
struct Run<T> {
    value: T,
    costs: Costs,
}

/// LossFigure happened on the link during a run.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    /// Frames that the faults lost.
    lost: u64,
    /// Packets that came again to either guest, and responses that were asked for again.
    again: u64,
    /// Local ACK timeouts.
    timeouts: u64,
}

impl Costs {
    fn of(counters: &[Counters; 2]) -> Costs {
        let uplink = |names: &[&str]| names.iter().map(|name| counters[0].uplink(name)).sum();
        let transport = |name: &str| counters.iter().map(|of| of.transport(name)).sum::<u64>();
        Costs {
            lost: uplink(&[
                "fault_rx_lost",
                "fault_tx_lost",
                "fault_rx_dropped",
                "fault_tx_dropped",
                "fault_rx_overflowed",
                "fault_tx_overflowed",
            ]),
            again: transport("retries"),
            timeouts: transport("timeouts"),
        }
    }

    fn cells(self) -> [String; 3] {
        [self.lost, self.again, self.timeouts].map(|count| count.to_string())
    }
}

/// Runs a measurement with new daemons.
fn run<T>(
    args: &Loss,
    faults: &FaultsConfig,
    plan: &Plan,
    measure: impl FnOnce(&mut Flows) -> Result<T>,
) -> Result<Run<T>> {
    let pair = Pair::new(args, faults, plan.memory())?;
    let mut flows = Flows::new(&pair.host, plan)?;
    let value = measure(&mut flows)?;
    Ok(Run { value, costs: Costs::of(&pair.counters()?) })
}

/// Runs a measurement with and without faults in turns.
fn in_turns<T>(
    args: &Loss,
    faults: &FaultsConfig,
    plan: &Plan,
    mut measure: impl FnMut(&mut Flows) -> Result<T>,
) -> Result<Vec<[Run<T>; 2]>> {
    let none = FaultsConfig::default();
    let mut both = |at: u8| {
        let mut of = |faults| run(args, faults, plan, &mut measure);
        // They take turns in being first, so neither has an advantage.
        Ok(if at.is_multiple_of(2) {
            let with = of(faults)?;
            [with, of(&none)?]
        } else {
            let without = of(&none)?;
            [of(faults)?, without]
        })
    };
    (0..args.runs).map(&mut both).collect()
}

fn bandwidth(args: &Loss, row: &LossRow, command: &str) -> Result<Cells> {
    let (plan, _) = plan(command)?;
    let time = Duration::from_secs_f64(args.duration);
    let measure = |flows: &mut Flows| {
        load::rate(flows, WARM_UP)?;
        let (count, time) = load::count(flows, time)?;
        Ok(f64::from(count) * f64::from(plan.size) / time.as_secs_f64())
    };
    let faults = faults(args, row)?;
    if let Some(most) = NonZeroU64::new(faults.rate) {
        return bottleneck(args, &faults, &plan, most.get() as f64, measure);
    }
    let runs = in_turns(args, &faults, &plan, measure)?;
    let of = |at: usize| Quartiles::of(runs.iter().map(|both| both[at].value)).scaled(1e-6).median;
    let ratio = Quartiles::of(runs.iter().map(|[with, without]| with.value / without.value));
    let [lost, again, timeouts] = last(&runs).cells();
    Ok([format!("{:.0} MB/s", of(0)), format!("{:.0} MB/s", of(1)), quartiles(ratio), lost, again, timeouts])
}

/// Measures a bandwidth through a bottleneck of `most` bytes in a second.
fn bottleneck(
    args: &Loss,
    faults: &FaultsConfig,
    plan: &Plan,
    most: f64,
    measure: impl Fn(&mut Flows) -> Result<f64>,
) -> Result<Cells> {
    let runs: Result<Vec<_>> = (0..args.runs).map(|_| run(args, faults, plan, &measure)).collect();
    let runs = runs?;
    let rates = Quartiles::of(runs.iter().map(|run| run.value));
    let [lost, again, timeouts] = runs.last().map(|run| run.costs).unwrap_or_default().cells();
    Ok([
        format!("{:.0} MB/s", rates.scaled(1e-6).median),
        format!("a link of {:.0} MB/s", most / 1e6),
        quartiles(rates.scaled(1. / most)),
        lost,
        again,
        timeouts,
    ])
}

/// Returns the faults of a row.
fn faults(args: &Loss, row: &LossRow) -> Result<FaultsConfig> {
    args.faults.clone().map_or_else(|| row.faults.parse(), Ok)
}

/// Returns what the last run with faults cost.
fn last<T>(runs: &[[Run<T>; 2]]) -> Costs {
    runs.last().map(|[with, _]| with.costs).unwrap_or_default()
}

fn quartiles(ratio: Quartiles) -> String {
    format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.low, ratio.high)
}

fn latency(args: &Loss, row: &LossRow, command: &str) -> Result<Cells> {
    let (plan, _) = plan(command)?;
    let time = Duration::from_secs_f64(args.duration);
    let runs = in_turns(args, &faults(args, row)?, &plan, |flows| {
        let start = Instant::now();
        latencies(flows, |_| start.elapsed() >= time)
    })?;
    let at = |side: usize, quantile: f64| {
        let of = |both: &[Run<Histogram<u64>>; 2]| both[side].value.value_at_quantile(quantile) as f64 / 1e3;
        Quartiles::of(runs.iter().map(of)).median
    };
    let shown = |side: usize| {
        let [typical, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| at(side, quantile));
        format!("{typical:.0} us, p99 {p99:.0}, p99.9 {p999:.0}")
    };
    let ratio = Quartiles::of(runs.iter().map(|[with, without]| {
        with.value.value_at_quantile(0.99) as f64 / without.value.value_at_quantile(0.99) as f64
    }));
    let [lost, again, timeouts] = last(&runs).cells();
    Ok([shown(0), shown(1), format!("p99: {}", quartiles(ratio)), lost, again, timeouts])
}

/// Measures operations one at a time, until enough are measured. Returns their times in
/// nanoseconds.
fn latencies(flows: &mut Flows, mut is_enough: impl FnMut(u32) -> bool) -> Result<Histogram<u64>> {
    let none = Duration::ZERO;
    load::latency(flows, WARM_UP, none, |_| ())?;
    let (mut times, mut count) = (histogram(), 0);
    while !is_enough(count) {
        load::latency(flows, 1, none, |time| times.saturating_record(time.as_nanos() as u64))?;
        count += 1;
    }
    Ok(times)
}

/// Measures the time of operations, of which one in `each` has a planned loss.
///
/// Those with a loss are the slowest ones. So the slowest hundredth of them are the slowest of all.
fn one_loss(args: &Loss, row: &LossRow, command: &str, each: u32) -> Result<Cells> {
    let (plan, _) = plan(command)?;
    let (short, _) = self::plan("write lat -e")?;
    let count = args.losses * each;
    let none = FaultsConfig::default();
    let trip = run(args, &none, &short, |flows| latencies(flows, |done| done >= 2000))?.value;
    let without = run(args, &none, &plan, |flows| latencies(flows, |done| done >= 2000))?.value;
    let Run { value: times, costs } =
        run(args, &faults(args, row)?, &plan, |flows| latencies(flows, |done| done >= count))?;
    let share = f64::from(args.losses) / f64::from(count);
    let us = |times: &Histogram<u64>, quantile: f64| times.value_at_quantile(quantile) as f64 / 1e3;
    let [typical, most] = [0.5, 0.01].map(|part| us(&times, 1. - share * part));
    let trip = us(&trip, 0.5);
    let normal = us(&without, 0.5);
    let [lost, again, timeouts] = costs.cells();
    Ok([
        format!("{typical:.0} us, 99 % within {most:.0}"),
        format!("{normal:.0} us, an RTT {trip:.0}"),
        format!("{:.2} of 3 RTT + 300 us", most / (3. * trip + 300.)),
        lost,
        again,
        timeouts,
    ])
}

/// Measures the processor time of a daemon while QPs wait for a peer that is not there.
fn silence(args: &Loss, qps: u32) -> Result<Cells> {
    let (plan, _) = plan("write rate")?;
    let pair = Pair::new(args, &FaultsConfig::default(), 2 * plan.memory())?;
    let plan = one_of_each(&plan, qps);
    let mut process = Process::new(&pair.host.guests[0], qps, &plan)?;
    let connect = |qp: &Qp| {
        qp.to_init()?;
        qp.to_rtr(NOBODY, 0x100 + qp.number % 0x10000, 0)?;
        qp.to_rts()
    };
    let all = process.qps(&plan, QpType::RC, limit::NONE, 0)?;
    all.iter().try_for_each(|qp| refused(connect(qp), "a connection to another host"))?;
    let time = Duration::from_secs_f64(args.duration);
    let percent = || -> Result<f64> {
        let (before, start) = (pair.daemons[0].processor_time()?, Instant::now());
        std::thread::sleep(time);
        let used = pair.daemons[0].processor_time()? - before;
        Ok(100. * used.as_secs_f64() / start.elapsed().as_secs_f64())
    };
    let idle = percent()?;
    for qp in &all {
        let own = [process.mr.sge(0, 8)];
        let remote: Remote = process.mr.remote(0);
        let request = Request::write(Tag { qpn: qp.number, wqe_id: 0 }, remote, Data::Sges(&own));
        process.context.post(&request);
    }
    process.context.channel.driver.ring();
    let start = Instant::now();
    while pair.counters()?[0].transport("packets_out") < qps.into() {
        ensure!(start.elapsed() < PATIENCE, "not all requests were sent in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let waits = percent()?;
    let [counters, _] = pair.counters()?;
    let probes = counters.transport("roce_adp_retrans");
    Ok([
        format!("{waits:.2} % of a processor"),
        format!("{idle:.2} %"),
        String::new(),
        String::new(),
        format!("{probes} probes"),
        counters.transport("timeouts").to_string(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_a_command_of_one_size_and_faults_that_there_are() {
        for row in ROWS {
            row.faults.parse::<FaultsConfig>().unwrap();
            match row.what {
                LossFigure::Bandwidth(command)
                | LossFigure::Latency(command)
                | LossFigure::OneLoss(command, _) => {
                    plan(command).unwrap();
                }
                LossFigure::Silence(_) => {}
            }
        }
    }

    #[test]
    fn rows_have_names_of_their_own() {
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
    }
}
