//! Nothing in a record is forgotten.
//!
//! A changed value makes a record that is refused, or restores to an engine that saves the changed
//! value again. For each field some change has the second outcome, so the field is both read and
//! written.
//!
//! The compiler ensures that nothing in an engine is forgotten. Each `save` names all fields of
//! what it saves, including fields that follow from others.

use super::stories::{fast, on_one_host, on_the_wire, send, shared_queue, windows};
use super::*;
use crate::tests::datagrams::{QKEY, TO_INIT_UD, TO_RTS_UD};
use crate::tests::groups::{from_elsewhere, group, to_members};
use crate::tests::wire::probes::repeat;
use crate::tests::wire::unreliable::uc;
use crate::tests::wire::{A, B, Net, congestion, frame};
use crate::tests::{tcp, xrc};
use crate::verbs::request::Destination;
use ciborium::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use vrdma_wire::num::Imm;

/// The sources that define the format.
const FORMAT: [&str; 6] = [
    include_str!("../../save/record.rs"),
    include_str!("../../save/record/probes.rs"),
    include_str!("../../save/record/qp.rs"),
    include_str!("../../save/record/request.rs"),
    include_str!("../../save/record/shared.rs"),
    include_str!("../../save/record/tcp.rs"),
];

/// Fields of which no change alone is accepted.
const FIXED: [&str; 11] = [
    // It is the number of entries.
    "Limits.gid_table_len",
    // Numbers that were assigned.
    "Device.xrcds",
    "MemoryRegion.key",
    "MemoryWindow.key",
    "Pd.pd",
    "Qp.qpn",
    // There is only one `P_Key`.
    "QpAttr.pkey_index",
    // There is only one version.
    "Record.version",
    // It is the owner of its PD.
    "Srq.owner",
    // A number that was assigned.
    "Srq.srq",
    // It is the number of its question.
    "Waiting.number",
];

/// Some variants of each enum without fields, beside those that occur.
const NAMES: [&str; 11] =
    ["persistent", "held", "uc", "sqd", "m2048", "local", "looked", "send", "go_on", "up", "all"];

/// After this many accepted changes in all records, a field is trusted.
const OFTEN: u32 = 20;

/// Returns the structs of the format by their fields, including those of enums' variants.
fn structs() -> BTreeMap<BTreeSet<String>, String> {
    let mut structs: BTreeMap<_, String> = BTreeMap::new();
    let mut open: Vec<(String, BTreeSet<String>)> = Vec::new();
    // Optional fields.
    let (mut optional, mut is_optional) = (BTreeSet::new(), false);
    for line in FORMAT.iter().flat_map(|source| source.lines().map(str::trim)) {
        let words: Vec<&str> = line.split([' ', '(', ':']).collect();
        if line.starts_with("//") || line.starts_with("#[") {
            is_optional |= line.starts_with("#[serde(default");
            continue;
        }
        match words.as_slice() {
            ["pub", "struct" | "enum", name, "{"] | [name, "{"] => {
                open.push((name.to_string(), BTreeSet::new()))
            }
            ["pub", field, ..] | [field, ..] if line.ends_with(',') && line.contains(':') => {
                open.last_mut().unwrap().1.insert(field.to_string());
                if mem::take(&mut is_optional) {
                    optional.insert(field.to_string());
                }
            }
            ["}" | "},"] => {
                let (name, fields) = open.pop().unwrap();
                let short: BTreeSet<_> = fields.difference(&mem::take(&mut optional)).cloned().collect();
                for fields in BTreeSet::from([fields, short]).into_iter().filter(|fields| !fields.is_empty())
                {
                    // Variants of an enum may have equal fields.
                    let names = structs.entry(fields).or_default();
                    *names = if names.is_empty() { name.clone() } else { format!("{names}, {name}") };
                }
            }
            _ => {}
        }
    }
    structs
}

/// A value of a record: its path, and the fields on that path, the innermost last.
struct Found {
    way: Vec<usize>,
    fields: Vec<String>,
}

struct Walk {
    structs: BTreeMap<BTreeSet<String>, String>,
    found: Vec<Found>,
}

impl Walk {
    /// Finds all values of a record.
    fn new(record: &Value) -> Walk {
        let mut walk = Walk { structs: structs(), found: Vec::new() };
        walk.go(record, &mut Vec::new(), &mut Vec::new());
        walk
    }

    fn go(&mut self, value: &Value, way: &mut Vec<usize>, fields: &mut Vec<String>) {
        self.found.push(Found { way: way.clone(), fields: fields.clone() });
        match value {
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    way.push(at);
                    self.go(item, way, fields);
                    way.pop();
                }
            }
            Value::Map(entries) => {
                let name = |key: &Value| key.as_text().unwrap().to_owned();
                let known = self.structs.get(&entries.iter().map(|(key, _)| name(key)).collect()).cloned();
                let counts =
                    fields.last().is_some_and(|of| of.ends_with("counters") || of.ends_with("malformed"));
                assert!(known.is_some() || entries.len() == 1 || counts, "FORMAT lacks what has {entries:?}");
                for (at, (key, item)) in entries.iter().enumerate() {
                    let known = known.as_ref().map(|of| format!("{of}.{}", name(key)));
                    way.push(at);
                    fields.extend(known.clone());
                    self.go(item, way, fields);
                    fields.truncate(fields.len() - usize::from(known.is_some()));
                    way.pop();
                }
            }
            _ => {}
        }
    }
}

fn at<'a>(value: &'a mut Value, way: &[usize]) -> &'a mut Value {
    let Some((&first, rest)) = way.split_first() else { return value };
    match value {
        Value::Array(items) => at(&mut items[first], rest),
        Value::Map(entries) => at(&mut entries[first].1, rest),
        _ => unreachable!("the way was there"),
    }
}

/// Returns the values to which a value can be changed. `like` are values of the same field.
fn others(value: &Value, like: &BTreeMap<String, Value>) -> Vec<Value> {
    let mut others = vec![Value::Null];
    match value {
        Value::Integer(number) => {
            let number = i128::from(*number);
            let near = [number + 1, number - 1, number + 4, number ^ 1 << 10, 0, number / 2];
            others.extend(near.iter().filter_map(|&near| Some(Value::Integer(near.try_into().ok()?))));
        }
        Value::Bool(it) => others.push(Value::Bool(!it)),
        Value::Array(items) if !items.is_empty() => {
            others.push(Value::Array(items[1..].to_vec()));
            others.push(Value::Array(items[..items.len() - 1].to_vec()));
            others.push(Value::Array(items.iter().rev().cloned().collect()));
        }
        Value::Null => others.push(Value::from(5)),
        Value::Text(_) => others.extend(NAMES.map(Value::from)),
        _ => {}
    }
    others.extend(like.values().cloned());
    others.retain(|other| other != value);
    others
}

/// Returns records of states that the other stories lack.
///
/// - A message that stopped in its middle, and responses that are due.
/// - A link that came back, and unused objects.
/// - UC connections with packets.
/// - Questions that were asked later or in vain.
fn odd() -> Vec<Record> {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, SendOp::Read { remote: b.remote(0) }, Payload::Sges(&[a.sge(0, 9000)]));
    net.post(A, 2, SEND, Payload::Inline(b"early"));
    net.work(A);
    net.carry(A, |_, _| true);
    net.hosts[A].cable.room = Some(3);
    let imm = Some(Imm::from_bytes([1, 2, 3, 4]));
    net.post(A, 3, SendOp::Write { remote: b.remote(0), imm }, Payload::Sges(&[a.sge(0, 9000)]));
    net.work(A);
    let Net { hosts: [host, other], .. } = net;
    let mut records = vec![other.engine.save()];
    let mut engine = host.engine;
    let [_, spare @ ..] = [(); 3].map(|()| engine.alloc_pd(a.device, OWNER).unwrap());
    for pd in spare {
        engine.dealloc_pd(a.device, pd).unwrap();
    }
    let bare = engine.add_device(Limits::default());
    let pd = engine.alloc_pd(bare, OWNER).unwrap();
    for qpn in [(); 2].map(|()| engine.create_qp(bare, qp_init(pd)).unwrap()) {
        engine.destroy_qp(bare, qpn).unwrap();
    }
    engine.set_active_mtu(bare, Mtu::M1024).unwrap();
    engine.set_link(false);
    engine.set_link(true);
    records.push(engine.save());
    let Net { hosts: [_, mut host], .. } = on_the_wire();
    host.engine.add_device(Limits::default());
    records.push(host.engine.save());
    // A receive that could not be parsed moves the QP to ERR.
    let mut record = host.engine.save();
    let qp = &mut record.devices[0].as_mut().unwrap().qps[1];
    qp.state = record::QpState::Err;
    let Some(record::Roce::Rc(roce)) = &mut qp.roce else { panic!("the connection is on the wire") };
    // It holds nothing any more.
    roce.reorder = None;
    qp.responder.queue[1].not_understood = true;
    records.push(record);
    records.extend(uc().hosts.map(|host| host.engine.save()));
    records.push(late());
    let mut pair = on_one_host();
    let [own, peer] = [pair.a.clone(), pair.b.clone()]
        .map(|end| End { qpn: pair.engine.create_qp(end.device, qp_init(end.pd)).unwrap(), ..end });
    for (own, peer) in [(&own, &peer), (&peer, &own)] {
        pair.connect(own, attr_to(peer), QpState::Rts);
    }
    send(&mut pair, &own, 50, SEND, Payload::Inline(b"later"), None);
    pair.go(&own, QpState::Reset);
    records.push(pair.engine.save());
    records
}

/// Returns a record of a QP that holds packets after a gap that was filled late.
pub(super) fn late() -> Record {
    let mut net = Net::connected();
    let (a, b) = (net.hosts[A].end.clone(), net.hosts[B].end.clone());
    net.post(A, 1, write_to(b.remote(0)), Payload::Sges(&[a.sge(0, 11_000)]));
    net.work(A);
    let frames: Vec<_> = net.hosts[A].cable.frames.drain(..).collect();
    for at in [1, 0, 0, 3, 2, 2, 5, 6, 7, 4, 10] {
        net.deliver(A, &frames[at]);
        net.work(B);
    }
    net.hosts[B].engine.save()
}

/// Returns a record of idle SRQs of two PDs.
///
/// One has an armed limit, and one has failed. A QP uses the first.
fn idle_shared_queues() -> Record {
    let mut pair = Pair::new();
    let Pair { engine, a, log, .. } = &mut pair;
    let pds = [a.pd, engine.alloc_pd(a.device, OWNER).unwrap()];
    let [armed, failed] = pds.map(|pd| {
        let init = SrqInit { owner: OWNER, pd, max_wr: 8, max_sge: 2, xrc: None };
        engine.create_srq(a.device, init).unwrap()
    });
    let sges = [a.sge(0, 8)];
    for id in 0..3 {
        engine.post_srq_recv(a.device, OWNER, armed, RecvRequest { id, sges: &sges }, log).unwrap();
    }
    engine.modify_srq(a.device, armed, (None, Some(2)), log).unwrap();
    engine.post_invalid_srq(a.device, OWNER, failed, log).unwrap_err();
    engine.create_qp(a.device, QpInit { receives: Receives::Shared(armed), ..qp_init(a.pd) }).unwrap();
    engine.save()
}

/// Returns a record of group members on two devices.
///
/// A datagram has reached some members. Frames wait for receives, one of a member that is gone.
/// Packets wait for the rest of a group.
pub(super) fn groups() -> Record {
    let mut pair = Pair::new();
    let Pair { engine, now, log, a, b } = &mut pair;
    let mut member = |end: &End, lasts: &[u8]| {
        let init = QpInit { qp_type: QpType::Ud, ..qp_init(end.pd) };
        let qpn = engine.create_qp(end.device, init).unwrap();
        let attr = QpAttr { port: 1, qkey: QKEY, ..QpAttr::default() };
        for (state, mask) in
            [(QpState::Init, TO_INIT_UD), (QpState::Rtr, AttrMask::STATE), (QpState::Rts, TO_RTS_UD)]
        {
            engine.modify_qp(*now, end.device, qpn, mask, &QpAttr { state, ..attr }, log).unwrap();
        }
        lasts.iter().for_each(|&last| engine.attach_mcast(end.device, qpn, group(last)).unwrap());
        qpn
    };
    let (own, gone) = (member(a, &[1]), member(a, &[1]));
    let _ = [member(b, &[1, 2]), member(b, &[2])];
    let frames = [(1, &b"one"[..]), (1, b"two"), (2, b"three")].map(|(last, text)| {
        let packet = from_elsewhere(group(last), 0);
        frame(&packet, text)
    });
    for frame in &frames {
        engine.handle_frame(*now, frame, log);
    }
    engine.destroy_qp(a.device, gone).unwrap();
    let to = Destination { dgid: group(1), ..to_members(a) };
    let payload = Payload::Inline(b"out");
    let request = SendRequest { id: 7, signaled: true, solicited: false, fence: false, op: SEND, payload };
    engine.post_datagram(*now, a.device, OWNER, own, &request, &to, log).unwrap();
    let mut record = engine.save();
    let qps = record.devices[0].as_mut().unwrap().qps.iter_mut();
    let requester = &mut qps.last().unwrap().requester;
    (requester.started, requester.served) = (true, Some(record::Place { device: 1, qpn: 3 }));
    record.fan_outs = (0..).zip(&frames[..2]).map(|(device, frame)| fan_out(device, frame)).collect();
    record.fan_out_turn = 1;
    record
}

fn fan_out(device: u32, frame: &[u8]) -> record::FanOut {
    record::FanOut { device, served: (device > 0).then_some(3), frame: frame.to_vec() }
}

/// Returns a record of an SRQ that is woken in vain.
///
/// The receive for its only waiter is taken. There is another SRQ like it, and its device has a
/// second.
fn taken_receive() -> Record {
    let mut pair = Pair::new();
    let (a, b) = (pair.a.clone(), pair.b.clone());
    let [_, srq, _] = [&a, &b, &b].map(|end| {
        let init = SrqInit { owner: OWNER, pd: end.pd, max_wr: 8, max_sge: 2, xrc: None };
        pair.engine.create_srq(end.device, init).unwrap()
    });
    let senders = [(); 2].map(|()| {
        let [own, peer] = [(&a, None), (&b, Some(srq))].map(|(end, srq)| {
            let init = QpInit { receives: srq.into(), ..qp_init(end.pd) };
            End { qpn: pair.engine.create_qp(end.device, init).unwrap(), ..end.clone() }
        });
        pair.connect(&own, attr_to(&peer), QpState::Rts);
        pair.connect(&peer, attr_to(&own), QpState::Rts);
        own
    });
    pair.post(&senders[0], 1, SEND, Payload::Inline(b"waits")).unwrap();
    let sges = [b.sge(0, 8)];
    let Pair { engine, log, .. } = &mut pair;
    engine.post_srq_recv(b.device, OWNER, srq, RecvRequest { id: 1, sges: &sges }, log).unwrap();
    send(&mut pair, &senders[1], 2, SEND, Payload::Inline(b"takes it"), None);
    let record = pair.engine.save();
    assert_eq!((pair.statuses().len(), record.turns.wakes.len()), (2, 1));
    record
}

#[test]
fn no_field_of_a_record_is_forgotten() {
    let Net { hosts: [a, b], .. } = on_the_wire();
    let stories = [a.engine, b.engine, on_one_host().engine].map(|engine| engine.save());
    let shared =
        [shared_queue().engine.save(), idle_shared_queues(), taken_receive(), windows().engine.save()];
    let last = [groups(), fast().engine.save()];
    let records: Vec<Record> = stories
        .into_iter()
        .chain(odd())
        .chain(shared)
        .chain(last)
        .chain(xrc::records())
        .chain([congestion::record()])
        .chain(repeat::records())
        .chain(tcp::records())
        .collect();
    let values: Vec<Value> = records.iter().map(|record| Value::serialized(record).unwrap()).collect();
    // Some values of each field, because another of them may be a valid change.
    let mut samples: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    for value in &values {
        for found in Walk::new(value).found {
            let Some(field) = found.fields.last() else { continue };
            let sample = at(&mut value.clone(), &found.way).clone();
            let of_field = samples.entry(field.clone()).or_default();
            if of_field.len() < 4 {
                of_field.insert(format!("{sample:?}"), sample);
            }
        }
    }
    let mut taken = BTreeSet::new();
    for (record, value) in records.iter().zip(&values) {
        let mut value = value.clone();
        let mut times: BTreeMap<String, u32> = BTreeMap::new();
        for Found { way, fields } in Walk::new(&value).found {
            let Some(field) = fields.last() else { continue };
            // Older versions are accepted, and saved as the current one.
            if field == "Record.version" || times.get(field).is_some_and(|&times| times >= OFTEN) {
                continue;
            }
            let before = at(&mut value, &way).clone();
            for other in others(&before, &samples[field]) {
                *at(&mut value, &way) = other.clone();
                let Ok(changed) = value.deserialized::<Record>() else { continue };
                let lend = |_, _, mr: &record::MemoryRegion| {
                    (mr.length <= 1 << 20).then(|| Mem::new(mr.length as usize))
                };
                let Ok(engine) = Engine::restore(&changed, lend) else { continue };
                assert_eq!(engine.save(), changed, "{fields:?}: {before:?} became {other:?}");
                if changed != *record {
                    taken.extend(fields.clone());
                    *times.entry(field.clone()).or_default() += 1;
                }
            }
            *at(&mut value, &way) = before;
        }
    }
    let fields = |(fields, of): (BTreeSet<String>, String)| {
        fields.into_iter().map(move |field| format!("{of}.{field}")).collect::<Vec<_>>()
    };
    let forgotten: BTreeSet<String> =
        structs().into_iter().flat_map(fields).filter(|field| !taken.contains(field)).collect();
    assert_eq!(
        forgotten,
        FIXED.map(String::from).into(),
        "each field is read, and written again when it is changed"
    );
}
