//! Which packets are sent again.

use std::collections::BTreeMap;
use vrdma_wire::num::{Gid, Psn, Qpn};
use vrdma_wire::roce::{Body, Packet, Rc};

/// A direction of a connection: the sending host, the receiver, and whether it sends requests.
type Way = (usize, Gid, Qpn, bool);

/// Counts the packets with requests and data of reliable connections. Acknowledges are not counted.
#[derive(Default)]
pub struct Census {
    /// The last PSN of each way.
    last: BTreeMap<Way, Psn>,
    pub sent: u64,
    /// The packets that were sent before.
    pub resent: u64,
    /// Of these, the packets with data of READs.
    pub resent_responses: u64,
    /// Those of each [`EPOCH`] packets.
    pub by_epoch: Vec<u64>,
}

/// Packets of which those that were sent again are counted together.
pub const EPOCH: u64 = 1000;

impl Census {
    /// Counts a packet that a host sends.
    pub fn count(&mut self, host: usize, packet: &Packet) {
        let rc = match &packet.body {
            Body::Rc(rc) => rc,
            Body::Xrc(xrc) => xrc.rc(),
            _ => return,
        };
        if matches!(rc, Rc::Ack(_)) {
            return;
        }
        let psn = packet.bth.psn;
        let way = (host, packet.path.dst, packet.bth.dest, rc.is_request());
        let last = self.last.entry(way).or_insert(psn.add(u32::MAX));
        self.sent += 1;
        match psn.distance(*last) {
            1.. => *last = psn,
            _ => {
                self.resent += 1;
                self.resent_responses += u64::from(!rc.is_request());
                let epoch = (self.sent / EPOCH) as usize;
                self.by_epoch.resize(self.by_epoch.len().max(epoch + 1), 0);
                self.by_epoch[epoch] += 1;
            }
        }
    }
}
