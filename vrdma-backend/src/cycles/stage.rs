//! The stages of the account.

/// What the worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Looks for work. This also counts everything without a stage of its own.
    Poll,
    /// Copies the units of requests out of channels.
    Fetch,
    /// Parses requests.
    Parse,
    /// Executes requests in the engine.
    Execute,
    /// Copies data from guest to guest, into packets and out of them.
    Copy,
    /// Makes completions, publishes them and used slots, and notifies guests.
    Complete,
    /// Receives and sends frames of the uplink, of guests, and of streams.
    Wire,
    /// Waits.
    Idle,
}
