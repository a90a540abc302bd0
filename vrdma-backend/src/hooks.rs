//! What a test does between a thread's two looks at what guests wrote, with the feature `hooks`
//! alone: a guest's store that shows too late for the first look, and about which nobody is told.
//! Or whether there is a second look at all, to measure what it costs. And what it does while a
//! worker copies from memory that another worker's guest has lent. And where a thread panics on
//! purpose.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

type Hook = Box<dyn FnMut() -> bool + Send>;

/// By name of the thread.
static HOOKS: Mutex<BTreeMap<String, Hook>> = Mutex::new(BTreeMap::new());

static SECOND_LOOKS: AtomicBool = AtomicBool::new(true);

/// Whether the workers of this process look twice from now on, as they do without this call. What
/// shows late is missed meanwhile.
pub fn set_second_looks(look: bool) {
    SECOND_LOOKS.store(look, Ordering::Relaxed);
}

/// Whether there are second looks.
pub(crate) fn has_second_looks() -> bool {
    SECOND_LOOKS.load(Ordering::Relaxed)
}

/// Has threads of that name call `hook` each time that they are about to wait for the second look,
/// until it returns true.
///
/// # Panics
/// A hook has panicked.
pub fn before_second_look(thread: &str, hook: impl FnMut() -> bool + Send + 'static) {
    HOOKS.lock().expect("no hook has panicked").insert(thread.into(), Box::new(hook));
}

/// Threads that are to panic, and where.
static PANICS: Mutex<Vec<(String, &'static str)>> = Mutex::new(Vec::new());

/// There are such. Looked at first: steps are many.
static MAY_PANIC: AtomicBool = AtomicBool::new(false);

/// Has the next thread of that name that comes to a step panic there, or the worker that comes to a
/// step of the guest of that name.
///
/// # Panics
/// A hook has panicked.
pub fn panic_at(who: &str, step: &'static str) {
    PANICS.lock().expect("no hook has panicked").push((who.into(), step));
    MAY_PANIC.store(true, Ordering::Relaxed);
}

/// Whether all of those have panicked.
///
/// # Panics
/// A hook has panicked.
pub fn have_panicked() -> bool {
    PANICS.lock().expect("no hook has panicked").is_empty()
}

/// A worker has something of a guest at hand, in the step that it is in.
pub(crate) fn guest_step(guest: &str) {
    if MAY_PANIC.load(Ordering::Relaxed) {
        panic_if(guest, crate::panics::step());
    }
}

/// A thread comes to a step.
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

/// Has the worker that next copies from memory of another's guest call `hook`, as it is about to:
/// whoever takes the memory back then waits for it.
///
/// # Panics
/// A hook has panicked.
pub fn within_next_copy(hook: impl FnOnce() + Send + 'static) {
    *COPY.lock().expect("no hook has panicked") = Some(Box::new(hook));
}

/// Calls that hook.
pub(crate) fn copies() {
    let hook = COPY.lock().expect("no hook has panicked").take();
    if let Some(hook) = hook {
        hook();
    }
}

/// Calls the hook of this thread.
pub(crate) fn run() {
    let thread = std::thread::current();
    let Some(name) = thread.name() else { return };
    let mut hooks = HOOKS.lock().expect("no hook has panicked");
    if hooks.get_mut(name).is_some_and(|hook| hook()) {
        hooks.remove(name);
    }
}
