//! What names connections and listeners.

/// Names an entry, and none that gets its number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    /// What the guest's driver calls it.
    pub number: u32,
    /// How many had that number before.
    pub generation: u32,
}

impl Handle {
    /// What epoll returns for its sockets.
    pub(super) fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.number)
    }

    pub(super) fn of_token(token: u64) -> Handle {
        Handle { number: token as u32, generation: (token >> 32) as u32 }
    }
}
