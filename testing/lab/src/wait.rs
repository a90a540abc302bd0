//! Waiting for what happens in VMs and backends: it ends, and an error says what was waited for and
//! what was found instead.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long what a busy machine does in moments may take: a program that starts, or that answers at
/// a socket.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(50);

/// Looks again and again until there is what was waited for. What `look` finds instead is told if
/// the patience is at its end; an error of its own ends the wait.
pub fn until<T>(
    what: &str,
    patience: Duration,
    mut look: impl FnMut() -> Result<Result<T, String>>,
) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        // The last look begins when the time is over: who was not given a processor meanwhile has
        // not looked.
        let is_last = Instant::now() > deadline;
        match look()? {
            Ok(found) => return Ok(found),
            Err(instead) if is_last => bail!("waited {patience:?} in vain for {what}: {instead}"),
            Err(_) => thread::sleep(PERIOD),
        }
    }
}

/// Does nothing for some time. No test may depend on what happens meanwhile: `why` says what the
/// pause is for, and why one that is too short, or that lasts much longer, makes no test fail.
pub fn pause(time: Duration, why: &str) {
    debug_assert!(!why.is_empty(), "a pause has a reason");
    thread::sleep(time);
}

/// Times what a test does.
pub struct Watch(Instant);

impl Watch {
    /// From now on.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// How long it has run.
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
