//! The cycle account: how the worker's time is spent, by stage.
//!
//! It exists with the feature `cycles` only. Without the feature none of it is compiled in.
//!
//! Each moment counts for one stage: the innermost that was entered. A round without work counts as
//! idle as a whole. Reading the processor's counter takes time itself, so the account also reports
//! how often it was read and how long a read takes.

#[cfg(not(feature = "cycles"))]
mod off;
#[cfg(feature = "cycles")]
mod on;
mod stage;

#[cfg(not(feature = "cycles"))]
pub use off::{begin, end_turn, enter};
#[cfg(feature = "cycles")]
pub use on::{Account, begin, end_turn, enter, tell};
pub use stage::Stage;

/// Runs `work` and accounts its time to `stage`.
#[inline(always)]
pub fn within<R>(stage: Stage, work: impl FnOnce() -> R) -> R {
    let _mark = enter(stage);
    work()
}
