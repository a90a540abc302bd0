//! State of a connection in a TCP stream (iWARP).

pub(crate) mod attr;
pub(crate) mod framing;
pub(crate) mod input;
pub(crate) mod operation;
pub(crate) mod requester_state;
pub(crate) mod responder_state;
pub(crate) mod search;
pub(crate) mod state;
pub(crate) mod stream;
