//! The way requests take to the device: the context's own channel, or the kernel's.

use std::ffi::c_int;
use std::hint::spin_loop;
use std::time::{Duration, Instant};

use vrdma_verbs::{Channel, Doorbell, MappedDoorbell, PostError, Request, Unit};

use crate::errno::{Errno, boxed};
use crate::uverbs;

/// How long a full channel may stand still before the device is given up. A device that lives empties it in microseconds; one
/// whose virtual CPU or host is starved may take its time.
const PATIENCE: Duration = Duration::from_secs(10);
/// Tries before a poster gives up its CPU.
const SPINS: u32 = 2_000;
/// How often a waiting poster kicks, in case that a kick went astray.
const KICK_EVERY: Duration = Duration::from_millis(10);

/// A way to the device. [`Self::push`] any number of requests, then [`Self::finish`].
pub enum Work {
    /// Through the context's own channel.
    Own(OwnChannel),
    /// Through the kernel's channel, by system calls.
    Kernel(KernelPath),
}

/// Requests that were pushed but can't reach the device.
#[derive(Debug, PartialEq, Eq)]
pub struct Lost {
    /// How many: the youngest ones.
    pub requests: u32,
    /// Why.
    pub errno: Errno,
}

impl Work {
    /// Writes a request behind those before.
    ///
    /// # Errors
    /// EINVAL if the request is impossible, EIO if the device does not take anything any more; or the
    /// reason why earlier requests are lost, which [`Self::finish`] tells then too.
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

    /// Makes everything pushed since the last time known to the device.
    ///
    /// # Errors
    /// Which requests of these it will never see.
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

    /// Sets how long a device may stand still.
    #[cfg(test)]
    pub fn set_patience(&mut self, patience: Duration) {
        if let Work::Own(own) = self {
            own.patience = patience;
        }
    }

    /// Notes that the device is lost, so that nobody waits for it.
    pub fn give_up(&mut self) {
        if let Work::Own(own) = self {
            own.given_up = true;
        }
    }
}

/// The context's own channel.
pub struct OwnChannel {
    channel: Channel<ContextDoorbell>,
    /// The device stood still for too long: until it moves again nobody waits for it.
    given_up: bool,
    patience: Duration,
}

impl OwnChannel {
    /// The driver's end of a channel that was just bound.
    pub fn new(channel: Channel<ContextDoorbell>) -> Self {
        Self { channel, given_up: false, patience: PATIENCE }
    }

    #[cold]
    fn push_slowly(&mut self, request: &Request<'_>, error: PostError) -> Result<(), Errno> {
        if let PostError::Request(_) = error {
            return Err(libc::EINVAL);
        }
        // What was written has to be known to the device, or nothing ever becomes free.
        self.channel.ring();
        let mut pending = self.channel.pending();
        let (mut moved, mut kicked) = (Instant::now(), Instant::now());
        for tries in 0u32.. {
            if self.channel.push(request).is_ok() {
                self.given_up = false;
                return Ok(());
            }
            if self.given_up {
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
            } else if now.duration_since(moved) > self.patience {
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
                // There is nobody to tell of a failure; if the device is gone, the channel fills up and posting says so.
                let _ = uverbs::kick(*cmd_fd);
            }
        }
    }
}

/// Requests gathered for a system call.
pub struct KernelPath {
    cmd_fd: c_int,
    units: Box<[Unit; uverbs::POST_MAX_UNITS]>,
    used: usize,
    requests: u32,
    failed: Option<Errno>,
}

impl KernelPath {
    /// Posts by `cmd_fd`.
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

    /// All of them are posted, or none and they stay here.
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
