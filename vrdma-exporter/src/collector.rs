//! One thread that asks the daemon for all scrapes.
//!
//! Scrapes that come while the daemon is asked share the next answer. So however many there are,
//! the daemon is asked once at a time. A scrape waits no longer than its patience, whatever the
//! daemon does.

use crate::daemon;
use crate::snapshot::Snapshot;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use vrdma_admin::ClientError;

/// Has the daemon asked.
#[derive(Clone, Debug)]
pub struct Collector {
    shared: Arc<Shared>,
    patience: Duration,
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
    /// The last answer, and when the daemon was asked for it.
    last: Option<(Instant, Arc<Snapshot>)>,
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
    pub fn start(socket: PathBuf, patience: Duration) -> io::Result<Collector> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("collector".into());
        thread.spawn(move || {
            loop {
                let began = wait_for_scrape(&own);
                let (snapshot, trouble) = match daemon::ask(&socket, patience) {
                    Ok(snapshot) => (snapshot, None),
                    Err(ClientError::Late(_)) => (Snapshot::down(), Some(late(patience))),
                    Err(error) => (Snapshot::down(), Some(error.to_string())),
                };
                let mut state = own.lock();
                state.last = Some((began, Arc::new(snapshot)));
                note(&mut state, trouble);
                own.changed.notify_all();
            }
        })?;
        Ok(Collector { shared, patience })
    }

    /// Returns what the daemon says at this time, or that it does not answer.
    pub fn scrape(&self) -> Arc<Snapshot> {
        let came = Instant::now();
        let mut state = self.shared.lock();
        state.is_wanted = true;
        self.shared.changed.notify_all();
        loop {
            if let Some((began, snapshot)) = &state.last
                && *began >= came
            {
                return Arc::clone(snapshot);
            }
            let left = self.patience.saturating_sub(came.elapsed());
            if left.is_zero() {
                note(&mut state, Some(late(self.patience)));
                return Arc::new(Snapshot::down());
            }
            state = self.shared.changed.wait_timeout(state, left).expect("no thread panics with it").0;
        }
    }
}

/// Returns when a scrape is served that came after the daemon was asked at last.
fn wait_for_scrape(shared: &Shared) -> Instant {
    let mut state = shared.lock();
    while !std::mem::take(&mut state.is_wanted) {
        state = shared.changed.wait(state).expect("no thread panics with it");
    }
    // All scrapes that wait came before this.
    Instant::now()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Scope;
    use std::os::unix::net::UnixListener;

    fn is_up(snapshot: &Snapshot) -> bool {
        assert_eq!(snapshot.subjects[0].scope, Scope::Exporter);
        snapshot.subjects[0].facts["up"] == true
    }

    #[test]
    fn without_a_daemon_nothing_is_up() {
        let directory = tempfile::tempdir().unwrap();
        let collector = Collector::start(directory.path().join("observe"), Duration::from_secs(60)).unwrap();
        assert!(!is_up(&collector.scrape()));
        let trouble = collector.shared.lock().trouble.clone().unwrap();
        assert!(trouble.contains("there is no such socket"), "{trouble}");
    }

    #[test]
    fn a_daemon_that_is_silent_keeps_no_scrape() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("observe");
        let _listener = UnixListener::bind(&path).unwrap();
        let collector = Collector::start(path, Duration::from_millis(50)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| assert!(!is_up(&collector.scrape())));
            }
        });
        let trouble = collector.shared.lock().trouble.clone().unwrap();
        assert!(trouble.contains("has not answered within"), "{trouble}");
    }
}
