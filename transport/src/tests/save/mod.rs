//! Engines that are written and read again: in the midst of the other tests, in states that neither
//! they nor the simulation reach, and from records that no engine wrote.

mod changed;
mod golden;
mod noticed;
mod refused;
mod stories;

use super::*;

/// A record as bytes.
fn to_bytes(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(record, &mut bytes).unwrap();
    bytes
}

/// A record from bytes.
fn from_bytes(bytes: &[u8]) -> Record {
    ciborium::from_reader(bytes).unwrap()
}

/// A copy of an engine, through bytes, with the same memory.
pub(crate) fn copied(engine: &Engine<Mem>) -> Engine<Mem> {
    let record = engine.save();
    let lend = |device, key, _: &_| engine.region(device, key).ok().cloned();
    let copy = Engine::restore(&from_bytes(&to_bytes(&record)), lend).unwrap();
    assert_eq!(copy.save(), record);
    copy
}

thread_local! {
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// What the fixtures of the other tests call before they let an engine work: at times, which are
/// the same in each run of a test, it goes on as a copy.
pub(crate) fn replace_at_times(engine: &mut Engine<Mem>) {
    let calls = CALLS.get().wrapping_add(1);
    CALLS.set(calls);
    let every = if calls < 300 { 3 } else { 101 };
    if calls.is_multiple_of(every) {
        *engine = copied(engine);
    }
}
