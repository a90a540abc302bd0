//! Where a QP is: its device and its number.

use crate::base::id::DeviceId;
use vrdma_wire::num::Qpn;

/// A QP of some device.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    /// Index of the device.
    pub(crate) device: u32,
    pub(crate) qpn: Qpn,
}

/// A place, or none: without values that no place has, for a niche of that size would be where
/// `Option<QpEntry>` has its `None` (see [`Marker`](crate::objects::qp)).
#[derive(Copy, Clone, Debug)]
pub(crate) struct MaybePlace(Place);

impl MaybePlace {
    /// No device has that index.
    pub(crate) const NONE: MaybePlace = MaybePlace(Place { device: u32::MAX, qpn: Qpn::MULTICAST });

    pub(crate) fn get(self) -> Option<Place> {
        Some(self.0).filter(|place| place.device != u32::MAX)
    }
}

impl From<Option<Place>> for MaybePlace {
    fn from(place: Option<Place>) -> MaybePlace {
        place.map_or(MaybePlace::NONE, MaybePlace)
    }
}

impl Place {
    pub(crate) fn id(self) -> DeviceId {
        DeviceId(self.device)
    }
}
