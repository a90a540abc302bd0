//! The vhost-user daemon that acts as a virtual machine's RDMA NIC.
//!
//! Each guest has an RDMA function and an Ethernet function. A switch connects the functions of all
//! guests and an uplink that DPDK drives. `docs/vrdma-backend.md` tells how to use the daemon.
//! `ARCHITECTURE.md` walks through how the parts work together.
//!
//! Begin reading here. The crates, from the inside out:
//!
//! | crate | question |
//! |---|---|
//! | [`vrdma_abi`] | what do guest and device exchange in memory? |
//! | [`vrdma_wire`] | what do two NICs exchange on the wire? |
//! | [`vrdma_transport`] | what does a queue pair do? No I/O, clock, or unsafe code |
//! | [`dpdk_sys`] | how are functions of the installed libdpdk called? |
//! | [`vrdma_admin`] | how do administrators talk to the daemon? |
//! | `vrdma_backend` | the daemon: the only crate that touches the world |
//! | `vrdma_verbs` | the guest driver's data path, for the provider and for tests |
//! | `vrdma_guest` | a guest without a VM, for `vrdma-perf` and for tests |
//! | `vrdma_tests` | end-to-end tests: guests without a VM against the real daemon |
//!
//! # How it runs
//!
//! [`daemon::Daemon`] claims the sockets of its [`config::Config`], opens the uplink, and starts
//!
//! * worker threads (`worker`), by default one. A worker owns an engine, the rings of its guests, a
//!   switch (`net`) and a [`port::Port`]. None of these is behind a lock.
//! * a thread for each function of a guest (`session`, `vhost`), which speaks vhost-user with the
//!   VMM. The thread of an RDMA function parses control commands (`command`) and passes them to the
//!   worker as closures.
//! * threads that interrupt front-ends whose eventfds are slow to signal (`queue::call`), one for
//!   each function.
//! * a thread that frees what takes long to free (`memory`).
//! * a thread that adds and removes guests (`guests`), one for the admin sockets (`admin`), four
//!   that write captures, and two that close descriptors of clients (`capture`).
//!
//! The modules in short:
//!
//! * `streams` has the connections of iWARP functions: kernel sockets (`tcp`) or vrdma's own TCP.
//! * `device` defines a guest's objects. `translate` converts between the types of abi and
//!   transport.
//! * `queue` moves rings. `memory` maps and accesses guest memory.
//! * `frames` parses Ethernet frames. `socket` decides who may connect.
//!
//! The modules are private, but documented: `cargo doc --document-private-items -p vrdma-backend`.
//!
//! # Files
//!
//! The import graph of the files has no cycles: `cargo xtask test --only cycles` checks that. The
//! tests in `tests.rs` compare the two lists that follow with the sources. They also check that
//! this page names every file, or the folder of the file.
//!
//! Each of these modules uses only those before it: `allocator`, `nearest`, `logger`, `panics`,
//! `hooks`, `cycles`, `ratelimit`, `service`, `processors`, `jail`, `allowed`, `frames`, `gids`,
//! `port`, `capture`, `config`, `socket`, `tcp`, `memory`, `queue`, `translate`, `device`, `net`,
//! `streams`, `worker`, `vhost`, `command`, `functions`, `session`, `stats`, `guests`, `admin`,
//! `daemon`, `fuzzing`.
//!
//! Two modules convert between the types of `vrdma_abi` and of `vrdma_transport`: `command/` for
//! the control queue, and `translate/` for the data path and events. No other module names both
//! crates, except the backend's fuzzing code (`fuzzing/`).
//!
//! Unsafe code is in `memory/`, in parts of `port/`, and in the files marked *unsafe*. In `port/`
//! it serves DPDK, the packet socket's system calls, memory attached to frames, and the rings
//! between workers.
//!
//! ## The process
//!
//! * `main.rs` is the program. It parses the command line, runs the daemon and stops it on a
//!   signal.
//! * `config/` reads flags and the configuration file, and refuses settings that make no sense.
//! * `daemon.rs` claims the sockets, opens the uplink, and starts workers, guests and admin thread.
//! * `guests/` adds, changes and removes guests, at the start and while the daemon runs.
//! * `stats.rs` collects the counters that an operator can see.
//! * `admin.rs` serves the admin sockets. `admin/` has their clients, and answers what they ask.
//! * `capture/` writes what guests send and receive to files of administrators.
//! * `allocator.rs` (*unsafe*) places large allocations so that the kernel can use huge pages.
//! * `panics.rs` decides whether a panic ends the process, or only the guests that the step had
//!   changed (docs/design/panics.md).
//! * `logger.rs` sets the log level, and `logger/journal.rs` writes to systemd's journal.
//!   `ratelimit.rs` limits messages that others can provoke.
//! * `service.rs` tells the service manager that the daemon is ready, its status, and that it
//!   lives.
//! * `nearest.rs` suggests the name that a mistyped name probably stands for.
//! * `jail/` takes away what the daemon does not need after its start: user, capabilities, files,
//!   namespaces and system calls. Its `others.rs` is *unsafe*.
//! * `processors.rs` pins threads to processors.
//! * `cycles.rs` and `cycles/` account for the worker's time by stage, with the feature `cycles`.
//!   Without the feature none of this is compiled in. `cycles/on.rs` is *unsafe*.
//! * `hooks.rs` lets tests act at chosen points of a thread, with the feature `hooks`.
//!
//! ## Front-ends and control commands
//!
//! * `socket.rs` claims Unix sockets. `socket/watch.rs` binds a socket again after its file was
//!   deleted. `socket/guard.rs` decides who may connect, and `socket/peer.rs` finds out who it is.
//! * `socket/inherited.rs` (*unsafe*) takes sockets that the daemon inherits as descriptors.
//!   `socket/connector.rs` connects to front-ends that listen. `socket/side.rs` is one of both
//!   sides. `socket/admission.rs` keeps new front-ends out. `socket/stream.rs` (*unsafe*) opens
//!   sockets, and has some take no descriptors.
//! * `session.rs` is the thread of one function of a guest. It accepts the front-end, reads
//!   vhost-user messages and serves the control queue. `session/inline.rs` runs a session without a
//!   thread, for fuzzing.
//! * `vhost.rs` keeps the queues and memory that a front-end has set up, and passes them to the
//!   function. `vhost/messages.rs` handles each vhost-user message.
//! * `functions/rdma.rs` and `functions/ethernet.rs` start, stop and reset an RDMA function and an
//!   Ethernet function. The first also translates all regions and CQs of a guest after a new
//!   memory table.
//! * `command/` has control commands. Each file has the commands for one kind of object, from
//!   request to reply.
//! * `command/base.rs` defines what a command is, and `command/rows.rs` lists all commands.
//! * `command/queue.rs` copies a command out of its descriptor chain and writes the reply.
//!   `command/request.rs` reads the header and finds the command. `command/body.rs` reads the rest,
//!   and `command/caller.rs` holds the data of the guest that parsing needs.
//! * `command/cm/` has the commands about iWARP connections, and creates their sockets.
//! * `translate/` converts requests, completions and events between ABI and transport. Its
//!   `config_space.rs` fills the configuration space.
//!
//! ## The device of a guest
//!
//! * `device/context.rs`, `device/channel.rs`, `device/pd.rs`, `device/mr.rs`, `device/cq.rs`,
//!   `device/qp.rs` and `device/srq.rs` create, change and end objects of their kind.
//! * `device/mod.rs` is the device. `device/objects.rs` defines the fields of each object, and
//!   `device/table.rs` stores objects by number.
//! * `device/ah.rs` reads entries of the address handle table, which is in guest memory.
//! * `device/quota.rs` counts objects against the guest's limits. `device/counters.rs` counts
//!   events that the engine does not count.
//! * `device/queues.rs` maps virtqueue numbers to their purposes.
//! * `device/failures.rs` keeps the last errors of QPs, for the operator. `device/latency.rs` keeps
//!   how long some requests took, and `device/peaks.rs` the largest numbers of the last minute.
//! * `device/outputs.rs` receives completions and events from the engine, and writes CQEs.
//! * `device/outputs/notifications.rs` notifies guests of new CQEs and events, if they asked for
//!   it.
//! * `device/moderation.rs` delays completion events until enough completions came, or until a time
//!   limit.
//! * `device/clock.rs` provides the time stamps of completions.
//! * `device/broken.rs` runs a step so that a panic ends only the devices that the step had
//!   changed.
//!
//! ## Memory, rings, frames and ports
//!
//! * `memory/` maps guest memory and accesses it. It has registered regions, the SIGBUS handler,
//!   pinned regions for other workers, and the reaper thread that unmaps memory.
//! * `queue/` moves the rings: channels, CQs, event queues, Ethernet virtqueues, kicks and
//!   interrupts. It does not know what the entries mean.
//! * `frames/` handles headers, checksums and offloads of Ethernet frames. Its `sum.rs` is
//!   *unsafe*: it uses instructions that not every processor has.
//! * `net/` contains the Ethernet functions and the switch between guests, engine and uplink.
//! * `port/` sends and receives frames. It has DPDK devices, the packet socket driver (`packet/`),
//!   the rings between workers (`worker_port/`), captures, injected faults and a port pair in
//!   memory. It is the only code that knows DPDK.
//! * `allowed.rs` decides which VLANs and IP addresses a guest may use.
//! * `gids.rs` records which guest of which worker owns each GID.
//!
//! ## iWARP connections
//!
//! * `streams/mod.rs` has all connections of a worker. `streams/tests/` has tests.
//! * `tcp.rs` has the addresses of connections and listeners. It creates their sockets if they use
//!   the host's TCP.
//! * `streams/cm.rs` defines the drivers' requests and the events for them.
//! * `streams/commands.rs` and `streams/accept.rs` execute commands on connections and listeners.
//! * `streams/connection.rs` is the state of a connection. `streams/listener.rs` is that of a
//!   listener.
//! * `streams/table.rs` stores both by number. `streams/handle.rs` identifies an entry: numbers are
//!   reused, handles are not.
//! * `streams/bindings.rs` records which QP has which connection. `streams/guest.rs` keeps the
//!   entries of each guest, and events that its driver has not received yet.
//! * `streams/turn.rs` does the work of one worker round. `streams/ready.rs` picks the next
//!   connection, fairly between guests. `streams/serve.rs` does all that can be done for it.
//! * `streams/watch.rs` waits for events of connections and listeners. `streams/expiry.rs` handles
//!   deadlines that have passed, which `streams/deadlines.rs` finds.
//! * `streams/input.rs` passes received bytes to the MPA set-up or to the engine.
//!   `streams/pending.rs` keeps bytes that the engine has not taken yet.
//! * `streams/receiver.rs` passes segments of vrdma's own TCP to the engine without buffering.
//! * `streams/outlet.rs` takes FPDUs from the engine. `streams/output.rs` keeps them until they are
//!   sent. `streams/buffers.rs` keeps buffers for reuse. `streams/hash.rs` hashes numbers that
//!   vrdma itself assigned.
//! * `streams/end.rs` ends connections: by the peer, the engine or the driver, and with their
//!   guest.
//! * `streams/stream_transport.rs` hides whether a connection uses a kernel socket, vrdma's own
//!   TCP, or a loopback connection between two guests of one worker.
//! * `streams/user_tcp/` adapts the crate `vrdma-tcp`:
//!   * `mod.rs` has the TCP of all guests. `node.rs` is that of one guest. It
//!     prefetches connections into the caches.
//!   * `listeners.rs` has its listeners. `arrivals.rs` handles frames that arrive for it.
//!   * `end.rs` is one end of a connection. `user.rs` has the calls of its user.
//!   * `send.rs` and `receive.rs` are the buffers. `budget.rs` limits their memory.
//!   * `receiver.rs` is the interface that takes payload directly from a frame.
//!   * `transmit.rs` sends segments.
//!   * `loopback.rs` is the loopback connection between two guests of one worker. `stats.rs` has
//!     the counters.
//!
//! ## The worker
//!
//! * `worker.rs` has the state of a worker, and `worker/run.rs` is the loop. `worker/handle.rs`
//!   starts a worker and lets other threads call into it. `worker/mail.rs` is a flag that says
//!   whether a message waits.
//! * `worker/workers.rs` starts and stops all workers, and `worker/members.rs` adds and removes
//!   guests while they run. `worker/watch.rs` notices a worker that is stuck.
//! * `worker/peers.rs` adds the guests and GIDs of other workers.
//! * `worker/polling.rs` decides whether an idle worker polls, naps for 20 us, or sleeps until it
//!   is woken. `worker/sleep.rs` puts it to sleep, and `worker/exact_wait.rs` makes the system
//!   call. `worker/second_look.rs` is the timer after which a sleeping worker checks the rings once
//!   more.
//! * `worker/channels.rs` takes requests from channels, `worker/fetched_requests.rs` holds those
//!   copied out, `worker/turns.rs` remembers the next channel of each guest, and `worker/post.rs`
//!   calls the engine.
//! * `worker/execution.rs` executes commands. `worker/order.rs` makes a command or a message wait
//!   for requests that were posted before it. `worker/addresses.rs` decides which addresses a guest
//!   gets.
//! * `worker/guests.rs` adds, starts, stops and resets guests. `worker/remap.rs` installs the
//!   regions and CQs that were translated for a new memory table.
//! * `worker/failures.rs` moves QPs to ERR after their CQ failed. `worker/broken.rs` ends the
//!   guests of a step that panicked.
//! * `worker/view.rs` shows operators the worker and the objects of its guests. `worker/usage.rs`
//!   accounts for the worker's time, `worker/latencies.rs` measures some requests, and
//!   `worker/peaks.rs` samples guests.
//! * `worker/release.rs` makes answers wait until the uplink's driver has released pinned guest
//!   memory. `worker/pending_release.rs` defines such a wait.
//! * `worker/uplink.rs` connects engine, switch and port. `worker/sinks.rs` is the switch's view
//!   of the engine, of vrdma's own TCP and of the port. `worker/link.rs` keeps the state of the
//!   link.
//! * `worker/packets/` carries inter-worker RoCE packets, between the engines of different workers,
//!   without building frames.
//! * `worker/captures.rs` begins and ends captures.
//! * `worker/streams.rs` runs the round of the iWARP connections.
//! * `worker/inline.rs` and `worker/current_worker.rs` run a worker in the thread of its caller,
//!   for fuzzing.
//! * `worker/sync.rs` selects the atomics, which are loom's in loom tests.
//!
//! ## Fuzzing
//!
//! * `fuzzing/` speaks to the daemon as hostile guests and front-ends do. The fuzz targets call it,
//!   and its tests replay their corpus.
#![deny(unsafe_code)]

mod admin;
pub mod allocator;
pub mod allowed;
mod capture;
mod command;
pub mod config;
mod cycles;
pub mod daemon;
mod device;
mod frames;
mod functions;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gids;
mod guests;
#[cfg(feature = "hooks")]
pub mod hooks;
pub mod jail;
pub mod logger;
mod memory;
mod nearest;
mod net;
pub mod panics;
pub mod port;
mod processors;
mod queue;
pub mod ratelimit;
pub mod service;
mod session;
mod socket;
mod stats;
mod streams;
/// vrdma's own TCP as the worker uses it.
///
/// It is public so that `vrdma-perf wire --iwarp` can measure it alone.
pub mod user_tcp {
    pub use crate::memory::fetch_ahead;
    pub use crate::streams::{
        Came, Handle, Output, SEGMENTS, SegmentReceiver, TURN_BYTES, UserSocket, UserTcp,
    };
    pub use crate::tcp::{Path, TrafficClass};
}
/// The inter-worker transport of RoCE packets.
///
/// It is public so that `vrdma-perf workers` can measure it alone.
pub mod packets {
    pub use crate::memory::{Extent, GuestMemory, MapOptions, MrMemory, PinGate, RegionSpec};
    pub use crate::port::Endpoint;
    pub use crate::worker::packets::{PacketPort, packet_ports};
}
mod tcp;
mod translate;
mod vhost;
mod worker;

#[cfg(test)]
mod tests;
// Tests of all crates share this helper. It is included by path, because this crate cannot depend
// on the crate `guest`, which is above it.
#[cfg(test)]
#[path = "../../testing/guest/src/wait.rs"]
#[allow(dead_code, reason = "tests of other crates use the rest")]
mod wait;
