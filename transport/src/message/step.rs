//! Result of one step of a send queue.

/// What became of the first request of a send queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It ended, successfully or with an error.
    Ended,
    /// More of it is left.
    More,
    /// It has to wait.
    Waits,
}
