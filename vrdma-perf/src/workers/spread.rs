//! The cost of an operation in cycles, within a worker and between two. From this, a model
//! estimates machines with more processors than this one.

use super::account::hertz;
use super::pair::pairs;
use super::writes::WorkerWrites;
use crate::args::Figure;
use crate::helper::Helper;
use crate::missing::missing;
use crate::stats::Quartiles;
use crate::turns::{Turns, Until};
use crate::windows::{Kind, Windows, histogram};
use anyhow::Result;
use std::time::Duration;
use vrdma_guest::threads::pin;

/// Number of windows of measurements without a reference.
const WINDOWS: usize = 20;
/// Numbers of workers in the model. Each has a processor.
const WORKERS: [u32; 5] = [1, 2, 4, 8, 16];
/// Sizes of a WRITE in bytes.
const SIZES: [u32; 2] = [8, 64 << 10];

/// The cycles of a WRITE.
#[derive(Clone, Copy, Debug)]
struct Costs {
    size: u32,
    /// Within a worker, while the other one has no work.
    alone: Quartiles,
    /// Within a worker, while the other one has as much work.
    beside: Quartiles,
    /// The ratio of the rates beside and alone, of neighbouring windows: the speed that workers
    /// leave each other.
    left: Quartiles,
    /// Between two workers, for each of them. This is the busier one's, taken for both.
    between: Quartiles,
    /// Between two workers that share one thread, for both together. It excludes moving cache lines
    /// between processors.
    one_thread: Quartiles,
}

/// Measures for about `duration` seconds, on these processors. Returns the tables of the report.
///
/// # Errors
/// There is not enough memory, or a WRITE fails.
pub fn tables(duration: f64, cpus: (usize, usize)) -> Result<String> {
    pin(0, cpus.0);
    let helper = Helper::start(cpus.1);
    let hertz = hertz();
    let costs = SIZES.map(|size| Costs::measure(size, duration / 2., &helper, hertz));
    let costs = costs.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(describe(&costs, hertz))
}

impl Costs {
    fn measure(size: u32, duration: f64, helper: &Helper, hertz: f64) -> Result<Costs> {
        let kind = Kind { figure: Figure::Rate, size, pause: Duration::ZERO };
        let until = Until::Time(Duration::from_secs_f64(duration));
        let turns: Turns = pairs(helper, kind, until, [&mut histogram(), &mut histogram()])?;
        let regime =
            turns.regimes.first().ok_or_else(|| missing("cache lines took another time in each window"))?;
        // The higher rate has fewer cycles, so the quartiles swap.
        let cycles = |rate: Quartiles| Quartiles {
            low: hertz / rate.high,
            median: hertz / rate.median,
            high: hertz / rate.low,
        };
        let between = |one_thread| -> Result<Quartiles> {
            let mut times = histogram();
            let apart = WorkerWrites::new(size, false, one_thread)?;
            apart.begin(helper);
            let mut windows = Windows::new(apart, kind, u32::MAX, &mut times)?;
            let rates = (0..WINDOWS).map(|_| windows.window()).collect::<Result<Vec<f64>>>();
            windows.load.end(helper);
            Ok(cycles(Quartiles::of(rates?)))
        };
        Ok(Costs {
            size,
            alone: cycles(regime.limit),
            beside: cycles(regime.own),
            left: regime.ratio,
            between: between(false)?,
            one_thread: between(true)?,
        })
    }

    fn line(&self) -> String {
        let of =
            |cycles: Quartiles| format!("{:.0} ({:.0} to {:.0})", cycles.median, cycles.low, cycles.high);
        format!(
            "| {} B | {} | {} | {:.2} | {} | {} |",
            self.size,
            of(self.alone),
            of(self.beside),
            self.left.median,
            of(self.between),
            of(self.one_thread)
        )
    }

    /// Returns the cycles between successive WRITEs of `workers` workers together.
    ///
    /// The fraction `part` of the WRITEs goes to another worker, which spends as many cycles.
    fn cycles(&self, workers: u32, part: f64) -> f64 {
        let within = if workers == 1 { self.alone } else { self.beside };
        ((1. - part) * within.median + part * 2. * self.between.median) / f64::from(workers)
    }
}

fn describe(costs: &[Costs], hertz: f64) -> String {
    let mut text = String::from(
        "| cycles a WRITE | within a worker, alone | beside another worker's pair | as many as alone | between two workers, each of both | both in one thread |\n|---|---|---|---|---|---|",
    );
    costs.iter().for_each(|costs| text += &format!("\n{}", costs.line()));
    text += &format!(
        "\n\nModel: million WRITEs a second of so many workers, each with a processor of {:.2} GHz, whose guests talk within their worker, or to all alike.\n\n| workers |",
        hertz / 1e9
    );
    for Costs { size, .. } in costs {
        text += &format!(" {size} B, within | {size} B, to all alike |");
    }
    text += &format!("\n|---|{}", "---|".repeat(2 * costs.len()));
    for workers in WORKERS {
        text += &format!("\n| {workers} |");
        let elsewhere = f64::from(workers - 1) / f64::from(workers);
        for costs in costs {
            for part in [0., elsewhere] {
                text += &format!(" {:.2} |", hertz / costs.cycles(workers, part) / 1e6);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> Costs {
        let of = |median: f64| Quartiles { low: median - 10., median, high: median + 10. };
        let (alone, beside, between, one_thread) = (of(200.), of(210.), of(800.), of(1400.));
        Costs { size: 8, alone, beside, left: of(0.95), between, one_thread }
    }

    #[test]
    fn workers_add_up_where_nothing_is_between_them() {
        assert_eq!(costs().cycles(1, 0.), 200.);
        assert_eq!(costs().cycles(2, 0.), 105.);
        assert_eq!(costs().cycles(2, 0.5), (105. + 800.) / 2.);
    }

    #[test]
    fn each_number_of_workers_has_a_row_with_both_ways() {
        let text = describe(&[costs(); 2], 2e9);
        assert!(
            text.contains("| 8 B | 200 (190 to 210) | 210 (200 to 220) | 0.95 | 800 (790 to 810) |"),
            "{text}"
        );
        assert!(text.contains("\n| 1 | 10.00 | 10.00 | 10.00 | 10.00 |"), "{text}");
        assert!(text.contains("\n| 2 | 19.05 | 4.42 |"), "{text}");
    }
}
