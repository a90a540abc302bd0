//! The objects of a device, and the states of connections.

pub(crate) mod device;
pub(crate) mod group;
pub(crate) mod iwarp;
pub(crate) mod mr;
pub(crate) mod outstanding;
pub(crate) mod peer;
pub(crate) mod port;
pub(crate) mod qp;
pub(crate) mod receiver;
pub(crate) mod roce;
pub(crate) mod service;
pub(crate) mod srq;
pub(crate) mod uc;
pub(crate) mod xrcd;
