//! A process of the guest: its user context and its channel.

use crate::control::{Answer, run};
use crate::cq::Cq;
use crate::guest::Guest;
use crate::memory::Memory;
use crate::mr::Mr;
use crate::qp::{Qp, QpOptions};
use crate::ring::Ring;
use crate::wait;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vmm_sys_util::eventfd::EventFd;
use vrdma_abi::control::{Status, access, limit};
use vrdma_abi::wqe::unit;
use vrdma_verbs::{Channel, ChannelParts, Doorbell, PostError, Request};

/// A doorbell that counts how often it was rung.
#[derive(Clone, Debug)]
pub struct Bell {
    kick: Arc<EventFd>,
    rung: Arc<AtomicU64>,
}

impl Bell {
    /// Returns how often the doorbell was rung.
    pub fn count(&self) -> u64 {
        self.rung.load(Ordering::Relaxed)
    }
}

impl Doorbell for Bell {
    fn kick(&self) {
        self.rung.fetch_add(1, Ordering::Relaxed);
        // If the eventfd's counter is full, the device has been notified often enough.
        let _ = self.kick.write(1);
    }
}

/// A channel that is bound to a context, with its memory.
#[derive(Debug)]
pub struct BoundChannel {
    /// The driver's end.
    pub driver: Channel<Bell>,
    /// Number of the virtqueue.
    pub queue: u16,
    /// The virtqueue.
    pub ring: Ring,
    /// Guest-physical address of the slots.
    pub slots: u64,
    // Keeps the memory mapped that `driver` points to.
    _memory: Arc<Memory>,
}

impl BoundChannel {
    /// Binds virtqueue `queue` to a context, with slots in new pages.
    ///
    /// # Errors
    /// The device refuses the channel.
    pub fn bind(guest: &Guest, context: u32, queue: u16) -> Answer<BoundChannel> {
        let virtqueue = &guest.queues[usize::from(queue)];
        let ring = virtqueue.ring.clone();
        let len = u64::from(ring.size) * u64::from(unit::UNIT_SIZE);
        let slots = guest.memory.alloc(len);
        ring.clear();
        for i in 0..ring.size {
            ring.set_desc(i, slots + 64 * u64::from(i), 64, 0, 0);
        }
        if let Err(status) = guest.bind_channel(context, queue, &[run(slots, len)]) {
            guest.memory.free(slots, len);
            return Err(status);
        }
        let bell = Bell { kick: virtqueue.kick.clone(), rung: Arc::default() };
        let parts = ChannelParts {
            avail: guest.memory.host(ring.avail, 6 + 2 * u64::from(ring.size)),
            used: guest.memory.host(ring.used, 6 + 8 * u64::from(ring.size)),
            slots: guest.memory.host(slots, len).cast(),
            entries: ring.size,
            event_idx: guest.options.event_idx,
            lists: guest.has_lists(),
            doorbell: bell,
        };
        // SAFETY: rings and slots are pages of the memory that is kept beside the driver. The rings
        // were just cleared.
        let driver = unsafe { Channel::new(parts) }.expect("pages are aligned");
        Ok(BoundChannel { driver, queue, ring, slots, _memory: guest.memory.clone() })
    }

    /// Posts a request, and waits while the channel is full.
    #[inline]
    pub fn post(&mut self, request: &Request<'_>) {
        match self.driver.post(request) {
            Ok(()) => {}
            Err(error) => self.post_later(request, error),
        }
    }

    #[cold]
    fn post_later(&mut self, request: &Request<'_>, error: PostError) {
        assert_eq!(error, PostError::Full, "the request cannot be posted at all");
        wait::until("room in the channel", || self.driver.post(request).ok());
    }

    /// Waits until the device has taken all posted requests.
    pub fn drain(&mut self) {
        wait::until("the device to take all requests", || (self.driver.pending() == 0).then_some(()));
    }
}

/// A user context with a PD and a channel of its own, or the kernel's context.
#[derive(Debug)]
pub struct Context {
    /// The guest it belongs to.
    pub guest: Arc<Guest>,
    /// Number of the context.
    pub number: u32,
    /// Number of its protection domain.
    pub pd: u32,
    /// Its channel.
    pub channel: BoundChannel,
}

impl Context {
    /// Opens a user context with a channel of its own.
    ///
    /// # Errors
    /// The device refuses, or no channel is left.
    pub fn open(guest: &Arc<Guest>) -> Answer<Context> {
        let queue = guest.take_channel().ok_or(Status::NO_RESOURCES)?;
        Context::with(guest, guest.alloc_context()?, queue)
    }

    /// Opens the kernel's context with the first channel.
    pub fn kernel(guest: &Arc<Guest>) -> Answer<Context> {
        Context::with(guest, limit::KERNEL_CONTEXT, guest.first_channel())
    }

    fn with(guest: &Arc<Guest>, number: u32, queue: u16) -> Answer<Context> {
        let channel = BoundChannel::bind(guest, number, queue)?;
        let pd = guest.alloc_pd(number)?;
        Ok(Context { guest: guest.clone(), number, pd, channel })
    }

    /// Closes the context.
    ///
    /// All of its QPs, CQs and regions have to be destroyed first.
    ///
    /// # Errors
    /// The device refuses.
    pub fn close(self) -> Answer<()> {
        self.guest.dealloc_pd(self.pd)?;
        self.guest.unbind_channel(self.channel.queue)?;
        if self.number != limit::KERNEL_CONTEXT {
            self.guest.return_channel(self.channel.queue);
            self.guest.dealloc_context(self.number)?;
        }
        let len = u64::from(self.channel.ring.size) * 64;
        self.guest.memory.free(self.channel.slots, len);
        Ok(())
    }

    /// Posts a request, and waits while the channel is full.
    #[inline]
    pub fn post(&mut self, request: &Request<'_>) {
        self.channel.post(request);
    }

    /// Creates a CQ with at least `entries` entries, on vector 0.
    pub fn cq(&self, entries: u32) -> Cq {
        Cq::create(&self.guest, self.number, entries, 0).expect("a CQ")
    }

    /// Registers a region of new memory with all rights.
    pub fn mr(&self, len: u64) -> Mr {
        self.mr_with(len, access::REGION)
    }

    /// Registers a region of new memory with the rights `access`.
    pub fn mr_with(&self, len: u64, access: u32) -> Mr {
        Mr::register(&self.guest, self.pd, access, len).expect("an MR")
    }

    /// Creates a QP, in state RESET.
    pub fn qp(&self, send_cq: &Cq, recv_cq: &Cq, options: &QpOptions) -> Qp {
        Qp::create(&self.guest, self.number, self.pd, send_cq.number, recv_cq.number, options).expect("a QP")
    }
}
