//! One step of a send queue.

/// What became of the first request of a send queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It ended, well or not.
    Ended,
    /// There is more of it.
    More,
    /// It has to wait.
    Waits,
}
