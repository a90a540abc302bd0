//! Transport kinds: how the messages of a QP reach its peer.

pub(crate) mod allowance;
pub(crate) mod iwarp;
pub(crate) mod local;
pub(crate) mod roce;
pub(crate) mod uc;
pub(crate) mod ud;
