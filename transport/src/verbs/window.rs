//! Memory windows (IBTA 10.6.7): what they are, and what a request binds them to.

use crate::base::id::PdId;
use crate::base::memory::Access;
use crate::save::same_names;
use vrdma_wire::num::{Lkey, Qpn, Rkey};

/// Who may use a memory window, and how it is unbound (IBTA 10.6.7.2.1).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MwType {
    /// Type 1: peers of all QPs of its PD. It is bound again and again, and unbound by a bind of no
    /// bytes.
    Type1,
    /// Type 2B: peers of the QP that bound it. It is invalidated before it is bound again.
    Type2B,
}

same_names!(MwType { Type1, Type2B });

/// A bind request: what a window is to show of its region.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Bind {
    /// The window's key before.
    pub rkey: Rkey,
    /// Its key afterwards: of this the low 8 bits, which are the requester's choice. The others
    /// stay those of `rkey`, whatever they are here.
    pub new_rkey: Rkey,
    /// The region.
    pub lkey: Lkey,
    /// Rights of those in [`Access::WINDOW`].
    pub access: Access,
    /// Address of the first byte, as the region's owner names it.
    pub addr: u64,
    /// Bytes. 0: nothing, a window of type 1 is unbound.
    pub length: u64,
}

/// Tells a QP that was reset from what it was before, and from those that had its number: a window
/// of type 2B is of one life of its QP. So a QP that goes takes its windows along at once, however
/// many they are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct QpLife(u32);

impl QpLife {
    /// Of a QP that has bound no window of type 2B.
    pub(crate) const NONE: QpLife = QpLife(0);

    /// The next. (After four thousand million QPs nothing of the first is left.)
    pub(crate) fn next(self) -> QpLife {
        QpLife(self.0.wrapping_add(1).max(1))
    }
}

/// The QP that binds a window.
pub(crate) struct Binder<'a> {
    pub(crate) pd: PdId,
    pub(crate) qpn: Qpn,
    pub(crate) life: &'a mut QpLife,
}

/// What a window is beside what its key allows.
pub(crate) struct Window {
    pub(crate) mw_type: MwType,
    pub(crate) bound: Option<Bound>,
}

impl Window {
    /// Whether it is of type 2B, and bound by the QP with this life.
    pub(crate) fn is_bound_by(&self, by: &QpLife) -> bool {
        self.bound.is_some_and(|bound| bound.qp.is_some_and(|(_, life)| life == *by))
    }
}

/// What a window is bound to.
#[derive(Copy, Clone)]
pub(crate) struct Bound {
    /// Key of the region, which stays while windows are bound to it.
    pub(crate) region: u32,
    /// Where in the region its first byte is.
    pub(crate) offset: u64,
    /// The QP whose peers may use it, if not those of all QPs of the PD.
    pub(crate) qp: Option<(Qpn, QpLife)>,
}
