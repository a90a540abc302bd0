//! How long a cache line takes to the worker's processor and back. On a shared machine that changes
//! from one moment to the next, as processors change places: 60 ns where they share a cache, 500 ns
//! where they are far apart. Windows with the same round trip alone can be compared.

use crate::helper::Helper;
use crate::stats::Quartiles;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Round trips that are timed together, and how many such there are.
const TOGETHER: u32 = 100;
const BATCHES: u32 = 15;
/// Round trips before the first that counts.
const WARM_UP: u32 = 100;
/// Looks without an answer after which the other side seems to have no processor.
const PATIENCE: u32 = 2000;
/// What ends the other side.
const END: u32 = u32::MAX;

#[repr(align(128))]
struct Line(AtomicU32);

/// Nanoseconds of a round trip now: the median of some batches.
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

/// Answers each odd value with the next.
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

/// Spins, and lets others run where the answer is not on its way.
fn spin(turns: &mut u32) {
    *turns += 1;
    match *turns > PATIENCE {
        true => std::thread::yield_now(),
        false => std::hint::spin_loop(),
    }
}
