//! Reasons why bytes are not a TCP segment.

use core::fmt;

/// Reason why bytes are not a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The segment ends before its header does.
    Truncated,
    /// The data offset is less than the length of a header without options.
    DataOffset,
    /// An option's length is less than 2, or goes beyond the header.
    OptionLength,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Truncated => "truncated",
            Malformed::DataOffset => "data offset",
            Malformed::OptionLength => "option length",
        })
    }
}

impl core::error::Error for Malformed {}
