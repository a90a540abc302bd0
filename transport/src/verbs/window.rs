//! Memory windows (IBTA 10.6.7), and requests that bind them.

use crate::base::id::PdId;
use crate::base::memory::Access;
use crate::save::same_names;
use vrdma_wire::num::{Lkey, Qpn, Rkey};

/// Who may use a memory window, and how it is unbound (IBTA 10.6.7.2.1).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MwType {
    /// Type 1: peers of all QPs of its PD may use it. It can be bound again and again. A bind of no
    /// bytes unbinds it.
    Type1,
    /// Type 2B: peers of the QP that bound it may use it. It has to be invalidated before a new
    /// bind.
    Type2B,
}

same_names!(MwType { Type1, Type2B });

/// A bind request: which part of a region a window shows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Bind {
    /// The window's key before the bind.
    pub rkey: Rkey,
    /// The window's key after the bind. Only the low 8 bits count: they are the requester's choice.
    /// The other bits stay those of `rkey`.
    pub new_rkey: Rkey,
    /// The region.
    pub lkey: Lkey,
    /// Rights, of those in [`Access::WINDOW`].
    pub access: Access,
    /// Address of the first byte, as the region's owner names it.
    pub addr: u64,
    /// Length in bytes. With 0 the window shows nothing: a window of type 1 is unbound.
    pub length: u64,
}

/// Number of one life of a QP, which ends by reset or destruction.
///
/// It tells a QP from what it was before a reset, and from other QPs that had its number. A window
/// of type 2B belongs to one life of its QP. A QP that goes therefore invalidates its windows at
/// once, however many they are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct QpLife(u32);

impl QpLife {
    /// The life of a QP that has bound no window of type 2B.
    pub(crate) const NONE: QpLife = QpLife(0);

    /// Returns the next life. It wraps after four thousand million QPs, when nothing of the first
    /// is left.
    pub(crate) fn next(self) -> QpLife {
        QpLife(self.0.wrapping_add(1).max(1))
    }
}

/// A QP that binds a window.
pub(crate) struct Binder<'a> {
    pub(crate) pd: PdId,
    pub(crate) qpn: Qpn,
    pub(crate) life: &'a mut QpLife,
}

/// The additional state of a memory window.
pub(crate) struct Window {
    pub(crate) mw_type: MwType,
    pub(crate) bound: Option<Bound>,
}

impl Window {
    /// Whether the window is of type 2B, and bound by the QP with this life.
    pub(crate) fn is_bound_by(&self, by: &QpLife) -> bool {
        self.bound.is_some_and(|bound| bound.qp.is_some_and(|(_, life)| life == *by))
    }
}

/// What a window is bound to.
#[derive(Copy, Clone)]
pub(crate) struct Bound {
    /// Key of the region. It stays the same while windows are bound to the region.
    pub(crate) region: u32,
    /// Offset of the first byte in the region.
    pub(crate) offset: u64,
    /// The QP whose peers may use the window; `None` if peers of all QPs of the PD may.
    pub(crate) qp: Option<(Qpn, QpLife)>,
}
