//! The guests' Ethernet functions, and the switch that connects them, the RDMA engine and the
//! uplink.
//!
//! | module | question |
//! |---|---|
//! | `sender`, `receiver` | how do frames get out of and into a guest's virtqueues? |
//! | `bucket` | how much may a guest flood? |
//! | `rings`, `virtqueues` | when does a virtqueue run? |
//! | `switch`, `verdict`, `table` | where does a frame go? |
//! | `outlets`, `nic`, `local_receivers` | how does it get there? |
//! | `captured` | what do captures see? |
//! | `claims` | does a guest use only its own addresses? |
//! | `steer` | is a frame for a guest's TCP in this process, and is its source genuine? |
//! | `turn` | how much of a guest is served in one round? |
//! | `shares` | how do guests share the uplink's room? |
//! | `frame` | where are a frame's bytes? |
//! | `offload_checker` | is the delivered frame the one that was checked? |
//! | `finish` | how are requested offloads done? |
//!
//! A frame is handled completely before the next one. Nothing is queued, so a guest that does not
//! take its frames delays nobody. A frame between two guests is copied once, from the sender's
//! buffers to the receiver's.

mod bucket;
mod captured;
mod claims;
mod finish;
mod frame;
mod local_receivers;
mod nic;
#[cfg(any(test, feature = "fuzzing"))]
pub mod offload_checker;
mod outlets;
mod rates;
mod receiver;
mod rings;
mod sender;
mod shares;
mod steer;
mod switch;
mod table;
mod turn;
mod verdict;
mod virtqueues;

pub use finish::Fill;
pub use local_receivers::LocalReceivers;
pub use nic::{Lost, SwitchUplink};
pub use outlets::{MIN_FRAME, UplinkCounters};
pub use switch::{Member, SwitchCounters};
pub use verdict::{SwitchPort, Verdict};

use crate::allowed::Listed;
use crate::capture::{CapturePlace, FrameSource, Seen, Tap};
use crate::config::Qos;
use crate::panics::Panicked;
use crate::queue::chains::{ChainError, ChainQueue};
use crate::ratelimit::{RateLimit, limited};
use bucket::Bucket;
use frame::FrameView;
use outlets::Outlets;
use rates::{HeldFrames, Rates};
use receiver::{Receiver, ReceiverCounters};
use sender::{MAX_FRAME, Sender, SenderCounters};
use shares::Shares;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use steer::steer;
use switch::Switch;
use vrdma_transport::Instant;
use vrdma_wire::head::Head;
use vrdma_wire::num::Mac;

/// The virtqueue of frames to the guest (virtio 1.2, 5.1.2).
pub const RECEIVE: u16 = 0;
/// The virtqueue of frames from the guest (virtio 1.2, 5.1.2).
pub const TRANSMIT: u16 = 1;

/// All Ethernet functions of a worker, and their switch.
#[derive(Debug)]
pub struct Net {
    names: Vec<String>,
    /// Connections of the guests' front-ends. They are shut down if a panic ends the function.
    ///
    /// The session owns them. They are gone once the front-end has left.
    connections: Vec<Weak<UnixStream>>,
    senders: Vec<Sender>,
    /// Whether each guest has its own TCP in this process, for iWARP.
    have_tcp: Vec<bool>,
    /// How many flooded frames each guest may still send to other guests.
    floods: Vec<Bucket>,
    /// The part of the round's budget (`turn::TURN`) that each guest has used.
    ///
    /// Between rounds, it is what the guest used in excess.
    spent: Vec<u64>,
    shares: Shares,
    outlets: Outlets,
    switch: Switch,
    mtu: usize,
    violations: RateLimit,
    /// Captures of frames, and of packets that the engine sends.
    pub tap: Tap,
}

/// The counters of a guest's Ethernet function.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct NetCounters {
    #[serde(flatten)]
    sender: SenderCounters,
    #[serde(flatten)]
    receiver: ReceiverCounters,
    #[serde(flatten)]
    held: HeldFrames,
}

/// The counters of the switch.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct SwitchStats {
    #[serde(flatten)]
    switch: SwitchCounters,
    #[serde(flatten)]
    uplink: UplinkCounters,
}

impl SwitchStats {
    /// Adds the counters of another worker's switch.
    pub fn add(&mut self, other: &SwitchStats) {
        self.switch.add(&other.switch);
        self.uplink.add(&other.uplink);
    }
}

impl Net {
    /// Returns a switch without guests, for IP packets of up to `mtu` bytes.
    pub fn new(mtu: u16) -> Net {
        let outlets = Outlets {
            receivers: Vec::new(),
            broken: Vec::new(),
            panicked: Vec::new(),
            uplink: UplinkCounters::default(),
            rates: Rates::default(),
            scratch: vec![0; MAX_FRAME].into_boxed_slice(),
        };
        let (switch, violations) = (Switch::default(), RateLimit::default());
        Net {
            names: Vec::new(),
            connections: Vec::new(),
            senders: Vec::new(),
            have_tcp: Vec::new(),
            floods: Vec::new(),
            spent: Vec::new(),
            shares: Shares::default(),
            outlets,
            switch,
            mtu: mtu.into(),
            violations,
            tap: Tap::default(),
        }
    }

    /// Adds a guest and returns its number, which may be that of a removed guest.
    ///
    /// At most `flood_rate` of its flooded frames a second reach other guests.
    pub fn add(&mut self, name: &str, member: Member, flood_rate: u32) -> usize {
        let guest = self.switch.add(member);
        put(&mut self.names, guest, name.to_owned());
        put(&mut self.connections, guest, Weak::new());
        put(&mut self.senders, guest, Sender::new(self.mtu));
        put(&mut self.have_tcp, guest, false);
        put(&mut self.floods, guest, Bucket::new(flood_rate));
        put(&mut self.spent, guest, 0);
        put(&mut self.outlets.receivers, guest, Receiver::of(name));
        self.shares.add(guest);
        guest
    }

    /// Removes a guest. Its front-end is gone, so its virtqueues have stopped.
    pub fn remove(&mut self, guest: usize) {
        self.switch.remove(guest);
        self.names[guest] = String::new();
        self.connections[guest] = Weak::new();
        self.senders[guest] = Sender::new(self.mtu);
        self.have_tcp[guest] = false;
        self.spent[guest] = 0;
        self.outlets.receivers[guest] = Receiver::default();
        self.outlets.rates.remove(guest);
        self.outlets.broken.retain(|(other, _)| *other != guest);
        self.outlets.panicked.retain(|(other, _)| *other != guest);
    }

    /// Adds a guest of another worker.
    pub fn add_peer(&mut self, member: &Member) {
        self.switch.add_peer(member);
    }

    /// Removes the guest of another worker that has this MAC address.
    pub fn remove_peer(&mut self, mac: Mac) {
        self.switch.remove_peer(mac);
    }

    /// Sets the weight of a guest, by which its turns and its part of the uplink's room grow, and
    /// the rates of its frames.
    pub fn set_qos(&mut self, guest: usize, qos: &Qos) {
        self.shares.set_weight(guest, qos.weight.get());
        self.outlets.rates.set(guest, &qos.rates());
    }

    /// Returns when guests may send again that have used up their rate.
    ///
    /// They may have nothing to send. But there is no kick when they have: only a worker that wakes
    /// at that time [asks for one](Net::arm).
    pub fn next_time(&self) -> Option<Instant> {
        let running = self.senders.iter().enumerate().filter(|(_, sender)| sender.rings.queue.is_some());
        running.filter_map(|(guest, _)| self.outlets.rates.wait(guest)).min()
    }

    /// Returns the transmit queues of guests whose rate lets them send.
    fn free_queues(&self) -> impl Iterator<Item = &ChainQueue> {
        let free =
            self.senders.iter().enumerate().filter(|&(guest, _)| self.outlets.rates.wait(guest).is_none());
        free.filter_map(|(_, sender)| sender.rings.queue.as_ref())
    }

    /// Notes that a guest has its own TCP in this process.
    pub fn set_tcp(&mut self, guest: usize) {
        self.have_tcp[guest] = true;
    }

    /// Forwards a frame that came from the uplink or another worker.
    ///
    /// Captures see those from the uplink. Another worker has shown its own.
    pub fn receive(
        &mut self,
        now: Instant,
        frame: &[u8],
        from: SwitchPort,
        uplink: &mut dyn SwitchUplink,
        local: &mut dyn LocalReceivers,
    ) {
        self.receive_from(now, frame, (from, from == SwitchPort::Uplink), uplink, local);
    }

    /// Forwards a copy of a frame that came from the uplink to another worker, which has shown it
    /// to captures.
    pub fn receive_copy(
        &mut self,
        now: Instant,
        frame: &[u8],
        uplink: &mut dyn SwitchUplink,
        local: &mut dyn LocalReceivers,
    ) {
        self.receive_from(now, frame, (SwitchPort::Uplink, false), uplink, local);
    }

    fn receive_from(
        &mut self,
        now: Instant,
        bytes: &[u8],
        (from, is_captured): (SwitchPort, bool),
        uplink: &mut dyn SwitchUplink,
        local: &mut dyn LocalReceivers,
    ) {
        self.outlets.uplink.uplink_received += 1;
        self.outlets.rates.see(now);
        let frame = FrameView::bytes(bytes);
        let verdict = self.switch.decide(now, frame.headers(), frame.head(), from);
        let verdict = steer(&mut self.switch, &self.have_tcp, verdict, (frame.headers(), from), local);
        if is_captured && self.tap.is_on() {
            self.show_received(verdict, bytes);
        }
        self.outlets.overhear(&self.have_tcp, verdict, &frame, local);
        self.outlets.forward(&self.switch, verdict, &frame, from, uplink, local);
    }

    /// Shows a frame that came from the wire to captures. `verdict` is where it goes.
    #[cold]
    fn show_received(&self, verdict: Verdict, frame: &[u8]) {
        let source = match verdict {
            Verdict::Drop(_) => FrameSource::Dropped(None),
            _ => FrameSource::Wire,
        };
        self.tap.frame(Seen { place: CapturePlace::FromWire, comment: None }, source, frame);
    }

    /// Decides where a packet of the engine goes, by its headers.
    ///
    /// Most packets go to [`SwitchPort::Uplink`]. The engine may write those to the uplink itself.
    /// All others go through [`Net::forward_packet`].
    #[inline]
    pub fn route_packet(&mut self, now: Instant, headers: &Head) -> Verdict {
        self.switch.decide(now, Some(headers), &[], SwitchPort::Engine)
    }

    /// Forwards a packet of the engine as [`Net::route_packet`] decided.
    pub fn forward_packet(
        &mut self,
        now: Instant,
        verdict: Verdict,
        (headers, packet): (&Head, &[u8]),
        uplink: &mut dyn SwitchUplink,
        local: &mut dyn LocalReceivers,
    ) {
        let frame = FrameView::with_headers(Some(*headers), packet);
        let source = (Some(headers), SwitchPort::Engine);
        self.outlets.rates.see(now);
        let verdict = steer(&mut self.switch, &self.have_tcp, verdict, source, local);
        if self.outlets.ports(&self.switch, verdict, &frame, SwitchPort::Engine) > 1
            && let Some(guest) = self.switch.owner(headers.eth.src)
            && !self.floods[guest].take(now, 1)
        {
            self.senders[guest].counters.tx_flood_limited += 1;
            // To the uplink alone, it costs no more than any other packet.
            return self.outlets.transmit_limited(&frame, uplink);
        }
        // A packet of the engine never goes to the engine: the switch drops it as a hairpin.
        self.outlets.forward(&self.switch, verdict, &frame, SwitchPort::Engine, uplink, local);
    }

    /// Publishes used buffers and interrupts drivers. The worker calls it at the end of each round.
    pub fn flush(&mut self) {
        let receivers = self.outlets.receivers.iter_mut().map(|receiver| &mut receiver.rings);
        for rings in self.senders.iter_mut().map(|sender| &mut sender.rings).chain(receivers) {
            if let Some(queue) = &mut rings.queue {
                queue.publish();
            }
        }
        while let Some((guest, broken)) = self.outlets.broken.pop() {
            let name = &self.names[guest];
            limited!(self.violations, Warn, guest = name; "guest {name}: its receive queue is broken: {broken}");
        }
    }

    /// Requests kicks, before the worker sleeps. Returns true if there is work already.
    pub fn arm(&self) -> bool {
        // Frames that wait for a rate are no reason to stay awake, and kicks for more of them none
        // to wake up.
        self.free_queues().fold(false, |late, queue| late | queue.arm())
    }

    /// Whether frames are available for which no kick came.
    pub fn is_kicked_late(&self) -> bool {
        self.free_queues().any(|queue| queue.has_entries())
    }

    /// Interrupts drivers that have asked for it since their last notification.
    pub fn look_again(&mut self) {
        let receivers = self.outlets.receivers.iter_mut().map(|receiver| &mut receiver.rings);
        let senders = self.senders.iter_mut().map(|sender| &mut sender.rings);
        senders
            .chain(receivers)
            .filter_map(|rings| rings.queue.as_mut())
            .for_each(|queue| queue.look_again());
    }

    /// Withdraws the requests for kicks, after the worker slept.
    pub fn disarm(&self) {
        self.senders.iter().filter_map(|sender| sender.rings.queue.as_ref()).for_each(|queue| queue.disarm());
    }

    /// Counts a kick of a guest that woke the worker.
    pub fn kicked(&mut self, guest: usize) {
        self.senders[guest].counters.kicks += 1;
    }

    /// Whether functions are to end because a step that concerned them panicked.
    pub fn has_broken(&self) -> bool {
        !self.outlets.panicked.is_empty()
    }

    /// Returns one function that is to end after a panic.
    pub fn take_broken(&mut self) -> Option<(usize, Panicked)> {
        self.outlets.panicked.pop()
    }

    /// Takes the connection of a guest's front-end away from the guest.
    pub fn take_connection(&mut self, guest: usize) -> Option<Arc<UnixStream>> {
        std::mem::take(&mut self.connections[guest]).upgrade()
    }

    /// Returns the name of a guest.
    pub fn name(&self, guest: usize) -> &str {
        &self.names[guest]
    }

    /// Counts a panic in a step of a guest's session or worker.
    pub fn panicked(&mut self, guest: usize) {
        self.senders[guest].counters.panics += 1;
    }

    /// Returns the counters of a guest's Ethernet function.
    pub fn counters(&self, guest: usize) -> NetCounters {
        NetCounters {
            sender: self.senders[guest].counters.clone(),
            receiver: self.outlets.receivers[guest].counters.clone(),
            held: self.outlets.rates.counters(guest),
        }
    }

    /// Returns the counters of the switch.
    pub fn stats(&self) -> SwitchStats {
        SwitchStats { switch: self.switch.counters.clone(), uplink: self.outlets.uplink.clone() }
    }

    /// Returns the IP addresses that guests list.
    pub fn listed(&self) -> &Listed {
        self.switch.listed()
    }

    #[cold]
    fn sender_broken(&mut self, guest: usize, broken: ChainError) {
        self.senders[guest].counters.tx_broken += 1;
        let name = &self.names[guest];
        limited!(self.violations, Warn, guest = name; "guest {name}: its transmit queue is broken: {broken}");
    }
}

/// Puts a value at the end, or in the place of that of a removed guest.
fn put<T>(all: &mut Vec<T>, guest: usize, value: T) {
    if guest == all.len() {
        all.push(value);
    } else {
        all[guest] = value;
    }
}

#[cfg(test)]
mod tests;
