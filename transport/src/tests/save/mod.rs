//! Engines that are saved and restored.
//!
//! This happens during the other tests, in states that neither they nor the simulation reach, and
//! from records that no engine wrote.
//!
//! Shows: replaced-engine.

mod changed;
mod golden;
mod noticed;
mod refused;
mod stories;

use super::*;

/// Returns a record as bytes.
fn to_bytes(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(record, &mut bytes).unwrap();
    bytes
}

/// Parses a record from bytes.
fn from_bytes(bytes: &[u8]) -> Record {
    ciborium::from_reader(bytes).unwrap()
}

/// Copies an engine through bytes, with the same memory.
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

/// Lets the engines of a test be, for the next hundred calls of [`replace_at_times`].
///
/// That is for what a record does not have.
pub(crate) fn replace_none() {
    CALLS.set(304);
}

/// Replaces an engine by its copy in some calls.
///
/// Fixtures of other tests call it before they let an engine work. Each run of a test replaces it
/// in the same calls.
pub(crate) fn replace_at_times(engine: &mut Engine<Mem>) {
    let calls = CALLS.get().wrapping_add(1);
    CALLS.set(calls);
    let every = if calls < 300 { 3 } else { 101 };
    if calls.is_multiple_of(every) {
        let mut copy = copied(engine);
        // Its caller sets these again.
        copy.core.schedule.set_again(&mut engine.core.schedule);
        for index in 0..copy.core.devices.indices() {
            if let (Some(new), Some(old)) = (copy.core.devices.get_mut(index), engine.core.devices.get(index))
            {
                (new.marks, new.limited) = (old.marks, old.limited);
            }
        }
        *engine = copy;
    }
}
