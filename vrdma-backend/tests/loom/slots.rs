//! The table entries of the SIGBUS handler.

mod sync {
    pub use loom::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering, fence};
}

#[path = "../../src/memory/slot.rs"]
mod slot;

use loom::sync::Arc;
use loom::thread;
use slot::{Mapping, Slot};
use sync::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// Returns a mapping whose three words all identify the owner.
fn mapping(owner: usize) -> Mapping {
    Mapping { start: owner << 20, len: owner << 12, socket: owner as i32 }
}

fn slot() -> Slot {
    Slot {
        taken: AtomicBool::new(false),
        sequence: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        socket: AtomicI32::new(-1),
    }
}

#[test]
fn the_signal_handler_never_sees_a_mixture_of_two_mappings() {
    loom::model(|| {
        let slot = Arc::new(slot());
        assert!(slot.take(mapping(1)));
        let writer = slot.clone();
        let writer = thread::spawn(move || {
            writer.release();
            assert!(writer.take(mapping(2)));
        });
        if let Some(seen) = slot.read() {
            let whole = [Mapping { start: 0, len: 0, socket: -1 }, mapping(1), mapping(2)];
            assert!(whole.contains(&seen), "{seen:?}");
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_mapping_is_seen_by_whoever_got_it_and_no_longer_once_it_is_released() {
    loom::model(|| {
        let slot = Arc::new(slot());
        // The worker gets a guest's memory from its session in this way, and returns it.
        let handed_over = Arc::new(AtomicBool::new(false));
        let (theirs, theirs_over) = (slot.clone(), handed_over.clone());
        let session = thread::spawn(move || {
            assert!(theirs.take(mapping(1)));
            theirs_over.store(true, Ordering::Release);
        });
        if handed_over.load(Ordering::Acquire) {
            assert_eq!(slot.read(), Some(mapping(1)));
            slot.release();
            assert_eq!(slot.read().map(|seen| seen.len), Some(0));
        }
        session.join().unwrap();
    });
}

#[test]
fn a_slot_has_one_owner() {
    loom::model(|| {
        let slot = Arc::new(slot());
        let theirs = slot.clone();
        let other = thread::spawn(move || theirs.take(mapping(2)));
        let ours = slot.take(mapping(1));
        let theirs = other.join().unwrap();
        assert!(ours != theirs);
        assert_eq!(slot.read(), Some(mapping(if ours { 1 } else { 2 })));
    });
}
