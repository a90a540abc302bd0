//! The protocol engine of vrdma, without I/O: queue pairs, memory regions and the rules between
//! them.
//!
//! # The contract
//!
//! An [`Engine`] holds *devices*, one per guest. A device has protection domains, memory regions,
//! queue pairs, GIDs and pending requests. The engine has no clock, thread, socket or pointer to
//! guest memory. Its caller is one thread, which
//!
//! * passes the time: `now` is an argument, on any monotonic clock;
//! * gives access to memory: each region that it registers is a value of its own type, a
//!   [`Region`];
//! * passes a [`Sink`] in each call, which takes completions and events;
//! * calls [`Engine::poll`] again while that asks for it, and at [`Engine::poll_timeout`] at the
//!   latest, and [`Engine::move_idle_deadlines`] before it sleeps;
//! * takes the questions that [`Engine::poll_question`] returns, and answers them;
//! * if it has a port to other hosts, reports it ([`Engine::set_link`], [`Engine::set_mac`]),
//!   passes received RoCE frames ([`Engine::handle_frame`]), and passes an [`Outlet`] that takes
//!   packets ([`Engine::transmit`]);
//! * if QPs are connected by streams ([`Engine::connect_stream`]), passes the received bytes
//!   ([`Engine::handle_stream`]) and an outlet that also takes FPDUs. It also reports when a stream
//!   has room ([`Engine::stream_has_room`]).
//!
//! Methods come in four kinds. *Commands* (`create_qp`, `reg_mr`...) return a value or an
//! [`Error`]; a refused command changes nothing. `post_*` take work requests. `poll*` do the work
//! that is due. All others only read.
//!
//! # Promises
//!
//! * A request that was posted (`Ok`) ends exactly once, with a completion in general. It ends
//!   without one if it is unsignaled and succeeds, or if its QP is reset or destroyed. Requests of
//!   a queue end in the order of posting.
//! * No byte is read or written outside the range that key, PD, rights and bounds allow. Keys are
//!   looked up each time that bytes move, so a deregistered region is not accessed again.
//! * Nothing that a guest or a packet contains makes the engine panic, loop without end, or take
//!   more memory than [`Limits`] allow.
//! * Each refused packet is counted by name. The count is in the [`Counters`] of the device that
//!   the packet came for, or in those of the port ([`PortCounters`], [`MalformedFrames`]).
//! * Equal seeds and equal calls give equal results. An engine that is restored in between goes on
//!   to the same completions and packets. Only the call in which a long flush ends may differ.
//!
//! # How a message goes (same host)
//!
//! 1. A caller posts with `post_send`. The [`Engine`] finds the QP by an index and a comparison.
//! 2. The *requester* checks the request and its elements, and names the next segment and its PSN.
//! 3. The engine finds the peer: the device that has the GID, and the QP with that number, which is
//!    connected back.
//! 4. The *responder* decides: execute, RNR, NAK, or drop.
//! 5. The bytes are copied once.
//! 6. The responder advances its PSN and completes a receive. The requester advances its PSN and
//!    completes its request.
//!
//! A post copies messages of up to 64 KiB itself, until the device has copied about 4 MiB since the
//! last `poll`. `poll` copies the rest, 256 KiB in each turn of a QP.
//!
//! The engine chooses the transport kind of a connected QP when the QP goes to RTR, and when its
//! address vector changes. It chooses the copy above if a device of this engine has the peer's GID
//! at that time, or if there is no port. For datagrams, it chooses for each one.
//!
//! # How a message goes (reliable connection, on the wire)
//!
//! 1. `post_send` puts the request into the send queue and makes the QP's turn due. The send queue
//!    is also the retransmit buffer: payload is read from guest memory each time that it is sent.
//! 2. `transmit` gives QPs their turns, 256 KiB each. The *cursor* tells which request is next and
//!    how much of it was sent. The next packet takes at most a path MTU from the cursor on. The
//!    window (128 packets at first, 4 to 512 later), `max_rd_atomic`, fence and the peer's credits
//!    can delay it. Keys are looked up. The outlet takes headers as a value and payload as
//!    [`Pieces`] of regions, and adds padding and ICRC. The local ACK timeout runs for the oldest
//!    packet without an answer.
//! 3. At the peer, `handle_frame` parses the frame and checks its ICRC. It finds the device by
//!    destination GID and MAC, and the QP by number. Source and destination have to be those of the
//!    connection. A response goes to the requester's half, a request to the responder's.
//! 4. The responder compares PSNs. An expected request gets the same decision as on the same host,
//!    with a packet as the segment. A duplicate is acknowledged or answered again, but not executed
//!    again. (A READ is executed again; results of atomics are remembered.) A request ahead of a
//!    gap is held until the gap is filled, and there is a NAK for the gap.
//! 5. The responder sends in its own turns: responses in order, then a NAK or an acknowledge of
//!    everything. A NAK that ends the connection takes the QP to ERR, and is the last packet that
//!    it sends.
//! 6. A response ends all requests that it covers, in order. The response to a READ or an atomic
//!    also acknowledges the requests before it. Responses ahead of a missing one are held. That one
//!    is asked for alone, and after a NAK for a gap its packet is sent alone. If the peer has
//!    dropped what came behind it, the cursor goes back to the oldest unanswered PSN. (A READ then
//!    asks for the rest only.) So it does after a timeout. Timeouts without progress happen as
//!    often as `retry_cnt` allows. After an RNR NAK the cursor goes back when the RNR time is over,
//!    as often as `rnr_retry` allows.
//! 7. A peer that is silent for longer than its usual round-trip time gets a *probe*: the oldest
//!    packet without an answer, alone. The answer tells how far the peer has come, and may show a
//!    loss.
//!
//! While the link is down, packets are still made, and are lost. Timeouts therefore run as usual.
//! When the link is up again, connections retransmit at once.
//!
//! # How a message goes (in a stream: iWARP)
//!
//! The caller has a TCP connection, its own or the host's, and sets it up by MPA ([`Initiator`],
//! [`SetUpResponder`]). From then on the QP's requests become DDP segments, in the order of
//! posting. A segment is no longer than a TCP segment carries, and has an FPDU of its own. A
//! request that needs no answer is complete when the outlet has taken its last FPDU.
//!
//! The caller passes received bytes in order. The engine reassembles FPDUs and checks their CRCs.
//! Each segment gets the same decision as on the same host. READs and atomics of the peer are
//! answered in order. Answers and requests alternate, message by message.
//!
//! A SEND without a receive stops the stream until the caller has drained the receiver's posts. If
//! there is still no receive, the connection ends. Anything else that the peer must not send also
//! ends it, with a TERMINATE that names the error.
//!
//! # Unreliable services
//!
//! An unreliable connection (`uc`) sends in the same way, but the peer answers nothing. A message
//! that the peer would refuse or delay is dropped there, with all that follows of it. The request
//! succeeds as soon as its last byte has left.
//!
//! Datagrams (`ud`, and QP1) are posted by [`Engine::post_datagram`], and routed one by one. A
//! datagram to a QP of this engine takes one copy; any other goes to the port as a packet. The
//! receive shows the IP header that the packet had, or would have had. A send that is wrong in
//! itself stops only the send queue (SQE).
//!
//! A datagram to a multicast group leaves by the port once. Each member on this host
//! ([`Engine::attach_mcast`]) gets a copy, also the sender if it is a member. Members are served in
//! slices. A datagram from the wire to a group goes to all members too. In both cases each member
//! checks Q_Key, receive and length for itself.
//!
//! # XRC
//!
//! An XRC connection ([`QpType::XrcSend`] to [`QpType::XrcRecv`]) is one half of a reliable
//! connection, with the same rules and the same code. Its requests are posted by
//! [`Engine::post_xrc`], and name a shared receive queue of the peer. The target looks that up in
//! its XRC domain ([`Engine::alloc_xrcd`]) before it does anything else with a request. The queue
//! determines which receive is taken, where it completes, and in which PD the request may access
//! memory.
//!
//! # Save and restore
//!
//! [`Engine::save`] writes the whole state of an engine as a [`Record`]: plain data with names and
//! a version, for any encoding that serde has. [`Engine::restore`] makes an engine of it that goes
//! on as the first would have. The caller registers the memory again, and its clock goes on. A
//! record is checked like any other external input. A record that no engine can have written is
//! refused by name ([`Violation`]). [`record`] documents how the format may change.
//!
//! # Captures
//!
//! A sink may have a [`Mirror`]. It takes the packets that messages within the engine would have
//! been (`message/mirror.rs`). Without one, the engine asks for it after each segment, and does
//! nothing more.
//!
//! Comments cite rules by clause of the InfiniBand Architecture Specification, volume 1 (IBTA), and
//! by manual page of rdma-core.
//!
//! # Floors
//!
//! The folders are layers, called floors. A file uses files of its own folder and of the folders
//! before it. The behaviour of a type stands in the folder of the type. The import graph of the
//! files has no cycles. Method calls count in it too, as far as their names tell their type. `cargo
//! xtask test --only floors --only cycles` checks that.
//!
//! 1. `base/`: common definitions. Identifiers (`id.rs`, `qp_ref.rs`, `gid.rs`), time, random
//!    numbers, regions of memory, errors, and the transport kind of a QP.
//! 2. `save/`: the format of records (`record.rs`) and why one is refused (`error.rs`).
//! 3. `collections/`: objects by number (`table.rs`), lists in one pool (`pool.rs`) and notes about
//!    some of their nodes (`watches.rs`), and queues of work that is done in slices (`flush.rs`,
//!    `wakes.rs`).
//! 4. `verbs/`: the interface to callers. Operations (`op.rs` and its folder), requests as they are
//!    posted (`request.rs`) and as they are executed (`work.rs`), segments, completions,
//!    attributes, limits and counters.
//! 5. `objects/`: the objects of a device. Regions and windows (`mr.rs`), queues of requests
//!    (`outstanding.rs`), QPs, shared receive queues, groups, the device itself and the port.
//!    `roce/`, `uc.rs` and `iwarp/` are the states of connections, and `service.rs` selects one.
//! 6. `agenda/`: pending work and its order. Turns (`schedule.rs`), deadlines, tasks for all QPs of
//!    a device (`sweeps.rs`), multicast packets that wait (`fan_out.rs`), memory of packets ahead
//!    of gaps (`reorder.rs`), and questions to the caller (`drains.rs`).
//! 7. `message/`: rules of all services. `segmentation.rs` chooses the next segment of a request.
//!    Its responder takes it by `accept.rs`: `verdict.rs` checks it, `effect.rs` and `transfer.rs`
//!    execute it, and `arrival.rs` updates the QP. `departure.rs` updates the requester. `ctx.rs`
//!    is a QP with what it needs of its device, and `fail.rs` takes it to ERR. `core.rs` is the
//!    part of the engine that carries messages. `outlet.rs` takes packets and FPDUs.
//! 8. `protocol/`: how messages reach the peer. `local.rs` copies within the engine, `roce/` sends
//!    packets, `iwarp/` sends FPDUs, `uc/` and `ud/` are the unreliable services. None of these
//!    folders uses another.
//! 9. `engine/`: the public calls. Each file has the calls about one subject.
//!
//! A connection's methods are those of a view: `QpCtx` (`message/ctx.rs`) with the state of one
//! transport kind. `RoceQp`, `UcQp` and `StreamQp` are such views, and their folders have the
//! methods. Code that has checked the QP's transport kind selects the view: the files of `engine/`,
//! and the functions of `protocol/` that receive packets.
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
//! answer, counter, iWARP. It also has what an atomic stores, and how records name operations.
//! `src/tests/operations.rs` tries every operation in every state of a QP, on every
//! service, on one engine and in packets. It compares the results with a table of the
//! specification's rules, which is independent of the rows.
//!
//! # Transport kinds
//!
//! The *transport kind* of a connected QP is the way its messages reach the peer. It is
//! a copy within the engine, RoCE packets, or an iWARP stream. `objects/service.rs` lists its tasks
//! and the places in the code.
//!
//! The transport kind and the service of a QP take one byte each in its first two cache lines. The
//! state of a transport kind is in a box beside the QP, which same-host connections do not have.
//! One enum with all states inside would add a third cache line to each message on the same host.
//!
//! The address of the peer selects the transport kind, except for streams. `Engine::connect_stream`
//! connects a QP in INIT, once its caller has set up TCP and MPA. The QP keeps the stream until it
//! is reset, and accepts no address and no other depths until then.
//!
//! A QP has one timer. The state of its connection tells what is due: the end of the ACK timeout,
//! of an RNR wait, or of the silence at the beginning of a stream. A transport kind that needs two
//! deadlines has to keep them itself, and report the earlier one. RoCE does. A probe comes before
//! the end of the ACK timeout, and NAKs may be delayed (`objects/roce/reorder.rs`).
//!
//! # Receives
//!
//! The receive that a message has claimed is the first of the QP's own queue. (A SEND that arrives
//! out of order in an iWARP stream also claims the receives of the messages before it.)
//!
//! A receive of a shared queue moves to the QP's own queue when its message begins to arrive,
//! unless the whole message arrives at once. Segments, completion and flush therefore need not know
//! about shared queues. If the message is dropped, or the QP is reset or destroyed, the receive
//! moves back to its old place at the front.
//!
//! Senders of this engine that wait for a shared receive are woken in the order in which they began
//! to wait. Each receive wakes one of them (`engine/wake.rs`). The next `poll` wakes them, some at
//! a time. A sender whose receive was taken by another message keeps its place and its deadline.
//!
//! # Where the next feature goes
//!
//! * Another atomic of 8 bytes: `verbs/op.rs`, `verbs/counters.rs` and `save/record/request.rs`.
//! * Another operation: these, `message/effect.rs` and `objects/roce/packet.rs`. If iWARP has it,
//!   also `objects/iwarp/operation.rs`. A new right goes into `base/memory.rs`.
//! * iWARP that pins payload for the TCP below instead of copying it, if the connection has no
//!   CRCs: `message/outlet.rs` and `objects/iwarp/requester_state.rs`. Such requests complete by
//!   acknowledgments.
//! * iWARP between two QPs of one engine without FPDUs: `protocol/local.rs`. Today guests of one
//!   worker use `streams/user_tcp/loopback.rs` of the backend.
//! * Rates by delay, where no switch marks packets: `objects/roce/reaction_point.rs`, with the
//!   times of `objects/roce/round_trip.rs`.
//! * Acknowledges that name all held packets (SACK): `protocol/roce/gap.rs` at the responder, and
//!   `objects/roce/selective.rs` and `protocol/roce/retry.rs` at the requester.
//!
//! Each feature also changes the record, in the `save.rs` beside the state that it adds. The name
//! of an operation is in `save/record/request.rs`. A new name changes the version of the format
//! (`save/record.rs`).
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
mod collections;
mod engine;
mod message;
mod objects;
mod protocol;
mod save;
#[cfg(test)]
mod tests;
mod verbs;

pub use agenda::drains::DrainRequest;
pub use agenda::rate::{Meter, RateLimit};
pub use agenda::rates::{RateCounters, RateLimits};
pub use base::dcqcn::{DCQCN_UNIT, Dcqcn};
pub use base::error::Error;
pub use base::gid::GidEntry;
pub use base::id::{CqId, DeviceId, OwnerId, PdId, SrqId, XrcdId};
pub use base::inter_worker::{
    INTER_WORKER_BYTES, InterWorkerPacket, InterWorkerPart, InterWorkerPayload, PinnedRegion,
};
pub use base::marks::Marks;
pub use base::memory::{Access, Fault, PageList, Region};
pub use base::time::Instant;
pub use base::transport_kind::TransportKind;
pub use engine::Engine;
pub use engine::lines::{KeyLines, PeerHint};
pub use message::mirror::each_packet;
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
pub use protocol::iwarp::placement::EarlyFpdu;
pub use protocol::iwarp::set_up::{
    Agreed, Initiator, MAX_PROGRAM_DATA, Request as SetUpRequest, SetUpError, SetUpResponder, Wishes,
};
pub use save::record::Record;
pub use save::{RestoreError, Violation, record};
pub use verbs::attr::{AttrMask, QpAttr, QpInit, QpState, QpType, Receives};
pub use verbs::completion::{Arrival, Completion, Event, Sink, WatchedEnd, WcStatus};
pub use verbs::counters::{Counters, MalformedFrames, PortCounters};
pub use verbs::fast::MAX_PAGES;
pub use verbs::limits::{Limits, ObjectCounts};
pub use verbs::mirror::{Mirror, MirrorEnds, PacketPayload};
pub use verbs::op::{Atomic, FlushScope, Placement, Remote, SendOp, WcOpcode};
pub use verbs::request::{
    Destination, MAX_INLINE, MAX_MESSAGE, MAX_SGE, Payload, PostError, Queue, RecvList, RecvRequest,
    SendRequest, Sge,
};
pub use verbs::view::{QpView, RegionView, WaitsFor};
pub use verbs::window::{Bind, MwType};
