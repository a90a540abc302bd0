//! Frames and ICMP messages that arrive for the own TCP of one guest.

use super::end::{End, EndUser};
use super::node::{HEADERS, NO_LISTENER, Node, ReadyList, note};
use super::receiver::{Direct, SegmentReceiver};
use crate::frames::sum;
use vrdma_tcp::{ConnectionId, Instant, NextHop, Ports, SegmentSource, Tuple};
use vrdma_wire::head::Head;
use vrdma_wire::icmp::PacketTooBig;
use vrdma_wire::num::VlanId;
use vrdma_wire::tcp::TcpPacket;

impl Node {
    /// Handles a received frame that this TCP [takes](Node::takes).
    pub fn handle_frame(
        &mut self,
        now: Instant,
        (headers, frame): (&Head, &[u8]),
        ready: &mut ReadyList,
        receiver: &mut dyn SegmentReceiver,
    ) {
        self.expect(headers, receiver);
        let (packet, data) = match TcpPacket::parse_behind(headers, frame, sum) {
            Ok(parsed) => parsed,
            Err(vrdma_wire::tcp::TcpDrop::Checksum) => return self.counters.bad_checksum += 1,
            Err(_) => return self.counters.malformed += 1,
        };
        self.counters.segments_in += 1;
        let hop = NextHop { mac: packet.src_mac, vlan: packet.vlan };
        let origin = SegmentSource { remote: packet.src, local: packet.dst, hop };
        let (ends, buffers) = (&mut self.ends, &mut self.incoming);
        let (budget, short) = (&self.budget, &mut self.counters.short_of_memory);
        let mut take = |id, arrival: vrdma_tcp::Arrival| {
            // The first data may come with the segment that completes the set-up. The listener is
            // known a moment later.
            let end = ends.entry(id).or_insert_with(|| End::new(EndUser::Listener(NO_LISTENER)));
            let room = end.room(budget);
            let direct = match end.user {
                EndUser::Connection(user) => Direct(Some((user, &mut *receiver))),
                EndUser::Listener(_) | EndUser::Nobody => Direct(None),
            };
            let taken = end.input.take(&arrival, data, room, buffers, direct);
            // Most segments are taken as a whole.
            if taken < arrival.at.len() {
                let memory =
                    if arrival.offset == arrival.complete { room.in_order } else { room.out_of_order };
                *short += u64::from(memory < arrival.at.len() as u64);
            }
            taken
        };
        let id = self.stack.handle_segment(now, origin, &packet.header, data.len(), &mut take);
        self.follow(ready);
        if let Some(id) = id {
            self.changed(id, ready);
        }
    }

    /// Handles a router's message that a segment was too long.
    ///
    /// Anybody can send such a message. It is believed if there is such a connection, and the
    /// segment is in flight (RFC 5927).
    pub fn handle_too_long(&mut self, told: &PacketTooBig) {
        let ports = Ports { local: told.local_port, remote: told.remote_port };
        let tuple = Tuple { local: told.local, remote: told.remote, ports };
        let mss = told.mtu.saturating_sub(HEADERS[usize::from(told.local.ipv4().is_none())]);
        if !self.stack.handle_too_long(&tuple, VlanId::of(told.eth.vlan), told.seq, mss) {
            self.counters.too_long_ignored += 1;
        }
    }

    /// Handles a received segment of a connection: frees acknowledged output, and notes events.
    fn changed(&mut self, id: ConnectionId, ready: &mut ReadyList) {
        let most = self.window();
        let Some(end) = self.ends.get_mut(&id) else { return };
        if let Some(connection) = self.stack.get(id) {
            end.output.acknowledge(connection.acknowledged(), &mut self.outgoing);
        }
        end.charge(&mut self.budget);
        if let Some(window) = end.input.window(most) {
            self.stack.change(id, |connection| connection.set_window(window));
        }
        note(end, &self.budget, ready);
    }
}
