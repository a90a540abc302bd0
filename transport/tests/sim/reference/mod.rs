//! A peer that goes back to the first missing packet, as other implementations do.
//!
//! It is written from the rules of IBTA 9.7 and from the habits of Linux's soft-RoCE, and shares no
//! code with the engine. It knows the operations that every implementation has: SEND, WRITE, READ,
//! FETCH_ADD and CMP_SWAP. There are two [kinds](Kind) of it.

mod packet;
mod regions;
mod requester;
mod responder;
#[cfg(test)]
mod tests;

pub use packet::Kind;

use crate::memory::Mem;
use packet::{Incoming, Outgoing};
use regions::Regions;
use requester::Requester;
use responder::Responder;
use std::collections::VecDeque;
use vrdma_transport::{Access, Completion, CqId, Instant, QpAttr, RecvRequest, SendRequest};
use vrdma_wire::num::{FlowLabel, Gid, Mac, Qpn};
use vrdma_wire::roce::{Body, Bth, Packet, Path};

/// A host whose QPs are reference peers.
pub struct Peer {
    kind: Kind,
    /// Its number on the link.
    pub host: usize,
    pub gid: Gid,
    pub mac: Mac,
    regions: Regions,
    qps: Vec<Qp>,
    /// The QP whose turn it is to send.
    turn: usize,
    /// It had no room to send when it wanted to.
    pub is_blocked: bool,
    pub completions: VecDeque<(CqId, Completion)>,
}

struct Qp {
    send_cq: CqId,
    recv_cq: CqId,
    /// Its halves, once it is connected.
    connected: Option<Connected>,
}

struct Connected {
    attr: QpAttr,
    requester: Requester,
    responder: Responder,
}

impl Peer {
    /// Creates the n-th reference peer.
    pub fn new(kind: Kind, host: usize, n: u8, v4: bool) -> Peer {
        let gid = match v4 {
            true => Gid::from_ipv4([10, 1, 0, n]),
            false => Gid([0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, n]),
        };
        Peer {
            kind,
            host,
            gid,
            mac: Mac([2, 0, 0, 1, 0, n]),
            regions: Regions::default(),
            qps: Vec::new(),
            turn: 0,
            is_blocked: false,
            completions: VecDeque::new(),
        }
    }

    /// Registers memory. Returns its key.
    pub fn register(&mut self, access: Access, iova: u64, memory: Mem) -> u32 {
        self.regions.add(access, iova, memory)
    }

    pub fn create_qp(&mut self, send_cq: CqId, recv_cq: CqId) -> Qpn {
        self.qps.push(Qp { send_cq, recv_cq, connected: None });
        Qpn::truncate(self.qps.len() as u32 * 0x101)
    }

    fn index(&self, qpn: Qpn) -> Option<usize> {
        (0..self.qps.len()).find(|index| (index + 1) as u32 * 0x101 == qpn.number())
    }

    fn connected(&mut self, qpn: Qpn) -> Option<&mut Connected> {
        let index = self.index(qpn)?;
        self.qps[index].connected.as_mut()
    }

    /// Connects a QP, which can send and receive from then on.
    pub fn connect(&mut self, qpn: Qpn, attr: &QpAttr) {
        let index = self.index(qpn).expect("it was created");
        self.qps[index].connected = Some(Connected {
            attr: *attr,
            requester: Requester::new(self.kind, qpn, attr),
            responder: Responder::new(self.kind, qpn, attr),
        });
    }

    pub fn post_send(&mut self, qpn: Qpn, request: &SendRequest<'_>) {
        self.connected(qpn).expect("it is connected").requester.post(request);
        self.collect();
    }

    pub fn post_recv(&mut self, qpn: Qpn, request: RecvRequest<'_>) {
        self.connected(qpn).expect("it is connected").responder.post(request.id, request.sges);
        self.collect();
    }

    /// Ends all requests of all QPs.
    pub fn fail_all(&mut self) {
        self.qps.iter_mut().filter_map(|qp| qp.connected.as_mut()).for_each(Connected::fail);
        self.collect();
    }

    /// Takes a frame.
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8]) {
        let Ok(parsed) = Packet::parse(frame) else { return };
        let (Packet { path, bth, body }, gid) = (parsed.packet, self.gid);
        if parsed.check_icrc().is_err() || path.dst != gid {
            return;
        }
        let (Body::Rc(body), Some(index)) = (body, self.index(bth.dest)) else { return };
        let Some(qp) = &mut self.qps[index].connected else { return };
        if path.src != qp.attr.dgid || qp.responder.failed {
            return;
        }
        let payload = parsed.payload;
        if body.is_request() {
            qp.responder.handle(now, &self.regions, Incoming { bth, body, payload: payload.to_vec() });
        } else {
            qp.requester.handle(now, &self.regions, bth.psn, &body, payload);
        }
        self.collect();
    }

    /// Lets timers expire.
    pub fn tick(&mut self, now: Instant) {
        for qp in self.qps.iter_mut().filter_map(|qp| qp.connected.as_mut()) {
            qp.requester.tick(now);
        }
        self.collect();
    }

    /// Returns the next packet to send, with its payload.
    pub fn next(&mut self, now: Instant) -> Option<(Packet, Vec<u8>)> {
        let count = self.qps.len();
        for index in (self.turn..count).chain(0..self.turn) {
            let Some(qp) = &mut self.qps[index].connected else { continue };
            let answer = qp.responder.next(now, &self.regions);
            let packet = answer.or_else(|| qp.requester.next(now, &self.regions));
            let attr = qp.attr;
            self.collect();
            if let Some(packet) = packet {
                self.turn = (index + 1) % count;
                return Some(self.emit(&attr, packet));
            }
        }
        None
    }

    /// Returns when it acts next by itself.
    pub fn next_time(&self) -> Option<Instant> {
        let times = |qp: &Connected| [qp.requester.next_time(), qp.responder.next_time()];
        self.qps.iter().filter_map(|qp| qp.connected.as_ref()).flat_map(times).flatten().min()
    }

    fn emit(&self, attr: &QpAttr, packet: Outgoing) -> (Packet, Vec<u8>) {
        let Outgoing { psn, ack_req, solicited, body, payload } = packet;
        let path = Path {
            src_mac: self.mac,
            dst_mac: attr.dmac,
            vlan: None,
            src: self.gid,
            dst: attr.dgid,
            traffic_class: attr.traffic_class,
            flow_label: FlowLabel::default(),
            hop_limit: 64,
            src_port: 0xc123,
        };
        let bth = Bth { dest: attr.dest_qpn, psn, ack_req, solicited, mig: true, ..Bth::default() };
        (Packet { path, bth, body: Body::Rc(body) }, payload)
    }

    /// Takes the completions of all QPs. A QP of which one half failed fails as a whole.
    fn collect(&mut self) {
        for Qp { send_cq, recv_cq, connected } in &mut self.qps {
            let Some(qp) = connected else { continue };
            if qp.requester.failed != qp.responder.failed {
                qp.fail();
            }
            let ends = [(*recv_cq, &mut qp.responder.done), (*send_cq, &mut qp.requester.done)];
            for (cq, done) in ends {
                self.completions.extend(done.drain(..).map(|completion| (cq, completion)));
            }
        }
    }
}

impl Connected {
    fn fail(&mut self) {
        self.requester.flush();
        self.responder.flush();
    }
}
