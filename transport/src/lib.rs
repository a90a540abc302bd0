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
//!
//! # Files
//!
//! Each group below imports only from the groups listed before it. There is one exception:
//! `outlet.rs` names a pointer type of `engine/lines.rs`. The import graph of the files has no
//! cycles: `cargo xtask test --only cycles` checks that.
//!
//! Behaviour of a type may be in files of later groups. For example, `BorrowedQp` is defined in
//! `engine/borrowed.rs`, and each service adds its own methods.
//!
//! A `save.rs` in the folder of a module writes and restores the module's part of a record. It may
//! import from later groups. Only other files of records import from it.
//!
//! 1. Basic types.
//!    * `id.rs`: identifiers that callers use. `place.rs`: a device and a QPN. `gid.rs`: GIDs and
//!      VLANs.
//!    * `time.rs`: instants and encoded delays. `rng.rs`: random numbers. `error.rs`: refused
//!      commands.
//!    * `memory.rs`: regions and access rights. `pool.rs`: lists of pending requests.
//! 2. Records: `save/` defines the format (`save/record.rs`) and the errors (`save/error.rs`).
//! 3. QP attributes: `carrier.rs`, `qp/attr.rs`, `qp/caps.rs`.
//! 4. Statistics: `message/reason.rs` (reasons to drop a message), `counters.rs`.
//! 5. Memory keys.
//!    * `table.rs`: objects by number. `mr.rs`: looks up a key and an address.
//!    * `mr/window.rs`: memory windows. `mr/bind.rs`: binds and unbinds them.
//!    * `mr/fast.rs`: fast registration. `mr/register.rs`: registers and invalidates keys by
//!      requests.
//! 6. Operations.
//!    * `op.rs`: a row of properties for each operation. `op/named.rs`: the memory and keys that a
//!      request names.
//!    * `op/effort.rs`: the cost of an operation. `op/placement.rs`: the scope of a FLUSH.
//!    * `completion.rs`: completions and events.
//! 7. Work requests.
//!    * `request.rs`: requests as callers post them. `work.rs`: requests as they are executed.
//!    * `outstanding.rs` and its folder: the queues of requests. `limits.rs`: limits of a device.
//! 8. Multicast: `group.rs` (members), `fan_out.rs` (packets that not all members have received).
//! 9. Data movement.
//!    * `near.rs`: packets between engines of one process. `message/segment.rs`: a part of a
//!      message.
//!    * `message/transfer.rs`: copies bytes. `outlet.rs`, `outlet/fpdu.rs`: the interface that
//!      takes packets and FPDUs.
//! 10. Scheduling.
//!     * `deadlines.rs`: QPs by deadline. `flush.rs`: requests that still have to be flushed.
//!     * `wakes.rs`: shared queues whose waiting senders have to be woken.
//!     * `schedule.rs`: which QP has the next turn.
//! 11. Engine state: `look.rs` (the engine asks its caller to look for posted receives),
//!     `engine/port.rs`, `engine/step.rs`, `engine/sweeps.rs` (tasks for all QPs of a device).
//! 12. The QP: `qp/mod.rs`, `qp/requester.rs`, `qp/responder.rs`, `qp/rest.rs`, `qp/state.rs`, and
//!     `srq/life.rs`. A message touches the first two cache lines of a QP.
//! 13. Shared receive queues: `srq.rs`, `srq/waiters.rs` (senders that wait), `xrcd.rs` (XRC
//!     domains).
//! 14. Rules of all services.
//!     * `message/stretch.rs`: chooses the next segment of a request.
//!     * `message/verdict.rs`: decides what the responder does with a segment: rights, receives,
//!       lengths.
//!     * `message/effect.rs`: executes a segment on memory.
//! 15. State of a QP whose peer is reached by RoCE packets: `rc/roce/psn.rs`, `rc/roce/packet.rs`,
//!     `rc/roce/requester_state.rs`, `rc/roce/responder_state.rs`, `rc/roce/state.rs`,
//!     `uc/state.rs`.
//! 16. State of a QP whose peer is reached by an iWARP stream, in `rc/tcp/`: `stream.rs`,
//!     `attr.rs`, `framing.rs`, `set_up.rs` (MPA), `input.rs`, `search.rs` (the receive of an early
//!     SEND), `operation.rs`, `requester_state.rs`, `responder_state.rs`, `state.rs`.
//! 17. `service.rs`: the tasks of a carrier. `qp/entry.rs`: a QP in the table of its device.
//! 18. `device.rs` and `device/`: the objects of a guest, and the device that has an address.
//! 19. `peer.rs`: finds the peer QP in this engine. `ud/packet.rs`: the packet of a datagram.
//! 20. `engine/mod.rs`: the engine. `engine/borrowed.rs`: a QP with the parts of its device that it
//!     needs. `engine/pair.rs`: two connected QPs.
//! 21. Arrival and completion.
//!     * `receive.rs`: finds and completes the receive of a message.
//!     * `message/arrival.rs`: updates the responder. `message/departure.rs`: updates the
//!       requester.
//!     * `message/keys.rs`: executes requests that only change keys of their own device.
//! 22. Services: the rest of `rc/`, `uc/` and `ud/`. No service imports from another.
//!     * Between QPs of one engine: `rc/local.rs`, `uc/local.rs`, `ud/requester.rs`.
//!     * In packets: `rc/roce/`, `uc/roce.rs`, `ud/roce.rs`. In streams: `rc/tcp/`.
//! 23. Entry points: the rest of `engine/`. Each file has the calls about one subject.
//!
//! A look-up that cannot fail is an assertion that states the invariant, not an early return. A QP
//! does not disappear during a call, and references to a device are removed with the device.
//! Nothing that a guest or a peer sends decides such a look-up. `restore` refuses a record that
//! would break one.
//!
//! # Operations
//!
//! `op.rs` has one row for each operation: services, lengths, rights at both ends, receive, answer,
//! PSNs. `src/tests/operations.rs` tries every operation in every state of a QP, on every service,
//! on one engine and in packets. It compares the results with a table of the specification's rules,
//! which is independent of the rows.
//!
//! # Carriers
//!
//! A *carrier* is the way by which the messages of a connected QP reach its peer: a copy within the
//! engine, RoCE packets, or an iWARP stream. `service.rs` lists its tasks and the places in the
//! code.
//!
//! The carrier and the service of a QP take one byte each in its first two cache lines. The state
//! of a carrier is in a box beside the QP, which same-host connections do not have. One enum with
//! all states inside would add a third cache line to each message on the same host.
//!
//! The address of the peer selects the carrier, except for streams. `Engine::connect_stream`
//! connects a QP in INIT, once its caller has set up TCP and MPA. The QP keeps the stream until it
//! is reset, and accepts no address and no other depths until then.
//!
//! A connection has one deadline, because only one thing can be due at a time. Its state tells
//! which: the end of the ACK timeout, of an RNR wait, or of the silence at the beginning of a
//! stream. A carrier that needs two deadlines has to keep them itself, and report the first.
//!
//! # Receives
//!
//! The receive that a message has claimed is the first of the QP's own queue. (A SEND beyond a gap
//! of an iWARP stream also claims the receives of the messages before it.) A receive of a shared
//! queue moves there when its message begins to arrive, unless the whole message is there at once.
//! Segments, completion and flush therefore need not know about shared queues. If the message is
//! dropped, or the QP is reset or destroyed, the receive moves back to its old place at the front.
//!
//! Senders of this engine that wait for a shared receive are woken in the order in which they began
//! to wait. Each receive wakes one of them (`engine/wake.rs`). The next `poll` wakes them, some at
//! a time. A sender whose receive was taken by another message keeps its place and its deadline.
//!
//! # Where the next feature goes
//!
//! * Another operation: `op.rs` (its row), `message/effect.rs` and `rc/roce/packet.rs`. A separate
//!   counter goes into `counters.rs`, and a new right into `memory.rs`.
//! * iWARP that lends memory to the TCP below, if the connection has no CRCs: `outlet.rs` and
//!   `rc/tcp/requester_state.rs`. Such requests complete by acknowledgments.
//! * iWARP between two QPs of one engine without FPDUs: `rc/local.rs`. Today guests of one worker
//!   use `streams/own/pipe.rs` of the backend.
//! * DCQCN: `rc/roce/requester_state.rs` (a rate beside the window), `rc/roce/mod.rs` and
//!   `rc/roce/retry.rs` (a second deadline), and `schedule.rs` (a queue in time). Marks arrive in
//!   `rc/roce/responder_rx.rs` and `uc/roce.rs`. Notifications pass through `engine/wire.rs` and
//!   `rc/roce/responder_tx.rs`.
//! * Selective repeat: the files of requester and responder in `rc/roce/`. `message/verdict.rs`
//!   then accepts a segment that does not follow the one before. `receive.rs` then claims a receive
//!   that is not the first of the queue.
//!
//! Each feature also changes the record, in the `save.rs` beside the state that it adds. The name
//! of an operation is in `save/record.rs`, `save/record/request.rs` and `outstanding/save.rs`. A
//! new name changes the version of the format.
//!
//! Shared receive queues show what a new kind of object costs. They needed three files of their own
//! (`srq.rs`, `engine/srqs.rs`, `device/srqs.rs`), three to wake senders (`srq/waiters.rs`,
//! `wakes.rs`, `engine/wake.rs`), and `receive.rs`. They also needed some lines in each place where
//! a message looks for its receive, in `device.rs`, `qp/`, `outstanding.rs`, `pool.rs`, limits,
//! counters, events and records. XRC added three files for domains (`xrcd.rs`, `engine/xrcds.rs`,
//! `device/xrcds.rs`) and two QP types. An XRC target takes its queue, PD and CQ in `receive.rs`
//! when a message begins. From there on the code is that of RC.
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
