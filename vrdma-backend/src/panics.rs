//! What a panic ends: the process, or a single guest's connection.
//!
//! A panic ends only the guest's connection if the step had only that guest's state in use
//! (docs/design/panics.md).

use crate::logger;
use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::Cell;
use std::fmt::Display;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// Whether this thread is in a step of one guest, whose state is discarded if the step panics.
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
    /// What the current step is about.
    static STEP: Cell<&'static str> = const { Cell::new("") };
}

/// The error of a worker's step that panicked.
#[derive(Debug)]
pub struct Panicked {
    /// What the step was about.
    pub step: &'static str,
    /// The panic's message.
    pub text: String,
}

/// Makes each panic end the process at once, unless it happens within [`contain`].
pub fn end_the_process() {
    // Guests then see a device that is gone, instead of one that never answers.
    let report = std::panic::take_hook();
    let to_journal = logger::has_journal();
    std::panic::set_hook(Box::new(move |info| {
        if to_journal {
            let thread = std::thread::current();
            let text = report_to_journal(thread.name(), info, &Backtrace::capture());
            // Nothing can be done if standard error is closed.
            let _ = std::io::stderr().write_all(text.as_bytes());
        } else {
            report(info);
        }
        if !IS_CONTAINED.get() {
            std::process::abort();
        }
    }));
}

/// Returns what the journal's stream gets of a panic. Each line has the priority of an error.
fn report_to_journal(thread: Option<&str>, info: &dyn Display, backtrace: &Backtrace) -> String {
    let mut text = format!("thread '{}' {info}", thread.unwrap_or("unnamed"));
    // RUST_BACKTRACE asks for it.
    if backtrace.status() == BacktraceStatus::Captured {
        text += &format!("\n{backtrace}");
    }
    logger::error_lines(&text)
}

/// Runs a step of one guest and catches a panic.
///
/// Everything that the step changes belongs to that guest, except within [`shared`]. The caller
/// discards it if this fails.
///
/// # Errors
/// The step panicked, with this message.
pub fn contain<R>(step: impl FnOnce() -> R) -> Result<R, String> {
    let _mark = Mark::set(true);
    // Unwind safe: the caller discards what the step left half done.
    catch_unwind(AssertUnwindSafe(step)).map_err(|panic| text(&*panic))
}

/// Runs a worker's step and catches a panic, like [`contain`]. `step` says what it is about.
///
/// # Errors
/// The step panicked.
#[inline]
pub fn contain_step<R>(step: &'static str, carry_out: impl FnOnce() -> R) -> Result<R, Panicked> {
    STEP.set(step);
    contain(carry_out).map_err(|text| Panicked { step, text })
}

/// Returns what this thread's current step is about.
#[cfg(feature = "hooks")]
pub(crate) fn step() -> &'static str {
    if IS_CONTAINED.get() { STEP.get() } else { "" }
}

/// Ends the process, because the state after a panic cannot be repaired.
pub fn give_up(panicked: &Panicked, why: &dyn Display) -> ! {
    log::error!("all guests end, for a fault of this program in {}: {}; {why}", panicked.step, panicked.text);
    std::process::abort()
}

/// Runs code that changes what guests share. A panic in it ends the process, even inside
/// [`contain`].
pub fn shared<R>(part: impl FnOnce() -> R) -> R {
    let _mark = Mark::set(false);
    part()
}

/// The value of `IS_CONTAINED` that is restored on drop.
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

    #[test]
    fn each_line_of_a_panic_has_a_priority_in_the_journal() {
        let text = report_to_journal(Some("worker"), &"panicked at x:1:\nwhy", &Backtrace::disabled());
        assert_eq!(text, "<3>thread 'worker' panicked at x:1:\n<3>why\n");
        let text = report_to_journal(None, &"panicked", &Backtrace::force_capture());
        assert!(text.lines().count() > 1 && text.lines().all(|line| line.starts_with("<3>")), "{text}");
    }
}
