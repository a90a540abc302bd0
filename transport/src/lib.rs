//! The protocol brain of vrdma: queue pairs, memory regions and the rules between them, without I/O.
#![forbid(unsafe_code)]

mod completion;
mod counters;
mod device;
mod engine;
mod error;
mod id;
mod limits;
mod memory;
mod mr;
mod pool;
mod qp;
mod rc;
mod request;
mod rng;
mod schedule;
mod table;
#[cfg(test)]
mod tests;
mod time;
mod work;

pub use completion::{Completion, Event, Sink, WcOpcode, WcStatus};
pub use counters::Counters;
pub use engine::Engine;
pub use error::Error;
pub use id::{CqId, DeviceId, OwnerId, PdId};
pub use limits::{Limits, ObjectCounts};
pub use memory::{Access, Fault, Region};
pub use qp::attr::{AttrMask, QpAttr, QpInit, QpState, QpType};
pub use time::Instant;
pub use work::{
    MAX_INLINE, MAX_MESSAGE, MAX_SGE, Payload, PostError, Queue, RecvRequest, Remote, SendOp, SendRequest,
    Sge,
};
