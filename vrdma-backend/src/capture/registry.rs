//! Which captures run. Whoever ends some of them finds them here.

use super::CaptureId;
use super::queue::{CaptureEnd, CaptureQueue};
use std::sync::{Arc, Mutex};

/// The captures that run.
#[derive(Clone, Debug, Default)]
pub struct Registry(Arc<Mutex<Registered>>);

#[derive(Debug, Default)]
struct Registered {
    running: Vec<RunningCapture>,
    last: u64,
    /// Whether no more captures begin.
    is_closed: bool,
}

/// A capture that runs.
#[derive(Debug)]
struct RunningCapture {
    id: CaptureId,
    /// The guest of its filter, by its name in the configuration.
    guest: Option<String>,
    queue: Arc<CaptureQueue>,
}

/// The place of a capture among those that run. Dropping it leaves the place to others.
#[derive(Debug)]
pub struct Registration {
    registry: Registry,
    /// The number of the capture.
    pub id: CaptureId,
}

/// Why no more capture begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRegistered {
    /// As many run as may run.
    TooMany,
    /// The daemon is about to end.
    Stopping,
}

impl Registry {
    /// Enters a capture, if there are fewer than `most`.
    ///
    /// # Errors
    /// There are not, or the daemon is about to end.
    pub fn enter(
        &self,
        guest: Option<&str>,
        queue: &Arc<CaptureQueue>,
        most: usize,
    ) -> Result<Registration, NotRegistered> {
        self.give_up();
        let mut registered = self.0.lock().expect("no thread panics with it");
        if registered.is_closed {
            return Err(NotRegistered::Stopping);
        }
        if registered.running.len() >= most {
            return Err(NotRegistered::TooMany);
        }
        registered.last += 1;
        let id = CaptureId(registered.last);
        let guest = guest.map(str::to_owned);
        registered.running.push(RunningCapture { id, guest, queue: queue.clone() });
        Ok(Registration { registry: self.clone(), id })
    }

    /// Ends the captures of a guest, by its name in the configuration. They take nothing more when
    /// this returns.
    pub fn guest_left(&self, name: &str) {
        let registered = self.0.lock().expect("no thread panics with it");
        for running in registered.running.iter().filter(|running| running.guest.as_deref() == Some(name)) {
            running.queue.stop(CaptureEnd::Removed);
        }
    }

    /// Ends all captures. No more begin.
    pub fn close(&self) {
        let mut registered = self.0.lock().expect("no thread panics with it");
        registered.is_closed = true;
        registered.running.iter().for_each(|running| running.queue.stop(CaptureEnd::Stopping));
    }

    /// Gives up captures that are over and whose last write does not return.
    pub fn give_up(&self) {
        let late: Vec<u64> = {
            let registered = self.0.lock().expect("no thread panics with it");
            let late = registered.running.iter().filter(|running| running.queue.give_up());
            late.map(|running| running.id.0).collect()
        };
        for id in late {
            log::warn!(
                "capture {id}: a write to its file does not return; until it does, one capture fewer can run"
            );
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut registered = self.registry.0.lock().expect("no thread panics with it");
        registered.running.retain(|running| running.id != self.id);
    }
}
