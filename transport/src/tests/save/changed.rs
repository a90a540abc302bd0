//! Records with one changed value.
//!
//! Each is refused, or restores to an engine that continues without a panic and within its limits.

use super::stories::{on_one_host, on_the_wire, windows};
use super::*;
use crate::base::rng::Rng;
use crate::tests::wire::{Cable, Net};
use ciborium::Value;

/// Visits all scalar values of a record, and all lists.
fn visit(value: &mut Value, look: &mut impl FnMut(&mut Value)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| visit(item, look)),
        Value::Map(entries) => entries.iter_mut().for_each(|(_, item)| visit(item, look)),
        _ => return look(value),
    }
    look(value);
}

fn pick(rng: &mut Rng, most: usize) -> usize {
    (rng.next() % most as u64) as usize
}

/// Returns a nearby number, or one that is a limit elsewhere.
fn other_number(rng: &mut Rng, number: i128) -> i128 {
    let edges = [0, 1, 2, 255, 256, 1 << 16, (1 << 24) - 1, 1 << 24, u32::MAX.into(), u64::MAX.into()];
    match rng.next() % 6 {
        0 => number + 1,
        1 => number - 1,
        2 => edges[pick(rng, edges.len())],
        3 => number ^ 1 << (rng.next() % 64),
        4 => number + 1024,
        _ => (rng.next() >> (rng.next() % 64)).into(),
    }
}

/// Changes a value. `other` is a value from elsewhere in the record.
fn change(value: &mut Value, rng: &mut Rng, other: Value) {
    match value {
        Value::Integer(number) if !rng.next().is_multiple_of(8) => {
            let changed = other_number(rng, (*number).into());
            if let Ok(changed) = changed.try_into() {
                *number = changed;
            }
        }
        Value::Bool(it) => *it = !*it,
        Value::Array(items) if !items.is_empty() => {
            let (at, to) = (pick(rng, items.len()), pick(rng, items.len()));
            match rng.next() % 3 {
                0 => drop(items.remove(at)),
                1 => items.insert(to, items[at].clone()),
                _ => items.swap(at, to),
            }
        }
        _ => *value = other,
    }
}

/// Returns a record that differs from `record` in one place.
fn changed(record: &Record, rng: &mut Rng) -> Option<Record> {
    let mut value = Value::serialized(record).unwrap();
    let mut count = 0;
    visit(&mut value, &mut |_| count += 1);
    let (target, source) = (pick(rng, count), pick(rng, count));
    let (mut at, mut other) = (0, Value::Null);
    visit(&mut value, &mut |it| {
        if at == source {
            other = it.clone();
        }
        at += 1;
    });
    at = 0;
    visit(&mut value, &mut |it| {
        if at == target {
            change(it, rng, other.clone());
        }
        at += 1;
    });
    value.deserialized().ok()
}

/// Lets an engine continue.
///
/// Time passes, frames arrive and leave, requests are posted, states change, and all requests end.
fn go_on(mut engine: Engine<Mem>, frames: &[Vec<u8>]) {
    let (mut now, mut log, mut cable) = (Instant(1_000_000), Log::default(), Cable::default());
    let record = engine.save();
    let mut places = Vec::new();
    for (index, device) in (0..).zip(&record.devices) {
        places.extend(device.iter().flat_map(|device| &device.qps).map(|qp| (DeviceId(index), qp.clone())));
    }
    for round in 0..12u32 {
        for _ in 0..3 {
            engine.poll(now, 1 << 20, &mut log);
            answer_all(&mut engine, now, &mut log);
            engine.transmit(now, 64, &mut cable, &mut log);
        }
        for frame in frames.iter().skip(round as usize % 3).step_by(2) {
            engine.handle_frame(now, frame, &mut log);
        }
        for (device, qp) in &places {
            let (qpn, owner) = (Qpn::new(qp.qpn).unwrap(), OwnerId(qp.init.owner));
            if round == 3 {
                let payload = Payload::Inline(b"more");
                let request =
                    SendRequest { id: 99, signaled: true, solicited: false, fence: true, op: SEND, payload };
                let _ = engine.post_send(now, *device, owner, qpn, &request, &mut log);
                let _ =
                    engine.post_recv(now, *device, owner, qpn, RecvRequest { id: 98, sges: &[] }, &mut log);
            }
            let state = [(5, QpState::Sqd), (6, QpState::Rts), (10, QpState::Err)];
            if let Some(&(_, state)) = state.iter().find(|(at, _)| *at == round) {
                let attr = QpAttr { state, ..QpAttr::default() };
                let _ = engine.modify_qp(now, *device, qpn, AttrMask::STATE, &attr, &mut log);
            }
        }
        if round == 4 {
            (0..record.devices.len() as u32).for_each(|device| engine.set_suspended(DeviceId(device), false));
            engine.set_link(false);
        }
        if round == 7 {
            engine.set_link(true);
        }
        let deadline = engine.poll_timeout().unwrap_or(now).max(now);
        now = if deadline.0 < u64::MAX / 2 { deadline + Duration::from_micros(10) } else { now };
    }
    // The resulting engine can be saved and restored, too.
    let engine = &mut copied(&engine);
    for device in (0..record.devices.len() as u32).map(DeviceId) {
        engine.reset_device(device);
        let counts = engine.counts(device);
        assert_eq!((counts.qps, counts.mrs, counts.pending_sends, counts.pending_receives), (0, 0, 0, 0));
    }
    while engine.poll(now, 1 << 20, &mut log) {}
    engine.transmit(now, 64, &mut cable, &mut log);
    assert_eq!((engine.poll_timeout(), engine.has_questions()), (None, false));
}

/// Tries `cases` changed records.
///
/// Returns how many [`Engine::restore`] refused, and how many continued.
fn try_changes(record: &Record, frames: &[Vec<u8>], seed: u64, cases: u32) -> (u32, u32) {
    let mut rng = Rng::new(seed);
    let (mut refused, mut went_on) = (0, 0);
    for _ in 0..cases {
        let Some(changed) = changed(record, &mut rng) else { continue };
        let lend =
            |_, _, mr: &record::MemoryRegion| (mr.length <= 1 << 20).then(|| Mem::new(mr.length as usize));
        match Engine::restore(&changed, lend) {
            Err(_) => refused += 1,
            Ok(engine) => {
                went_on += 1;
                go_on(engine, frames);
            }
        }
    }
    (refused, went_on)
}

#[test]
#[ignore = "long"]
fn many_changed_records_are_refused_or_go_on() {
    let (mut net, pair) = (on_the_wire(), on_one_host());
    let [requester, responder] = [0, 1].map(|at| net.hosts[at].engine.save());
    let [from_requester, from_responder] = next_frames(&mut net);
    let stories =
        [(requester, from_responder), (responder, from_requester), (pair.engine.save(), Vec::new())];
    for (seed, (record, frames)) in (10..).zip(&stories) {
        println!("{:?} refused and went on", try_changes(record, frames, seed, 15_000));
    }
}

fn check(record: &Record, frames: &[Vec<u8>], seed: u64) {
    let (refused, went_on) = try_changes(record, frames, seed, 500);
    assert!(refused > 20 && went_on > 20, "{refused} refused, {went_on} went on");
}

/// Returns the frames that each host of a story sends next.
fn next_frames(net: &mut Net) -> [Vec<Vec<u8>>; 2] {
    [0, 1].map(|at| {
        net.work(at);
        net.hosts[at].cable.frames.drain(..).collect()
    })
}

#[test]
fn a_changed_record_of_a_requester_is_refused_or_goes_on() {
    let mut net = on_the_wire();
    let record = net.hosts[0].engine.save();
    let [_, to] = next_frames(&mut net);
    check(&record, &to, 1);
}

#[test]
fn a_changed_record_of_a_responder_is_refused_or_goes_on() {
    let mut net = on_the_wire();
    let record = net.hosts[1].engine.save();
    let [to, _] = next_frames(&mut net);
    check(&record, &to, 2);
}

#[test]
fn a_changed_record_of_one_host_is_refused_or_goes_on() {
    check(&on_one_host().engine.save(), &[], 3);
}

#[test]
fn a_changed_record_of_windows_is_refused_or_goes_on() {
    check(&windows().engine.save(), &[], 4);
}
