//! Unreliable connections (IBTA 9.8.2): SEND and WRITE, without answers.
//!
//! Messages are segmented as on reliable connections. A segment that does not arrive, or is not
//! allowed, is dropped with the rest of its message. The sender does not learn of it.

pub(crate) mod local;
pub(crate) mod responder;
pub(crate) mod roce;

use crate::message::ctx::QpCtx;
use crate::objects::uc::UcRoce;

/// An unreliable connection on RoCE.
pub(crate) type UcQp<'a, R, S> = QpCtx<'a, R, S, UcRoce>;
