//! Guests' Ethernet functions, and the switch that joins them, the RDMA engine and the uplink.
//!
//! | module | question |
//! |---|---|
//! | `sender`, `receiver` | how do frames come out of and go into a guest's virtqueues? |
//! | `bucket` | how much may a guest send to all? |
//! | `rings`, `virtqueues` | when does a virtqueue run? |
//! | `switch`, `verdict`, `table` | where does a frame go? |
//! | `outlets`, `nic`, `inside` | how does it get there? |
//! | `claims` | does a guest speak under its own addresses? |
//! | `steer` | is a frame for a guest's TCP in this process, and from whom it says? |
//! | `turn` | what of a guest is taken in one turn? |
//! | `frame` | where does a frame lie? |
//! | `judged` | is what is delivered what was judged? |
//! | `finish` | how is done what its sender left to be done? |
//!
//! A frame is handled from its beginning to its end before the next one: nothing is queued, so a
//! guest that does not take what comes holds nobody up. Between two guests it is copied once, from
//! the sender's buffers to the receiver's.

mod bucket;
mod claims;
mod finish;
mod frame;
mod inside;
#[cfg(any(test, feature = "fuzzing"))]
pub mod judged;
mod nic;
mod outlets;
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
pub use inside::Inside;
pub use nic::{Lost, SwitchUplink};
pub use outlets::{MIN_FRAME, UplinkCounters};
pub use switch::{Member, SwitchCounters};
pub use verdict::{SwitchPort, Verdict};

use crate::allowed::Listed;
use crate::panics::Panicked;
use crate::queue::chains::ChainError;
use crate::ratelimit::RateLimit;
use bucket::Bucket;
use frame::FrameView;
use outlets::Outlets;
use receiver::{Receiver, ReceiverCounters};
use sender::{MAX_FRAME, Sender, SenderCounters};
use shares::Shares;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use steer::steer;
use switch::Switch;
use vrdma_transport::Instant;
use vrdma_wire::head::Head;

/// The virtqueue of frames to the guest (virtio 1.2, 5.1.2).
pub const RECEIVE: u16 = 0;
/// The virtqueue of frames from the guest.
pub const TRANSMIT: u16 = 1;

/// All Ethernet functions of a worker, and their switch.
#[derive(Debug)]
pub struct Net {
    names: Vec<String>,
    /// Those of their front-ends, to be shut down if the function ends for a fault of ours. The
    /// session holds them: who leaves has closed them.
    connections: Vec<Weak<UnixStream>>,
    senders: Vec<Sender>,
    /// Those whose connections of iWARP are this process's own.
    have_tcp: Vec<bool>,
    /// Frames to several ports that they may still send to other guests too.
    floods: Vec<Bucket>,
    /// What each guest's turn has cost so far; between turns, what it cost more than one may
    /// (`turn::TURN`).
    spent: Vec<u64>,
    shares: Shares,
    outlets: Outlets,
    switch: Switch,
    mtu: usize,
    violations: RateLimit,
}

/// What an operator can see of a guest's Ethernet function.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct NetCounters {
    #[serde(flatten)]
    sender: SenderCounters,
    #[serde(flatten)]
    receiver: ReceiverCounters,
}

/// What an operator can see of the switch.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct SwitchStats {
    #[serde(flatten)]
    switch: SwitchCounters,
    #[serde(flatten)]
    uplink: UplinkCounters,
}

impl SwitchStats {
    /// Adds what the switch of another worker did.
    pub fn add(&mut self, other: &SwitchStats) {
        self.switch.add(&other.switch);
        self.uplink.add(&other.uplink);
    }
}

impl Net {
    /// Without guests; frames carry IP packets of up to `mtu` bytes.
    pub fn new(mtu: u16) -> Net {
        let outlets = Outlets {
            receivers: Vec::new(),
            broken: Vec::new(),
            panicked: Vec::new(),
            uplink: UplinkCounters::default(),
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
        }
    }

    /// Adds a guest, of whose frames to several ports `flood_rate` a second reach other guests; its
    /// number.
    pub fn add(&mut self, name: &str, member: Member, flood_rate: u32) -> usize {
        self.names.push(name.to_owned());
        self.connections.push(Weak::new());
        self.senders.push(Sender::new(self.mtu));
        self.have_tcp.push(false);
        self.floods.push(Bucket::new(flood_rate));
        self.spent.push(0);
        self.shares.add();
        self.outlets.receivers.push(Receiver::of(name));
        self.switch.add(member)
    }

    /// Adds a guest of another worker.
    pub fn add_elsewhere(&mut self, member: &Member) {
        self.switch.add_elsewhere(member);
    }

    /// A guest has a TCP in this process.
    pub fn set_tcp(&mut self, guest: usize) {
        self.have_tcp[guest] = true;
    }

    /// Brings a frame from there, the uplink or another worker, where it goes.
    pub fn receive(
        &mut self,
        now: Instant,
        frame: &[u8],
        from: SwitchPort,
        uplink: &mut dyn SwitchUplink,
        inside: &mut dyn Inside,
    ) {
        self.outlets.uplink.uplink_received += 1;
        let frame = FrameView::bytes(frame);
        let verdict = self.switch.decide(now, frame.headers(), frame.head(), from);
        let verdict = steer(&mut self.switch, &self.have_tcp, verdict, (frame.headers(), from), inside);
        self.outlets.overhear(&self.have_tcp, verdict, &frame, inside);
        self.outlets.forward(&self.switch, verdict, &frame, from, uplink, inside);
    }

    /// Where a packet of the engine goes, by its headers: most often to [`SwitchPort::Uplink`].
    /// Then the engine may write it there by itself. Other packets are for [`Net::forward_packet`].
    #[inline]
    pub fn route_packet(&mut self, now: Instant, headers: &Head) -> Verdict {
        self.switch.decide(now, Some(headers), &[], SwitchPort::Engine)
    }

    /// Brings a packet of the engine where [`Net::route_packet`] said that it goes.
    pub fn forward_packet(
        &mut self,
        now: Instant,
        verdict: Verdict,
        (headers, packet): (&Head, &[u8]),
        uplink: &mut dyn SwitchUplink,
        inside: &mut dyn Inside,
    ) {
        let frame = FrameView::with_headers(Some(*headers), packet);
        let source = (Some(headers), SwitchPort::Engine);
        let verdict = steer(&mut self.switch, &self.have_tcp, verdict, source, inside);
        if self.outlets.ports(&self.switch, verdict, &frame, SwitchPort::Engine) > 1
            && let Some(guest) = self.switch.owner(headers.eth.src)
            && !self.floods[guest].take(now, 1)
        {
            self.senders[guest].counters.tx_flood_limited += 1;
            // There it costs no more than any other packet.
            return self.outlets.transmit_limited(&frame, uplink);
        }
        // What comes from the engine does not go there: the switch calls that a hairpin.
        self.outlets.forward(&self.switch, verdict, &frame, SwitchPort::Engine, uplink, inside);
    }

    /// Tells guests of what they got and of what was taken. Once a turn of the worker, at its end.
    pub fn flush(&mut self) {
        let receivers = self.outlets.receivers.iter_mut().map(|receiver| &mut receiver.rings);
        for rings in self.senders.iter_mut().map(|sender| &mut sender.rings).chain(receivers) {
            if let Some(queue) = &mut rings.queue {
                queue.publish();
            }
        }
        while let Some((guest, broken)) = self.outlets.broken.pop() {
            let name = &self.names[guest];
            self.violations.warn(|| format!("guest {name}: its receive queue is broken: {broken}"));
        }
    }

    /// Before sleep: asks for kicks. True if there is something to do already.
    pub fn arm(&self) -> bool {
        self.senders
            .iter()
            .filter_map(|sender| sender.rings.queue.as_ref())
            .fold(false, |late, q| late | q.arm())
    }

    /// Whether frames are available that nobody has kicked for.
    pub fn is_kicked_late(&self) -> bool {
        self.senders.iter().filter_map(|sender| sender.rings.queue.as_ref()).any(|queue| queue.has_entries())
    }

    /// Interrupts drivers that have asked for it since they were told last.
    pub fn look_again(&mut self) {
        let receivers = self.outlets.receivers.iter_mut().map(|receiver| &mut receiver.rings);
        let senders = self.senders.iter_mut().map(|sender| &mut sender.rings);
        senders
            .chain(receivers)
            .filter_map(|rings| rings.queue.as_mut())
            .for_each(|queue| queue.look_again());
    }

    /// After sleep: takes the requests for kicks back.
    pub fn disarm(&self) {
        self.senders.iter().filter_map(|sender| sender.rings.queue.as_ref()).for_each(|queue| queue.disarm());
    }

    /// A guest's kick woke the worker.
    pub fn kicked(&mut self, guest: usize) {
        self.senders[guest].counters.kicks += 1;
    }

    /// Whether there are functions that are to end because a step about them panicked.
    pub fn has_broken(&self) -> bool {
        !self.outlets.panicked.is_empty()
    }

    /// One of them.
    pub fn take_broken(&mut self) -> Option<(usize, Panicked)> {
        self.outlets.panicked.pop()
    }

    /// The connection of a guest's front-end, which it has no longer.
    pub fn take_connection(&mut self, guest: usize) -> Option<Arc<UnixStream>> {
        std::mem::take(&mut self.connections[guest]).upgrade()
    }

    /// What a guest is called.
    pub fn name(&self, guest: usize) -> &str {
        &self.names[guest]
    }

    /// A step of a guest's session or worker panicked.
    pub fn panicked(&mut self, guest: usize) {
        self.senders[guest].counters.panics += 1;
    }

    /// What an operator can see of a guest's Ethernet function.
    pub fn counters(&self, guest: usize) -> NetCounters {
        NetCounters {
            sender: self.senders[guest].counters.clone(),
            receiver: self.outlets.receivers[guest].counters.clone(),
        }
    }

    /// What an operator can see of the switch.
    pub fn stats(&self) -> SwitchStats {
        SwitchStats { switch: self.switch.counters.clone(), uplink: self.outlets.uplink.clone() }
    }

    /// IP addresses that guests list.
    pub fn listed(&self) -> &Listed {
        self.switch.listed()
    }

    #[cold]
    fn sender_broken(&mut self, guest: usize, broken: ChainError) {
        self.senders[guest].counters.tx_broken += 1;
        let name = &self.names[guest];
        self.violations.warn(|| format!("guest {name}: its transmit queue is broken: {broken}"));
    }
}

#[cfg(test)]
mod tests;
