//! Multicast groups: QPs join and leave them, and packets from the wire go to all members.

use crate::agenda::fan_out::FanOut;
use crate::base::error::Error;
use crate::base::id::DeviceId;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::time::Instant;
use crate::engine::Engine;
use crate::verbs::completion::Sink;
use vrdma_wire::num::{Gid, Qpn, VlanId};
use vrdma_wire::roce::{Body, MAX_FRAME, Packet, Parsed};

/// Most members that get a packet when it arrives. The others get it in the next calls of
/// [`Engine::poll`].
pub(crate) const AT_ONCE: usize = 8;
/// Most members that one call of [`Engine::poll`] handles.
pub(crate) const FANNED_OUT: usize = 64;
/// Most members of one packet that are handled before the next device has its turn.
const TURN: usize = 16;

impl<R: Region> Engine<R> {
    /// Adds a datagram QP to a multicast group (IBTA 11.3.1).
    ///
    /// The QP gets what is sent to the group in any VLAN in which its device has an address,
    /// including what it sends itself. To join again changes nothing.
    ///
    /// Returns `NotFound` if there is no such QP. Returns `Invalid` if the QP is of another
    /// service, or if the address is not multicast. Returns `NoResources` beyond a limit of the
    /// device.
    pub fn attach_mcast(&mut self, device: DeviceId, qpn: Qpn, mgid: Gid) -> Result<(), Error> {
        self.core.devices.attach(device, qpn, mgid)
    }

    /// Removes a QP from a multicast group (IBTA 11.3.2). Returns `Invalid` if it is no member.
    pub fn detach_mcast(&mut self, device: DeviceId, qpn: Qpn, mgid: Gid) -> Result<(), Error> {
        self.core.devices.detach(device, qpn, mgid)
    }

    /// Handles a packet for a group.
    pub(super) fn handle_group(
        &mut self,
        now: Instant,
        parsed: &Parsed<'_>,
        frame: &[u8],
        sink: &mut impl Sink,
    ) {
        let (path, mut left) = (&parsed.packet.path, AT_ONCE);
        let vlan = VlanId::of(path.vlan);
        let mut next = match parsed.packet.body {
            Body::Ud { .. } if parsed.packet.bth.dest == Qpn::MULTICAST => {
                self.core.devices.next_listener(path.dst, vlan, 0)
            }
            _ => None,
        };
        if next.is_none() {
            self.core.port.counters.drop_multicast += 1;
        }
        while let Some(device) = next {
            let mut served = None;
            // Packets keep their order, so this one is queued behind earlier ones.
            if self.fan_outs.waits(device)
                || self.fan_out(now, device, parsed, frame, &mut served, &mut left, sink)
            {
                self.fan_out_later(device, served, frame);
            }
            next = self.core.devices.next_listener(path.dst, vlan, device + 1);
        }
    }

    /// Delivers a packet to at most the next `left` members of its group on a device.
    ///
    /// Returns whether there are more members.
    #[expect(clippy::too_many_arguments, reason = "what came, for whom, and how far that is")]
    fn fan_out(
        &mut self,
        now: Instant,
        device: u32,
        parsed: &Parsed<'_>,
        frame: &[u8],
        served: &mut Option<Qpn>,
        left: &mut usize,
        sink: &mut impl Sink,
    ) -> bool {
        let mgid = parsed.packet.path.dst;
        while let Some(qpn) = self.core.devices.known_device(device).groups.next(mgid, *served) {
            if *left == 0 {
                return true;
            }
            *left -= 1;
            *served = Some(qpn);
            self.arrive(now, QpRef { device, qpn }, parsed, frame, sink);
        }
        false
    }

    /// Queues a packet for the other members, unless too many packets wait.
    fn fan_out_later(&mut self, device: u32, served: Option<Qpn>, frame: &[u8]) {
        let fits = frame.len() <= MAX_FRAME;
        if !fits || !self.fan_outs.push(device, FanOut { served, frame: frame.into() }) {
            self.core.devices.known_device(device).counters.drop_fan_out += 1;
        }
    }

    /// Delivers queued packets to some of the members that have not had them.
    #[inline]
    pub(super) fn fan_out_some(&mut self, now: Instant, sink: &mut impl Sink) {
        if self.fan_outs.any() {
            self.fan_out_slice(now, sink);
        }
    }

    #[cold]
    fn fan_out_slice(&mut self, now: Instant, sink: &mut impl Sink) {
        // A turn that finds no member, because all have left, costs little, but is not free.
        for _ in 0..FANNED_OUT / TURN {
            self.begin_step();
            let Some((device, mut fan_out)) = self.fan_outs.take() else { break };
            // Its ICRC was checked too. For a packet from a record, both were checked again.
            let parsed = Packet::parse(&fan_out.frame).expect("a packet that waits was parsed when it came");
            let (mut served, mut left) = (fan_out.served, TURN);
            if self.fan_out(now, device, &parsed, &fan_out.frame, &mut served, &mut left, sink) {
                fan_out.served = served;
                self.fan_outs.put_back(device, fan_out);
            }
        }
    }
}
