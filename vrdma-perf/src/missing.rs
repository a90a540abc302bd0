//! What a machine may lack, so that a figure cannot be measured on it: no fault of ours.

use anyhow::Error;
use std::fmt;

/// What our process ends with then.
pub const LACKS: u8 = 3;

/// Why a figure cannot be measured here.
#[derive(Clone, Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Missing {}

/// An error that says what this machine lacks.
pub fn missing(why: impl Into<String>) -> Error {
    Error::new(Missing(why.into()))
}

/// Whether it does.
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
