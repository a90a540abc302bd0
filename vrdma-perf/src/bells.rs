//! The least that two sleeping threads need to wake each other: an eventfd in each direction.

use crate::helper::Helper;
use crate::load::Load;
use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vmm_sys_util::eventfd::EventFd;

/// Two eventfds between this thread and a helper. Each side signals one, and sleeps in a read of
/// the other.
#[derive(Debug)]
pub struct Bells {
    there: Arc<EventFd>,
    back: Arc<EventFd>,
    stop: Arc<AtomicBool>,
    rung: bool,
}

impl Bells {
    /// Creates the eventfds. No helper answers yet.
    ///
    /// # Errors
    /// The system has no file descriptors left.
    pub fn new() -> Result<Bells> {
        let bell = || Ok::<_, std::io::Error>(Arc::new(EventFd::new(libc::EFD_CLOEXEC)?));
        Ok(Bells { there: bell()?, back: bell()?, stop: Arc::default(), rung: false })
    }

    /// Makes the helper answer.
    pub fn begin(&self, helper: &Helper) {
        let (there, back, stop) = (self.there.clone(), self.back.clone(), self.stop.clone());
        stop.store(false, Ordering::Relaxed);
        helper.begin(move || {
            loop {
                there.read().expect("a read that waits for the counter does not fail");
                if stop.load(Ordering::Acquire) {
                    return 0.;
                }
                back.write(1).expect("who is woken reads the counter");
            }
        });
    }

    /// Makes the helper stop answering.
    pub fn end(&self, helper: &Helper) {
        self.stop.store(true, Ordering::Release);
        self.there.write(1).expect("who is woken reads the counter");
        helper.end();
    }
}

impl Load for Bells {
    fn post(&mut self) -> bool {
        !std::mem::replace(&mut self.rung, true)
    }

    fn ring(&mut self) {
        self.there.write(1).expect("who is woken reads the counter");
    }

    fn poll(&mut self) -> Result<u32> {
        self.back.read()?;
        self.rung = false;
        Ok(1)
    }

    fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    fn outstanding(&self) -> u32 {
        self.rung.into()
    }
}
