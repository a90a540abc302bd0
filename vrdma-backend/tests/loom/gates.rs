//! Revocation of pinned regions.

mod sync {
    pub use loom::hint::spin_loop;
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub use loom::thread::yield_now;
}

#[path = "../../src/memory/gate.rs"]
mod gate;

use gate::{GateOwner, PinGate};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use sync::{AtomicBool, Ordering};

fn gate() -> Arc<PinGate> {
    let owner = GateOwner {
        number: AtomicU64::new(0),
        has_pinned: AtomicBool::new(false),
        is_kept: AtomicBool::new(false),
    };
    Arc::new(PinGate { state: AtomicU64::new(0), owner })
}

#[test]
fn what_is_written_after_loans_were_taken_back_is_never_copied() {
    loom::model(|| {
        let (gate, memory) = (gate(), Arc::new(AtomicU64::new(1)));
        let number = gate.pin().unwrap();
        let (its, seen) = (gate.clone(), memory.clone());
        let copier = thread::spawn(move || its.copying(number, || seen.load(Ordering::Relaxed)));
        assert!(gate.revoke());
        memory.store(2, Ordering::Relaxed);
        let copied = copier.join().unwrap();
        assert!(matches!(copied, None | Some(1)), "{copied:?}");
        assert_ne!(gate.pin().unwrap(), number);
    });
}
