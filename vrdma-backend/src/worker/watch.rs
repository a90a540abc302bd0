//! Notices workers that make no progress, and tells the operator which guests wait.
//!
//! A debugger may have stopped the worker, another thread may have its processor, or this program
//! has a bug. Guests of other workers do not wait.

use super::WorkerHandle;
use crate::config::GuestConfig;
use crate::jail;
use crate::service;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often workers are asked.
const PERIOD: Duration = Duration::from_secs(1);
/// A worker that has not answered for this time is stuck.
///
/// Its rounds take microseconds, but its thread may have to wait for a processor.
const PATIENCE: Duration = Duration::from_secs(2);

/// A thread that asks all workers whether they make progress. Dropping this ends it.
#[derive(Debug)]
pub struct WorkerWatch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The names of each worker's guests. Clones are one list.
#[derive(Clone, Debug, Default)]
pub struct WatchedNames(Arc<Mutex<Vec<Vec<String>>>>);

impl WatchedNames {
    fn lock_names(&self) -> MutexGuard<'_, Vec<Vec<String>>> {
        self.0.lock().expect("no thread panics with it")
    }

    /// Adds guests of a worker.
    pub fn add(&self, worker: usize, guests: &[GuestConfig]) {
        let mut all = self.lock_names();
        if all.len() <= worker {
            all.resize(worker + 1, Vec::new());
        }
        all[worker].extend(guests.iter().map(|guest| guest.name.clone()));
    }

    /// Removes guests of a worker.
    pub fn remove(&self, worker: usize, guests: &[GuestConfig]) {
        self.lock_names()[worker].retain(|name| guests.iter().all(|guest| guest.name != *name));
    }

    /// Returns the names of a worker's guests.
    fn of(&self, worker: usize) -> Vec<String> {
        self.lock_names().get(worker).cloned().unwrap_or_default()
    }
}

/// What is known of a worker.
#[derive(Debug, Default)]
struct Pulse {
    /// When the request was sent that the worker has not answered yet.
    asked: Option<Instant>,
    is_stuck: bool,
}

/// A change of a worker's state.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// The worker has not answered for this time.
    Stuck(Duration),
    /// The worker answers again, after this time.
    GoesOn(Duration),
}

impl Pulse {
    /// Checks the worker. `answered` tells whether it has answered the last request.
    fn look(&mut self, now: Instant, answered: bool) -> Option<Change> {
        let waited = now.duration_since(self.asked?);
        if answered {
            self.asked = None;
            return std::mem::take(&mut self.is_stuck).then_some(Change::GoesOn(waited));
        }
        let is_new = waited >= PATIENCE && !self.is_stuck;
        self.is_stuck |= is_new;
        is_new.then_some(Change::Stuck(waited))
    }
}

impl WorkerWatch {
    /// Watches these workers. `names` are those of their guests, which may change.
    ///
    /// While none is stuck, the service manager hears that. It does so at least three times in
    /// `watchdog`, the time after which it would end this process. It also hears again a status for
    /// which it had no room.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(
        workers: Vec<WorkerHandle>,
        names: WatchedNames,
        watchdog: Option<Duration>,
    ) -> std::io::Result<WorkerWatch> {
        let (stop, stopped) = bounded(0);
        // A quarter, so that a turn that comes a little late is still the third one in time.
        let period = watchdog.map_or(PERIOD, |watchdog| PERIOD.min(watchdog / 4));
        let run = move || {
            jail::confine(jail::Kind::Helper);
            let mut watched: Vec<_> = workers
                .into_iter()
                .map(|handle| (handle, Pulse::default(), Arc::new(AtomicBool::new(true))))
                .collect();
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                for (number, (handle, pulse, answer)) in watched.iter_mut().enumerate() {
                    let now = Instant::now();
                    if let Some(change) = pulse.look(now, answer.load(Ordering::Acquire)) {
                        handle.set_stuck(pulse.is_stuck);
                        tell(number, &names.of(number), &change);
                    }
                    if pulse.asked.is_none() {
                        pulse.asked = Some(now);
                        answer.store(false, Ordering::Relaxed);
                        let answer = answer.clone();
                        handle.tell(move |_| answer.store(true, Ordering::Release));
                    }
                }
                service::tell_again();
                if watchdog.is_some() && watched.iter().all(|(_, pulse, _)| !pulse.is_stuck) {
                    service::alive();
                }
            }
        };
        let thread = std::thread::Builder::new().name("watch".into()).spawn(run)?;
        Ok(WorkerWatch { stop: Some(stop), thread: Some(thread) })
    }
}

fn tell(number: usize, guests: &[String], change: &Change) {
    let guests = if guests.is_empty() { "none".to_owned() } else { guests.join(", ") };
    match change {
        Change::Stuck(waited) => {
            log::error!(
                "worker {number} is stuck: no turn for {} s; guests that wait: {guests}",
                waited.as_secs()
            );
        }
        Change::GoesOn(waited) => {
            log::warn!("worker {number} goes on after {} s; its guests: {guests}", waited.as_secs());
        }
    }
}

impl Drop for WorkerWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread that watches the workers panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_stuck_once_and_goes_on_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pulse = Pulse::default();
        assert_eq!(pulse.look(at(0), true), None, "it was asked nothing");
        pulse.asked = Some(at(0));
        assert_eq!(pulse.look(at(1), false), None, "it has time");
        assert_eq!(pulse.look(at(1), true), None);
        assert_eq!(pulse.asked, None);
        pulse.asked = Some(at(1));
        assert_eq!(pulse.look(at(3), false), Some(Change::Stuck(Duration::from_secs(2))));
        assert_eq!(pulse.look(at(4), false), None, "that was told");
        assert_eq!(pulse.look(at(5), true), Some(Change::GoesOn(Duration::from_secs(4))));
        assert_eq!(pulse.look(at(6), true), None);
        assert!(!pulse.is_stuck);
    }
}
