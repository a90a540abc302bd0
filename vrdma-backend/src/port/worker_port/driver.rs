//! The inter-worker ports as drivers: what a [`Port`](crate::port::Port) calls.

use super::WorkerPort;
use super::channel::{FrameReceiver, FrameSender};
use super::nic::Nic;
use super::table::Destination;
use crate::port::frame::{Frame, Origin};
use crate::port::{BURST, Capabilities, Dma, Driver, External, Frames, Offload, Wakeup};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;
use vrdma_transport::Way;
use vrdma_wire::num::Mac;

impl Driver for WorkerPort {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn dma(&self) -> Option<Dma> {
        self.nic.as_ref()?.driver.dma()
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn adopt(&mut self) {
        if let Some(nic) = &mut self.nic {
            nic.driver.adopt();
        }
    }

    fn link(&mut self) -> bool {
        self.look()
    }

    fn speed(&mut self) -> Option<u32> {
        let speed = self.link.as_ref()?.speed.load(Ordering::Relaxed);
        (speed != 0).then_some(speed)
    }

    fn counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        let Some(nic) = &self.nic else { return };
        // These replace the port's own counters, which include frames between workers.
        let c = &nic.counters;
        count("frames_received", c.frames_received);
        count("bytes_received", c.bytes_received);
        count("frames_sent", c.frames_sent);
        count("bytes_sent", c.bytes_sent);
        count("tx_link_down", c.tx_link_down);
        count("rx_handed_over", c.handed_over);
        if nic.is_first {
            count("rules", self.rules.made);
            count("rules_refused", self.rules.refused);
        } else {
            // The first worker counts for all.
            count("link_changes", 0);
        }
        nic.driver.counters(count);
    }
}

impl Frames for WorkerPort {
    /// Appends a burst from the NIC, and up to a burst from the other workers.
    fn receive(&mut self, frames: &mut Vec<Frame>) {
        self.has_relayed = self.nic.as_mut().is_some_and(Nic::flush);
        self.receive_from_nic(frames);
        let most = frames.len() + BURST;
        let before = frames.len();
        for step in 0..self.inward.len() {
            let at = (self.next + step) % self.inward.len();
            let Some(channel) = &mut self.inward[at] else { continue };
            while frames.len() < most
                && let Some(frame) = channel.pop()
            {
                frames.push(frame);
            }
            channel.release();
        }
        self.next = (self.next + 1) % self.inward.len();
        self.counters.received += (frames.len() - before) as u64;
        self.publish();
    }

    fn recycle(&mut self, frames: &mut Vec<Frame>) {
        if frames.is_empty() {
            return;
        }
        for buffer in frames.drain(..).filter_map(|frame| frame.into_buffer().ok()) {
            match &mut self.inward[buffer.home] {
                Some(channel) => channel.give_back(buffer),
                None => self.free.push(buffer),
            }
        }
        self.inward.iter_mut().flatten().for_each(FrameReceiver::publish_empty);
    }

    fn allocate(&mut self, frames: &mut Vec<Frame>) {
        if let Some(nic) = &mut self.nic {
            return nic.driver.allocate(frames);
        }
        while frames.len() < BURST {
            frames.push(Frame::from_buffer(self.buffer(), Origin::Guest));
        }
    }

    fn send(&mut self, frames: &mut Vec<Frame>) {
        let room = self.nic.as_ref().map_or(BURST, Nic::room);
        let count = frames.len().min(BURST).min(room);
        for frame in frames.drain(..count) {
            self.forward(frame);
        }
        self.publish();
        if let Some(nic) = &mut self.nic {
            self.has_relayed |= nic.flush();
        }
    }

    fn attach(&mut self, frame: &mut Frame, external: External) -> bool {
        self.nic.as_mut().is_some_and(|nic| nic.driver.attach(frame, external))
    }

    fn append(&mut self, frame: &mut Frame, bytes: &[u8]) -> bool {
        self.nic.as_mut().is_some_and(|nic| nic.driver.append(frame, bytes))
    }

    fn reclaim(&mut self) {
        if let Some(nic) = &mut self.nic {
            nic.reclaim();
        }
    }

    fn offload(&mut self, _frame: &mut Frame, _offload: Offload) {
        unreachable!("this port says that it can no checksums");
    }
}

impl Wakeup for WorkerPort {
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        match &self.nic {
            // If the NIC has no descriptor, its user never sleeps long and needs none.
            Some(_) => self.both.as_ref().map(|both| both.as_fd()),
            None => Some(self.endpoint.bell.as_fd()),
        }
    }

    fn arm(&mut self) -> bool {
        self.endpoint.arm();
        self.nic.as_mut().is_none_or(|nic| nic.driver.arm() && nic.is_idle())
    }

    fn disarm(&mut self) {
        self.endpoint.disarm();
        if let Some(nic) = &mut self.nic {
            nic.driver.disarm();
        }
    }

    fn held(&self) -> Option<Duration> {
        self.nic.as_ref()?.driver.held()
    }
}

impl WorkerPort {
    /// Describes the way to this address.
    ///
    /// It has room if the ring takes what a port sends in one round, after all that is queued in
    /// the port.
    pub fn way_to(&mut self, dst: Mac) -> Way {
        let (channel, stays_here) = match self.table.place_of(dst) {
            Destination::Worker(to) => (self.outward[to].as_mut(), to != self.worker),
            Destination::Out => (self.to_nic.as_mut(), false),
            // No connection goes there.
            Destination::All => (None, false),
        };
        Way { has_room: channel.is_none_or(FrameSender::has_room), stays_here, is_near: false }
    }

    /// Whether there is a NIC.
    pub fn leads_out(&self) -> bool {
        self.link.is_some()
    }

    /// Whether this worker has a queue pair of the NIC.
    pub fn has_queue(&self) -> bool {
        self.nic.is_some()
    }

    /// Whether the last receive or send moved a frame of other workers that is not for the caller.
    pub fn has_relayed(&self) -> bool {
        self.has_relayed
    }

    /// Reports names and values of the counters for frames between workers.
    pub fn worker_counters(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("frames_sent", self.counters.sent);
        count("frames_received", self.counters.received);
        count("frames_lost", self.counters.lost);
        count("buffers", self.counters.buffers);
        if let Some(nic) = &self.nic {
            count("uplink_sent", nic.counters.frames_sent);
            count("uplink_received", nic.counters.frames_received);
        }
    }
}
