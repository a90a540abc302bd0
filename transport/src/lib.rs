//! The protocol engine of vrdma: queue pairs, memory regions and the rules between them, without I/O.
//!
//! # The contract
//!
//! An [`Engine`] holds *devices*, one per guest, and everything that they have: protection domains, memory regions, queue
//! pairs, GIDs, pending requests. It has no clock, thread, socket or pointer to guest memory. Whoever drives it (one thread)
//!
//! * tells the time: `now` is an argument, on any monotonic clock;
//! * gives access to memory: each region that it registers is a value of its own type, a [`Region`];
//! * passes a [`Sink`] in each call, which takes completions and events;
//! * calls [`Engine::poll`] again while that says so, and at [`Engine::poll_timeout`] at the latest;
//! * takes the questions that [`Engine::poll_question`] has, and answers them;
//! * if it has a port to other hosts, says so ([`Engine::set_link`], [`Engine::set_mac`]), hands RoCE frames in ([`Engine::handle_frame`]), and
//!   passes an [`Outlet`] that takes packets ([`Engine::transmit`]);
//! * if QPs are connected by streams ([`Engine::connect_stream`]), hands in what comes in these ([`Engine::handle_stream`]), says when there is room
//!   ([`Engine::stream_has_room`]), and passes an outlet that takes FPDUs too.
//!
//! Methods come in four kinds: *commands* (`create_qp`, `reg_mr`...) return a value or an [`Error`] and, if refused, change nothing;
//! `post_*` take work requests; `poll*` do what is due; the others only read.
//!
//! # Promises
//!
//! * A request that was posted (`Ok`) ends exactly once: with a completion, or silently if it is unsignaled and succeeds,
//!   or if its QP is reset or destroyed. Requests of a queue end in the order of posting.
//! * No byte outside of a range that key, PD, rights and bounds allow is read or written. Keys are looked up
//!   each time that bytes move, so a deregistered region is not touched again.
//! * Nothing that a guest or a packet says makes it panic, loop without end, or take more memory than [`Limits`] say.
//! * Each packet that is refused is counted by name, in the [`Counters`] of the device that it came for, or the port's
//!   ([`PortCounters`], [`MalformedFrames`]).
//! * Equal seeds and equal calls give equal results. An engine that is restored in between goes on to the same completions and packets; only in which of the next
//!   calls a long flush ends may differ.
//!
//! # How a message goes (same host)
//!
//! `post_send` -> [`Engine`] finds the QP (an index and a comparison) -> the *requester* checks the request and its elements and
//! names the next segment and its PSN -> the peer is found: the device that has the GID, the QP that the number names, connected
//! back to us -> the *responder* gives its verdict: execute it there, RNR, NAK, or drop -> the bytes are copied once -> the responder
//! advances its PSN and completes a receive -> the requester does the same for its request. Segments of up to 64 KiB go within the
//! post, up to 4 MiB in all, the rest in `poll`, 256 KiB a turn.
//!
//! Which carrier a connected QP's messages take is decided as it goes to RTR, and when its address vector changes: the copy above if a device of this engine has
//! the peer's GID then, or if there is no port. A datagram decides for itself.
//!
//! # How a message goes (reliable connection, on the wire)
//!
//! 1. `post_send` puts the request into the send queue, which is the retransmit buffer too: payload is read from guest memory each time that it is
//!    sent. The QP's turn is due.
//! 2. `transmit` gives QPs their turns, 256 KiB each. The *cursor* says which request is next and how much of it was sent; the next packet is a
//!    part of it of at most the path MTU, if window (128 packets), `max_rd_atomic`, fence and the peer's credits allow. Keys are looked up, the outlet
//!    takes headers as a value and payload as [`Pieces`] of regions, and adds padding and ICRC. The local ACK timeout runs for the oldest packet without an answer.
//! 3. At the peer, `handle_frame` parses the frame, checks its ICRC, finds the device by destination GID and MAC, and the QP by number; source
//!    and destination have to be those of the connection. A response goes to the requester's half, a request to the responder's.
//! 4. The responder compares PSNs: what it expects gets the same *verdict* as on the same host, with a packet as the segment; a duplicate is
//!    acknowledged or answered again, but not executed again (a READ is; atomics' results are remembered); what is out of sequence gets one NAK.
//! 5. What the responder has to send (responses in order, then a NAK or an acknowledge of all) leaves in its turns. A NAK that ends the connection takes the QP to ERR and
//!    is the last packet that it sends.
//! 6. A response ends all requests that it covers, in order; one for a READ or an atomic acknowledges what was before it. If it shows that an earlier
//!    response is missing, or is a NAK for a gap, or the timeout runs out, the cursor goes back to the oldest PSN without an answer (a READ
//!    then asks for the rest alone), as often as `retry_cnt` allows without progress; after an RNR NAK it does so when the time is over, as often as
//!    `rnr_retry` says.
//!
//! While the link is down packets are made, and lost: so time runs as it would. When it is up again, connections start over at once.
//!
//! # How a message goes (in a stream: iWARP)
//!
//! The caller has a TCP connection, its own or the host's, and sets it up by MPA ([`Initiator`], [`Responder`]). From then on the QP's requests become DDP segments of at most
//! what a TCP segment carries, each in an FPDU, in the order of posting; a request that needs no answer is complete when its last FPDU was taken. What comes is
//! handed in as bytes, in order: FPDUs are put together, their CRCs checked, and each segment gets the same verdict as on the same host. READs and atomics of the peer are
//! answered in order, in turns with requests, message by message. A SEND without a receive stops the stream until the caller has looked, and ends the connection if there is none.
//! Whatever the peer sends and should not ends it too: with a TERMINATE that says what it was.
//!
//! # Unreliable services
//!
//! An unreliable connection (`uc`) goes the same way, but the peer answers nothing: what it would refuse or ask to wait for is dropped there, with
//! the rest of its message, and the request ends well as soon as its last byte has left. Datagrams (`ud`, and QP1) are posted by
//! [`Engine::post_datagram`] and are routed one by one: to a QP of this engine in one copy, else to the port as a packet. A receive shows the IP header that
//! the packet had, or would have had. A send that is wrong in itself stops the send queue alone (SQE). A datagram to a
//! multicast group leaves by the port once, and each member on this host ([`Engine::attach_mcast`]) gets a copy: the sender too, if it is one. Members are served in slices. What comes from the
//! wire to a group goes to all members likewise; either way each member checks Q_Key, receive and length for itself.
//!
//! # XRC
//!
//! An XRC connection ([`QpType::XrcSend`] to [`QpType::XrcRecv`]) is the half of a reliable one: the same rules and the same code. Its requests are posted by
//! [`Engine::post_xrc`] and name a shared receive queue of the peer. The target looks it up in its XRC domain ([`Engine::alloc_xrcd`]) before it does anything else with
//! a request: the queue says which receive is taken, where that completes, and memory of which PD the request may reach.
//!
//! # Save and restore
//!
//! [`Engine::save`] writes everything that an engine knows as a [`Record`]: plain data with names and a version, for any encoding that serde has.
//! [`Engine::restore`] makes an engine of it that goes on as the first would have. Its caller registers the memory anew, and
//! its clock goes on. A record is checked like anything that comes from outside: what no engine can have written is refused by name
//! ([`Violation`]). How the format may change stands in [`record`].
//!
//! Rules are cited by clause of the InfiniBand Architecture Specification, volume 1 (IBTA), and manual pages of rdma-core.
#![forbid(unsafe_code)]

mod carrier;
mod completion;
mod counters;
mod deadlines;
mod device;
mod engine;
mod error;
mod fan_out;
mod flush;
mod gid;
mod group;
mod id;
mod limits;
mod look;
mod memory;
mod message;
mod mr;
mod near;
mod op;
mod outlet;
mod outstanding;
mod peer;
mod place;
mod pool;
mod qp;
mod rc;
mod receive;
mod request;
mod rng;
mod save;
mod schedule;
mod service;
mod srq;
mod table;
#[cfg(test)]
mod tests;
mod time;
mod uc;
mod ud;
mod wakes;
mod work;
mod xrcd;

pub use completion::{Arrival, Completion, Event, Sink, WcStatus};
pub use counters::{Counters, MalformedFrames, PortCounters};
pub use device::Remains;
pub use device::keys::Rereg;
pub use engine::Engine;
pub use engine::lines::{KeyLines, PeerHint, QpLines, WholeQpLines};
pub use error::Error;
pub use gid::GidEntry;
pub use id::{CqId, DeviceId, OwnerId, PdId, SrqId, XrcdId};
pub use limits::{Limits, ObjectCounts};
pub use look::Question;
pub use memory::{Access, Fault, PageList, Region};
pub use mr::fast::MAX_PAGES;
pub use mr::window::{Bind, MwType};
pub use near::{Loan, NEAR_BYTES, NearPacket, NearPart, NearPayload};
pub use op::{FlushScope, Placement, Remote, SendOp, WcOpcode};
pub use outlet::{Fpdu, Outlet, Piece, Pieces, PlacedFpdu, StreamEnd, Way, write_fpdu, write_frame};
pub use qp::attr::{AttrMask, QpAttr, QpInit, QpState, QpType, Receives};
pub use rc::tcp::attr::{Role, StreamAttr};
pub use rc::tcp::placed::EarlyFpdu;
pub use rc::tcp::set_up::{
    Agreed, Initiator, MAX_PROGRAM_DATA, Request as SetUpRequest, Responder, SetUpError, Wishes,
};
pub use rc::tcp::stream::ReadyToReceive;
pub use request::{
    Destination, MAX_INLINE, MAX_MESSAGE, MAX_SGE, Payload, PostError, Queue, RecvList, RecvRequest,
    SendRequest, Sge,
};
pub use save::record::Record;
pub use save::{RestoreError, Violation, record};
pub use srq::{SrqAttr, SrqInit, XrcSrq};
pub use time::Instant;
