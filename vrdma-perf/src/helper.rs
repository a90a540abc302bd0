//! A second thread, on the worker's processor, by which limits are measured. It sleeps between
//! jobs.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use vrdma_guest::threads::pin;

type Job = Box<dyn FnOnce() -> f64 + Send>;

/// The handle of the thread. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Helper {
    jobs: Option<Sender<Job>>,
    results: Receiver<f64>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts the thread on processor `cpu`.
    pub fn start(cpu: usize) -> Helper {
        let (jobs, theirs) = channel::<Job>();
        let (done, results) = channel();
        let work = move || {
            pin(0, cpu);
            let _ = done.send(0.);
            // If the owner is gone, nobody waits for the last result.
            theirs.into_iter().for_each(|job| _ = done.send(job()));
        };
        let thread = std::thread::Builder::new().name("helper".into()).spawn(work).expect("a thread");
        let helper = Helper { jobs: Some(jobs), results, thread: Some(thread) };
        // The thread starts on this thread's processor. It could not move from there while this
        // thread spins, so this waits for it.
        helper.end();
        helper
    }

    /// Starts a job.
    pub fn begin(&self, job: impl FnOnce() -> f64 + Send + 'static) {
        let jobs = self.jobs.as_ref().expect("there until it is dropped");
        jobs.send(Box::new(job)).expect("the thread lives as long as the value");
    }

    /// Waits for the result of the job.
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
