//! How much each connection may have put together that is not sent yet: what many put together at a time would leave the caches before it is sent.

/// Bytes of all connections that send: segments of a turn, with jumbo frames.
const ALL: u64 = 512 << 10;
/// Of one at most,
const MOST: u64 = 128 << 10;
/// and at least: then it is one segment.
const LEAST: u64 = 4 << 10;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Shares {
    turn: u32,
    /// Connections that have sent in this turn,
    now: u64,
    /// and in the last one in which any did.
    before: u64,
}

impl Shares {
    /// Another turn of the worker begins.
    pub fn begin(&mut self) {
        if self.now > 0 {
            (self.before, self.now) = (self.now, 0);
            self.turn = self.turn.wrapping_add(1);
        }
    }

    /// A connection sends, which did so last in turn `last`.
    pub fn count(&mut self, last: &mut u32) {
        if *last != self.turn {
            *last = self.turn;
            self.now += 1;
        }
    }

    /// The share of each.
    pub fn each(&self) -> u64 {
        (ALL / self.before.max(self.now).max(1)).clamp(LEAST, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_send_have_equal_shares_and_others_take_none() {
        let (mut shares, mut connections) = (Shares::default(), [u32::MAX; 1000]);
        assert_eq!(shares.each(), MOST);
        for count in [1, 2, 1000, 64] {
            for _ in 0..2 {
                shares.begin();
                for _ in 0..3 {
                    connections[..count].iter_mut().for_each(|last| shares.count(last));
                }
            }
            shares.begin();
            let expected = (ALL / count as u64).clamp(LEAST, MOST);
            assert_eq!(shares.each(), expected, "{count}");
        }
        // A turn in which nothing is sent says nothing.
        shares.begin();
        assert_eq!(shares.each(), ALL / 64);
    }
}
