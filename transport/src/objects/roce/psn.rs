//! The order of PSNs.

use vrdma_wire::num::Psn;

/// Returns how far `psn` is ahead of `other`, counting up only: 0 to 2^24 - 1. From [`HALF`] on it
/// is behind.
pub(crate) fn ahead(psn: Psn, other: Psn) -> u32 {
    Psn::truncate(psn.number().wrapping_sub(other.number())).number()
}

/// Half of the PSNs, which is the most that may be outstanding (IBTA 9.7.2).
pub(crate) const HALF: u32 = 1 << 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ahead_goes_around() {
        let last = Psn::truncate(0xff_ffff);
        assert_eq!(
            (ahead(last.add(2), last), ahead(last, last.add(1)), ahead(last, last)),
            (2, 0xff_ffff, 0)
        );
    }
}
