//! The stages of the account.

/// What the worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Looks whether there is anything: also all that has no stage of its own.
    Poll,
    /// Copies the units of requests out of channels.
    Fetch,
    /// Parses them.
    Parse,
    /// Executes them: the engine.
    Execute,
    /// Copies data from guest to guest, into packets and out of them.
    Copy,
    /// Makes completions, publishes them and used slots, and tells of them.
    Complete,
    /// Receives and sends frames of the uplink, of guests, and of streams.
    Wire,
    /// Waits.
    Idle,
}
