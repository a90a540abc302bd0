//! State of a reliable connection on RoCE.

pub(crate) mod congestion;
pub(crate) mod early;
pub(crate) mod loss_interval;
pub(crate) mod packet;
pub(crate) mod probes;
pub(crate) mod psn;
pub(crate) mod reaction_point;
pub(crate) mod reorder;
pub(crate) mod requester_state;
pub(crate) mod responder_state;
pub(crate) mod round_trip;
pub(crate) mod selective;
pub(crate) mod state;
