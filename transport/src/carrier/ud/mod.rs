//! Unreliable datagrams, and general services (QP1), which are datagrams too (IBTA 9.8.3).
//!
//! A datagram is one packet, and each names where it goes. It is sent and forgotten: whether it
//! arrives, the sender never learns.

pub(crate) mod group;
pub(crate) mod packet;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod roce;
pub(crate) mod send;
