//! The Internet checksum (RFC 1071).

/// Returns the sum of 16-bit words in network byte order, not folded.
///
/// A last odd byte counts as the upper half of a word.
pub fn sum(bytes: &[u8]) -> u64 {
    // 2^16 is 1 modulo 2^16 - 1, so words of 32 bits add up like words of 16 bits.
    let mut chunks = bytes.chunks_exact(4);
    let whole: u64 = chunks.by_ref().map(|c| u64::from(u32::from_be_bytes([c[0], c[1], c[2], c[3]]))).sum();
    let mut last = [0; 4];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    whole + u64::from(u32::from_be_bytes(last))
}

/// Folds a sum to 16 bits.
pub fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Offset of the checksum in a UDP header.
const UDP: usize = 6;

/// Writes the checksum of `bytes` and of `more` to offset `at`.
///
/// The sum includes the value at that offset.
///
/// # Panics
/// `at` is outside of `bytes`.
pub fn complete(bytes: &mut [u8], at: usize, more: u64) {
    let sum = !super::sum::sum(bytes).finish();
    let checksum = match !fold(u64::from(sum) + more) {
        // For UDP, 0 means that there is no checksum (RFC 768). The offset distinguishes UDP from
        // TCP and ICMP.
        0 if at == UDP => 0xffff,
        checksum => checksum,
    };
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_comes_out() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)), 0xddf2);
    }

    #[test]
    fn a_completed_checksum_makes_the_sum_full() {
        for len in 2..40usize {
            let mut bytes: Vec<u8> = (0..len).map(|i| if i < 2 { 0 } else { (i * 37) as u8 }).collect();
            complete(&mut bytes, 0, 0);
            assert_eq!(fold(sum(&bytes)), 0xffff, "{len}");
            // Word by word, as the RFC describes it.
            let words = bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | c.get(1).map_or(0, |&b| u32::from(b)));
            let total: u32 = words.sum();
            assert_eq!((total & 0xffff) + (total >> 16), 0xffff, "{len}");
        }
        for (at, wanted) in [(UDP, [0xff, 0xff]), (16, [0, 0])] {
            let mut full = [0; 20];
            full[..2].fill(0xff);
            complete(&mut full, at, 0);
            assert_eq!(full[at..at + 2], wanted);
        }
    }
}
