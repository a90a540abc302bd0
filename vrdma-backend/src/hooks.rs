//! What a test does between a thread's two looks at what guests wrote, with the feature `hooks` alone: a guest's store that shows too late for
//! the first look, and about which nobody is told.

use std::collections::BTreeMap;
use std::sync::Mutex;

type Hook = Box<dyn FnMut() -> bool + Send>;

/// By name of the thread.
static HOOKS: Mutex<BTreeMap<String, Hook>> = Mutex::new(BTreeMap::new());

/// Has threads of that name call `hook` each time that they are about to wait for the second look, until it returns true.
///
/// # Panics
/// A hook has panicked.
pub fn before_second_look(thread: &str, hook: impl FnMut() -> bool + Send + 'static) {
    HOOKS.lock().expect("no hook has panicked").insert(thread.into(), Box::new(hook));
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
