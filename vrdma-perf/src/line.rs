//! Measures the round trip of a cache line to the worker's processor.
//!
//! On a shared machine this time changes from one moment to the next, when the hypervisor moves
//! virtual processors. It is 60 ns if they share a cache, and 500 ns if they are far apart. Only
//! windows with similar round trips can be compared.

use crate::helper::Helper;
use crate::stats::Quartiles;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Number of round trips in a batch, and number of batches.
const TOGETHER: u32 = 100;
const BATCHES: u32 = 15;
/// Number of round trips before the first batch.
const WARM_UP: u32 = 100;
/// Number of polls without an answer after which the other side seems to have no processor.
const PATIENCE: u32 = 2000;
/// The value that ends the other side.
const END: u32 = u32::MAX;

#[repr(align(128))]
struct Line(AtomicU32);

/// Returns the present round trip time in nanoseconds: the median of the batches.
pub fn round_trip(helper: &Helper) -> f64 {
    let line = Arc::new(Line(AtomicU32::new(0)));
    let theirs = line.clone();
    helper.begin(move || answer(&theirs));
    let mut next = 0;
    let mut bounce = |times: u32| {
        for _ in 0..times {
            line.0.store(next + 1, Ordering::Release);
            next += 2;
            let mut turns = 0;
            while line.0.load(Ordering::Acquire) != next {
                spin(&mut turns);
            }
        }
    };
    bounce(WARM_UP);
    let batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            bounce(TOGETHER);
            start.elapsed().as_nanos() as f64 / f64::from(TOGETHER)
        })
        .collect();
    line.0.store(END, Ordering::Release);
    helper.end();
    Quartiles::of(batches).median
}

/// Answers each odd value with the next value.
fn answer(line: &Line) -> f64 {
    let mut turns = 0;
    loop {
        match line.0.load(Ordering::Acquire) {
            END => return 0.,
            odd if odd % 2 == 1 => {
                line.0.store(odd + 1, Ordering::Release);
                turns = 0;
            }
            _ => spin(&mut turns),
        }
    }
}

/// Spins, and yields the processor if the answer takes long.
fn spin(turns: &mut u32) {
    *turns += 1;
    match *turns > PATIENCE {
        true => std::thread::yield_now(),
        false => std::hint::spin_loop(),
    }
}
