//! Sequence numbers that do not wrap.
//!
//! On the wire they have 32 bits and wrap (RFC 9293, 3.4). Here each direction counts in 64 bits.
//! [`SYN`] is the number of the SYN, [`FIRST`] that of the first byte of data. So numbers compare
//! as integers, and an offset in the stream is a difference.

use serde::{Deserialize, Serialize};

/// The number of the SYN.
///
/// A number from the peer may lie up to 2^31 before it without becoming negative.
pub(crate) const SYN: u64 = 1 << 32;
/// The number of the first byte of data.
pub(crate) const FIRST: u64 = SYN + 1;

/// An upper limit of all numbers.
///
/// A stream of 2^62 bytes lasts longer than hosts live, and the sum of two numbers does not
/// overflow.
pub(crate) const FAR: u64 = 1 << 62;

/// The initial sequence number of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Origin(pub u32);

impl Origin {
    /// Returns the 32-bit number on the wire.
    pub fn wire(self, number: u64) -> u32 {
        self.0.wrapping_add(number.wrapping_sub(SYN) as u32)
    }

    /// Returns the number with this value on the wire that is nearest to `near`.
    pub fn number(self, wire: u32, near: u64) -> u64 {
        let ahead = wire.wrapping_sub(self.wire(near)) as i32;
        near.wrapping_add_signed(i64::from(ahead))
    }
}

/// Returns the offset in the stream of a number; 0 for that of the SYN.
pub(crate) fn offset(number: u64) -> u64 {
    number.saturating_sub(FIRST)
}

/// A range of numbers: the first, and the one after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Range {
    pub start: u64,
    pub end: u64,
}

impl Range {
    /// Returns whether it contains all of `other`.
    pub fn covers(self, other: Range) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_where_those_on_the_wire_wrap() {
        let origin = Origin(0xffff_fff0);
        assert_eq!(origin.wire(SYN), 0xffff_fff0);
        assert_eq!(origin.wire(FIRST + 0x10), 1);
        assert_eq!(origin.number(1, FIRST), FIRST + 0x10);
        assert_eq!(origin.number(0xffff_fff0, FIRST + 100), SYN);
        let far = FIRST + (7 << 32);
        assert_eq!(origin.number(origin.wire(far + 5), far), far + 5);
        assert_eq!(origin.number(origin.wire(far - 5), far), far - 5);
        // The most distant number counts as an old one.
        assert_eq!(origin.number(origin.wire(SYN) ^ 1 << 31, SYN), SYN - (1 << 31));
    }
}
