//! Changes of records: values that are near the right ones, taken from elsewhere, missing or
//! repeated.

use super::world::{Input, Mem};
use ciborium::Value;
use vrdma_transport::{Pieces, Record, write_frame};
use vrdma_wire::num::{Psn, Qpn};
use vrdma_wire::roce::Packet;

/// Records that engines have written.
const WRITTEN: [&[u8]; 3] = [
    include_bytes!("../../../../transport/tests/golden/record-v2-requester.cbor"),
    include_bytes!("../../../../transport/tests/golden/record-v2-responder.cbor"),
    include_bytes!("../../../../transport/tests/golden/record-v2-one-host.cbor"),
];

/// Names of variants, grouped by enum.
const NAMES: [&[&str]; 15] = [
    &["rc", "uc", "ud", "gsi"],
    &["reset", "init", "rtr", "rts", "sqd", "sqe", "err"],
    &["m256", "m512", "m1024", "m2048", "m4096"],
    &["local", "roce"],
    &["no", "receive", "answer", "look", "looked"],
    &["none", "send", "write"],
    &["go_on", "start_over"],
    &["nothing", "first", "again"],
    &["none", "down", "up"],
    &["send", "write", "read", "compare_swap", "fetch_add", "atomic_write"],
    &["global", "persistent", "both"],
    &["send", "frame"],
    &["inline", "sges", "not_understood", "wrong_length"],
    &["sequence", "invalid_request", "remote_access", "remote_operational"],
    &["data", "once"],
];

/// Returns a record that the input describes: a written one with changes, or raw bytes of the
/// input.
pub fn record(input: &mut Input<'_>) -> Option<Record> {
    let Some(written) = WRITTEN.get(usize::from(input.byte() % 4)) else {
        return ciborium::from_reader(std::mem::take(&mut input.0)).ok();
    };
    let mut root: Value = ciborium::from_reader(*written).expect("golden records can be read");
    for _ in 0..input.byte() % 8 {
        let elsewhere = match input.byte() {
            0..=191 => Value::Null,
            _ => find(&mut root, input).clone(),
        };
        change(find(&mut root, input), input, elsewhere);
    }
    root.deserialized().ok()
}

/// Finds a value below `value`. Each step of the way takes one byte of the input.
fn find<'a>(value: &'a mut Value, input: &mut Input<'_>) -> &'a mut Value {
    let parts = match value {
        Value::Array(items) => items.len(),
        Value::Map(entries) => entries.len(),
        _ => 0,
    };
    let byte = usize::from(input.byte());
    if parts == 0 || byte >= 0xe0 {
        return value;
    }
    match value {
        Value::Array(items) => find(&mut items[byte % parts], input),
        Value::Map(entries) => find(&mut entries[byte % parts].1, input),
        _ => value,
    }
}

/// Changes a value. It becomes `elsewhere` unless that is null.
fn change(value: &mut Value, input: &mut Input<'_>, elsewhere: Value) {
    let how = input.byte();
    if how >= 0xf0 || !elsewhere.is_null() {
        *value = elsewhere;
        return;
    }
    match value {
        Value::Integer(number) => {
            let number_before = i128::from(*number);
            if let Ok(changed) = other_number(number_before, how, input).try_into() {
                *number = changed;
            }
        }
        Value::Bool(it) => *it = !*it,
        Value::Text(name) => rename(name, how),
        Value::Map(entries) => {
            // A variant with fields.
            if let [(Value::Text(name), _)] = entries.as_mut_slice() {
                rename(name, how);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            if change_frame(items, how, input).is_some() {
                return;
            }
            let at = usize::from(input.byte()) % items.len();
            let to = usize::from(input.byte()) % items.len();
            match how % 3 {
                0 => drop(items.remove(at)),
                1 => items.insert(to, items[at].clone()),
                _ => items.swap(at, to),
            }
        }
        _ => {}
    }
}

/// Returns another number that is near, at a limit, or any.
fn other_number(number: i128, how: u8, input: &mut Input<'_>) -> i128 {
    const EDGES: [i128; 12] = [
        0,
        1,
        127,
        255,
        256,
        u16::MAX as i128,
        (1 << 24) - 1,
        1 << 24,
        u32::MAX as i128,
        i64::MAX as i128,
        i64::MIN as i128,
        u64::MAX as i128,
    ];
    match how % 8 {
        0..=2 => number + i128::from(input.byte() as i8),
        3 => EDGES[usize::from(input.byte()) % EDGES.len()],
        4 => number ^ 1 << (input.byte() % 64),
        5 => i128::from(input.long()),
        6 => i128::from(input.long()) << 32 | i128::from(input.long()),
        _ => i128::from(input.byte()),
    }
}

/// Replaces the name of a variant by another one of its enum.
fn rename(name: &mut String, how: u8) {
    let others: Vec<&str> =
        NAMES.into_iter().filter(|names| names.contains(&name.as_str())).flatten().copied().collect();
    if !others.is_empty() {
        *name = others[usize::from(how) % others.len()].to_owned();
    }
}

/// Changes a frame such that it still parses as one.
fn change_frame(items: &mut Vec<Value>, how: u8, input: &mut Input<'_>) -> Option<()> {
    let byte = |item: &Value| u8::try_from(i128::from(item.as_integer()?)).ok();
    let bytes = items.iter().map(byte).collect::<Option<Vec<u8>>>()?;
    let parsed = Packet::parse(&bytes).ok()?;
    let mut packet = parsed.packet;
    let mut payload = parsed.payload.to_vec();
    match how % 4 {
        0 => packet.bth.psn = Psn::truncate(input.near(packet.bth.psn.number())),
        1 => packet.bth.dest = Qpn::truncate(input.near(packet.bth.dest.number())),
        2 => packet.bth.ack_req = !packet.bth.ack_req,
        _ => payload.resize(usize::from(input.word() % 4097), 0),
    }
    let mut frame = vec![0; packet.frame_len(payload.len())];
    write_frame::<Mem>(&packet, &Pieces::bytes(&payload), &mut frame).ok()?;
    *items = frame.into_iter().map(Value::from).collect();
    Some(())
}
