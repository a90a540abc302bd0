//! XRC domains (annex A14): which shared receive queues the requests may name that come to a
//! target.

use crate::base::id::XrcdId;
use crate::collections::table::{Numbered, Numbering, Table};

/// An XRC domain. It is the whole device's: processes share it, and objects of several are in it.
pub(crate) struct Xrcd {
    pub(crate) id: XrcdId,
    /// Targets and shared receive queues of it.
    pub(crate) users: u32,
}

impl Numbered for Xrcd {
    fn number(&self) -> u32 {
        self.id.0
    }
}

/// Numbers of XRC domains.
pub(crate) const XRCDS: Numbering = Numbering { index_shift: 0, index_bits: 16, tag_shift: 16, tag_bits: 14 };

/// The XRC domains of a device.
pub(crate) type Xrcds = Table<Xrcd>;

impl Xrcds {
    /// A target or a shared receive queue begins or ceases to be of a domain.
    pub(crate) fn used(&mut self, id: XrcdId, more: bool) {
        let xrcd = self.get_mut(id.0).expect("an XRC domain is not deallocated while it is used");
        xrcd.users = if more { xrcd.users + 1 } else { xrcd.users - 1 };
    }
}
