//! What the admin sockets know of the daemon, and how they ask its workers.

use crate::capture::{CapturesHandle, DescriptorKeeper};
use crate::guests::{CurrentConfig, GuestsHandle};
use crate::nearest::no_such;
use crate::stats::{Observed, Observer};
use crate::worker::{Stopped, Worker};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use vrdma_admin::Fault;

/// What the clients of a socket may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Look.
    Observe,
    /// Change things, too.
    Administer,
}

/// What the admin sockets know of the daemon.
#[derive(Clone, Debug)]
pub struct Service {
    /// Collects counters.
    pub observer: Observer,
    /// The configuration as it is.
    pub config: CurrentConfig,
    /// Changes the guests.
    pub guests: GuestsHandle,
    /// Begins captures.
    pub captures: CapturesHandle,
    /// Whether the daemon takes nothing new.
    pub is_draining: Arc<AtomicBool>,
}

impl Service {
    /// Returns what keeps the descriptors of these clients.
    pub fn keeper(&self, rights: Rights) -> &DescriptorKeeper {
        match rights {
            Rights::Observe => self.captures.observers_keeper(),
            Rights::Administer => self.captures.keeper(),
        }
    }

    /// Returns a guest by its name.
    ///
    /// # Errors
    /// There is none.
    pub fn find_guest(&self, name: &str) -> Result<Observed, Fault> {
        let guests = self.observer.guests();
        guests.iter().find(|guest| guest.name == name).cloned().ok_or_else(|| {
            let names: Vec<&str> = guests.iter().map(|guest| guest.name.as_str()).collect();
            Fault::GuestNotFound { name: name.to_owned(), reason: no_such("guest", name, &names) }
        })
    }

    /// Has each worker run `f` for its guests, in one call. Returns the results in the order of the
    /// guests, with `None` for those of a stuck worker.
    ///
    /// # Errors
    /// A worker has stopped.
    pub fn ask_all<R: Send + 'static>(
        &self,
        guests: &[Observed],
        f: impl Fn(&mut Worker, &Observed) -> R + Clone + Send + 'static,
    ) -> Result<Vec<Option<R>>, Fault> {
        let mut results: Vec<Option<R>> = guests.iter().map(|_| None).collect();
        for (number, worker) in self.observer.workers.iter().enumerate() {
            let own = guests.iter().enumerate().filter(|(_, guest)| guest.place.number == number);
            let own: Vec<(usize, Observed)> = own.map(|(at, guest)| (at, guest.clone())).collect();
            let f = f.clone();
            let answer = worker.call_unless_stuck(move |worker| {
                own.into_iter().map(|(at, guest)| (at, f(worker, &guest))).collect::<Vec<_>>()
            });
            for (at, result) in answer.map_err(stopped)?.into_iter().flatten() {
                results[at] = Some(result);
            }
        }
        Ok(results)
    }

    /// Has a guest's worker run `f`.
    ///
    /// # Errors
    /// The worker is stuck, or has stopped.
    pub fn ask<R: Send + 'static>(
        &self,
        guest: &Observed,
        f: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Result<R, Fault> {
        let number = guest.place.number;
        guest.place.worker.call_unless_stuck(f).map_err(stopped)?.ok_or_else(|| stuck(number))
    }
}

/// Returns the error that the daemon is about to end.
pub fn stopped(_: Stopped) -> Fault {
    Fault::Stopping {}
}

/// Returns the error that a worker is stuck.
pub fn stuck(worker: usize) -> Fault {
    let reason =
        format!("worker {worker} has not answered for some seconds; its guests wait, too (docs/workers.md)");
    Fault::Stuck { worker: worker as u64, reason }
}
