//! What a panic ends: the process, or a guest's connection alone, where all that was at hand is
//! that guest's (docs/design/panics.md).

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// This thread is in a step of one guest, whose state is thrown away if it panics.
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
    /// What that step is about.
    static STEP: Cell<&'static str> = const { Cell::new("") };
}

/// A step of a worker panicked.
#[derive(Debug)]
pub struct Panicked {
    /// What the step was about.
    pub step: &'static str,
    /// What the panic said.
    pub text: String,
}

/// From now on a panic ends the process, at once, unless it is within [`contain`].
pub fn end_the_process() {
    // Guests see a device that is gone, instead of one that never answers.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        if !IS_CONTAINED.get() {
            std::process::abort();
        }
    }));
}

/// Carries out a step of one guest. Whatever it changes, but for what lies within [`shared`], is
/// that guest's, and who calls throws it away if this fails.
///
/// # Errors
/// The step panicked, with this message.
pub fn contain<R>(step: impl FnOnce() -> R) -> Result<R, String> {
    let _mark = Mark::set(true);
    // Nobody sees what it left half done: see above.
    catch_unwind(AssertUnwindSafe(step)).map_err(|panic| text(&*panic))
}

/// The same of a worker, which is about this.
///
/// # Errors
/// The step panicked.
#[inline]
pub fn contain_step<R>(step: &'static str, carry_out: impl FnOnce() -> R) -> Result<R, Panicked> {
    STEP.set(step);
    contain(carry_out).map_err(|text| Panicked { step, text })
}

/// What the step is about that this thread is in.
#[cfg(feature = "hooks")]
pub(crate) fn step() -> &'static str {
    if IS_CONTAINED.get() { STEP.get() } else { "" }
}

/// What was to be put right after a panic cannot be: the process ends.
pub fn give_up(panicked: &Panicked, why: &dyn std::fmt::Display) -> ! {
    log::error!("all guests end, for a fault of this program in {}: {}; {why}", panicked.step, panicked.text);
    std::process::abort()
}

/// Carries out what changes things that guests share: a panic within ends the process, also inside
/// of [`contain`].
pub fn shared<R>(part: impl FnOnce() -> R) -> R {
    let _mark = Mark::set(false);
    part()
}

/// What the thread was in before.
struct Mark(bool);

impl Mark {
    fn set(is_contained: bool) -> Mark {
        Mark(IS_CONTAINED.replace(is_contained))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        IS_CONTAINED.set(self.0);
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let literal = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    literal.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_panics_says_what_of_and_leaves_nothing_behind() {
        assert_eq!(contain(|| 7), Ok(7));
        let failed = contain(|| shared(|| assert!(!IS_CONTAINED.get())));
        assert_eq!(failed, Ok(()));
        let failed = contain(|| -> u8 {
            assert!(IS_CONTAINED.get());
            panic!("on {}", "purpose")
        });
        assert_eq!(failed, Err("on purpose".into()));
        assert!(!IS_CONTAINED.get());
    }
}
