//! Unreliable connections (IBTA 9.8.2): SEND and WRITE, segmented as on reliable connections, but nobody answers. What does not
//! arrive, or is not allowed, is dropped with the rest of its message, and the sender never learns.

pub(crate) mod local;
pub(crate) mod responder;
pub(crate) mod roce;
pub(crate) mod state;
