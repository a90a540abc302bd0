//! The view of a QP with its state as a reliable connection on RoCE.

use crate::message::ctx::QpCtx;
use crate::objects::roce::state::RcRoce;

/// A reliable connection on RoCE.
pub(crate) type RoceQp<'a, R, S> = QpCtx<'a, R, S, RcRoce>;
