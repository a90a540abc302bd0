//! Engines of two workers and the rings between them. WRITEs go from a guest of one to a guest of
//! the other, and are compared with WRITEs between two guests of one engine.
//!
//! Each engine has a thread and a processor. The sender's thread also plays its driver, by calling
//! the engine. Guest rings are therefore no part of the measurement, and two processors are enough.
//! It measures the daemon's own code: [`PacketPort`](vrdma_backend::packets::PacketPort), and the
//! port that carries frames for all other traffic.

mod account;
mod pair;
mod spread;
mod writes;

pub use spread::tables;

use crate::args::{Figure, Workers};
use crate::helper::Helper;
use crate::line;
use crate::table;
use crate::turns::{self, Turns, Until};
use crate::windows::{Kind, Windows, histogram};
use anyhow::Result;
use hdrhistogram::Histogram;
use pair::{Together, pairs};
use std::time::Duration;
use vrdma_guest::threads::pin;
use writes::WorkerWrites;

/// Measures, and returns a line for each regime.
///
/// # Errors
/// There is not enough memory, or a WRITE fails.
pub fn measure(args: &Workers) -> Result<String> {
    if args.model {
        return tables(args.duration, args.cpus);
    }
    pin(0, args.cpus.0);
    let helper = Helper::start(args.cpus.1);
    let [mut times, mut local_times] = [(); 2].map(|()| histogram());
    let length = args.size.unwrap_or(if args.figure == Figure::Bw { 65536 } else { 8 });
    let kind = Kind { figure: args.figure, size: length, pause: Duration::ZERO };
    if args.pairs {
        return measure_pairs(args, &helper, kind, [&mut times, &mut local_times]);
    }
    if args.account {
        return account_of(length, args.duration, &mut times, kind);
    }
    let apart = WorkerWrites::new(length, args.frames, args.one_thread)?;
    apart.begin(&helper);
    let mut windows = Windows::new(apart, kind, u32::MAX, &mut times)?;
    windows.load.end(&helper);
    let mut local = Windows::new(Together::new(length)?, kind, u32::MAX, &mut local_times)?;
    let own = || {
        windows.load.begin(&helper);
        let value = windows.window();
        windows.load.end(&helper);
        value
    };
    let until = Until::Time(Duration::from_secs_f64(args.duration));
    let turns = turns::take(until, || line::round_trip(&helper), own, || local.window())?;
    let way = if args.frames { "as frames" } else { "as packets" };
    Ok(describe(&turns, args.figure, length, way))
}

/// Accounts for the stages of a WRITE, in one thread.
fn account_of(length: u32, duration: f64, times: &mut Histogram<u64>, kind: Kind) -> Result<String> {
    let mut windows = Windows::new(WorkerWrites::new(length, false, true)?, kind, u32::MAX, times)?;
    windows.load.begin_account();
    let before = windows.load.completed();
    windows.alone(Until::Time(Duration::from_secs_f64(duration)))?;
    let operations = windows.load.completed().wrapping_sub(before);
    let [near, far] = windows.load.accounts();
    Ok(account::table([&near, &far], operations.into(), account::reading(), account::hertz()))
}

/// Measures a pair of guests of one worker while another worker has such a pair too. The reference
/// is the pair alone.
fn measure_pairs(
    args: &Workers,
    helper: &Helper,
    kind: Kind,
    times: [&mut Histogram<u64>; 2],
) -> Result<String> {
    let turns = pairs(helper, kind, Until::Time(Duration::from_secs_f64(args.duration)), times)?;
    let mut text =
        format!("{} B WRITEs within a worker, beside another worker with a pair of guests", kind.size);
    for regime in &turns.regimes {
        text += &format!("\n{}", table::beside(regime, "alone", args.figure));
        if args.figure != Figure::Lat {
            text += &format!("\ntwo workers have {:.2} times what one has", 2. * regime.ratio.median);
        }
    }
    Ok(text)
}

fn describe(turns: &Turns, figure: Figure, length: u32, way: &str) -> String {
    let mut text = format!("{length} B WRITEs to a guest of another worker, {way}, beside the same worker's");
    for regime in &turns.regimes {
        text += &format!("\n{}", table::beside(regime, "one worker", figure));
        if figure == Figure::Lat {
            let lines = (regime.own.median - regime.limit.median) * 1e3 / regime.line.median;
            text += &format!("\n{lines:.1} round trips of a line more");
        }
    }
    text
}
