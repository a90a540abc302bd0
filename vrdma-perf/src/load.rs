//! The loops that measure, whatever they drive: the daemon, or the ring floor.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a loop drives.
pub trait Load {
    /// Posts one more operation, if as many as wanted are not outstanding.
    fn post(&mut self) -> bool;
    /// Makes what was posted known to the device.
    fn ring(&mut self);
    /// Takes completions: how many operations have ended.
    ///
    /// # Errors
    /// One of them failed.
    fn poll(&mut self) -> Result<u32>;
    /// Waits for completions: a moment, or until an event tells of some.
    ///
    /// # Errors
    /// None does.
    fn idle(&mut self) -> Result<()>;
    /// Operations posted whose completion will come.
    fn outstanding(&self) -> u32;
}

/// Sees that a loop that waits in vain ends.
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

/// The time of each of `count` operations, one after the other, from its post until it has ended.
/// Before each this thread spins for `pause`.
///
/// # Errors
/// An operation fails, or never ends.
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

/// How long `count` operations take with as many outstanding as the load wants. What is still
/// outstanding then ends uncounted.
///
/// # Errors
/// An operation fails, or never ends.
pub fn rate(load: &mut impl Load, count: u32) -> Result<Duration> {
    let mut done = 0;
    let mut patience = Patience::default();
    let start = Instant::now();
    while done < count {
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
    Ok(time)
}
