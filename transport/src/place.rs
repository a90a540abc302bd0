//! Where a QP is: its device and its number.

use crate::id::DeviceId;
use vrdma_wire::num::Qpn;

/// A QP of some device.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    /// Index of the device.
    pub(crate) device: u32,
    pub(crate) qpn: Qpn,
}

impl Place {
    pub(crate) fn id(self) -> DeviceId {
        DeviceId(self.device)
    }
}
