//! Waits with a limit for events in VMs and backends.
//!
//! An error says what was awaited and what was found instead.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long a busy machine may take for something that is normally immediate.
///
/// Examples are the start of a program, and an answer at a socket.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two polls.
const PERIOD: Duration = Duration::from_millis(50);

/// Polls until `look` finds what is awaited.
///
/// After the patience is over, the error contains what `look` found instead. An error of `look`
/// itself ends the wait.
pub fn until<T>(
    what: &str,
    patience: Duration,
    mut look: impl FnMut() -> Result<Result<T, String>>,
) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        // The last poll starts after the deadline. Otherwise a thread that got no processor time
        // might end the wait without a poll.
        let is_last = Instant::now() > deadline;
        match look()? {
            Ok(found) => return Ok(found),
            Err(instead) if is_last => bail!("waited {patience:?} in vain for {what}: {instead}"),
            Err(_) => thread::sleep(PERIOD),
        }
    }
}

/// Sleeps for some time.
///
/// No test may depend on what happens meanwhile. `why` gives the pause's purpose. It also says why
/// a shorter or much longer pause makes no test fail.
pub fn pause(time: Duration, why: &str) {
    debug_assert!(!why.is_empty(), "a pause has a reason");
    thread::sleep(time);
}

/// A stopwatch for tests.
pub struct Watch(Instant);

impl Watch {
    /// Starts the stopwatch.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns how long it has run.
    pub fn time(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_is_given_and_what_is_there_instead_is_told() {
        let mut looks = 0;
        let third = until("the third look", Duration::from_secs(60), || {
            looks += 1;
            Ok(if looks == 3 { Ok(looks) } else { Err(String::new()) })
        });
        assert_eq!(third.unwrap(), 3);
        let error = until::<()>("a sign", Duration::ZERO, || Ok(Err("7 frames".into()))).unwrap_err();
        assert_eq!(error.to_string(), "waited 0ns in vain for a sign: 7 frames");
        let error = until::<()>("a sign", Duration::from_secs(60), || bail!("it is gone")).unwrap_err();
        assert_eq!(error.to_string(), "it is gone");
    }
}
