//! Fuzzes the restoration of engines from records.
//!
//! The input changes a record that an engine wrote, or is one itself. The record is refused, or
//! becomes an engine. This engine then runs beside a copy of itself, which is saved and restored at
//! times. The two must not differ in any output.

use super::edits;
use super::world::{Input, Log, Mem};
use std::time::Duration;
use vrdma_transport::*;
use vrdma_wire::num::*;
use vrdma_wire::roce::{MAX_FRAME, Packet};

/// Fuzzes [`Engine::restore`].
pub fn restore(data: &[u8]) {
    let mut input = Input(data);
    let Some(record) = edits::record(&mut input) else { return };
    let lend =
        |_, _, mr: &record::MemoryRegion| (mr.length <= 1 << 20).then(|| Mem::zeroed(mr.length as usize));
    let engines = [Engine::restore(&record, lend), Engine::restore(&record, lend)];
    let [Ok(engine), Ok(copy)] = engines else { return };
    assert_eq!(engine.save(), with_all_counters(record), "what is read is written");
    Lab::new(input, [engine, copy]).run();
}

/// Returns the record as the restored engine writes it.
///
/// Counters that the record does not name are zero. A record of an older version gets the present
/// version.
fn with_all_counters(mut record: Record) -> Record {
    record.version = record::VERSION;
    let mut fresh = Engine::<Mem>::new(0);
    fresh.add_device(Limits::default());
    let zero = fresh.save();
    let add = |to: &mut record::Counts, from: &record::Counts| {
        from.iter().for_each(|(name, &value)| *to.entry(name.clone()).or_insert(value) += 0);
    };
    add(&mut record.port.counters, &zero.port.counters);
    add(&mut record.port.malformed, &zero.port.malformed);
    for device in record.devices.iter_mut().flatten() {
        // Older engines called it so.
        if let Some(value) = device.counters.remove("out_of_order") {
            device.counters.entry("out_of_sequence".to_owned()).or_insert(value);
        }
        zero.devices.iter().flatten().for_each(|zero| add(&mut device.counters, &zero.counters));
    }
    record
}

/// An outlet that collects frames.
#[derive(Default)]
struct Cable {
    room: usize,
    frames: Vec<Vec<u8>>,
}

impl Outlet for Cable {
    fn has_room(&mut self) -> bool {
        self.room > 0
    }
}

impl PacketOutlet<Mem> for Cable {
    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, Mem>) -> Result<(), Fault> {
        assert!(self.room > 0, "nobody sends without room");
        // Like a buffer of a port, it has a fixed length and arbitrary content.
        let mut frame = vec![0xee; MAX_FRAME];
        let length = write_frame(packet, payload, &mut frame)?;
        frame.truncate(length);
        let parsed = Packet::parse(&frame).expect("what is sent can be read");
        assert_eq!((parsed.packet, parsed.check_icrc()), (*packet, Ok(())));
        self.room -= 1;
        self.frames.push(frame);
        Ok(())
    }
}

impl StreamOutlet<Mem> for Cable {}

/// A step that both engines execute.
enum Step<'a> {
    Poll(u64),
    Transmit(usize),
    Answer,
    Frame(Vec<u8>),
    PostSend(Place, SendRequest<'a>, Destination),
    PostRecv(Place, RecvRequest<'a>),
    Modify(Place, AttrMask, QpAttr),
    Destroy(Place),
    Suspend(DeviceId, bool),
    Gid(DeviceId, u32, Option<GidEntry>),
    Reset(DeviceId),
    Link(bool),
}

#[derive(Copy, Clone)]
pub struct Place {
    pub device: DeviceId,
    owner: OwnerId,
    pub qpn: Qpn,
}

pub struct Lab<'a> {
    pub input: Input<'a>,
    pub engines: [Engine<Mem>; 2],
    /// The QPs of the record.
    qps: Vec<(u32, record::Qp)>,
    pub record: Record,
    now: Instant,
}

impl<'a> Lab<'a> {
    fn new(input: Input<'a>, engines: [Engine<Mem>; 2]) -> Lab<'a> {
        let record = engines[0].save();
        let of_device = |(index, device): (u32, &Option<record::Device>)| {
            let qps = device.iter().flat_map(|device| &device.qps);
            qps.map(|qp| (index, qp.clone())).collect::<Vec<_>>()
        };
        let qps = (0..).zip(&record.devices).flat_map(of_device).collect();
        Lab { input, engines, qps, record, now: Instant(1_000_000) }
    }

    fn run(mut self) {
        // More steps would only make an input slow.
        for _ in 0..100 {
            if self.input.0.is_empty() {
                break;
            }
            self.step();
        }
        self.replace();
        self.end();
    }

    fn step(&mut self) {
        let step = match self.input.byte() % 16 {
            0 | 1 => Step::Poll(u64::from(self.input.word()) << 6),
            2 | 3 => Step::Transmit(usize::from(self.input.byte() % 64)),
            4 => {
                self.sleep();
                Step::Poll(1 << 20)
            }
            5 => Step::Answer,
            6 | 7 => match self.frame() {
                Some(frame) => Step::Frame(frame),
                None => return,
            },
            8 => return self.post_send(),
            9 => {
                let Some((place, _)) = self.place() else { return };
                Step::PostRecv(place, RecvRequest { id: self.input.long(), sges: &[] })
            }
            10 => match self.modify() {
                Some((place, mask, attr)) => Step::Modify(place, mask, attr),
                None => return,
            },
            11 => Step::Suspend(self.device(), self.input.byte() & 1 == 0),
            12 => match self.input.byte() % 4 {
                0 => Step::Reset(self.device()),
                1 => {
                    let Some((place, _)) = self.place() else { return };
                    Step::Destroy(place)
                }
                _ => {
                    let gid = Gid::from_ipv4([10, 0, 0, self.input.byte() % 8]);
                    let entry = (self.input.byte() & 1 == 0).then_some(gid.into());
                    Step::Gid(self.device(), u32::from(self.input.byte() % 4), entry)
                }
            },
            13 => Step::Link(self.input.byte() & 1 == 0),
            _ => return self.replace(),
        };
        self.both(&step);
    }

    /// Executes a step on both engines, and checks that their outputs are equal.
    fn both(&mut self, step: &Step<'_>) {
        let now = self.now;
        let [(one, one_sent), (other, other_sent)] =
            self.engines.each_mut().map(|engine| take(engine, now, step));
        assert_eq!(one.completions, other.completions);
        assert_eq!(one.events, other.events);
        assert!(one_sent == other_sent, "they send the same");
    }

    /// Replaces the second engine by a restored copy of itself.
    fn replace(&mut self) {
        let [engine, copy] = &mut self.engines;
        let mut bytes = Vec::new();
        let record = copy.save();
        ciborium::into_writer(&record, &mut bytes).expect("memory takes it");
        let lend = |device, key, _: &record::MemoryRegion| copy.region(device, key).ok().cloned();
        let read = ciborium::from_reader(bytes.as_slice()).expect("what was written can be read");
        *copy = Engine::restore(&read, lend).expect("what an engine wrote is not refused");
        assert_eq!(copy.save(), record);
        assert_eq!(engine.save(), record, "the copy is as the other");
    }

    fn end(mut self) {
        let devices = (0..self.record.devices.len() as u32).map(DeviceId);
        self.both(&Step::Link(true));
        for device in devices {
            for engine in &self.engines {
                let mrs = self.record.devices[device.0 as usize].iter().flat_map(|device| &device.mrs);
                mrs.filter_map(|mr| engine.region(device, mr.key).ok()).for_each(Mem::check);
            }
            self.both(&Step::Reset(device));
            let counts = self.engines[0].counts(device);
            assert_eq!((counts.qps, counts.mrs, counts.pending_sends, counts.pending_receives), (0, 0, 0, 0));
        }
        self.both(&Step::Transmit(100));
        let mut log = Log::default();
        while self.engines[0].poll(self.now, 1 << 20, &mut log) {}
        assert_eq!((self.engines[0].poll_timeout(), self.engines[0].has_questions()), (None, false));
    }

    /// Lets time pass, up to about the next deadline.
    fn sleep(&mut self) {
        let deadline = self.engines[0].poll_timeout().unwrap_or(self.now);
        let pause = match self.input.byte() {
            0..=127 => deadline.0.saturating_sub(self.now.0),
            byte => u64::from(byte) << (byte % 32),
        };
        self.now = self.now + Duration::from_nanos(pause.min(1 << 50));
    }

    fn device(&mut self) -> DeviceId {
        DeviceId(u32::from(self.input.byte()) % self.record.devices.len().max(1) as u32)
    }

    /// Chooses a QP, and returns its state in the record.
    pub fn place(&mut self) -> Option<(Place, record::Qp)> {
        let at = usize::from(self.input.byte()) % self.qps.len().max(1);
        let (device, qp) = self.qps.get(at)?.clone();
        let place = Place {
            device: DeviceId(device),
            owner: OwnerId(qp.init.owner),
            qpn: Qpn::new(qp.qpn).expect("a QPN has 24 bits"),
        };
        Some((place, qp))
    }

    /// Returns a key of the device's first memory window, or a nearly right one.
    fn window(&mut self, device: DeviceId) -> Rkey {
        let device = self.record.devices[device.0 as usize].as_ref();
        let key = device.and_then(|device| device.windows.first()).map_or(0, |window| window.key);
        Rkey(self.input.near(key))
    }

    fn post_send(&mut self) {
        let Some((place, qp)) = self.place() else { return };
        let device = self.record.devices[place.device.0 as usize].as_ref();
        let key = device.and_then(|device| device.mrs.first()).map_or((0, 0), |mr| (mr.key, mr.iova));
        let remote =
            Remote { addr: key.1 + u64::from(self.input.word()), rkey: Rkey(self.input.near(key.0)) };
        let imm = Some(Imm::from_bytes([9; 4]));
        let op = match self.input.byte() % 11 {
            0 | 1 => SendOp::Send { imm },
            2 | 3 => SendOp::Write { remote, imm: None },
            4 => SendOp::Write { remote, imm },
            5 => SendOp::Read { remote },
            6 => SendOp::atomic(remote, Atomic::CompareSwap { compare: 0, swap: 2 }),
            7 => SendOp::atomic(remote, Atomic::FetchAdd { add: 3 }),
            8 => SendOp::SendInvalidate { key: self.window(place.device) },
            9 => SendOp::LocalInvalidate { key: self.window(place.device) },
            _ => {
                let rkey = self.window(place.device);
                let (addr, length) = (remote.addr, u64::from(self.input.byte()));
                SendOp::BindMw(Bind {
                    rkey,
                    new_rkey: Rkey(rkey.0 ^ 1),
                    lkey: Lkey(key.0),
                    access: Access(6),
                    addr,
                    length,
                })
            }
        };
        let flags = self.input.byte();
        let length = if flags & 128 != 0 { 8 } else { u32::from(self.input.word()) };
        let sge = [Sge { addr: key.1, length, lkey: Lkey(key.0) }];
        let payload = if flags & 1 == 0 { Payload::Sges(&sge) } else { Payload::Inline(b"data") };
        let (signaled, solicited, fence) = (flags & 2 == 0, flags & 4 != 0, flags & 8 != 0);
        let request = SendRequest { id: self.input.long(), signaled, solicited, fence, op, payload };
        let to = Destination {
            pd: PdId(qp.init.pd.unwrap_or_default()),
            qpn: Qpn::truncate(self.qps[usize::from(flags >> 4) % self.qps.len()].1.qpn),
            qkey: Qkey(qp.attr.qkey),
            dgid: Gid::from_ipv4([10, 0, 0, flags >> 5]),
            dmac: Mac::default(),
            sgid_index: flags >> 6,
            sl: 0,
            hop_limit: 1,
            traffic_class: 0,
            flow_label: 0,
            udp_sport: 0,
            vlan: None,
        };
        self.both(&Step::PostSend(place, request, to));
    }

    fn modify(&mut self) -> Option<(Place, AttrMask, QpAttr)> {
        let (place, _) = self.place()?;
        let now = self.engines[0].query_qp(place.device, place.qpn).unwrap_or_default();
        let states = [QpState::Rts, QpState::Sqd, QpState::Err, QpState::Reset];
        let state = states[usize::from(self.input.byte()) % states.len()];
        let mask = if self.input.byte() & 3 == 0 { AttrMask::AV } else { AttrMask::STATE };
        Some((place, mask, QpAttr { state, ..now }))
    }
}

/// Executes a step on an engine. Returns its output, and the frames that it sends.
fn take(engine: &mut Engine<Mem>, now: Instant, step: &Step<'_>) -> (Log, Vec<Vec<u8>>) {
    let (mut log, mut cable) = (Log::default(), Cable::default());
    match step {
        Step::Poll(budget) => drop(engine.poll(now, *budget, &mut log)),
        Step::Transmit(room) => {
            cable.room = *room;
            engine.transmit(now, *room, &mut cable, &mut log);
        }
        Step::Answer => {
            while let Some(question) = engine.poll_question() {
                engine.answer(now, question, &mut log);
            }
        }
        Step::Frame(frame) => engine.handle_frame(now, frame, &mut log),
        Step::PostSend(place, request, to) => {
            let Place { device, owner, qpn } = *place;
            let qp_type = engine.qp_init(device, qpn).map(|init| init.qp_type);
            if qp_type == Ok(QpType::XrcSend) {
                let srqn = Srqn::truncate((1 << 16) + (request.id & 3));
                let _ = engine.post_xrc(now, device, owner, qpn, request, srqn, &mut log);
            } else if engine.post_datagram(now, device, owner, qpn, request, to, &mut log).is_err() {
                let _ = engine.post_send(now, device, owner, qpn, request, &mut log);
            }
        }
        Step::PostRecv(place, request) => {
            let Place { device, owner, qpn } = *place;
            let _ = engine.post_recv(now, device, owner, qpn, *request, &mut log);
        }
        Step::Modify(place, mask, attr) => {
            let _ = engine.modify_qp(now, place.device, place.qpn, *mask, attr, &mut log);
        }
        Step::Destroy(place) => drop(engine.destroy_qp(place.device, place.qpn)),
        Step::Suspend(device, suspended) => engine.set_suspended(*device, *suspended),
        Step::Gid(device, index, entry) => drop(engine.set_gid(*device, *index, *entry)),
        Step::Reset(device) => drop(engine.reset_device(*device)),
        Step::Link(up) => engine.set_link(*up),
    }
    (log, cable.frames)
}
