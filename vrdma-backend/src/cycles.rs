//! The cycle account: what the worker's time goes to, by stage. With the feature `cycles` alone;
//! without it nothing of this is left in the program.
//!
//! Each moment counts for one stage, the innermost that was entered. A turn that found nothing to
//! do is idle as a whole. Reading the counter of the processor takes time itself: how often it was
//! read, and how long that takes, is told too.

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

/// Does something that is of a stage.
#[inline(always)]
pub fn within<R>(stage: Stage, work: impl FnOnce() -> R) -> R {
    let _mark = enter(stage);
    work()
}
