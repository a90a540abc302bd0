//! Sizes that drivers and their users share.

/// The most frames of a burst.
pub const BURST: usize = 64;

/// The length of an Ethernet header with a VLAN tag, in bytes.
pub(crate) const ETHERNET: usize = 18;

/// The most packets that an engine sends in one round, perhaps all to one address.
///
/// Drivers like a small number, because their buffers are then still in the caches when they are
/// used again. (With this number, 64 KiB messages over memif reached 0.70 of the limit. With four
/// times as many they reached 0.62.)
pub const TURN: usize = BURST;

/// The most frames that wait for a driver that takes none. More are refused.
pub(super) const BACKLOG: usize = 4 * BURST;
