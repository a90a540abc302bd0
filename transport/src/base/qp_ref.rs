//! Reference to a QP: its device and its number.

use crate::base::id::DeviceId;
use vrdma_wire::num::Qpn;

/// A reference to a QP of any device.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct QpRef {
    /// Index of the device.
    pub(crate) device: u32,
    pub(crate) qpn: Qpn,
}

/// An optional reference to a QP, without a niche.
///
/// A niche of that size would be where `Option<QpEntry>` has its `None` (see
/// [`Marker`](crate::objects::qp)). It therefore has no invalid values.
#[derive(Copy, Clone, Debug)]
pub(crate) struct OptQpRef(QpRef);

impl OptQpRef {
    /// No reference. No device has that index.
    pub(crate) const NONE: OptQpRef = OptQpRef(QpRef { device: u32::MAX, qpn: Qpn::MULTICAST });

    pub(crate) fn get(self) -> Option<QpRef> {
        Some(self.0).filter(|place| place.device != u32::MAX)
    }
}

impl From<Option<QpRef>> for OptQpRef {
    fn from(place: Option<QpRef>) -> OptQpRef {
        place.map_or(OptQpRef::NONE, OptQpRef)
    }
}

impl QpRef {
    pub(crate) fn id(self) -> DeviceId {
        DeviceId(self.device)
    }
}
