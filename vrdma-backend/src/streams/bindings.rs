//! Records which connection each QP has.
//!
//! The connection names its QP, and a map finds the connection by its QP. Both change only here,
//! and only together.

use super::handle::Handle;
use super::hash::NumberMap;
use vrdma_transport::DeviceId;
use vrdma_wire::num::Qpn;

/// The QP that a connection has, or will have once it is set up. It is a QP of the same guest.
#[derive(Debug)]
pub(super) struct Bound {
    device: DeviceId,
    handle: Handle,
    qpn: Option<Qpn>,
}

impl Bound {
    /// Returns the value of a connection of this guest that has no QP yet.
    pub(super) fn to_none(device: DeviceId, handle: Handle) -> Bound {
        Bound { device, handle, qpn: None }
    }

    pub(super) fn qpn(&self) -> Option<Qpn> {
        self.qpn
    }

    /// Whether the connection has this QP.
    pub(super) fn is_to(&self, device: DeviceId, qpn: Qpn) -> bool {
        self.device == device && self.qpn == Some(qpn)
    }
}

/// The connection that each QP has, or will have.
#[derive(Default)]
pub(super) struct Bindings(NumberMap<(DeviceId, Qpn), Handle>);

impl Bindings {
    pub(super) fn find(&self, device: DeviceId, qpn: Qpn) -> Option<Handle> {
        self.0.get(&(device, qpn)).copied()
    }

    pub(super) fn bind(&mut self, bound: &mut Bound, qpn: Qpn) {
        assert!(bound.qpn.is_none(), "a connection has one QP");
        let before = self.0.insert((bound.device, qpn), bound.handle);
        assert!(before.is_none(), "a QP has one connection");
        bound.qpn = Some(qpn);
    }

    /// Removes a connection that is gone without having released its QP.
    pub(super) fn forget(&mut self, device: DeviceId, handle: Handle) {
        self.0.retain(|&(of, _), bound| of != device || *bound != handle);
    }

    pub(super) fn unbind(&mut self, bound: &mut Bound) {
        if let Some(qpn) = bound.qpn.take() {
            let handle = self.0.remove(&(bound.device, qpn));
            assert!(handle == Some(bound.handle), "both change together");
        }
    }
}
