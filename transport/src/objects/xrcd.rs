//! XRC domains (annex A14): which shared receive queues the requests to a target may name.

use crate::base::id::XrcdId;
use crate::collections::table::{Numbered, Numbering, Table};

/// An XRC domain.
///
/// It belongs to the whole device. Processes share it, and it has objects of several processes.
pub(crate) struct Xrcd {
    pub(crate) id: XrcdId,
    /// Number of its targets and shared receive queues.
    pub(crate) users: u32,
}

impl Numbered for Xrcd {
    fn number(&self) -> u32 {
        self.id.0
    }
}

/// Numbering of XRC domains.
pub(crate) const XRCDS: Numbering = Numbering { index_shift: 0, index_bits: 16, tag_shift: 16, tag_bits: 14 };

/// The XRC domains of a device.
pub(crate) type Xrcds = Table<Xrcd>;

impl Xrcds {
    /// Counts a target or a shared receive queue that joins or leaves a domain.
    pub(crate) fn used(&mut self, id: XrcdId, more: bool) {
        let xrcd = self.get_mut(id.0).expect("an XRC domain is not deallocated while it is used");
        xrcd.users = if more { xrcd.users + 1 } else { xrcd.users - 1 };
    }
}
