//! The protocol engine of vrdma: queue pairs, memory regions and the rules between them, without
//! I/O.
//!
//! # The contract
//!
//! An [`Engine`] holds *devices*, one per guest, and everything that they have: protection domains,
//! memory regions, queue pairs, GIDs, pending requests. It has no clock, thread, socket or pointer
//! to guest memory. Whoever drives it (one thread)
//!
//! * tells the time: `now` is an argument, on any monotonic clock;
//! * gives access to memory: each region that it registers is a value of its own type, a
//!   [`Region`];
//! * passes a [`Sink`] in each call, which takes completions and events;
//! * calls [`Engine::poll`] again while that says so, and at [`Engine::poll_timeout`] at the
//!   latest;
//! * takes the questions that [`Engine::poll_question`] has, and answers them;
//! * if it has a port to other hosts, says so ([`Engine::set_link`], [`Engine::set_mac`]), hands
//!   RoCE frames in ([`Engine::handle_frame`]), and passes an [`Outlet`] that takes packets
//!   ([`Engine::transmit`]);
//! * if QPs are connected by streams ([`Engine::connect_stream`]), hands in what comes in these
//!   ([`Engine::handle_stream`]), says when there is room ([`Engine::stream_has_room`]), and passes
//!   an outlet that takes FPDUs too.
//!
//! Methods come in four kinds: *commands* (`create_qp`, `reg_mr`...) return a value or an [`Error`]
//! and, if refused, change nothing; `post_*` take work requests; `poll*` do what is due; the others
//! only read.
//!
//! # Promises
//!
//! * A request that was posted (`Ok`) ends exactly once: with a completion, or silently if it is
//!   unsignaled and succeeds, or if its QP is reset or destroyed. Requests of a queue end in the
//!   order of posting.
//! * No byte outside of a range that key, PD, rights and bounds allow is read or written. Keys are
//!   looked up each time that bytes move, so a deregistered region is not touched again.
//! * Nothing that a guest or a packet says makes it panic, loop without end, or take more memory
//!   than [`Limits`] say.
//! * Each packet that is refused is counted by name, in the [`Counters`] of the device that it came
//!   for, or the port's ([`PortCounters`], [`MalformedFrames`]).
//! * Equal seeds and equal calls give equal results. An engine that is restored in between goes on
//!   to the same completions and packets; only in which of the next calls a long flush ends may
//!   differ.
//!
//! # How a message goes (same host)
//!
//! `post_send` -> [`Engine`] finds the QP (an index and a comparison) -> the *requester* checks the
//! request and its elements and names the next segment and its PSN -> the peer is found: the device
//! that has the GID, the QP that the number names, connected back to us -> the *responder* gives
//! its verdict: execute it there, RNR, NAK, or drop -> the bytes are copied once -> the responder
//! advances its PSN and completes a receive -> the requester does the same for its request.
//! Segments of up to 64 KiB go within the post, up to 4 MiB in all, the rest in `poll`, 256 KiB a
//! turn.
//!
//! Which carrier a connected QP's messages take is decided as it goes to RTR, and when its address
//! vector changes: the copy above if a device of this engine has the peer's GID then, or if there
//! is no port. A datagram decides for itself.
//!
//! # How a message goes (reliable connection, on the wire)
//!
//! 1. `post_send` puts the request into the send queue, which is the retransmit buffer too: payload
//!    is read from guest memory each time that it is sent. The QP's turn is due.
//! 2. `transmit` gives QPs their turns, 256 KiB each. The *cursor* says which request is next and
//!    how much of it was sent; the next packet is a part of it of at most the path MTU, if window
//!    (128 packets), `max_rd_atomic`, fence and the peer's credits allow. Keys are looked up, the
//!    outlet takes headers as a value and payload as [`Pieces`] of regions, and adds padding and
//!    ICRC. The local ACK timeout runs for the oldest packet without an answer.
//! 3. At the peer, `handle_frame` parses the frame, checks its ICRC, finds the device by
//!    destination GID and MAC, and the QP by number; source and destination have to be those of the
//!    connection. A response goes to the requester's half, a request to the responder's.
//! 4. The responder compares PSNs: what it expects gets the same *verdict* as on the same host,
//!    with a packet as the segment; a duplicate is acknowledged or answered again, but not executed
//!    again (a READ is; atomics' results are remembered); what is out of sequence gets one NAK.
//! 5. What the responder has to send (responses in order, then a NAK or an acknowledge of all)
//!    leaves in its turns. A NAK that ends the connection takes the QP to ERR and is the last
//!    packet that it sends.
//! 6. A response ends all requests that it covers, in order; one for a READ or an atomic
//!    acknowledges what was before it. If it shows that an earlier response is missing, or is a NAK
//!    for a gap, or the timeout runs out, the cursor goes back to the oldest PSN without an answer
//!    (a READ then asks for the rest alone), as often as `retry_cnt` allows without progress; after
//!    an RNR NAK it does so when the time is over, as often as `rnr_retry` says.
//!
//! While the link is down packets are made, and lost: so time runs as it would. When it is up
//! again, connections start over at once.
//!
//! # How a message goes (in a stream: iWARP)
//!
//! The caller has a TCP connection, its own or the host's, and sets it up by MPA ([`Initiator`],
//! [`Responder`]). From then on the QP's requests become DDP segments of at most what a TCP segment
//! carries, each in an FPDU, in the order of posting; a request that needs no answer is complete
//! when its last FPDU was taken. What comes is handed in as bytes, in order: FPDUs are put
//! together, their CRCs checked, and each segment gets the same verdict as on the same host. READs
//! and atomics of the peer are answered in order, in turns with requests, message by message. A
//! SEND without a receive stops the stream until the caller has looked, and ends the connection if
//! there is none. Whatever the peer sends and should not ends it too: with a TERMINATE that says
//! what it was.
//!
//! # Unreliable services
//!
//! An unreliable connection (`uc`) goes the same way, but the peer answers nothing: what it would
//! refuse or ask to wait for is dropped there, with the rest of its message, and the request ends
//! well as soon as its last byte has left. Datagrams (`ud`, and QP1) are posted by
//! [`Engine::post_datagram`] and are routed one by one: to a QP of this engine in one copy, else to
//! the port as a packet. A receive shows the IP header that the packet had, or would have had. A
//! send that is wrong in itself stops the send queue alone (SQE). A datagram to a multicast group
//! leaves by the port once, and each member on this host ([`Engine::attach_mcast`]) gets a copy:
//! the sender too, if it is one. Members are served in slices. What comes from the wire to a group
//! goes to all members likewise; either way each member checks Q_Key, receive and length for
//! itself.
//!
//! # XRC
//!
//! An XRC connection ([`QpType::XrcSend`] to [`QpType::XrcRecv`]) is the half of a reliable one:
//! the same rules and the same code. Its requests are posted by [`Engine::post_xrc`] and name a
//! shared receive queue of the peer. The target looks it up in its XRC domain
//! ([`Engine::alloc_xrcd`]) before it does anything else with a request: the queue says which
//! receive is taken, where that completes, and memory of which PD the request may reach.
//!
//! # Save and restore
//!
//! [`Engine::save`] writes everything that an engine knows as a [`Record`]: plain data with names
//! and a version, for any encoding that serde has. [`Engine::restore`] makes an engine of it that
//! goes on as the first would have. Its caller registers the memory anew, and its clock goes on. A
//! record is checked like anything that comes from outside: what no engine can have written is
//! refused by name ([`Violation`]). How the format may change stands in [`record`].
//!
//! Rules are cited by clause of the InfiniBand Architecture Specification, volume 1 (IBTA), and
//! manual pages of rdma-core.
//!
//! # Floors
//!
//! The folders are floors. A file uses files of its own folder and of the folders before it, and
//! the behaviour of a type stands in the folder of the type. The import graph of the files has no
//! cycles, also if calls of methods are counted as far as their names tell whose they are. `cargo
//! xtask test --only floors --only cycles` checks that.
//!
//! 1. `base/`: what every floor knows. Identifiers (`id.rs`, `place.rs`, `gid.rs`), time, random
//!    numbers, regions of memory, errors, and which carrier a QP has.
//! 2. `save/`: the format of records (`record.rs`) and why one is refused (`error.rs`).
//! 3. `collections/`: objects by number (`table.rs`), lists in one pool (`pool.rs`), and queues of
//!    work that takes turns (`flush.rs`, `wakes.rs`).
//! 4. `verbs/`: what callers say and hear. Operations (`op.rs` and its folder), requests as they
//!    are posted (`request.rs`) and as they are executed (`work.rs`), segments, completions,
//!    attributes, limits and counters.
//! 5. `objects/`: what a device has. Regions and windows (`mr.rs`), queues of requests
//!    (`outstanding.rs`), QPs, shared receive queues, groups, the device itself and the port.
//!    `roce/`, `uc.rs` and `iwarp/` are the states of connections, and `service.rs` selects one.
//! 6. `agenda/`: what is to be done, and in which order. Turns (`schedule.rs`), deadlines, tasks
//!    for all QPs of a device (`sweeps.rs`), multicast packets that wait (`fan_out.rs`), and
//!    questions to the caller (`look.rs`).
//! 7. `message/`: rules of all services. `stretch.rs` chooses the next segment of a request,
//!    `verdict.rs` decides what the responder does with it, `effect.rs` and `transfer.rs` execute
//!    it, `arrival.rs` and `departure.rs` update both ends. `ctx.rs` is a QP with what it needs of
//!    its device, and `fail.rs` takes it to ERR. `core.rs` is what of the engine carries messages.
//!    `outlet.rs` takes packets and FPDUs.
//! 8. `carrier/`: how messages reach the peer. `local.rs` copies within the engine, `roce/` sends
//!    packets, `iwarp/` sends FPDUs, `uc/` and `ud/` are the unreliable services. None of
//!    these folders uses another.
//! 9. `engine/`: the calls of callers. Each file has the calls about one subject.
//!
//! A connection's methods are those of a view: `QpCtx` (`message/ctx.rs`) with the state of one
//! carrier. `RoceQp`, `UcQp` and `StreamQp` are such views, and their folders have the methods.
//! Code that has looked at the QP's carrier selects the view: the files of `engine/`, and the
//! functions of `carrier/` that receive packets.
//!
//! A `save.rs` in the folder of a module writes and restores the module's part of a record.
//!
//! A look-up that cannot fail is an assertion that states the invariant, not an early return. A QP
//! does not disappear during a call, and references to a device are removed with the device.
//! Nothing that a guest or a peer sends decides such a look-up. `restore` refuses a record that
//! would break one.
//!
//! # Operations
//!
//! `verbs/op.rs` has one row for each operation: services, lengths, rights at both ends, receive,
//! answer, PSNs. `src/tests/operations.rs` tries every operation in every state of a QP, on every
//! service, on one engine and in packets. It compares the results with a table of the
//! specification's rules, which is independent of the rows.
//!
//! # Carriers
//!
//! A *carrier* is the way by which the messages of a connected QP reach its peer: a copy within the
//! engine, RoCE packets, or an iWARP stream. `objects/service.rs` lists its tasks and the places in
//! the code.
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
//! * Another operation: `verbs/op.rs` (its row), `message/effect.rs` and `objects/roce/packet.rs`.
//!   A separate counter goes into `verbs/counters.rs`, and a new right into `base/memory.rs`.
//! * iWARP that lends memory to the TCP below, if the connection has no CRCs: `message/outlet.rs`
//!   and `objects/iwarp/requester_state.rs`. Such requests complete by acknowledgments.
//! * iWARP between two QPs of one engine without FPDUs: `carrier/local.rs`. Today guests of one
//!   worker use `streams/own/pipe.rs` of the backend.
//! * DCQCN: `objects/roce/requester_state.rs` (a rate beside the window), `carrier/roce/mod.rs` and
//!   `carrier/roce/retry.rs` (a second deadline), and `agenda/schedule.rs` (a queue in time). Marks
//!   arrive in `carrier/roce/responder_rx.rs` and `carrier/uc/roce.rs`. Notifications pass through
//!   `engine/arrive.rs` and `carrier/roce/responder_tx.rs`.
//! * Selective repeat: the files of requester and responder in `carrier/roce/`.
//!   `message/verdict.rs` then accepts a segment that does not follow the one before.
//!   `message/receive.rs` then claims a receive that is not the first of the queue.
//!
//! Each feature also changes the record, in the `save.rs` beside the state that it adds. The name
//! of an operation is in `save/record.rs`, `save/record/request.rs` and
//! `objects/outstanding/save.rs`. A new name changes the version of the format.
//!
//! Shared receive queues show what a new kind of object costs. They needed three files of their own
//! (`objects/srq.rs`, `engine/srqs.rs`, `objects/device/srqs.rs`), three to wake senders
//! (`objects/srq/waiters.rs`, `collections/wakes.rs`, `engine/wake.rs`), and `message/receive.rs`.
//! They also needed some lines in each place where a message looks for its receive, in
//! `objects/device.rs`, `objects/qp/`, `objects/outstanding.rs`, `collections/pool.rs`, limits,
//! counters, events and records. XRC added three files for domains (`objects/xrcd.rs`,
//! `engine/xrcds.rs`, `objects/device/xrcds.rs`) and two QP types. An XRC target takes its queue,
//! PD and CQ in `message/receive.rs` when a message begins. From there on the code is that of RC.
#![forbid(unsafe_code)]

mod agenda;
mod base;
mod carrier;
mod collections;
mod engine;
mod message;
mod objects;
mod save;
#[cfg(test)]
mod tests;
mod verbs;

pub use agenda::look::Question;
pub use base::error::Error;
pub use base::gid::GidEntry;
pub use base::id::{CqId, DeviceId, OwnerId, PdId, SrqId, XrcdId};
pub use base::memory::{Access, Fault, PageList, Region};
pub use base::near::{Loan, NEAR_BYTES, NearPacket, NearPart, NearPayload};
pub use base::time::Instant;
pub use carrier::iwarp::placed::EarlyFpdu;
pub use carrier::iwarp::set_up::{
    Agreed, Initiator, MAX_PROGRAM_DATA, Request as SetUpRequest, Responder, SetUpError, Wishes,
};
pub use engine::Engine;
pub use engine::lines::{KeyLines, PeerHint};
pub use message::outlet::{
    Fpdu, Outlet, PacketOutlet, Piece, Pieces, PlacedFpdu, StreamEnd, StreamOutlet, Way, write_fpdu,
    write_frame,
};
pub use objects::device::Remains;
pub use objects::device::keys::Rereg;
pub use objects::iwarp::attr::{Role, StreamAttr};
pub use objects::iwarp::stream::ReadyToReceive;
pub use objects::qp::entry::{QpLines, WholeQpLines};
pub use objects::srq::{SrqAttr, SrqInit, XrcSrq};
pub use save::record::Record;
pub use save::{RestoreError, Violation, record};
pub use verbs::attr::{AttrMask, QpAttr, QpInit, QpState, QpType, Receives};
pub use verbs::completion::{Arrival, Completion, Event, Sink, WcStatus};
pub use verbs::counters::{Counters, MalformedFrames, PortCounters};
pub use verbs::fast::MAX_PAGES;
pub use verbs::limits::{Limits, ObjectCounts};
pub use verbs::op::{FlushScope, Placement, Remote, SendOp, WcOpcode};
pub use verbs::request::{
    Destination, MAX_INLINE, MAX_MESSAGE, MAX_SGE, Payload, PostError, Queue, RecvList, RecvRequest,
    SendRequest, Sge,
};
pub use verbs::window::{Bind, MwType};
