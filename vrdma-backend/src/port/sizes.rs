//! Sizes that drivers and their users share.

/// Most frames of a burst.
pub const BURST: usize = 64;

/// Ethernet header with a VLAN tag.
pub(crate) const ETHERNET: usize = 18;
