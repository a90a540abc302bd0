//! TCP as a carrier of messages, without I/O.
//!
//! A [`Connection`] is one end of a TCP connection (RFC 9293) as plain data: no socket, clock,
//! thread, buffer or randomness of its own. It is made for a user that sends *references* to memory
//! and places what arrives by itself, as RDMA over TCP does. What such a user needs is less than a
//! stack: no stream buffers, a window that is always the same, no Nagle; and more: data is handed
//! up beyond holes. A [`Stack`] is all connections of a host: whose a segment is, listeners,
//! TIME-WAIT, RSTs for strangers.
//!
//! The crate knows `vrdma-wire` alone: bytes become [`Header`](vrdma_wire::tcp::Header)s there. The
//! daemon uses it for the iWARP of guests with `tcp = "own"`.
//!
//! # The contract
//!
//! Whoever drives it (one thread) tells the time, and
//!
//! * hands segments in ([`Connection::handle_segment`]), their checksum checked;
//! * calls [`Connection::handle_timeout`] at [`Connection::poll_timeout`] at the latest;
//! * after each call takes what is to be sent ([`Connection::poll_transmit`]) until there is
//!   nothing, and events ([`Connection::poll_event`]);
//! * says when a router complained ([`Connection::handle_too_long`]).
//!
//! # Sending
//!
//! The stream is the user's. TCP asks for it by place, from 0 on: [`Source::segment_at`] says how
//! long the segment is that begins there (whole FPDUs, at most [`Connection::mss`]), and a
//! [`Segment`] says which bytes are to follow the header. The user keeps being able to produce
//! bytes until [`Connection::acknowledged`] is beyond them. A retransmission sends the same bytes
//! between the same places: for each segment that is outstanding there is a record of where it was
//! cut. Cuts are not moved, but added where there is no other way: if the path takes less than it
//! did, or if the peer's window stays too small for a segment. PSH is set where the user has no
//! more.
//!
//! # Receiving
//!
//! New bytes are handed up as they come, in order or not ([`Arrival`]: their place, and up to where
//! the stream is complete). The user says how many it has taken: placed, or held. Those are told to
//! the peer, in order by the acknowledgment number, beyond holes by SACKs, and never come again;
//! what is not taken is as if it had been lost. A byte that was taken is not handed up twice,
//! whatever the peer sends. [`Connection::complete`] is the place of delivery in order.
//!
//! # What it does
//!
//! | what | how | where |
//! |---|---|---|
//! | states, half-open and simultaneous connections, RSTs | RFC 9293 | `input`, `connection` |
//! | blind RSTs, SYNs and data | RFC 5961; one challenge in 50 ms | `input` |
//! | window scale, timestamps, PAWS | RFC 7323 | `input`, `output` |
//! | SACKs and DSACKs, both ways | RFC 2018, 2883, 6675 | `reassembly`, `scoreboard` |
//! | when something is lost | RACK-TLP, RFC 8985; without SACKs NewReno, RFC 6582 | `rack`, `recovery` |
//! | how much is sent in a recovery; in slow start and after | PRR, RFC 6937, 9937; CUBIC, RFC 9438 | `prr`, `congestion` |
//! | when: over the round trip, not in bursts | pacing, RFC 9002, 7.7, of round trips above 100 us | `pace` |
//! | recoveries for nothing are undone | by DSACKs; by timestamps, RFC 3522 | `recovery` |
//! | retransmission timeout | RFC 6298, in nanoseconds, least by configuration | `rtt` |
//! | closed and small windows, silent peers, delayed acknowledges | RFC 9293, 3.8 | `output`, `timeout` |
//! | which segments are whole FPDUs | a TCP option with their length, for experiments (RFC 6994), where both ends know it: who cuts or joins segments on the way does not mend it | `input`, `output` |
//! | a peer's MSS that makes crumbs, and SACKs that name them again and again | an MSS of 216 at least, 768 segments outstanding at most, and runs of sacked segments that are skipped | `input`, `scoreboard` |
//! | path MTU | by ICMP, RFC 5927; black holes by timeouts; a longer segment is tried again after ten minutes, RFC 8899 | `timeout` |
//! | a flood of SYNs | a bounded backlog; beyond it cookies, RFC 4987, 3.6, which keep all options where there are timestamps, and else the MSS alone | `stack` |
//! | initial numbers | RFC 6528 | `initial` |
//! | deadlines of all connections | a wheel, of ticks of 4 us | `wheel` |
//!
//! An idle connection is under 1 KiB, and has no deadline unless keep-alive is on. State is saved
//! and restored as a value ([`Connection::save`], [`Stack::adopt`]); listeners are configuration,
//! and half-open connections that are lost begin again.
//!
//! # What it does not
//!
//! * ECN (RFC 3168), HyStart++ (RFC 9406), F-RTO (RFC 5682), searching for a larger path MTU (RFC
//!   4821): not yet.
//! * Urgent data is data: MPA has no use for it. TCP Fast Open, MD5 and AO options: nobody asks for
//!   them.
//! * A closed window is probed with an old number instead of a byte of new data (as Linux does):
//!   the byte would cut an FPDU in two.
//! * ICMP errors other than "too long" are soft and left to the user (RFC 5461).
//! * IP options, source routes, type of service: who writes the IP header has them.
//!
//! `src/tests/requirements.rs` goes through the table of RFC 9293, appendix B: each requirement has
//! a test, or a reason.
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
//!    `stack.rs` and `stack/` add listeners, SYN cookies, limits, and segments of no connection.
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
pub use stack::{Origin, Outgoing, Refused, Sources, Stack, StackCounters, StackLimits};
pub use table::{ConnectionId, ConnectionLines};
pub use time::Instant;
pub use tuple::{NextHop, Tuple};
