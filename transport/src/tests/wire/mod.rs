//! Tests of two engines that exchange packets as frames. The test is the wire.

mod basics;
mod chaos;
pub(crate) mod congestion;
pub(crate) mod datagrams;
mod hostile;
mod inter_worker;
mod loss;
pub(crate) mod probes;
mod refusals;
mod reorder;
mod responses;
mod transports;
pub(crate) mod unreliable;

use super::*;
use std::collections::VecDeque;
use vrdma_wire::num::{FlowLabel, Mac};
use vrdma_wire::roce::{Body, Bth, Packet, Path, Rc};

/// A frame in flight, with room for the longest.
pub(crate) type Frame = Vec<u8>;

/// An outlet that accepts every packet, as a frame.
#[derive(Default)]
pub(crate) struct Cable {
    pub(crate) frames: VecDeque<Frame>,
    /// Number of packets that it still accepts, or `None` for any.
    pub(crate) room: Option<usize>,
    /// An address to which it accepts no packets.
    pub(crate) closed: Option<Mac>,
    /// The value of [`Way::stays_here`].
    pub(crate) stays_here: bool,
    /// The ring of inter-worker packets, which are not encoded as frames.
    pub(crate) near: Option<inter_worker::Ring>,
}

impl Cable {
    /// Returns whether it accepts another packet.
    pub(crate) fn has_room_for_more(&self) -> bool {
        self.room != Some(0)
    }
}

impl Outlet for Cable {
    fn has_room(&mut self) -> bool {
        self.has_room_for_more()
    }
}

impl PacketOutlet<Mem> for Cable {
    fn way_to(&mut self, dst: Mac) -> Way {
        Way { has_room: self.closed != Some(dst), stays_here: self.stays_here, is_near: self.near.is_some() }
    }

    fn carries(&mut self, _: &Pieces<'_, Mem>) -> bool {
        self.near.as_mut().expect("asked where packets are near").lends()
    }

    fn send_inter_worker(
        &mut self,
        _: DeviceId,
        packet: &Packet,
        part: InterWorkerPart,
        payload: &Pieces<'_, Mem>,
    ) -> Result<(), Fault> {
        self.near.as_mut().expect("it said that they are").take(packet, part, payload)
    }

    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, Mem>) -> Result<(), Fault> {
        let mut frame = vec![0xee; packet.frame_len(payload.len())];
        let length = write_frame(packet, payload, &mut frame)?;
        assert_eq!(length, frame.len());
        self.frames.push_back(frame);
        self.room = self.room.map(|room| room - 1);
        Ok(())
    }
}

impl StreamOutlet<Mem> for Cable {}

/// A host: an engine with one device, one QP, memory, and the cable that leaves it.
pub(crate) struct Host {
    pub(crate) engine: Engine<Mem>,
    pub(crate) end: End,
    pub(crate) mac: Mac,
    pub(crate) log: Log,
    pub(crate) cable: Cable,
}

/// Two hosts and a clock. Side 0 is `a`, side 1 is `b`.
pub(crate) struct Net {
    pub(crate) hosts: [Host; 2],
    pub(crate) now: Instant,
}

pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
/// Bytes of each host's memory.
pub(crate) const MEMORY: usize = 1 << 20;

impl Host {
    fn new(number: u8, qp_type: QpType) -> Host {
        let mut engine = Engine::new(number.into());
        engine.set_link(true);
        let device = engine.add_device(Limits { max_qp: 1 << 10, ..Limits::default() });
        let gid = Gid::from_ipv4([10, 0, 0, number]);
        let mac = Mac([2, 0, 0, 0, 0, number]);
        engine.set_gid(device, 0, Some(gid.into())).unwrap();
        engine.set_mac(device, mac).unwrap();
        let pd = engine.alloc_pd(device, OWNER).unwrap();
        let memory = Mem::new(MEMORY);
        let key = engine.reg_mr(device, pd, OF_REGION, IOVA, MEMORY as u64, memory.clone()).unwrap();
        let qpn = engine.create_qp(device, QpInit { qp_type, max_send_wr: 64, ..qp_init(pd) }).unwrap();
        let end = End { device, pd, qpn, gid, memory, key };
        Host { engine, end, mac, log: Log::default(), cable: Cable::default() }
    }

    pub(crate) fn modify(&mut self, now: Instant, mask: AttrMask, attr: QpAttr) {
        let End { device, qpn, .. } = self.end;
        self.engine.modify_qp(now, device, qpn, mask, &attr, &mut self.log).unwrap();
    }

    pub(crate) fn state(&self) -> QpState {
        self.engine.query_qp(self.end.device, self.end.qpn).unwrap().state
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.engine.counters(self.end.device)
    }

    /// Takes the ids and statuses of all completions so far.
    pub(crate) fn statuses(&mut self) -> Vec<(u32, WcStatus)> {
        self.log.completions.drain(..).map(|(_, _, c)| (c.id, c.status)).collect()
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        self.log.events.drain(..).map(|(_, event)| event).collect()
    }
}

impl Net {
    pub(crate) fn connected() -> Net {
        Net::connected_with(|_| {}, |_| {})
    }

    /// Creates two QPs in RESET.
    pub(crate) fn new(qp_type: QpType) -> Net {
        Net { hosts: [Host::new(1, qp_type), Host::new(2, qp_type)], now: Instant(1_000_000) }
    }

    /// Changes the state of both QPs from RESET to RTS.
    pub(crate) fn connect(&mut self, a: QpAttr, b: QpAttr) {
        for (host, attr) in [(A, a), (B, b)] {
            for (state, mask) in [(QpState::Init, TO_INIT), (QpState::Rtr, TO_RTR), (QpState::Rts, TO_RTS)] {
                self.hosts[host].modify(self.now, mask, QpAttr { state, ..attr });
            }
        }
    }

    /// Creates a second pair of QPs in place of the first, which stays connected and is returned.
    pub(crate) fn second_pair(&mut self) -> [End; 2] {
        let first = [A, B].map(|at| {
            let Host { engine, end, .. } = &mut self.hosts[at];
            let qpn = engine.create_qp(end.device, qp_init(end.pd)).unwrap();
            std::mem::replace(end, End { qpn, ..end.clone() })
        });
        self.connect(self.attr(A), self.attr(B));
        first
    }

    /// Creates two connected QPs in RTS, with changed attributes.
    pub(crate) fn connected_with(a: impl FnOnce(&mut QpAttr), b: impl FnOnce(&mut QpAttr)) -> Net {
        let mut net = Net::new(QpType::Rc);
        let [mut attr_a, mut attr_b] = [A, B].map(|own| net.attr(own));
        a(&mut attr_a);
        b(&mut attr_b);
        net.connect(attr_a, attr_b);
        net
    }

    /// Returns the attributes of a host's QP that is connected to the other host's.
    pub(crate) fn attr(&self, own: usize) -> QpAttr {
        let peer = &self.hosts[1 - own];
        QpAttr { dmac: peer.mac, hop_limit: 64, ..attr_to(&peer.end) }
    }

    pub(crate) fn post(&mut self, from: usize, id: u32, op: SendOp, payload: Payload<'_>) {
        self.post_fenced(from, id, op, payload, false);
    }

    pub(crate) fn post_fenced(
        &mut self,
        from: usize,
        id: u32,
        op: SendOp,
        payload: Payload<'_>,
        fence: bool,
    ) {
        let Host { engine, end, log, .. } = &mut self.hosts[from];
        let request = SendRequest { id, signaled: true, solicited: false, fence, op, payload };
        engine.post_send(self.now, end.device, OWNER, end.qpn, &request, log).unwrap();
    }

    pub(crate) fn post_recv(&mut self, at: usize, id: u32, sges: &[Sge]) {
        let Host { engine, end, log, .. } = &mut self.hosts[at];
        engine.post_recv(self.now, end.device, OWNER, end.qpn, RecvRequest { id, sges }, log).unwrap();
    }

    /// Lets a host do all work that is ready. Its packets are in its cable then.
    pub(crate) fn work(&mut self, at: usize) {
        let Host { engine, log, cable, .. } = &mut self.hosts[at];
        save::replace_at_times(engine);
        loop {
            let more = engine.poll(self.now, u64::MAX, log);
            let more = answer_all(engine, self.now, log) || more;
            if !engine.transmit(self.now, 1000, cable, log) && !more || !Outlet::has_room(cable) {
                break;
            }
        }
    }

    /// Delivers one frame from `from` to the other host.
    pub(crate) fn deliver(&mut self, from: usize, frame: &[u8]) {
        let Host { engine, log, .. } = &mut self.hosts[1 - from];
        save::replace_at_times(engine);
        engine.handle_frame(self.now, frame, log);
        answer_all(engine, self.now, log);
    }

    /// Delivers all frames of a cable. `change` may change or drop each.
    pub(crate) fn carry(&mut self, from: usize, mut change: impl FnMut(usize, &mut Frame) -> bool) {
        let frames = std::mem::take(&mut self.hosts[from].cable.frames);
        for (index, mut frame) in frames.into_iter().enumerate() {
            if change(index, &mut frame) {
                self.deliver(from, &frame);
            }
        }
    }

    /// Lets both hosts work until nothing is ready.
    pub(crate) fn run(&mut self) {
        loop {
            self.work(A);
            self.work(B);
            if self.hosts.iter().all(|host| host.cable.frames.is_empty()) {
                return;
            }
            self.carry(A, |_, _| true);
            self.carry(B, |_, _| true);
        }
    }

    /// Runs, lets time pass to the next deadline, and returns how long that was.
    ///
    /// Returns `None` if there is no deadline.
    pub(crate) fn sleep(&mut self) -> Option<Duration> {
        self.run();
        let next = |host: &mut Host| {
            host.engine.move_idle_deadlines();
            host.engine.poll_timeout()
        };
        let deadline = self.hosts.iter_mut().filter_map(next).min()?;
        let slept = Duration::from_nanos(deadline.0.saturating_sub(self.now.0));
        self.now = self.now.max(deadline);
        self.run();
        Some(slept)
    }

    /// Sleeps until there is no deadline left.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.sleep().is_none() {
                return;
            }
        }
        panic!("this has no end");
    }
}

impl Net {
    /// Builds a packet as host `from` sends it to the other host.
    pub(crate) fn packet(&self, from: usize, body: Body, psn: Psn) -> Packet {
        let (own, peer) = (&self.hosts[from], &self.hosts[1 - from]);
        let path = Path {
            src_mac: own.mac,
            dst_mac: peer.mac,
            vlan: None,
            src: own.end.gid,
            dst: peer.end.gid,
            traffic_class: 0,
            flow_label: FlowLabel::default(),
            hop_limit: 64,
            src_port: 0xc000,
        };
        let bth = Bth { mig: true, ack_req: true, dest: peer.end.qpn, psn, ..Bth::default() };
        Packet { path, bth, body }
    }

    /// Returns the PSN that host `at` expects next.
    pub(crate) fn expected(&self, at: usize) -> Psn {
        let End { device, qpn, .. } = self.hosts[at].end;
        self.hosts[at].engine.query_qp(device, qpn).unwrap().rq_psn
    }

    /// Delivers a packet to the other host as from `from`.
    pub(crate) fn inject(&mut self, from: usize, packet: &Packet, payload: &[u8]) {
        self.deliver(from, &frame(packet, payload));
    }

    /// Delivers a request from `from` with the PSN that the other host expects.
    pub(crate) fn request(&mut self, from: usize, body: Rc, payload: &[u8]) {
        let packet = self.packet(from, Body::Rc(body), self.expected(1 - from));
        self.inject(from, &packet, payload);
    }

    /// Takes what host `at` sends, without delivering it.
    pub(crate) fn answers(&mut self, at: usize) -> Vec<(u32, Body)> {
        self.work(at);
        let frames = std::mem::take(&mut self.hosts[at].cable.frames);
        frames.iter().map(|frame| parse(frame)).map(|it| (it.bth.psn.number(), it.body)).collect()
    }
}

/// Encodes a frame.
pub(crate) fn frame(packet: &Packet, payload: &[u8]) -> Frame {
    let mut frame = vec![0xee; packet.frame_len(payload.len())];
    write_frame(packet, &Pieces::<Mem>::bytes(payload), &mut frame).unwrap();
    frame
}

/// Parses a frame.
pub(crate) fn parse(frame: &[u8]) -> Packet {
    Packet::parse(frame).unwrap().packet
}
