//! TCP (RFC 9293) as a transport of messages, without I/O.
//!
//! A [`Connection`] is one end of a TCP connection as plain data. It has no socket, clock, thread,
//! buffer or randomness of its own. It is made for a user that sends *references* to memory and
//! places arriving data itself, as RDMA over TCP does. Such a user needs no stream buffers, no
//! varying window and no Nagle algorithm. But it needs data beyond gaps, which an ordinary stack
//! does not deliver.
//!
//! A [`Stack`] holds all connections of a host. It finds the connection of a segment, and handles
//! listeners, TIME-WAIT and RSTs for segments of no connection.
//!
//! The crate depends on `vrdma-wire` only, which parses bytes into
//! [`TcpHeader`](vrdma_wire::tcp::TcpHeader)s. The daemon uses the crate for the iWARP of guests
//! with `tcp = "own"`.
//!
//! # The contract
//!
//! One thread drives the crate and passes the time to it. This driver
//!
//! * passes segments whose checksum is verified to [`Connection::handle_segment`];
//! * calls [`Connection::handle_timeout`] at [`Connection::poll_timeout`] at the latest;
//! * after each call takes the segments to send ([`Connection::poll_transmit`]) until there are
//!   none, and the events ([`Connection::poll_event`]);
//! * reports ICMP errors of routers about the MTU ([`Connection::handle_too_long`]).
//!
//! # Sending
//!
//! The user owns the stream. TCP asks for data by its offset in the stream, from 0 on.
//! [`Source::segment_at`] returns the length of the segment that begins at an offset. It contains
//! whole FPDUs and at most [`Connection::mss`] bytes. A [`Segment`] names the bytes that follow its
//! header. The user must be able to produce bytes again until [`Connection::acknowledged`] is
//! beyond them.
//!
//! A retransmission sends the same bytes with the same boundaries. For this, each outstanding
//! segment has a record of its boundaries. Boundaries never move. New ones are added only if the
//! path takes shorter segments than before, or if the peer's window stays too small for a segment.
//! PSH is set if the user has no more data.
//!
//! # Receiving
//!
//! New bytes are delivered as they arrive, in order or not. An [`Arrival`] has their offset, and
//! the offset up to which the stream is complete. The user returns how many bytes it took, by
//! placing or queueing them. Only these bytes are reported to the peer: by the acknowledgment
//! number if they are in order, by SACKs if they are beyond a gap. They are never delivered again,
//! whatever the peer sends. Bytes that the user does not take count as lost.
//! [`Connection::complete`] is the offset up to which delivery is in order.
//!
//! # What it does
//!
//! | what | how | where |
//! |---|---|---|
//! | states, half-open and simultaneous connections, RSTs | RFC 9293 | `input`, `connection` |
//! | blind RSTs, SYNs and data | RFC 5961; at most one challenge ACK in 50 ms | `input`, `connection` |
//! | window scale, timestamps, PAWS | RFC 7323 | `input`, `output` |
//! | SACKs and DSACKs, in both directions | RFC 2018, 2883, 6675 | `reassembly`, `scoreboard` |
//! | loss detection | RACK-TLP, RFC 8985; without SACKs NewReno, RFC 6582 | `rack`, `recovery` |
//! | sending rate: in a recovery; in slow start and after it | PRR, RFC 6937, 9937; CUBIC, RFC 9438 | `prr`, `congestion` |
//! | spreading segments over the round trip instead of bursts | pacing, RFC 9002, 7.7, for round trips above 100 us | `pace` |
//! | undoing of spurious recoveries | by DSACKs; by timestamps, RFC 3522 | `recovery` |
//! | retransmission timeout | RFC 6298, in nanoseconds; the minimum is configured | `rtt` |
//! | closed and small windows, silent peers, delayed ACKs | RFC 9293, 3.8 | `output`, `timeout` |
//! | which segments are whole FPDUs | an experimental TCP option (RFC 6994) with their length, if both ends know it; a middlebox that splits or joins segments does not correct it | `input`, `output` |
//! | a peer with a tiny MSS, and SACKs that name its many segments again and again | an MSS of at least 216, at most 768 outstanding segments, and sacked ranges that are skipped | `input`, `scoreboard` |
//! | path MTU | by ICMP, RFC 5927; black holes by timeouts; a longer segment is tried again after ten minutes, RFC 8899 | `timeout` |
//! | SYN floods | a bounded backlog; beyond it SYN cookies, RFC 4987, 3.6, which keep all options with timestamps, and only the MSS without | `stack` |
//! | initial sequence numbers | RFC 6528 | `initial` |
//! | deadlines of all connections | a timer wheel with ticks of 4 us | `wheel` |
//!
//! An idle connection takes less than 1 KiB, and has no deadline unless keep-alive is on. Its state
//! is saved and restored as a value ([`Connection::save`], [`Stack::adopt`]). Listeners are
//! configuration. Half-open connections that are lost begin again.
//!
//! # What it does not
//!
//! * ECN (RFC 3168), HyStart++ (RFC 9406), F-RTO (RFC 5682), and search for a larger path MTU (RFC
//!   4821) are not implemented.
//! * Urgent data is treated as data: MPA has no use for it. There are no TCP Fast Open, MD5 and AO
//!   options, because no user needs them.
//! * A closed window is probed with an old sequence number instead of a byte of new data, as Linux
//!   does. The byte would split an FPDU.
//! * ICMP errors other than "too long" are soft, and left to the user (RFC 5461).
//! * IP options, source routes and type of service belong to the code that writes the IP header.
//!
//! `src/tests/requirements.rs` lists the requirements of RFC 9293, appendix B. Each has a test, or
//! a reason why it has none.
//!
//! # Files
//!
//! The crate is separate from the engine, so that it builds and tests in seconds. It knows no queue
//! pairs. Each group below imports only from the groups listed before it.
//!
//! 1. Basic types: `time.rs`, `seq.rs` (sequence numbers of 64 bits, which do not wrap),
//!    `config.rs`, `counters.rs`, `timers.rs` (one deadline for each purpose).
//! 2. Sending rate: `rtt.rs` (round-trip time and retransmission timeout), `congestion.rs` (the
//!    congestion window), `prr.rs` (sending during a recovery), `pace.rs` (when segments leave).
//! 3. Segments that were sent: `scoreboard.rs` (which of them arrived), `rack.rs` (which of them
//!    are lost).
//! 4. Data that arrived, and its acknowledgment: `reassembly.rs`.
//! 5. The connection: `parts.rs`, `connection.rs`.
//! 6. Events of a connection: `recovery.rs` (losses), `acknowledge.rs` (acknowledgments),
//!    `input.rs` (segments), `output.rs` (sending), `timeout.rs` (time), `time_wait.rs` (when
//!    TIME-WAIT gives way), `save.rs` (saving and restoring).
//! 7. The host: `tuple.rs` (the identity of a connection), `initial.rs` (initial sequence numbers),
//!    `wheel.rs` (deadlines of all connections), `table.rs` (connections by number and by tuple).
//! 8. The stack: `stack/limits.rs`, `stack/state.rs` (its state), `stack/time_wait.rs` (replacement
//!    of connections in TIME-WAIT), `stack/listeners.rs`, `stack/cookies.rs` (SYN cookies),
//!    `stack/strangers.rs` (segments of no connection), `stack.rs` (what the user calls).
//!
//! # Tests
//!
//! * Tables in virtual time describe conversations of one connection. `src/tests/script.rs`
//!   explains their lines.
//! * Two connections talk over a simulated bad network (`src/tests/sim.rs`).
//! * A connection talks to smoltcp (`src/tests/smoltcp.rs`) and to Linux (`tests/linux/`). The
//!   Linux hosts are network namespaces, and the network between them is simulated. The bench
//!   `benches/linux.rs` uses these hosts too.
//! * Saved connections with one changed value are refused, or go on without harm
//!   (`src/tests/records.rs`).
//! * `src/tests/requirements.rs` goes through the list of requirements in RFC 9293.
#![forbid(unsafe_code)]

mod acknowledge;
mod config;
mod congestion;
mod connection;
mod counters;
mod initial;
mod input;
mod output;
mod pace;
mod parts;
mod prr;
mod rack;
mod reassembly;
mod recovery;
mod rtt;
mod save;
mod scoreboard;
mod seq;
mod stack;
mod table;
#[cfg(test)]
mod tests;
mod time;
mod time_wait;
mod timeout;
mod timers;
mod tuple;
mod wheel;

pub use config::{Config, KeepAlive};
pub use connection::{Connection, Event, Ports, Reason, State};
pub use counters::{Counters, Totals};
pub use output::{Segment, Source};
pub use reassembly::Arrival;
pub use save::Saved;
pub use stack::{Outgoing, Refused, SegmentSource, Sources, Stack, StackCounters, StackLimits};
pub use table::{ConnectionId, ConnectionLines};
pub use time::Instant;
pub use tuple::{NextHop, Tuple};
