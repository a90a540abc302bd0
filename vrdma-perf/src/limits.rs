//! What this machine can do at best: `vrdma-perf limits`.

use crate::args::{Figure, Limits};
use crate::bells::Bells;
use crate::copying::Copying;
use crate::floor::Floor;
use crate::helper::Helper;
use crate::host::{ENTRIES, memory};
use crate::line;
use crate::load;
use crate::stats::Quartiles;
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;
use vrdma_guest::threads::pin;

/// Number of windows for each figure, and numbers of operations in windows of the floor.
const WINDOWS: usize = 20;
const ONE_BY_ONE: u32 = 10_000;
const MANY: u32 = 200_000;
const WINDOW_MS: f64 = 5.;
const DEPTH: u32 = 128;
/// Number of round trips between sleeping threads, and the pause between two.
const ASLEEP: u32 = 500;
const PAUSE: Duration = Duration::from_micros(200);
/// Sizes of copies in bytes.
const SIZES: [u32; 4] = [8, 4096, 65536, 1 << 20];
/// Size in bytes of the buffer for cold copies.
const COLD: u64 = 256 << 20;

/// A limit, with its spread.
#[derive(Debug, Serialize)]
pub struct Limit {
    /// Its name.
    pub name: String,
    /// Size of a message in bytes. 0 if there is none.
    pub size: u32,
    /// The unit of `value`.
    pub unit: &'static str,
    /// Quartiles of the windows.
    pub value: Quartiles,
}

impl Limit {
    fn new(name: &str, size: u32, unit: &'static str, value: Quartiles) -> Limit {
        Limit { name: name.to_owned(), size, unit, value }
    }
}

/// Measures all limits.
///
/// # Errors
/// There is not enough memory.
pub fn measure(args: &Limits) -> Result<Vec<Limit>> {
    pin(0, args.cpus.0);
    let helper = Helper::start(args.cpus.1);
    let round_trips = Quartiles::of((0..WINDOWS).map(|_| line::round_trip(&helper)));
    let mut all = vec![Limit::new("cache line, there and back", 0, "ns", round_trips)];
    for figure in [Figure::Lat, Figure::Rate] {
        all.push(floor(&helper, figure)?);
    }
    all.push(bells(&helper)?);
    let sizes = if args.size.is_empty() { &SIZES[..] } else { &args.size };
    for &size in sizes {
        all.extend(copies(&helper, size)?);
    }
    Ok(all)
}

fn floor(helper: &Helper, figure: Figure) -> Result<Limit> {
    let memory = memory(1 << 20)?;
    let mut floor = Floor::new(&memory, ENTRIES, 8, if figure == Figure::Lat { 1 } else { DEPTH });
    floor.begin(helper);
    let mut window = || -> Result<f64> {
        if figure == Figure::Rate {
            return Ok(f64::from(MANY) / load::rate(&mut floor, MANY)?.as_secs_f64() / 1e6);
        }
        let mut times = Vec::with_capacity(ONE_BY_ONE as usize);
        load::latency(&mut floor, ONE_BY_ONE, Duration::ZERO, |time| times.push(time.as_nanos() as f64))?;
        Ok(Quartiles::of(times).median)
    };
    window()?;
    let windows = (0..WINDOWS).map(|_| window()).collect::<Result<Vec<_>>>();
    floor.end(helper);
    let (name, unit) = match figure {
        Figure::Lat => ("ring floor, one outstanding", "ns"),
        _ => ("ring floor, 128 outstanding", "M/s"),
    };
    Ok(Limit::new(name, 8, unit, Quartiles::of(windows?)))
}

fn bells(helper: &Helper) -> Result<Limit> {
    let mut bells = Bells::new()?;
    bells.begin(helper);
    let mut times = Vec::with_capacity(ASLEEP as usize);
    let result = load::latency(&mut bells, ASLEEP, PAUSE, |time| times.push(time.as_nanos() as f64 / 1e3));
    bells.end(helper);
    result?;
    Ok(Limit::new("eventfd there, eventfd back", 0, "us", Quartiles::of(times)))
}

fn copies(helper: &Helper, size: u32) -> Result<Vec<Limit>> {
    let one = u64::from(size).next_multiple_of(64);
    let kinds = [("hot", 0, one.next_multiple_of(4096)), ("cold, over 256 MiB", one, COLD.max(one))];
    let copy = |(heat, stride, span): (&str, u64, u64)| {
        let memory = [memory(span)?, memory(span)?];
        let buffers = memory.each_ref().map(|memory| {
            let gpa = memory.alloc(span);
            memory.fill(gpa, span, 1);
            (memory, gpa)
        });
        let copying = Copying::new(helper, buffers, size, stride, span, WINDOW_MS);
        let speeds = Quartiles::of((0..WINDOWS).map(|_| copying.window(helper) / 1e9));
        Ok(Limit::new(&format!("copy, {heat}, by {}", copying.name), size, "GB/s", speeds))
    };
    kinds.into_iter().map(copy).collect()
}

/// Formats the limits as a table.
pub fn table(limits: &[Limit]) -> String {
    let mut text = format!("{:<44} {:>8} {:>12}  (quartiles)", "limit", "#bytes", "median");
    for Limit { name, size, unit, value } in limits {
        let size = if *size == 0 { String::new() } else { size.to_string() };
        let Quartiles { low, median, high } = value;
        text += &format!("\n{name:<44} {size:>8} {median:>12.3} {unit:<5} ({low:.3} to {high:.3})");
    }
    text
}
