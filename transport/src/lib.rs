//! The protocol brain of vrdma: queue pairs, memory regions and the rules between them, without I/O.
//!
//! # The contract
//!
//! An [`Engine`] holds *devices*, one per guest, and everything that they have: protection domains, memory regions, queue
//! pairs, GIDs, pending requests. It has no clock, thread, socket or pointer to guest memory. Whoever drives it (one thread)
//!
//! * tells the time: `now` is an argument, on any monotonic clock;
//! * lends memory: each region that it registers is a value of its own type, a [`Region`];
//! * lends a [`Sink`] per call, which takes completions and events;
//! * calls [`Engine::poll`] again while that says so, and at [`Engine::poll_timeout`] at the latest.
//!
//! Methods come in four kinds: *commands* (`create_qp`, `reg_mr`...) answer with a value or an [`Error`] and, if refused, change nothing;
//! `post_*` take work requests; `poll*` say what happens by itself; the others only look.
//!
//! # Promises
//!
//! * A request that was posted (`Ok`) ends exactly once: with a completion, or silently if it is unsignaled and succeeds,
//!   or if its QP is reset or destroyed. Requests of a queue end in the order of posting.
//! * No byte outside of a range that key, PD, rights and bounds allow is read or written. Keys are looked up
//!   each time that bytes move, so a deregistered region is not touched again.
//! * Nothing that a guest says makes it panic, loop without end, or take more memory than [`Limits`] say.
//! * Equal seeds and equal calls give equal results.
//!
//! # How a message goes (same host)
//!
//! `post_send` -> [`Engine`] finds the QP (an index and a comparison) -> the *requester* checks the request and its elements and
//! names the next segment and its PSN -> the peer is found: the device that has the GID, the QP that the number names, connected
//! back to us -> the *responder* gives its verdict: carry it out there, RNR, NAK, or drop -> the bytes are copied once -> the responder
//! advances its PSN and completes a receive -> the requester does the same for its request. Segments of up to 64 KiB go within the
//! post, up to 4 MiB in all, the rest in `poll`, 256 KiB a turn. Packets will take the place of the step in the middle.
//!
//! Rules are cited by clause of the InfiniBand Architecture Specification, volume 1 (IBTA), and manual pages of rdma-core.
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
mod outlet;
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
mod uc;
mod ud;
mod work;

pub use completion::{Arrival, Completion, Event, Sink, WcOpcode, WcStatus};
pub use counters::{Counters, MalformedFrames, PortCounters};
pub use engine::Engine;
pub use error::Error;
pub use id::{CqId, DeviceId, OwnerId, PdId};
pub use limits::{Limits, ObjectCounts};
pub use memory::{Access, Fault, Region};
pub use outlet::{Outlet, Piece, Pieces, write_frame};
pub use qp::attr::{AttrMask, QpAttr, QpInit, QpState, QpType};
pub use time::Instant;
pub use work::{
    Destination, MAX_INLINE, MAX_MESSAGE, MAX_SGE, Payload, PostError, Queue, RecvRequest, Remote, SendOp,
    SendRequest, Sge,
};
