//! The Internet checksum (RFC 1071) of what comes in pieces.

use crate::num::Gid;

/// A sum of 16-bit words that is not folded yet. Pieces may have any length; the next one goes on where the last one ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    words: u64,
    /// Bytes that were added.
    len: usize,
}

impl Sum {
    /// The sum of one piece.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Sum {
        let mut sum = Sum::default();
        sum.add(bytes);
        sum
    }

    /// Adds the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut words = 0;
        let mut pairs = bytes.chunks_exact(2);
        for pair in &mut pairs {
            words += u64::from(u16::from_be_bytes([pair[0], pair[1]]));
        }
        if let [last] = pairs.remainder() {
            words += u64::from(*last) << 8;
        }
        self.words += aligned(words, self.len);
        self.len += bytes.len();
    }

    /// Adds a piece whose sum is known.
    pub fn append(&mut self, piece: Sum) {
        self.words += aligned(piece.words, self.len);
        self.len += piece.len;
    }

    /// How many bytes were added.
    #[allow(clippy::len_without_is_empty, reason = "it is a length of what was summed up, not of this")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The checksum: the complement of the folded sum. 0 if a right checksum was among what was added.
    pub const fn finish(self) -> u16 {
        !(fold(self.words) as u16)
    }
}

/// The sum of an IPv4 or IPv6 pseudo header (RFC 9293, 3.1; RFC 8200, 8.1). IPv4 addresses are mapped.
pub(crate) fn pseudo_header(src: Gid, dst: Gid, protocol: u8, length: usize) -> Sum {
    let mut sum = match (src.ipv4(), dst.ipv4()) {
        (Some(src), Some(dst)) => Sum { words: Sum::of(&src).words + Sum::of(&dst).words, len: 0 },
        _ => Sum { words: Sum::of(&src.0).words + Sum::of(&dst.0).words, len: 0 },
    };
    sum.words += u64::from(protocol) + (length as u64 & 0xffff) + (length as u64 >> 16);
    sum
}

/// The sum of a piece that follows `before` bytes. After an odd number each byte is the other half of its word, which swaps the sum's bytes.
const fn aligned(words: u64, before: usize) -> u64 {
    let folded = fold(words);
    if before.is_multiple_of(2) { folded } else { (folded as u16).swap_bytes() as u64 }
}

const fn fold(mut words: u64) -> u64 {
    while words > 0xffff {
        words = (words & 0xffff) + (words >> 16);
    }
    words
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(!Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).finish(), 0xddf2);
    }

    proptest! {
        #[test]
        fn pieces_sum_up_to_the_whole(bytes: Vec<u8>, cuts in proptest::collection::vec(0_usize..64, 0..8)) {
            let (mut added, mut appended, mut rest) = (Sum::default(), Sum::default(), &bytes[..]);
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                added.add(piece);
                appended.append(Sum::of(piece));
                rest = after;
            }
            added.add(rest);
            appended.append(Sum::of(rest));
            prop_assert_eq!(added.len(), bytes.len());
            prop_assert_eq!(added.finish(), Sum::of(&bytes).finish());
            prop_assert_eq!(appended.finish(), added.finish());
        }
    }
}
