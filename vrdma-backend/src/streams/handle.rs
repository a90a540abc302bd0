//! Handles of connections and listeners.

/// Identifies an entry, but no later entry with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    /// The number by which the guest's driver knows the entry.
    pub number: u32,
    /// How many entries had the number before.
    pub generation: u32,
}

impl Handle {
    /// Returns the epoll token of the entry's sockets.
    pub(super) fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.number)
    }

    pub(super) fn of_token(token: u64) -> Handle {
        Handle { number: token as u32, generation: (token >> 32) as u32 }
    }
}
