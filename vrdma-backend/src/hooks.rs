//! Hooks of tests into the daemon's threads. They exist with the feature `hooks` only.
//!
//! * A test acts between a thread's first and second look at what guests wrote. It makes a guest's
//!   store that the first look does not see, and for which no kick comes.
//! * A benchmark switches second looks off, to measure their cost.
//! * A test acts while a worker copies from the pinned region of another worker's guest.
//! * A test makes a thread panic at a chosen step.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

type Hook = Box<dyn FnMut() -> bool + Send>;

/// The hooks by name of the thread.
static HOOKS: Mutex<BTreeMap<String, Hook>> = Mutex::new(BTreeMap::new());

static SECOND_LOOKS: AtomicBool = AtomicBool::new(true);

/// Sets whether the workers of this process take second looks. By default they do.
///
/// Without second looks, late stores of guests are missed.
pub fn set_second_looks(look: bool) {
    SECOND_LOOKS.store(look, Ordering::Relaxed);
}

/// Whether workers take second looks.
pub(crate) fn has_second_looks() -> bool {
    SECOND_LOOKS.load(Ordering::Relaxed)
}

/// Makes threads of this name call `hook` each time before they wait for the second look.
///
/// The hook is removed once it returns true.
///
/// # Panics
/// A hook has panicked.
pub fn before_second_look(thread: &str, hook: impl FnMut() -> bool + Send + 'static) {
    HOOKS.lock().expect("no hook has panicked").insert(thread.into(), Box::new(hook));
}

/// Threads or guests that are to panic, and the step where.
static PANICS: Mutex<Vec<(String, &'static str)>> = Mutex::new(Vec::new());

/// Whether `PANICS` may have entries. It is checked first, because steps are frequent.
static MAY_PANIC: AtomicBool = AtomicBool::new(false);

/// Makes a step panic once.
///
/// `who` is the name of a thread, or of a guest whose worker comes to the step.
///
/// # Panics
/// A hook has panicked.
pub fn panic_at(who: &str, step: &'static str) {
    PANICS.lock().expect("no hook has panicked").push((who.into(), step));
    MAY_PANIC.store(true, Ordering::Relaxed);
}

/// Whether all panics that [`panic_at`] asked for have happened.
///
/// # Panics
/// A hook has panicked.
pub fn have_panicked() -> bool {
    PANICS.lock().expect("no hook has panicked").is_empty()
}

/// Marks that the worker's current step handles something of this guest.
pub(crate) fn guest_step(guest: &str) {
    if MAY_PANIC.load(Ordering::Relaxed) {
        panic_if(guest, crate::panics::step());
    }
}

/// Marks that a thread comes to a step.
pub(crate) fn step(step: &'static str) {
    if MAY_PANIC.load(Ordering::Relaxed) {
        panic_if(std::thread::current().name().unwrap_or_default(), step);
    }
}

fn panic_if(who: &str, step: &'static str) {
    let mut panics = PANICS.lock().expect("no hook has panicked");
    let is_this = |(name, at): &(String, &str)| name == who && *at == step;
    let Some(at) = panics.iter().position(is_this) else { return };
    panics.remove(at);
    drop(panics);
    panic!("on purpose, at {step}");
}

static COPY: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

/// Makes the next worker that copies from memory of another worker's guest call `hook` first.
///
/// A thread that takes the memory back then waits for the hook.
///
/// # Panics
/// A hook has panicked.
pub fn within_next_copy(hook: impl FnOnce() + Send + 'static) {
    *COPY.lock().expect("no hook has panicked") = Some(Box::new(hook));
}

/// Calls the hook of [`within_next_copy`].
pub(crate) fn copies() {
    let hook = COPY.lock().expect("no hook has panicked").take();
    if let Some(hook) = hook {
        hook();
    }
}

/// Calls this thread's hook of [`before_second_look`].
pub(crate) fn run() {
    let thread = std::thread::current();
    let Some(name) = thread.name() else { return };
    let mut hooks = HOOKS.lock().expect("no hook has panicked");
    if hooks.get_mut(name).is_some_and(|hook| hook()) {
        hooks.remove(name);
    }
}
