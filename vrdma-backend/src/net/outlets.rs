//! Delivers frames to guests, the engine and the uplink.

use super::finish;
use super::finish::Fill;
use super::frame::FrameView;
use super::local_receivers::LocalReceivers;
use super::nic::{Lost, SwitchUplink};
use super::rates::Rates;
use super::receiver::Receiver;
use super::switch::Switch;
use super::verdict::{SwitchPort, Verdict};
use crate::allowed::FrameVlan;
use crate::frames::VirtioOffload;
use crate::panics::{self, Panicked};
use crate::queue::chains::ChainError;
use vrdma_wire::head::{FrameKind, Head};

/// Shortest frame on a wire, in bytes, without CRC (IEEE 802.3 4.2.3.3).
pub const MIN_FRAME: usize = 60;

/// Name of the step that delivers a frame to a guest.
const RECEIVING: &str = "a frame for it";

/// The destinations of frames.
#[derive(Debug)]
pub(super) struct Outlets {
    pub receivers: Vec<Receiver>,
    /// Receive queues that broke and are still to be logged.
    pub broken: Vec<(usize, ChainError)>,
    /// Guests whose functions are to end, because a step that concerned their queues panicked.
    pub panicked: Vec<(usize, Panicked)>,
    pub uplink: UplinkCounters,
    /// The rates of guests' frames.
    pub rates: Rates,
    /// Scratch space for a frame whose offload is being done.
    pub scratch: Box<[u8]>,
}

/// The counters of frames between switch and uplink.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct UplinkCounters {
    /// Frames sent.
    pub uplink_sent: u64,
    /// Frames that the uplink did not accept.
    pub uplink_lost: u64,
    /// Frames received.
    pub uplink_received: u64,
}

impl UplinkCounters {
    /// Adds the counters of another switch.
    pub fn add(&mut self, other: &UplinkCounters) {
        let UplinkCounters { uplink_sent, uplink_lost, uplink_received } = other;
        self.uplink_sent += uplink_sent;
        self.uplink_lost += uplink_lost;
        self.uplink_received += uplink_received;
    }

    /// Returns the number of frames that were sent or lost.
    pub fn tried(&self) -> u64 {
        self.uplink_sent + self.uplink_lost
    }
}

impl Outlets {
    /// Returns the number of ports to which a frame goes.
    pub fn ports(&self, switch: &Switch, verdict: Verdict, frame: &FrameView<'_>, from: SwitchPort) -> u64 {
        match verdict {
            Verdict::Drop(_) => return 0,
            Verdict::To(_) => return 1,
            Verdict::Group | Verdict::RoceGroup | Verdict::Unknown => {}
        }
        let vlan = frame.vlan();
        let guests =
            (0..self.receivers.len()).filter(|&guest| self.floods(switch, guest, verdict, vlan, from));
        let engine = goes_to_engine(verdict, from);
        guests.count() as u64 + u64::from(engine) + switch.ways_out(verdict, from)
    }

    /// Whether a flooded frame goes to a guest.
    fn floods(
        &self,
        switch: &Switch,
        guest: usize,
        verdict: Verdict,
        vlan: FrameVlan,
        from: SwitchPort,
    ) -> bool {
        let running = self.receivers[guest].rings.queue.is_some();
        from != SwitchPort::Guest(guest) && running && switch.floods(guest, verdict, vlan)
    }

    /// Forwards a frame to its ports. Returns how many descriptors were read for that.
    pub fn forward(
        &mut self,
        switch: &Switch,
        verdict: Verdict,
        frame: &FrameView<'_>,
        from: SwitchPort,
        uplink: &mut dyn SwitchUplink,
        local: &mut dyn LocalReceivers,
    ) -> u64 {
        match verdict {
            Verdict::Drop(_) => return 0,
            Verdict::To(SwitchPort::Guest(guest)) => return self.deliver(guest, frame),
            Verdict::To(SwitchPort::Uplink | SwitchPort::Worker) => {
                self.transmit(frame, uplink);
                return 0;
            }
            Verdict::To(SwitchPort::Engine) => {
                self.hand_over(frame, &mut |headers, packet| local.packet(headers, packet));
                return 0;
            }
            Verdict::To(SwitchPort::Tcp(guest)) => {
                self.hand_over(frame, &mut |headers, segment| local.segment(guest, headers, segment));
                return 0;
            }
            Verdict::Group | Verdict::RoceGroup | Verdict::Unknown => {}
        }
        let (mut cost, vlan) = (0, frame.vlan());
        if goes_to_engine(verdict, from) {
            self.hand_over(frame, &mut |headers, packet| local.packet(headers, packet));
        }
        for guest in 0..self.receivers.len() {
            if self.floods(switch, guest, verdict, vlan, from) {
                cost += self.deliver(guest, frame);
            }
        }
        if !from.is_outside() {
            self.transmit(frame, uplink);
        }
        cost
    }

    /// Passes an ICMP message that a packet was too long to the guest's own TCP, too.
    ///
    /// The message concerns that TCP as well as the guest's netdev. The netdev gets the frame like
    /// any other.
    pub fn overhear(
        &mut self,
        have_tcp: &[bool],
        verdict: Verdict,
        frame: &FrameView<'_>,
        local: &mut dyn LocalReceivers,
    ) {
        if let Verdict::To(SwitchPort::Guest(guest)) = verdict
            && have_tcp[guest]
            && frame.headers().is_some_and(|headers| headers.kind == FrameKind::TooLong)
        {
            self.hand_over(frame, &mut |_, complaint| local.too_long(guest, complaint));
        }
    }

    /// Passes a frame, or the segments of it, to a receiver in this process.
    ///
    /// Offloads change no field that [`Head`] has.
    fn hand_over(&mut self, frame: &FrameView<'_>, to: &mut dyn FnMut(&Head, &[u8])) {
        let Some(headers) = frame.headers() else { return };
        if let Some(bytes) = frame.finished() {
            return to(headers, bytes);
        }
        let scratch = &mut self.scratch;
        finish::finish(frame, &mut |len, fill| {
            fill(&mut scratch[..len]);
            to(headers, &scratch[..len]);
        });
    }

    /// Delivers a frame to a guest. Returns how many descriptors were read for that.
    fn deliver(&mut self, guest: usize, frame: &FrameView<'_>) -> u64 {
        if self.rates.has(guest)
            && !self.rates.admits(guest, frame.len() as u64, finish::frames(frame) as u64)
        {
            return 0;
        }
        let receiver = &mut self.receivers[guest];
        let before = receiver.cost();
        match panics::contain_step(RECEIVING, || receiver.deliver(frame, &mut self.scratch)) {
            Ok(Ok(())) => {}
            Ok(Err(broken)) => {
                receiver.counters.rx_broken += 1;
                self.broken.push((guest, broken));
            }
            // The guest gets no more frames until its function has ended.
            Err(panicked) => {
                receiver.rings.queue = None;
                self.panicked.push((guest, panicked));
                return 0;
            }
        }
        receiver.cost() - before
    }

    /// Sends a frame to other hosts only, because it exceeds what its guest may flood.
    pub fn transmit_limited(&mut self, frame: &FrameView<'_>, uplink: &mut dyn SwitchUplink) {
        uplink.set_limited(true);
        self.transmit(frame, uplink);
        uplink.set_limited(false);
    }

    pub fn transmit(&mut self, frame: &FrameView<'_>, uplink: &mut dyn SwitchUplink) {
        let left = match frame.offload {
            // Checksums of padded frames are computed here. NICs differ in whether they count
            // padding as payload (QEMU's do).
            VirtioOffload::Checksum { start, offset } if frame.len() >= MIN_FRAME => {
                uplink.completes(frame.head(), start, offset)
            }
            _ => None,
        };
        let counters = &mut self.uplink;
        let mut place = |len: usize, fill: Fill<'_>| {
            let sent = uplink.transmit(len.max(MIN_FRAME), left, &mut |out| {
                let (frame, padding) = out.split_at_mut(len);
                fill(frame);
                padding.fill(0);
            });
            match sent {
                Ok(()) => counters.uplink_sent += 1,
                Err(Lost) => counters.uplink_lost += 1,
            }
        };
        match left {
            Some(_) => place(frame.len(), &mut |out| frame.read(0, out)),
            None => finish::finish(frame, &mut place),
        }
    }
}

/// Whether a flooded frame goes to the engine.
///
/// A frame that the engine itself sent does not: the engine has already delivered it to the group's
/// members on this host.
fn goes_to_engine(verdict: Verdict, from: SwitchPort) -> bool {
    verdict == Verdict::RoceGroup && from != SwitchPort::Engine
}
