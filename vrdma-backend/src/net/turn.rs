//! The guests' rounds: takes the frames that they have sent, and forwards them.

use super::Net;
use super::captured::show_sent;
use super::finish;
use super::local_receivers::LocalReceivers;
use super::nic::SwitchUplink;
use super::shares::WaitingWeights;
use super::steer::steer;
use super::verdict::{Reason, SwitchPort, Verdict};
use crate::allowed::FrameVlan;
use crate::panics;
use crate::queue::chains::ChainError;
use crate::ratelimit::limited;
use vrdma_transport::Instant;

/// Budget of a guest of weight 1 in one round. Once it is used, no further frame
/// of the guest is taken.
///
/// What the last frame used in excess is deducted from the next round.
pub(super) const TURN: u64 = 256 << 10;
/// Name of the step that takes a frame from a guest.
const SENDING: &str = "a frame that it sent";
/// Cost of a frame, in addition to its bytes. The bytes count for each port that it goes to.
pub(super) const FRAME: u64 = 4096;
/// Cost of each descriptor that is read, including the receivers'.
///
/// It is also the cost of each frame made of the guest's frame, for each port.
pub(super) const STEP: u64 = 128;
/// Most frames that one flooded frame may become.
const MOST_FRAMES: u64 = 2048;

impl Net {
    /// Takes the frames that guests have sent and forwards them. Returns true if there were any.
    ///
    /// `local` gets the frames that are not for a netdev.
    pub fn turn(
        &mut self,
        now: Instant,
        uplink: &mut dyn SwitchUplink,
        local: &mut dyn LocalReceivers,
    ) -> bool {
        self.outlets.rates.see(now);
        let mut waiting = WaitingWeights::default();
        for guest in 0..self.senders.len() {
            match self.senders[guest].rings.queue.as_mut().map(|queue| queue.refresh()) {
                None | Some(Ok(false)) => {}
                Some(Ok(true)) if self.outlets.rates.holds(guest) => {}
                Some(Ok(true)) => waiting.add(self.shares.weight(guest)),
                Some(Err(broken)) => self.sender_broken(guest, broken),
            }
        }
        if !waiting.is_empty() {
            self.shares.begin(now, uplink.room(), waiting);
            for guest in 0..self.senders.len() {
                if self.senders[guest].rings.queue.as_ref().is_some_and(|queue| queue.has_found())
                    && let Err(broken) = self.serve(guest, now, uplink, local)
                {
                    self.sender_broken(guest, broken);
                }
            }
        }
        for (guest, spent) in self.spent.iter_mut().enumerate() {
            *spent = spent.saturating_sub(TURN * u64::from(self.shares.weight(guest)));
        }
        !waiting.is_empty()
    }

    /// Takes frames from a guest, within its budget for one round.
    fn serve(
        &mut self,
        guest: usize,
        now: Instant,
        uplink: &mut dyn SwitchUplink,
        local: &mut dyn LocalReceivers,
    ) -> Result<(), ChainError> {
        let from = SwitchPort::Guest(guest);
        let mut spent = self.spent[guest];
        let turn = TURN * u64::from(self.shares.weight(guest));
        while spent < turn && self.shares.may_send(guest) && self.outlets.rates.wait(guest).is_none() {
            let to_uplink = self.outlets.uplink.tried();
            let sender = &mut self.senders[guest];
            let before = sender.rings.queue.as_ref().map_or(0, |queue| queue.cost);
            let taken = match panics::contain_step(SENDING, || {
                #[cfg(feature = "hooks")]
                crate::hooks::guest_step(&self.names[guest]);
                sender.take()
            }) {
                Ok(taken) => taken?,
                Err(panicked) => {
                    self.outlets.panicked.push((guest, panicked));
                    break;
                }
            };
            let Some(taken) = taken else { break };
            // Number of descriptors read, and of frames made of this one.
            let mut steps = 0;
            if let Some(frame) = sender.frame(&taken) {
                let verdict = self.switch.decide(now, frame.headers(), frame.head(), from);
                let source = (frame.headers(), from);
                let verdict = steer(&mut self.switch, &self.have_tcp, verdict, source, local);
                if self.tap.is_on() {
                    show_sent(&self.tap, &self.switch, &self.names[guest], verdict, &frame);
                }
                let copies = self.outlets.ports(&self.switch, verdict, &frame, from);
                let frames = finish::frames(&frame) as u64;
                let limited =
                    copies > 1 && !(frames * copies <= MOST_FRAMES && self.floods[guest].take(now, frames));
                let copies = if limited {
                    // To the uplink alone, it costs no more than any other frame.
                    self.outlets.transmit_limited(&frame, uplink);
                    1
                } else {
                    self.outlets.overhear(&self.have_tcp, verdict, &frame, local);
                    steps += self.outlets.forward(&self.switch, verdict, &frame, from, uplink, local);
                    copies
                };
                steps += frames * copies;
                spent += frame.len() as u64 * copies;
                self.outlets.rates.sent(guest, frame.len() as u64, frames);
                match verdict {
                    _ if limited => sender.counters.tx_flood_limited += 1,
                    Verdict::Drop(reason) => {
                        let vlan = frame.vlan();
                        self.dropped(guest, reason, vlan);
                    }
                    _ => {}
                }
            }
            self.shares.sent(guest, self.outlets.uplink.tried() - to_uplink);
            let queue = self.senders[guest].rings.queue.as_mut().expect("a frame was taken out of it");
            queue.put_used(taken.chain, 0);
            steps += queue.cost - before;
            spent += FRAME + steps * STEP;
        }
        self.spent[guest] = spent;
        Ok(())
    }

    /// Counts a guest's frame that was dropped, and logs some reasons.
    fn dropped(&mut self, guest: usize, reason: Reason, vlan: FrameVlan) {
        let (counters, name) = (&mut self.senders[guest].counters, &self.names[guest]);
        match reason {
            Reason::SpoofedArp | Reason::SpoofedNd | Reason::SpoofedTcp | Reason::Router => {
                counters.tx_spoofed += 1;
                limited!(self.violations, Warn, guest = name;
                    "guest {name} sent under an address that it may not use: {reason:?}");
            }
            Reason::Spoofed | Reason::SpoofedGid | Reason::Opaque | Reason::GroupSource => {
                counters.tx_spoofed += 1;
            }
            Reason::IngressVlan => {
                counters.tx_vlan += 1;
                limited!(self.violations, Warn, guest = name;
                    "guest {name} sent a frame that is not in its VLANs: {vlan}");
            }
            _ => counters.tx_refused += 1,
        }
    }
}
