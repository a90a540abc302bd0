//! Sends the segments of a guest's own TCP.

use super::end::End;
use super::node::{Node, Ready, note};
use crate::frames::sum;
use crate::port::{Checksums, Offload};
use crate::streams::hash::NumberMap;
use vrdma_tcp::{ConnectionId, Instant, Outgoing, Sources};
use vrdma_wire::head::Head;
use vrdma_wire::tcp::TcpPacket;

/// Bytes of payload below which a frame may need padding to Ethernet's minimum.
const PADDED: usize = 64;

impl Node {
    /// Returns the next segment to be sent. Notifies its user if that makes room.
    pub fn poll_transmit(&mut self, now: Instant, ready: &mut Ready) -> Option<Outgoing> {
        let outgoing = self.stack.poll_transmit(now, &mut ToSend(&mut self.ends))?;
        let data = &outgoing.segment.data;
        // A segment without data has an offset, too. After a FIN it is beyond the end of the
        // stream.
        if !data.is_empty()
            && let Some(end) = outgoing.id.and_then(|id| self.ends.get_mut(&id))
            && end.output.sent(data.end, self.budget.is_short())
        {
            note(end, &self.budget, ready);
        }
        Some(outgoing)
    }

    /// Returns the headers of a segment.
    pub fn packet(&self, outgoing: &Outgoing) -> TcpPacket {
        let &Outgoing { tuple, hop, traffic_class, ref segment, .. } = outgoing;
        TcpPacket {
            src_mac: self.mac,
            dst_mac: hop.mac,
            vlan: hop.vlan,
            src: tuple.local,
            dst: tuple.remote,
            traffic_class,
            header: segment.header,
        }
    }

    /// Writes a segment's frame to the front of a buffer. Returns the headers.
    ///
    /// If the port can compute these checksums, one may be left to it. That offload is returned,
    /// too.
    pub fn write(
        &mut self,
        outgoing: &Outgoing,
        buffer: &mut [u8],
        can: Checksums,
    ) -> (Head, Option<Offload>) {
        self.counters.segments_out += 1;
        let packet = self.packet(outgoing);
        let (begin, data) = (packet.len(), &outgoing.segment.data);
        let length = (data.end - data.start) as usize;
        let payload = &mut buffer[begin..begin + length];
        match outgoing.id.and_then(|id| self.ends.get(&id)) {
            Some(from) => from.output.copy(data.clone(), payload),
            None => assert!(data.is_empty(), "what is sent is kept, and has somebody who keeps it"),
        }
        // The checksum of a frame that may be padded is computed here.
        if !can.tcp || length < PADDED {
            packet.emit(sum(payload), buffer);
            return (packet.head(), None);
        }
        packet.emit_open(length, buffer);
        let (l2_len, l3_len) = packet.layers();
        let fill = Checksums { tcp: true, ..Checksums::default() };
        let left = Offload { fill, ipv6: packet.is_ipv6(), l2_len: l2_len as u16, l3_len: l3_len as u16 };
        (packet.head(), Some(left))
    }
}

/// The output of all connections.
struct ToSend<'a>(&'a mut NumberMap<ConnectionId, End>);

impl Sources for ToSend<'_> {
    fn segment_at(&mut self, id: ConnectionId, offset: u64, most: u32) -> u32 {
        self.0.get_mut(&id).map_or(0, |end| vrdma_tcp::Source::segment_at(&mut end.output, offset, most))
    }

    fn is_whole(&mut self, id: ConnectionId, stretch: std::ops::Range<u64>) -> bool {
        self.0.get_mut(&id).is_some_and(|end| vrdma_tcp::Source::is_whole(&mut end.output, stretch))
    }
}
