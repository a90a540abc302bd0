//! A second thread, on the worker's processor, which limits are measured with. It sleeps between
//! jobs.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use vrdma_guest::threads::pin;

type Job = Box<dyn FnOnce() -> f64 + Send>;

/// The thread. It ends when dropped.
#[derive(Debug)]
pub struct Helper {
    jobs: Option<Sender<Job>>,
    results: Receiver<f64>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// On processor `cpu`.
    pub fn start(cpu: usize) -> Helper {
        let (jobs, theirs) = channel::<Job>();
        let (done, results) = channel();
        let work = move || {
            pin(0, cpu);
            let _ = done.send(0.);
            // Nobody waits for the last result any more when the owner is gone.
            theirs.into_iter().for_each(|job| _ = done.send(job()));
        };
        let thread = std::thread::Builder::new().name("helper".into()).spawn(work).expect("a thread");
        let helper = Helper { jobs: Some(jobs), results, thread: Some(thread) };
        // It begins on our processor, where it would not come to its turn while we wait for a job
        // without sleeping.
        helper.end();
        helper
    }

    /// Starts a job.
    pub fn begin(&self, job: impl FnOnce() -> f64 + Send + 'static) {
        let jobs = self.jobs.as_ref().expect("there until it is dropped");
        jobs.send(Box::new(job)).expect("the thread lives as long as the value");
    }

    /// Waits for its result.
    pub fn end(&self) -> f64 {
        self.results.recv_timeout(Duration::from_secs(60)).expect("each job was told to end")
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
