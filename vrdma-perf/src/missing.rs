//! What a machine may lack for a measurement. This is no fault of vrdma.

use anyhow::Error;
use std::fmt;

/// Exit status of the program in this case.
pub const LACKS: u8 = 3;

/// The reason why a figure cannot be measured on this machine.
#[derive(Clone, Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Missing {}

/// Returns an error that says what this machine lacks.
pub fn missing(why: impl Into<String>) -> Error {
    Error::new(Missing(why.into()))
}

/// Returns whether the error is about something that this machine lacks.
pub fn is_missing(error: &Error) -> bool {
    error.is::<Missing>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn it_is_known_behind_what_was_being_done() {
        let error = Err::<(), _>(missing("no NIC")).context("wire").unwrap_err();
        assert!(is_missing(&error));
        assert_eq!(format!("{error:#}"), "wire: no NIC");
        assert!(!is_missing(&anyhow::anyhow!("no NIC")));
    }
}
