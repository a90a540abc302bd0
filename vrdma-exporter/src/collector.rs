//! One thread that asks the daemon for all scrapes.
//!
//! Scrapes that come while the daemon is asked, or soon after, share the answer. So however many
//! there are, the daemon is asked once at a time, and with pauses. A scrape waits no longer than
//! its patience, whatever the daemon does.

use crate::daemon;
use crate::exposition::Exposition;
use crate::snapshot::Snapshot;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use vrdma_admin::ClientError;

/// How often the daemon is asked, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Longest time that a scrape waits for an answer.
    pub patience: Duration,
    /// How long an answer is good for scrapes that come after it.
    pub reuse: Duration,
}

impl Pace {
    /// How long the program takes an answer for a new one.
    pub const REUSE: Duration = Duration::from_millis(500);
}

/// Has the daemon asked.
#[derive(Clone, Debug)]
pub struct Collector {
    shared: Arc<Shared>,
    pace: Pace,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether a scrape waits for an answer, for which the daemon was not yet asked.
    is_wanted: bool,
    /// Whether the daemon is asked.
    is_asked: bool,
    /// The last answer, and when it came.
    last: Option<(Instant, Arc<Exposition>)>,
    /// Why there was no answer at the last time.
    trouble: Option<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with it")
    }
}

impl Collector {
    /// Starts the thread that asks the daemon at its socket.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(socket: PathBuf, pace: Pace) -> io::Result<Collector> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("collector".into());
        thread.spawn(move || {
            loop {
                wait_for_scrape(&own);
                let (snapshot, trouble) = match daemon::ask(&socket, pace.patience) {
                    Ok(snapshot) => (snapshot, None),
                    Err(ClientError::Late(_)) => (Snapshot::down(), Some(late(pace.patience))),
                    Err(error) => (Snapshot::down(), Some(error.to_string())),
                };
                let mut state = own.lock();
                state.is_asked = false;
                state.last = Some((Instant::now(), Arc::new(Exposition::of(snapshot))));
                note(&mut state, trouble);
                own.changed.notify_all();
            }
        })?;
        Ok(Collector { shared, pace })
    }

    /// Returns what the daemon says at this time, or that it does not answer.
    ///
    /// An answer that came before the call is returned if it is no older than [`Pace::reuse`].
    pub fn scrape(&self) -> Arc<Exposition> {
        let came = Instant::now();
        let mut state = self.shared.lock();
        loop {
            if let Some((told, exposition)) = &state.last
                && came.saturating_duration_since(*told) <= self.pace.reuse
            {
                return Arc::clone(exposition);
            }
            let left = self.pace.patience.saturating_sub(came.elapsed());
            if left.is_zero() {
                // The thread that asks logs why.
                return Arc::new(Exposition::of(Snapshot::down()));
            }
            if !state.is_asked {
                state.is_wanted = true;
                self.shared.changed.notify_all();
            }
            state = self.shared.changed.wait_timeout(state, left).expect("no thread panics with it").0;
        }
    }
}

/// Returns when the daemon has to be asked for a scrape.
fn wait_for_scrape(shared: &Shared) {
    let mut state = shared.lock();
    while !std::mem::take(&mut state.is_wanted) {
        state = shared.changed.wait(state).expect("no thread panics with it");
    }
    state.is_asked = true;
}

fn late(patience: Duration) -> String {
    format!("the daemon has not answered within {patience:?}")
}

/// Logs trouble with the daemon once, and its end.
fn note(state: &mut State, trouble: Option<String>) {
    match (&state.trouble, &trouble) {
        (old, Some(new)) if old.as_ref() != Some(new) => log::warn!("no counters: {new}"),
        (Some(_), None) => log::info!("the daemon answers"),
        _ => {}
    }
    state.trouble = trouble;
}
