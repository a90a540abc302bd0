//! Records of each version of the format, as they were written.
//!
//! The current code has to read them, and to finish their stories. [`record`] says how the format
//! may change.
//!
//! `VRDMA_WRITE_GOLDEN=1 cargo test -p vrdma-transport golden_records -- --ignored` writes those of
//! the current version again. Records of a released version stay unchanged.

use super::stories::{ATOMIC_WRITE, FLUSH, end_on_one_host, end_on_the_wire, expected_on_one_host};
use super::stories::{end_of_fast, expected_of_fast, fast};
use super::stories::{end_of_shared_queue, expected_of_shared_queue, expected_on_the_wire};
use super::stories::{end_of_windows, expected_of_windows};
use super::stories::{on_one_host, on_the_wire, shared_queue, windows};
use super::*;
use crate::tests::wire::{Host, Net};
use std::fs;
use std::path::PathBuf;

fn path(version: u32, name: &str) -> PathBuf {
    let folder = [env!("CARGO_MANIFEST_DIR"), "tests", "golden"].iter().collect::<PathBuf>();
    folder.join(format!("record-v{version}-{name}.cbor"))
}

/// Restores the engine of a golden record, with memory of its own.
fn golden(version: u32, name: &str) -> Engine<Mem> {
    let bytes = fs::read(path(version, name)).expect("golden records are in git");
    let record = from_bytes(&bytes);
    assert_eq!(record.version, version);
    // The memory also has room for pages of fast registrations.
    let lend = |_, _, mr: &record::MemoryRegion| Some(Mem::new(mr.length.max(1 << 14) as usize));
    let engine = Engine::restore(&record, lend).unwrap();
    if version == record::VERSION {
        let mut saved = engine.save();
        forget_later_counters(&mut saved, &record);
        assert_eq!(saved, record, "{name}");
    }
    engine
}

/// Removes counters that the record does not name yet, which are zero.
fn forget_later_counters(saved: &mut record::Record, record: &record::Record) {
    let saved = saved.devices.iter_mut().flatten();
    for (saved, record) in saved.zip(record.devices.iter().flatten()) {
        saved.counters.retain(|name, count| *count != 0 || record.counters.contains_key(name));
    }
}

#[test]
#[ignore = "a tool: it writes files"]
fn golden_records_are_written() {
    if std::env::var_os("VRDMA_WRITE_GOLDEN").is_none() {
        return;
    }
    let write = |name: &str, engine: &Engine<Mem>| {
        fs::write(path(record::VERSION, name), to_bytes(&engine.save())).unwrap();
    };
    let Net { hosts: [requester, responder], .. } = on_the_wire();
    write("requester", &requester.engine);
    write("responder", &responder.engine);
    write("one-host", &on_one_host().engine);
    write("shared-queue", &shared_queue().engine);
    write("windows", &windows().engine);
    write("fast", &fast().engine);
}

#[test]
fn golden_records_go_on_over_the_wire() {
    for version in 1..=record::VERSION {
        let Net { hosts: [a, b], now } = Net::new(QpType::Rc);
        let a = Host { engine: golden(version, "requester"), ..a };
        let b = Host { engine: golden(version, "responder"), ..b };
        let mut net = Net { hosts: [a, b], now };
        let mut expected = expected_on_the_wire();
        expected.retain(|end| (version > 1 || end.1 != ATOMIC_WRITE) && (version > 2 || end.1 != FLUSH));
        assert_eq!(end_on_the_wire(&mut net), expected, "version {version}");
    }
}

#[test]
fn golden_records_go_on_on_one_host() {
    for version in 1..=record::VERSION {
        let mut pair = Pair { engine: golden(version, "one-host"), ..Pair::new() };
        assert_eq!(end_on_one_host(&mut pair), expected_on_one_host(), "version {version}");
    }
}

#[test]
fn golden_records_of_shared_queues_go_on() {
    for version in 3..=record::VERSION {
        let mut pair = Pair { engine: golden(version, "shared-queue"), ..Pair::new() };
        assert_eq!(end_of_shared_queue(&mut pair), expected_of_shared_queue(), "version {version}");
    }
}

#[test]
fn golden_records_of_windows_go_on() {
    for version in 3..=record::VERSION {
        let mut pair = Pair { engine: golden(version, "windows"), ..Pair::new() };
        assert_eq!(end_of_windows(&mut pair), expected_of_windows(), "version {version}");
    }
}

#[test]
fn golden_records_of_fast_registrations_go_on() {
    for version in 3..=record::VERSION {
        let mut pair = Pair { engine: golden(version, "fast"), ..fast() };
        pair.log = Log::default();
        assert_eq!(end_of_fast(&mut pair), expected_of_fast(), "version {version}");
    }
}
