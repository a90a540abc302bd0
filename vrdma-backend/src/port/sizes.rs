//! Sizes that drivers and their users share.

/// Most frames of a burst.
pub const BURST: usize = 64;

/// Ethernet header with a VLAN tag.
pub(crate) const ETHERNET: usize = 18;

/// Packets that an engine sends in one turn at most, perhaps all to one address: as few as drivers
/// like, since their buffers are then still in the caches when they are used again. (64 KiB
/// messages over memif were 0.70 of the limit with this many, 0.62 with four times as many.)
pub const TURN: usize = BURST;

/// Frames that wait for a driver that takes none; more are refused.
pub(super) const BACKLOG: usize = 4 * BURST;
