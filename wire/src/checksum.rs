//! The Internet checksum (RFC 1071) of data in pieces.

use crate::num::Gid;

/// Number of lanes: words of four bytes that are added at once.
const LANES: usize = 8;

/// A sum of 16-bit words that is not folded yet.
///
/// Pieces may have any length, also an odd one. The next piece continues where the last one ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    words: u64,
    /// Bytes added so far.
    len: usize,
}

impl Sum {
    /// Returns the sum of one piece.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Sum {
        let mut sum = Sum::default();
        sum.add(bytes);
        sum
    }

    /// Returns the sum of a piece of `len` bytes, for callers with a faster way to add.
    ///
    /// `words` is the sum of the piece's 16-bit words in the byte order of this processor. `len`
    /// must be even.
    #[must_use]
    pub const fn of_words(words: u64, len: usize) -> Sum {
        Sum { words: in_order(words), len }
    }

    /// Adds the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.words += aligned(sum(bytes), self.len);
        self.len += bytes.len();
    }

    /// Adds a piece whose sum is known.
    pub fn append(&mut self, piece: Sum) {
        self.words += aligned(piece.words, self.len);
        self.len += piece.len;
    }

    /// Returns the number of bytes added.
    #[allow(clippy::len_without_is_empty, reason = "it is a length of what was summed up, not of this")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns the checksum: the complement of the folded sum.
    ///
    /// It is 0 if the added bytes include a correct checksum.
    pub const fn finish(self) -> u16 {
        !(fold(self.words) as u16)
    }
}

/// Returns the sum of an IPv4 or IPv6 pseudo header (RFC 9293, 3.1; RFC 8200, 8.1).
///
/// IPv4 addresses are mapped.
pub(crate) fn pseudo_header(src: Gid, dst: Gid, protocol: u8, length: usize) -> Sum {
    let mut sum = match (src.ipv4(), dst.ipv4()) {
        (Some(src), Some(dst)) => Sum { words: Sum::of(&src).words + Sum::of(&dst).words, len: 0 },
        _ => Sum { words: Sum::of(&src.0).words + Sum::of(&dst.0).words, len: 0 },
    };
    sum.words += u64::from(protocol) + (length as u64 & 0xffff) + (length as u64 >> 16);
    sum
}

/// Returns the sum of the words of a piece. An odd last byte is followed by a zero byte.
///
/// Neither the byte order in a word nor the word's length matters until the sum is folded (RFC
/// 1071, 2). So four bytes are added at a time, in lanes that a processor adds at once.
fn sum(bytes: &[u8]) -> u64 {
    let mut lanes = [0_u64; LANES];
    let mut blocks = bytes.chunks_exact(4 * LANES);
    for block in &mut blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks().0) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let mut words: u64 = lanes.into_iter().sum();
    for pair in blocks.remainder().chunks(2) {
        words += u64::from(u16::from_ne_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    in_order(words)
}

/// Converts a sum of words in this processor's byte order to one in network byte order.
const fn in_order(words: u64) -> u64 {
    u16::from_be(fold(words) as u16) as u64
}

/// Returns the sum of a piece that follows `before` bytes.
///
/// After an odd number of bytes, each byte is the other half of its word. That swaps the sum's
/// bytes.
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

    /// Returns the checksum computed word by word, as in RFC 1071.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum: u32 = 0;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn sums_are_those_of_words_whatever_the_length() {
        let bytes: Vec<u8> = (0..9100_u32).map(|i| ((i * i) >> 3) as u8).collect();
        for length in (0..200).chain([1448, 8947, 9100]) {
            assert_eq!(Sum::of(&bytes[..length]).finish(), plain(&bytes[..length]), "{length}");
        }
        for same in [0, 0xff] {
            assert_eq!(Sum::of(&[same; 9000]).finish(), plain(&[same; 9000]), "{same}");
        }
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
            let words = bytes.as_chunks().0.iter().map(|word| u64::from(u16::from_ne_bytes(*word))).sum();
            let mut by_words = Sum::of_words(words, bytes.len() / 2 * 2);
            by_words.add(&bytes[by_words.len()..]);
            prop_assert_eq!(by_words.finish(), added.finish());
            prop_assert_eq!(added.len(), bytes.len());
            prop_assert_eq!(added.finish(), Sum::of(&bytes).finish());
            prop_assert_eq!(appended.finish(), added.finish());
        }
    }
}
