//! Revocation of pinned regions.

mod sync {
    pub use loom::hint::spin_loop;
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub use loom::thread::yield_now;
}

#[path = "../../src/memory/gate.rs"]
mod gate;

use gate::{Lender, LoanGate};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use sync::{AtomicBool, Ordering};

fn gate() -> Arc<LoanGate> {
    let lender = Lender {
        number: AtomicU64::new(0),
        has_lent: AtomicBool::new(false),
        is_kept: AtomicBool::new(false),
    };
    Arc::new(LoanGate { state: AtomicU64::new(0), lender })
}

#[test]
fn what_is_written_after_loans_were_taken_back_is_never_copied() {
    loom::model(|| {
        let (gate, memory) = (gate(), Arc::new(AtomicU64::new(1)));
        let number = gate.lends().unwrap();
        let (its, seen) = (gate.clone(), memory.clone());
        let copier = thread::spawn(move || its.copying(number, || seen.load(Ordering::Relaxed)));
        assert!(gate.take_back());
        memory.store(2, Ordering::Relaxed);
        let copied = copier.join().unwrap();
        assert!(matches!(copied, None | Some(1)), "{copied:?}");
        assert_ne!(gate.lends().unwrap(), number);
    });
}
