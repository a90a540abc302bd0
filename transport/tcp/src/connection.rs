//! The state of a connection as plain data, and what its user reads of it.

use crate::config::Config;
use crate::congestion::Congestion;
use crate::counters::Counters;
use crate::pace::Pace;
use crate::parts::{Agreed, Due, FullSize, Recovery, SendWindow, Stamps, Undo};
use crate::rack::Rack;
use crate::reassembly::Reassembly;
use crate::rtt::Rtt;
use crate::scoreboard::Scoreboard;
use crate::seq::{Origin, SYN, offset};
use crate::time::{Instant, nanoseconds};
use crate::timers::{Timer, Timers};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// How long a connection without a user may take to send its remaining data.
const LINGER: Duration = Duration::from_secs(30);

/// The states of a connection (RFC 9293, 3.3.2). LISTEN belongs to a [`Stack`](crate::Stack).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// A SYN was sent.
    SynSent,
    /// SYNs were sent and received, but our SYN is not acknowledged yet.
    SynReceived,
    /// Data flows in both directions.
    Established,
    /// This end has closed. Its FIN may have been sent, and is not acknowledged yet.
    FinWait1,
    /// This end has closed, and the peer has acknowledged it.
    FinWait2,
    /// The peer has closed.
    CloseWait,
    /// Both ends have closed simultaneously. Our FIN is not acknowledged yet.
    Closing,
    /// The peer has closed, then this end. Our FIN is not acknowledged yet.
    LastAck,
    /// Both ends have closed. The connection waits until its segments have left the network.
    TimeWait,
    /// The connection has ended.
    Closed,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// Both ends closed it.
    Finished,
    /// The peer reset it.
    Reset,
    /// The peer refused the connection: nobody listens there.
    Refused,
    /// The peer does not answer.
    TimedOut,
    /// This end gave it up.
    Aborted,
}

/// An event that the user of a connection has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The connection is set up.
    Established,
    /// The peer sends no more, and all that it sent was taken.
    EndOfStream,
    /// The connection has ended.
    Closed(Reason),
}

/// The ports of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ports {
    /// The port of this end.
    pub local: u16,
    /// The port of the peer.
    pub remote: u16,
}

/// A TCP connection as plain data. Equal calls make equal connections.
///
/// With thousands of connections, each is out of the caches when its turn comes. So the fields that
/// every segment needs lie together. The fields that an arriving segment needs come first, and
/// rarely used ones last. `table.rs` aligns a connection to the beginning of a cache line.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Shared by all connections with equal configuration.
    pub(crate) config: Arc<Config>,
    pub(crate) ports: Ports,
    pub(crate) send_origin: Origin,
    pub(crate) receive_origin: Origin,
    pub(crate) agreed: Agreed,
    pub(crate) state: State,
    /// The user has closed: a FIN follows the remaining data.
    pub(crate) is_closing: bool,
    /// Something other than the congestion window limits the sender.
    pub(crate) is_app_limited: bool,
    /// The number of segments that were taken since the last ACK was sent.
    pub(crate) unacknowledged: u8,
    /// The number of further segments that are acknowledged at once, because data was out of order.
    #[serde(default)]
    pub(crate) at_once: u8,
    /// The number of probes of the closed window, or of the silent peer.
    pub(crate) probes: u8,
    /// Events that the user has not taken yet: at most one of each kind.
    pub(crate) established: bool,
    pub(crate) end_of_stream: bool,
    pub(crate) closed: Option<Reason>,
    /// The connection began with a SYN of the peer to a listener.
    pub(crate) is_passive: bool,
    pub(crate) due: Due,
    /// Bytes that may arrive beyond the complete part of the stream.
    pub(crate) receive_window: u64,
    /// When the last segment of the peer arrived.
    pub(crate) heard: Instant,

    pub(crate) timers: Timers,
    /// When something that needs an acknowledgment was last sent.
    pub(crate) sent_last: Instant,
    pub(crate) pace: Pace,

    pub(crate) received: Reassembly,
    pub(crate) stamps: Stamps,
    /// Maximum data of a segment: what the peer and the path take, less the options of each
    /// segment.
    pub(crate) mss: u64,
    /// The number of our FIN, after it was sent.
    pub(crate) fin: Option<u64>,

    pub(crate) board: Scoreboard,
    pub(crate) window: SendWindow,
    /// Since when data or a probe has been outstanding without progress. `None` if nothing is.
    pub(crate) stuck_since: Option<Instant>,

    /// ACKs without progress, if the peer has no SACKs (RFC 5681).
    pub(crate) duplicate_acks: u32,
    pub(crate) recovery: Recovery,
    pub(crate) rtt: Rtt,
    pub(crate) rack: Rack,
    pub(crate) congestion: Congestion,

    pub(crate) undo: Option<Undo>,
    /// The number of timeouts since new data was acknowledged.
    #[serde(default)]
    pub(crate) timeouts_in_a_row: u8,
    /// Maximum number of duplicate ACKs that count in this recovery, if the peer has no SACKs.
    #[serde(default)]
    pub(crate) most_duplicates: u32,
    /// The former segment length, if the path takes only shorter segments.
    #[serde(default)]
    pub(crate) full: Option<FullSize>,
    /// The peer's last timestamp in the connection that gave way to this one, if there was one.
    #[serde(default)]
    pub(crate) former_stamp: Option<u32>,
    /// When the last challenge ACK was sent in answer to an invalid segment (RFC 5961, 7).
    pub(crate) challenged: Option<Instant>,
    pub(crate) counters: Counters,
}

impl Connection {
    /// Begins a connection by a SYN of this end.
    ///
    /// The initial sequence number and the offset of the timestamp clock should be hard to guess
    /// (RFC 6528; RFC 7323, 5.4).
    #[must_use]
    pub fn connect(
        config: impl Into<Arc<Config>>,
        ports: Ports,
        initial: u32,
        clock: u32,
        now: Instant,
    ) -> Connection {
        let config = config.into();
        let mut connection = Connection::new(config.clone(), ports, initial, clock, now);
        connection.agreed.sack = config.sack;
        connection.agreed.timestamps = config.timestamps;
        connection.agreed.fpdus = config.fpdus;
        connection.agreed.receive_scale = config.window_scale();
        connection
    }

    pub(crate) fn new(
        config: Arc<Config>,
        ports: Ports,
        initial: u32,
        clock: u32,
        now: Instant,
    ) -> Connection {
        let mss = u64::from(config.mss);
        Connection {
            ports,
            state: State::SynSent,
            is_passive: false,
            is_closing: false,
            agreed: Agreed::default(),
            stamps: Stamps { offset: clock, recent: 0, recent_at: now, last_ack: 0 },
            mss,
            send_origin: Origin(initial),
            board: Scoreboard::new(SYN),
            fin: None,
            window: SendWindow { size: 0, seq: 0, ack: 0, largest: 0 },
            rtt: Rtt::default(),
            congestion: Congestion::new(u64::from(config.initial_window.max(1)) * mss),
            recovery: Recovery::Open,
            undo: None,
            timeouts_in_a_row: 0,
            most_duplicates: 0,
            full: None,
            rack: Rack::new(SYN),
            duplicate_acks: 0,
            is_app_limited: true,
            sent_last: now,
            pace: Pace::default(),
            stuck_since: None,
            receive_origin: Origin(0),
            received: Reassembly::new(),
            receive_window: config.receive_window(),
            unacknowledged: 0,
            at_once: 0,
            heard: now,
            former_stamp: None,
            challenged: None,
            probes: 0,
            timers: Timers::default(),
            due: Due::default(),
            established: false,
            end_of_stream: false,
            closed: None,
            counters: Counters::default(),
            config,
        }
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the ports.
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the current maximum data of a segment.
    ///
    /// It may decrease (path MTU). Then segments that were cut before are sent in parts.
    pub fn mss(&self) -> u32 {
        self.mss as u32
    }

    /// Returns the offset up to which the peer has the stream. Earlier bytes are not asked for
    /// again.
    pub fn acknowledged(&self) -> u64 {
        offset(self.board.una().min(self.fin.unwrap_or(u64::MAX)))
    }

    /// Returns the offset up to which the stream was sent.
    pub fn sent(&self) -> u64 {
        offset(self.board.nxt().min(self.fin.unwrap_or(u64::MAX)))
    }

    /// Returns the offset up to which the peer's stream is complete.
    pub fn complete(&self) -> u64 {
        offset(self.received.nxt()) - u64::from(self.received.is_finished())
    }

    /// Returns the smoothed round-trip time in nanoseconds, after the first measurement.
    pub fn round_trip(&self) -> Option<u64> {
        self.rtt.smoothed()
    }

    /// Returns the congestion window in bytes.
    pub fn congestion_window(&self) -> u64 {
        self.congestion.window
    }

    /// Returns when [`handle_timeout`](Connection::handle_timeout) is due; `None` if no timer runs.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Takes the next event for the user. Each is returned once.
    pub fn poll_event(&mut self) -> Option<Event> {
        if core::mem::take(&mut self.established) {
            return Some(Event::Established);
        }
        if core::mem::take(&mut self.end_of_stream) {
            return Some(Event::EndOfStream);
        }
        self.closed.take().map(Event::Closed)
    }

    /// Closes the sending direction: a FIN follows the data that the user has at present.
    ///
    /// Data of the peer is still taken. In SYN-SENT the connection ends at once.
    pub fn close(&mut self) {
        match self.state {
            State::SynSent => self.end(Reason::Aborted),
            State::SynReceived | State::Established | State::CloseWait => self.is_closing = true,
            _ => {}
        }
    }

    /// Bounds the life of a connection whose user has gone after both ends said that they close.
    ///
    /// The remaining data has half a minute from the last segment of the peer. A peer that keeps
    /// its window closed, or takes a byte now and then, could otherwise hold the connection for
    /// ever.
    pub fn leave(&mut self) {
        if self.state != State::Closed {
            self.timers.set(Timer::Linger, self.heard + LINGER);
        }
    }

    /// Gives the connection up. A RST tells the peer, if it may know of the connection.
    pub fn abort(&mut self) {
        match self.state {
            State::Closed => return,
            State::SynSent | State::TimeWait => {}
            _ => self.due.reset = Some((self.send_origin.wire(self.board.nxt()), true)),
        }
        self.end(Reason::Aborted);
    }

    /// Returns whether both ends know each other's sequence numbers.
    pub(crate) fn is_synchronized(&self) -> bool {
        !matches!(self.state, State::SynSent | State::SynReceived | State::Closed)
    }

    /// Returns the bytes of options in each segment with data: those of timestamps and of FPDUs.
    pub(crate) fn options_len(&self) -> u64 {
        12 * u64::from(self.agreed.timestamps) + 8 * u64::from(self.agreed.fpdus)
    }

    /// Returns the initial congestion window in bytes (RFC 6928).
    pub(crate) fn initial_window(&self) -> u64 {
        u64::from(self.config.initial_window.max(1)) * self.mss
    }

    /// Returns whether the peer has acknowledged our FIN.
    pub(crate) fn is_fin_acknowledged(&self) -> bool {
        self.fin.is_some_and(|fin| self.board.una() > fin)
    }

    /// Ends the connection: stops all timers and keeps only a RST that is due.
    pub(crate) fn end(&mut self, reason: Reason) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.closed = Some(reason);
        self.timers = Timers::default();
        self.due = Due { reset: self.due.reset, ..Due::default() };
        self.stuck_since = None;
        self.board = Scoreboard::new(self.board.una());
    }

    /// Restarts the retransmission timer if something is outstanding, and stops it otherwise.
    pub(crate) fn restart_timer(&mut self, now: Instant) {
        if self.board.is_empty() {
            self.timers.stop(Timer::Retransmit);
        } else {
            self.timers.set(Timer::Retransmit, now.after(self.rtt.timeout(&self.config)));
        }
    }

    /// Begins TIME-WAIT, or begins it anew.
    pub(crate) fn wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.timers = Timers::default();
        self.stuck_since = None;
        self.timers.set(Timer::Wait, now.after(nanoseconds(self.config.time_wait)));
    }

    /// Returns the clock of timestamps, in milliseconds.
    pub(crate) fn clock(&self, now: Instant) -> u32 {
        self.stamps.offset.wrapping_add((now.0 / 1_000_000) as u32)
    }
}
