//! Cost of operations.

use super::SendOp;
use crate::verbs::fast::Registration;

impl SendOp {
    /// Returns the fast registration of the operation.
    pub(crate) fn registration(&self) -> Option<Registration> {
        match *self {
            SendOp::RegMr { key, access, iova, length, list, page_shift } => {
                Some(Registration { key, access, iova, length, list, page_shift })
            }
            _ => None,
        }
    }

    /// Returns the cost of the operation in its turn beside its payload, as bytes of payload.
    #[inline]
    pub(crate) fn extra_cost(&self) -> u32 {
        /// Cost of reading an entry of a page list and looking up the page.
        const PAGE: u32 = 128;
        match self {
            SendOp::RegMr { .. } => {
                let list = self.registration().and_then(|registration| registration.page_list());
                list.map_or(0, |list| list.pages * PAGE)
            }
            _ => 0,
        }
    }
}
