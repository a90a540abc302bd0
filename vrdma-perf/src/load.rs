//! The measuring loops. They drive any load: the daemon, or the ring floor.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// Time limit without a completion.
const PATIENCE: Duration = Duration::from_secs(10);

/// A load that a measuring loop drives.
pub trait Load {
    /// Posts one more operation, unless the wanted number is outstanding.
    fn post(&mut self) -> bool;
    /// Notifies the device of what was posted.
    fn ring(&mut self);
    /// Takes completions. Returns how many operations have ended.
    ///
    /// # Errors
    /// An operation failed.
    fn poll(&mut self) -> Result<u32>;
    /// Waits for completions: a moment, or until a completion event.
    ///
    /// # Errors
    /// There was no event in time.
    fn idle(&mut self) -> Result<()>;
    /// Returns the number of posted operations whose completion is outstanding.
    fn outstanding(&self) -> u32;
}

/// Ends a loop that waits in vain.
#[derive(Default)]
struct Patience {
    turns: u32,
    since: Option<Instant>,
}

impl Patience {
    #[inline]
    fn idle(&mut self, load: &mut impl Load) -> Result<()> {
        load.idle()?;
        self.turns += 1;
        if self.turns.is_multiple_of(1 << 20) {
            return self.look();
        }
        Ok(())
    }

    #[cold]
    fn look(&mut self) -> Result<()> {
        if self.since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            bail!("no completion for {} s: has the daemon ended?", PATIENCE.as_secs());
        }
        Ok(())
    }
}

/// Measures the time of each of `count` operations, one at a time, from its post to its end.
///
/// Before each operation this thread spins for `pause`.
///
/// # Errors
/// An operation fails, or does not end.
pub fn latency(
    load: &mut impl Load,
    count: u32,
    pause: Duration,
    mut each: impl FnMut(Duration),
) -> Result<()> {
    for _ in 0..count {
        if !pause.is_zero() {
            let start = Instant::now();
            while start.elapsed() < pause {
                std::hint::spin_loop();
            }
        }
        let start = Instant::now();
        assert!(load.post(), "nothing is outstanding");
        load.ring();
        let mut patience = Patience::default();
        while load.poll()? == 0 {
            patience.idle(load)?;
        }
        each(start.elapsed());
    }
    Ok(())
}

/// Measures how long `count` operations take, with as many outstanding as the load wants.
///
/// It then waits for the outstanding operations without counting them.
///
/// # Errors
/// An operation fails, or does not end.
pub fn rate(load: &mut impl Load, count: u32) -> Result<Duration> {
    Ok(until(load, |done| done >= count)?.1)
}

/// Counts the operations that end within `time`, with as many outstanding as the load wants.
/// Returns their number, and the exact time.
///
/// It then waits for the outstanding operations without counting them.
///
/// # Errors
/// An operation fails, or does not end.
pub fn count(load: &mut impl Load, time: Duration) -> Result<(u32, Duration)> {
    let start = Instant::now();
    until(load, |_| start.elapsed() >= time)
}

/// Keeps operations outstanding until enough have ended. Returns their number, and how long it
/// took.
#[inline]
fn until(load: &mut impl Load, mut is_enough: impl FnMut(u32) -> bool) -> Result<(u32, Duration)> {
    let mut done = 0;
    let mut patience = Patience::default();
    let start = Instant::now();
    while !is_enough(done) {
        while load.post() {}
        load.ring();
        let now = load.poll()?;
        done += now;
        if now == 0 {
            patience.idle(load)?;
        } else {
            patience.since = None;
        }
    }
    let time = start.elapsed();
    let mut patience = Patience::default();
    while load.outstanding() > 0 {
        if load.poll()? == 0 {
            patience.idle(load)?;
        }
    }
    Ok((done, time))
}
