//! Why a command (not a work request) was refused.

use core::fmt;

/// Why a command was refused. A refused command changed nothing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// No such object.
    NotFound,
    /// The object is in use.
    Busy,
    /// The object belongs to another owner.
    Denied,
    /// A value is never valid, or not valid in this state.
    Invalid,
    /// The engine does not support this option.
    Unsupported,
    /// A limit is reached.
    NoResources,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::NotFound => "no such object",
            Error::Busy => "in use",
            Error::Denied => "somebody else's",
            Error::Invalid => "invalid",
            Error::Unsupported => "not supported",
            Error::NoResources => "a limit is reached",
        })
    }
}

impl core::error::Error for Error {}
