//! Unreliable datagrams, and general services (QP1), which are datagrams too (IBTA 9.8.3).
//!
//! A datagram is one packet, and names its destination. The sender does not learn whether it
//! arrives.

pub(crate) mod group;
pub(crate) mod packet;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod roce;
pub(crate) mod send;
