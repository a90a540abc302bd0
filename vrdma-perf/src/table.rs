//! Tables for people: perftest's columns, and the limits below each row.

use crate::args::{Connection, Figure};
use crate::measure::Measured;
use crate::plan::Plan;
use crate::stats::Quartiles;
use crate::turns::{Regime, Turns};

const MIB: f64 = (1 << 20) as f64;

/// Returns the head of a table.
pub fn header(plan: &Plan, figure: Figure) -> String {
    let rule = "-".repeat(120);
    let what = match figure {
        Figure::Lat => "latency, from the post of each operation until all of its completions are seen",
        Figure::Bw => "bandwidth",
        Figure::Rate => "rate",
    };
    let connection = match plan.connection {
        Connection::Rc => "RC",
        Connection::Uc => "UC",
        Connection::Ud => "UD",
        Connection::Xrc => "XRC",
    };
    let mut details =
        format!("{connection}, {} guests, QPs {}, outstanding {}", plan.guests, plan.qps, plan.depth);
    let flags = [
        (plan.inlined, "inline"),
        (plan.events, "events"),
        (plan.bidirectional, "both ways"),
        (plan.srq, "shared receives"),
        (plan.stride > 0, "cold"),
    ];
    flags.iter().filter(|(set, _)| *set).for_each(|(_, name)| details += &format!(", {name}"));
    let columns = match figure {
        Figure::Lat => format!(
            " {:<8} {:>11} {:>11} {:>11} {:>15} {:>11} {:>13} {:>20} {:>22}",
            "#bytes",
            "#iterations",
            "t_min[usec]",
            "t_max[usec]",
            "t_typical[usec]",
            "t_avg[usec]",
            "t_stdev[usec]",
            "99% percentile[usec]",
            "99.9% percentile[usec]"
        ),
        Figure::Bw | Figure::Rate => format!(
            " {:<8} {:>11} {:>16} {:>19} {:>14}",
            "#bytes", "#iterations", "BW peak[MiB/sec]", "BW median[MiB/sec]", "MsgRate[Mpps]"
        ),
    };
    format!("{rule}\n {} {what}\n {details}\n{rule}\n{columns}", plan.operation.name())
}

/// Returns the row of a result, and a line for each regime.
pub fn rows(measured: &Measured) -> String {
    let front = format!(" {:<8} {:>11}", measured.size, measured.iterations);
    let mut text = match (&measured.latency_us, measured.rate, measured.peak) {
        (Some(latency), ..) => format!(
            "{front} {:>11.2} {:>11.2} {:>15.2} {:>11.2} {:>13.2} {:>20.2} {:>22.2}",
            latency.min,
            latency.max,
            latency.typical,
            latency.average,
            latency.deviation,
            latency.p99,
            latency.p999
        ),
        (None, rate, peak) => {
            let (rate, mib) = (rate.unwrap_or_default().median, f64::from(measured.size) / MIB);
            let peak = peak.unwrap_or_default() * mib;
            format!("{front} {peak:>16.2} {:>19.2} {:>14.6}", rate * mib, rate / 1e6)
        }
    };
    if let (Some(turns), Some(limit)) = (&measured.turns, &measured.limit) {
        text += &limits(turns, limit, measured.figure);
    }
    text
}

fn limits(turns: &Turns, limit: &str, figure: Figure) -> String {
    let mut text = String::new();
    for regime in &turns.regimes {
        text += &format!("\n            {}", beside(regime, limit, figure));
    }
    let left_out = turns.left_out;
    if turns.regimes.is_empty() {
        text += "\n            no ratio: processors changed places too often, or others wanted them; try again, or longer (-D)";
    } else if left_out > 0 {
        text += &format!("\n            ({left_out} pairs left out, in which processors changed places)");
    }
    text
}

/// Returns the line of a regime.
pub fn beside(regime: &Regime, limit: &str, figure: Figure) -> String {
    let (factor, unit) = match figure {
        Figure::Lat => (1., "us"),
        Figure::Bw => (1e-9, "GB/s"),
        Figure::Rate => (1e-6, "M/s"),
    };
    let [own, its_limit] = [regime.own, regime.limit].map(|values| values.scaled(factor).median);
    let Quartiles { low, median, high } = regime.ratio;
    format!(
        "{own:.3} {unit} beside {limit} {its_limit:.3} {unit}: {median:.2} ({low:.2} to {high:.2}), line {:.0} ns, {} pairs",
        regime.line.median, regime.pairs
    )
}
