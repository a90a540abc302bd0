//! DPDK's ports: a NIC, or a virtual device of one of DPDK's drivers.

use super::device::DpdkDevice;
use super::dma::DeviceDma;
use super::eal::Eal;
use super::mbuf::{Mbuf, MbufPool};
use super::wake::Wake;
use crate::port::{
    BURST, Capabilities, Dma, Driver, External, Frame, Frames, Offload, Queues, UplinkDevice, Wakeup,
};
use anyhow::{Context, Result};
use dpdk_sys as dpdk;
use std::mem::zeroed;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex};
use vrdma_wire::num::Mac;

/// A queue pair of a device. It is the only one, or one of those that several workers share.
///
/// All its `unsafe` calls name `port` and `queue`. `port` is a started device that is ours alone
/// while `shared` is there. `queue` belongs to this `Ethdev` alone.
#[derive(Debug)]
pub struct Ethdev {
    pub(super) eal: Eal,
    pub(super) device: UplinkDevice,
    /// The device, or `None` after it was released because the host wanted it or its interface is
    /// gone.
    ///
    /// Once all queues have released it, EAL has neither the port nor the device.
    pub(super) shared: Option<Arc<DpdkDevice>>,
    pub(super) port: u16,
    pub(super) queue: u16,
    /// The other queues, until their users take them.
    pub(super) others: Vec<Ethdev>,
    pub(super) mac: Mac,
    pub(super) capabilities: Capabilities,
    /// The pool of receive buffers. `tx_pool` has the buffers for frames to send.
    pub(super) rx_pool: MbufPool,
    pub(super) tx_pool: MbufPool,
    /// The pool of further segments of frames to send.
    pub(super) piece_pool: MbufPool,
    pub(super) wake: Wake,
    pub(super) counters: EthdevCounters,
    /// How the device comes back when its interface does. `None` if it has no interface.
    pub(super) comeback: Option<Arc<Mutex<dyn Comeback>>>,
    /// Guests' memory that the device reaches, if its frames may carry external memory.
    pub(super) dma: Option<Arc<DeviceDma>>,
    /// The most mbufs that a frame may have.
    pub(super) max_segments: u16,
}

/// Brings a device back after its interface was removed.
pub(super) trait Comeback: Send + std::fmt::Debug {
    /// Polls an interface that is there, and logs what has changed.
    fn look(&mut self);
    /// Records that the interface is gone.
    fn lost(&mut self);
    /// Returns this queue of the device, if the device is there again.
    fn retake(&mut self, queue: u16) -> Option<Ethdev>;
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EthdevCounters {
    /// Frames received in several mbufs, which were copied into one piece.
    rx_linearized: u64,
    /// How often a poll of the link found no free receive buffer.
    rx_pool_empty: u64,
    /// Frames that had to be copied into one mbuf, but found none or did not fit. Fault injection
    /// makes such frames.
    tx_no_mbuf: u64,
    /// Frames that found the receive ring of the packet socket full.
    rx_ring_full: u64,
    /// What drivers counted for earlier devices, whose interfaces are gone.
    past: DriverCounters,
}

impl Driver for Ethdev {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn dma(&self) -> Option<Dma> {
        self.dma.clone().map(|dma| Dma::new(dma))
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn adopt(&mut self) {
        self.eal.adopt_thread();
    }

    fn queues(&mut self) -> Option<&mut dyn Queues> {
        Some(self)
    }

    fn link(&mut self) -> bool {
        if self.shared.as_ref().is_some_and(|device| device.is_wanted()) {
            self.unplugged();
        }
        self.look_for_interface();
        let Some(device) = &self.shared else { return false };
        if let Wake::Socket { socket: Some(socket), .. } = &self.wake
            && self.device.is_af_packet()
        {
            self.counters.rx_ring_full += u64::from(socket.drops());
        }
        if self.rx_pool.available() == 0 {
            self.counters.rx_pool_empty += 1;
        }
        if self.queue != 0 {
            // The first queue checks the link for all. Drivers ask the device about it without a
            // lock.
            return true;
        }
        if let Some(claimed) = &device.claimed {
            return claimed.interface().carrier();
        }
        let mut mbps = 0;
        // SAFETY: the port is ours. A device that cannot tell (negative result) counts as up.
        unsafe { dpdk::shim_eth_link(self.port, &mut mbps) != 0 }
    }

    fn speed(&mut self) -> Option<u32> {
        // Drivers that share an interface with the kernel report a made-up speed.
        if let Some(claimed) = &self.shared.as_ref()?.claimed {
            return claimed.interface().speed();
        }
        let mut mbps = 0;
        // SAFETY: the port is ours.
        let known = unsafe { dpdk::shim_eth_link(self.port, &mut mbps) >= 0 };
        // 0 means no speed, and all bits set means an unknown speed.
        (known && mbps != 0 && mbps != u32::MAX).then_some(mbps)
    }

    fn counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        let c = &self.counters;
        count("rx_linearized", c.rx_linearized);
        count("rx_pool_empty", c.rx_pool_empty);
        count("rx_ring_full", c.rx_ring_full);
        count("tx_no_mbuf", c.tx_no_mbuf);
        // The driver counts for all queues together.
        if self.queue != 0 || self.is_gone() && self.comeback.is_none() {
            return;
        }
        if let Some(all) = self.driver_counters() {
            count("driver_rx_missed", all.rx_missed);
            count("driver_rx_errors", all.rx_errors);
            count("driver_rx_no_mbuf", all.rx_no_mbuf);
            count("driver_tx_errors", all.tx_errors);
        }
    }
}

impl Frames for Ethdev {
    fn receive(&mut self, frames: &mut Vec<Frame>) {
        if self.is_gone() {
            return;
        }
        let mut raws = [null_mut(); BURST];
        let want = BURST - frames.len();
        // SAFETY: the port is started, and only `self` receives from this queue. `raws` has room
        // for `want` mbufs.
        let count = unsafe { dpdk::shim_eth_rx_burst(self.port, self.queue, raws.as_mut_ptr(), want as u16) };
        for raw in raws.into_iter().take(count.into()).filter_map(NonNull::new) {
            // SAFETY: the driver passes on the mbuf, which it has written.
            let (mbuf, is_whole) = unsafe { Mbuf::new(raw) };
            if is_whole {
                frames.push(Frame::from_mbuf(mbuf));
            } else {
                self.counters.rx_linearized += 1;
                frames.push(Frame::from_mbuf(mbuf).to_heap());
            }
        }
    }

    fn allocate(&mut self, frames: &mut Vec<Frame>) {
        self.tx_pool.allocate_most(BURST - frames.len(), |mbuf| frames.push(Frame::from_mbuf(mbuf)));
    }

    fn send(&mut self, frames: &mut Vec<Frame>) {
        if self.is_gone() {
            // The frames are lost, as on a cable that is unplugged.
            return frames.clear();
        }
        let mut raws = [null_mut(); BURST];
        let mut want = frames.len().min(BURST);
        if !frames[..want].iter_mut().all(|frame| self.takes(frame)) {
            let (before, mut seen) = (frames.len(), 0);
            frames.retain_mut(|frame| {
                seen += 1;
                seen > want || self.takes(frame) || self.own(frame)
            });
            // A frame that found no buffer is lost, and counts as sent.
            want -= before - frames.len();
        }
        for (raw, mbuf) in raws.iter_mut().zip(frames[..want].iter_mut().filter_map(Frame::as_mbuf)) {
            *raw = mbuf.as_ptr();
        }
        // SAFETY: the port is started, and only `self` sends on this queue. The mbufs are ours. The
        // driver owns those that it takes.
        let taken = unsafe { dpdk::shim_eth_tx_burst(self.port, self.queue, raws.as_mut_ptr(), want as u16) };
        frames.drain(..usize::from(taken)).for_each(|frame| _ = frame.into_mbuf().map(Mbuf::into_raw));
    }

    fn attach(&mut self, frame: &mut Frame, external: External) -> bool {
        let (Some(head), Some(mut piece)) = (frame.as_mbuf(), self.piece_pool.allocate()) else {
            return false;
        };
        piece.attach(external);
        head.chain(piece)
    }

    fn append(&mut self, frame: &mut Frame, bytes: &[u8]) -> bool {
        let (Some(head), Some(mut piece)) = (frame.as_mbuf(), self.piece_pool.allocate()) else {
            return false;
        };
        piece.room()[..bytes.len()].copy_from_slice(bytes);
        piece.set_len(bytes.len());
        head.chain(piece)
    }

    fn reclaim(&mut self) {
        // Without external memory there is nothing to release.
        if self.is_gone() || !self.capabilities.external {
            return;
        }
        // SAFETY: the port is started, and only `self` sends on this queue. Drivers without cleanup
        // (negative result) free sent frames with the next burst, which may be empty. Or they have
        // freed them in the last burst.
        unsafe {
            if dpdk::rte_eth_tx_done_cleanup(self.port, self.queue, 0) < 0 {
                dpdk::shim_eth_tx_burst(self.port, self.queue, null_mut(), 0);
            }
        }
    }

    fn offload(&mut self, frame: &mut Frame, offload: Offload) {
        frame.ask(offload);
    }
}

impl Wakeup for Ethdev {
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.wake.fd()
    }

    fn arm(&mut self) -> bool {
        // A device that is gone receives nothing.
        let Some(device) = &self.shared else { return true };
        // If another queue's user holds the lock, the caller sleeps only briefly.
        device.interrupts.try_lock().is_ok_and(|_one| self.wake.arm(self.port, self.queue))
    }

    fn disarm(&mut self) {
        // If the lock is busy, the interrupt stays enabled and is cleared before the next sleep.
        if let Some(device) = &self.shared
            && let Ok(_one) = device.interrupts.try_lock()
        {
            self.wake.disarm(self.port, self.queue);
        }
    }
}

impl Queues for Ethdev {
    fn split(&mut self) -> Vec<Box<dyn Driver>> {
        let others = std::mem::take(&mut self.others).into_iter();
        others.map(|queue| Box::new(queue) as Box<dyn Driver>).collect()
    }

    fn steer(&mut self, dst: Mac, queue: usize) -> Result<()> {
        let device = self.shared.as_ref().context("the device is gone")?;
        device.steer(dst, u16::try_from(queue)?)
    }
}

/// What a driver counts.
#[derive(Clone, Copy, Debug, Default)]
struct DriverCounters {
    rx_missed: u64,
    rx_errors: u64,
    rx_no_mbuf: u64,
    tx_errors: u64,
}

impl Ethdev {
    /// Whether the device was released.
    fn is_gone(&self) -> bool {
        self.shared.is_none()
    }

    /// Whether the device takes a frame as it is.
    fn takes(&self, frame: &mut Frame) -> bool {
        frame.as_mbuf().is_some_and(|mbuf| mbuf.segments() <= self.max_segments)
    }

    /// Copies a frame into a single mbuf.
    ///
    /// Returns false if there is no buffer for it. The frame is lost then.
    #[cold]
    fn own(&mut self, frame: &mut Frame) -> bool {
        let fits = frame.total_len() <= self.tx_pool.room();
        let Some(mut mbuf) = self.tx_pool.allocate().filter(|_| fits) else {
            self.counters.tx_no_mbuf += 1;
            return false;
        };
        let len = frame.copy_into(mbuf.room());
        mbuf.set_len(len);
        *frame = Frame::from_mbuf(mbuf);
        true
    }
}

impl Ethdev {
    /// Returns what drivers counted for this device and its predecessors, if the driver tells.
    fn driver_counters(&self) -> Option<DriverCounters> {
        let past = self.counters.past;
        if self.is_gone() {
            return Some(past);
        }
        // SAFETY: all zeros is a valid value of this structure. DPDK fills it in. The port is ours.
        let stats = unsafe {
            let mut stats: dpdk::rte_eth_stats = zeroed();
            (dpdk::rte_eth_stats_get(self.port, &mut stats) == 0).then_some(stats)?
        };
        Some(DriverCounters {
            rx_missed: past.rx_missed + stats.imissed,
            rx_errors: past.rx_errors + stats.ierrors,
            rx_no_mbuf: past.rx_no_mbuf + stats.rx_nombuf,
            tx_errors: past.tx_errors + stats.oerrors,
        })
    }

    /// Releases a device whose interface is gone, and takes the device that replaces it.
    fn look_for_interface(&mut self) {
        let Some(comeback) = self.comeback.clone() else { return };
        // If another queue's user holds the lock, this queue tries again at its next poll.
        let Ok(mut comeback) = comeback.try_lock() else { return };
        if self.shared.as_ref().is_some_and(|device| device.is_lost(self.queue == 0)) {
            if self.queue == 0 {
                self.counters.past = self.driver_counters().unwrap_or(self.counters.past);
                comeback.lost();
            }
            self.wake.let_go();
            self.shared = None;
        }
        if self.shared.is_none() {
            if let Some(fresh) = comeback.retake(self.queue) {
                self.become_fresh(fresh);
            }
        } else if self.queue == 0 {
            comeback.look();
        }
    }

    /// Continues with a device that was started again.
    fn become_fresh(&mut self, mut fresh: Ethdev) {
        self.shared = fresh.shared.take();
        (self.port, self.mac) = (fresh.port, fresh.mac);
        self.wake.follow(std::mem::replace(&mut fresh.wake, Wake::Blind));
    }

    /// Releases the device, because it is about to be unplugged.
    #[cold]
    fn unplugged(&mut self) {
        self.shared = None;
        self.wake.silence();
        if self.queue == 0 {
            log::warn!("uplink {}: the device is unplugged: its port stays down", self.device.name);
        }
    }
}

impl Drop for Ethdev {
    fn drop(&mut self) {
        // The duplicate of the driver's socket would keep it open.
        self.wake = Wake::Blind;
        self.shared = None;
    }
}
