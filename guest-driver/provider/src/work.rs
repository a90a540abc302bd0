//! Paths of requests to the device: the context's own channel, or the kernel's.

use std::ffi::c_int;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use vrdma_verbs::{Channel, Doorbell, MappedDoorbell, PostError, Request, Unit};

use crate::errno::{Errno, boxed};
use crate::refs::Ref;
use crate::uverbs;

/// Time without progress of a full channel after which the device is given up.
///
/// Normally the device takes requests within microseconds, but its host may be busy.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Tries before a poster yields its CPU.
const SPINS: u32 = 2_000;
/// How often a waiting poster kicks, in case that a kick was lost.
const KICK_EVERY: Duration = Duration::from_millis(10);

/// A path to the device. Users [`Self::push`] any number of requests, and then [`Self::finish`].
pub enum Work {
    /// Through the context's own channel.
    Own(OwnChannel),
    /// Through the kernel's channel, by system calls.
    Kernel(KernelPath),
}

/// Requests that were pushed but cannot reach the device.
#[derive(Debug, PartialEq, Eq)]
pub struct Lost {
    /// Number of lost requests, which are the youngest ones.
    pub requests: u32,
    /// Reason of the loss.
    pub errno: Errno,
}

impl Work {
    /// Appends a request.
    ///
    /// # Errors
    /// EINVAL if the request is invalid, EIO if the device takes no requests any more. It may also
    /// be the reason why earlier requests are lost, which [`Self::finish`] then returns too.
    #[inline]
    pub fn push(&mut self, request: &Request<'_>) -> Result<(), Errno> {
        match self {
            Work::Own(own) => match own.channel.push(request) {
                Ok(()) => Ok(()),
                Err(error) => own.push_slowly(request, error),
            },
            Work::Kernel(kernel) => kernel.push(request),
        }
    }

    /// Submits the requests that were pushed since the last call to the device.
    ///
    /// # Errors
    /// Returns the requests that the device will not get.
    #[inline]
    pub fn finish(&mut self) -> Result<(), Lost> {
        match self {
            Work::Own(own) => {
                own.channel.ring();
                Ok(())
            }
            Work::Kernel(kernel) => kernel.finish(),
        }
    }

    /// Sets the time after which a device without progress is given up.
    #[cfg(test)]
    pub fn set_stall_timeout(&mut self, timeout: Duration) {
        if let Work::Own(own) = self {
            own.stall_timeout = timeout;
        }
    }
}

/// The context's own channel.
pub struct OwnChannel {
    channel: Channel<ContextDoorbell>,
    /// The device was given up: no post waits for it until it makes progress again.
    given_up: bool,
    /// The device is lost for good. Others may set this while a post waits.
    lost: Ref<AtomicBool>,
    stall_timeout: Duration,
}

impl OwnChannel {
    /// Makes the driver's end of a channel that was just bound. No post waits for the device while
    /// `lost` is true.
    pub fn new(channel: Channel<ContextDoorbell>, lost: Ref<AtomicBool>) -> Self {
        Self { channel, given_up: false, lost, stall_timeout: STALL_TIMEOUT }
    }

    #[cold]
    fn push_slowly(&mut self, request: &Request<'_>, error: PostError) -> Result<(), Errno> {
        if let PostError::Request(_) = error {
            return Err(libc::EINVAL);
        }
        // The device must know of the earlier requests, or no room becomes free.
        self.channel.ring();
        let mut pending = self.channel.pending();
        let (mut moved, mut kicked) = (Instant::now(), Instant::now());
        for tries in 0u32.. {
            if self.channel.push(request).is_ok() {
                self.given_up = false;
                return Ok(());
            }
            if self.given_up || self.lost.load(Ordering::Relaxed) {
                break;
            }
            if tries < SPINS {
                spin_loop();
                continue;
            }
            std::thread::yield_now();
            let now = Instant::now();
            let still_pending = self.channel.pending();
            if still_pending != pending {
                (pending, moved) = (still_pending, now);
            } else if now.duration_since(moved) > self.stall_timeout {
                break;
            }
            if now.duration_since(kicked) > KICK_EVERY {
                kicked = now;
                self.channel.kick();
            }
        }
        self.given_up = true;
        Err(libc::EIO)
    }
}

/// How the context's own channel is kicked.
pub enum ContextDoorbell {
    /// By a store.
    Mapped(MappedDoorbell),
    /// By an ioctl on this file descriptor.
    Ioctl(c_int),
}

impl Doorbell for ContextDoorbell {
    #[inline]
    fn kick(&self) {
        match self {
            ContextDoorbell::Mapped(doorbell) => doorbell.kick(),
            ContextDoorbell::Ioctl(cmd_fd) => {
                // A failure needs no report: if the device is gone, the channel fills up and
                // posting fails.
                let _ = uverbs::kick(*cmd_fd);
            }
        }
    }
}

/// Requests collected for a system call.
pub struct KernelPath {
    cmd_fd: c_int,
    units: Box<[Unit; uverbs::POST_MAX_UNITS]>,
    used: usize,
    requests: u32,
    failed: Option<Errno>,
}

impl KernelPath {
    /// Makes a path that posts by `cmd_fd`.
    pub fn new(cmd_fd: c_int) -> Result<Self, Errno> {
        let units = boxed([Unit::default(); uverbs::POST_MAX_UNITS])?;
        Ok(Self { cmd_fd, units, used: 0, requests: 0, failed: None })
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), Errno> {
        let needed = request.units().map_err(|_| libc::EINVAL)?;
        if self.used + needed > self.units.len() {
            self.flush()?;
        }
        let free = self.units.get_mut(self.used..).unwrap_or_default();
        self.used += request.encode(free).map_err(|_| libc::EINVAL)?;
        self.requests += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Lost> {
        let flushed = match self.failed.take() {
            None => self.flush(),
            Some(errno) => Err(errno),
        };
        let requests = self.requests;
        (self.used, self.requests, self.failed) = (0, 0, None);
        flushed.map_err(|errno| Lost { requests, errno })
    }

    /// Posts all collected requests, or none: then they stay here.
    fn flush(&mut self) -> Result<(), Errno> {
        let units = self.units.get(..self.used).unwrap_or_default();
        if units.is_empty() {
            return Ok(());
        }
        match uverbs::post(self.cmd_fd, units) {
            Ok(()) => {
                (self.used, self.requests) = (0, 0);
                Ok(())
            }
            Err(errno) => {
                self.failed = Some(errno);
                Err(errno)
            }
        }
    }
}
