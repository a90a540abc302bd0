//! What a connection is: its state as plain data, and what its user reads of it.

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

/// How long a connection that nobody uses has to send what is left.
const LINGER: Duration = Duration::from_secs(30);

/// The states of RFC 9293, 3.3.2. (LISTEN is a [`Stack`](crate::Stack)'s.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// A SYN was sent.
    SynSent,
    /// SYNs were sent and received, ours has no acknowledge yet.
    SynReceived,
    /// Data goes both ways.
    Established,
    /// We have closed; the FIN may have been sent, and has no acknowledge yet.
    FinWait1,
    /// We have closed, and the peer knows.
    FinWait2,
    /// The peer has closed.
    CloseWait,
    /// Both have closed at a time; our FIN has no acknowledge yet.
    Closing,
    /// The peer has closed, then we; our FIN has no acknowledge yet.
    LastAck,
    /// Both have closed; what is still in the network is waited for.
    TimeWait,
    /// There is no connection any more.
    Closed,
}

/// Why there is no connection any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// Both ends closed it.
    Finished,
    /// The peer reset it.
    Reset,
    /// Nobody listens there.
    Refused,
    /// The peer does not answer.
    TimedOut,
    /// We gave it up.
    Aborted,
}

/// What a user has to know of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// It is set up.
    Established,
    /// The peer will send no more; all that it sent was taken.
    EndOfStream,
    /// It is no more.
    Closed(Reason),
}

/// The ports of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ports {
    /// This end's.
    pub local: u16,
    /// The peer's.
    pub remote: u16,
}

/// A connection: plain data, that equal calls make equal.
///
/// Of thousands each is out of the caches when its turn comes. So what each segment needs lies
/// together, what one that arrives needs first, and what few need behind all else. (`table.rs` has
/// it begin at the beginning of a line.)
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Shared by all that were told the same.
    pub(crate) config: Arc<Config>,
    pub(crate) ports: Ports,
    pub(crate) send_origin: Origin,
    pub(crate) receive_origin: Origin,
    pub(crate) agreed: Agreed,
    pub(crate) state: State,
    /// The user has closed: a FIN follows what is to be sent.
    pub(crate) is_closing: bool,
    /// What limits us is not the congestion window.
    pub(crate) is_app_limited: bool,
    /// Segments that were taken since the last acknowledge,
    pub(crate) unacknowledged: u8,
    /// and so many segments more are acknowledged at once: something was out of order.
    #[serde(default)]
    pub(crate) at_once: u8,
    /// How often the closed window, or the silent peer, was probed.
    pub(crate) probes: u8,
    /// What the user has not been told yet: at most one of each kind.
    pub(crate) established: bool,
    pub(crate) end_of_stream: bool,
    pub(crate) closed: Option<Reason>,
    /// It began with a SYN of the peer's, to a listener.
    pub(crate) is_passive: bool,
    pub(crate) due: Due,
    /// Bytes that may arrive beyond what is complete.
    pub(crate) receive_window: u64,
    /// When the peer was heard last.
    pub(crate) heard: Instant,

    pub(crate) timers: Timers,
    /// When something was sent last that is acknowledged.
    pub(crate) sent_last: Instant,
    pub(crate) pace: Pace,

    pub(crate) received: Reassembly,
    pub(crate) stamps: Stamps,
    /// Most data of a segment: what the peer and the path take, less the options of each segment.
    pub(crate) mss: u64,
    /// The number of our FIN, once it was sent.
    pub(crate) fin: Option<u64>,

    pub(crate) board: Scoreboard,
    pub(crate) window: SendWindow,
    /// Since when nothing new was acknowledged although something, or a probe, is outstanding.
    pub(crate) stuck_since: Option<Instant>,

    /// Acknowledges that brought nothing new, where the peer has no SACKs (RFC 5681).
    pub(crate) duplicate_acks: u32,
    pub(crate) recovery: Recovery,
    pub(crate) rtt: Rtt,
    pub(crate) rack: Rack,
    pub(crate) congestion: Congestion,

    pub(crate) undo: Option<Undo>,
    /// Timeouts since something new was acknowledged.
    #[serde(default)]
    pub(crate) timeouts_in_a_row: u8,
    /// So many duplicates count in this recovery, where the peer has no SACKs.
    #[serde(default)]
    pub(crate) most_duplicates: u32,
    /// What segments were as long as, if the path takes only shorter ones by now.
    #[serde(default)]
    pub(crate) full: Option<FullSize>,
    /// The peer's last timestamp in the connection that gave way to this one, if one did.
    #[serde(default)]
    pub(crate) former_stamp: Option<u32>,
    /// When an acknowledge was sent last for what cannot be (RFC 5961, 7).
    pub(crate) challenged: Option<Instant>,
    pub(crate) counters: Counters,
}

impl Connection {
    /// A connection that begins with a SYN of ours. The initial sequence number and the beginning
    /// of the clock of timestamps should be hard to guess (RFC 6528; RFC 7323, 5.4).
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

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Its ports.
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// Its counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Most data of a segment by now. It may become less (path MTU): then what was cut before goes
    /// in parts.
    pub fn mss(&self) -> u32 {
        self.mss as u32
    }

    /// Up to here the peer has the stream: what is before it is not asked for again.
    pub fn acknowledged(&self) -> u64 {
        offset(self.board.una().min(self.fin.unwrap_or(u64::MAX)))
    }

    /// Up to here the stream was sent.
    pub fn sent(&self) -> u64 {
        offset(self.board.nxt().min(self.fin.unwrap_or(u64::MAX)))
    }

    /// Up to here the peer's stream is complete.
    pub fn complete(&self) -> u64 {
        offset(self.received.nxt()) - u64::from(self.received.is_finished())
    }

    /// The smoothed round-trip time in nanoseconds, once there was a measurement.
    pub fn round_trip(&self) -> Option<u64> {
        self.rtt.smoothed()
    }

    /// The congestion window in bytes.
    pub fn congestion_window(&self) -> u64 {
        self.congestion.window
    }

    /// When [`handle_timeout`](Connection::handle_timeout) is due; `None` if nothing is waited for.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// What the user has to know, each once.
    pub fn poll_event(&mut self) -> Option<Event> {
        if core::mem::take(&mut self.established) {
            return Some(Event::Established);
        }
        if core::mem::take(&mut self.end_of_stream) {
            return Some(Event::EndOfStream);
        }
        self.closed.take().map(Event::Closed)
    }

    /// The user sends no more than it has by now: a FIN follows. What the peer sends is taken
    /// still. Without a connection yet, there will be none.
    pub fn close(&mut self) {
        match self.state {
            State::SynSent => self.end(Reason::Aborted),
            State::SynReceived | State::Established | State::CloseWait => self.is_closing = true,
            _ => {}
        }
    }

    /// Its user has gone, after both ends have said that they close. What is left to be sent has
    /// half a minute from when the peer was heard last: one that keeps its window closed, or takes
    /// a byte now and then, could hold the connection for ever.
    pub fn leave(&mut self) {
        if self.state != State::Closed {
            self.timers.set(Timer::Linger, self.heard + LINGER);
        }
    }

    /// Gives the connection up: a RST tells the peer, if it may know of it.
    pub fn abort(&mut self) {
        match self.state {
            State::Closed => return,
            State::SynSent | State::TimeWait => {}
            _ => self.due.reset = Some((self.send_origin.wire(self.board.nxt()), true)),
        }
        self.end(Reason::Aborted);
    }

    /// Both ends know each other's numbers.
    pub(crate) fn is_synchronized(&self) -> bool {
        !matches!(self.state, State::SynSent | State::SynReceived | State::Closed)
    }

    /// Bytes that options take in each segment with data: those of timestamps, and of FPDUs.
    pub(crate) fn options_len(&self) -> u64 {
        12 * u64::from(self.agreed.timestamps) + 8 * u64::from(self.agreed.fpdus)
    }

    /// The initial congestion window (RFC 6928).
    pub(crate) fn initial_window(&self) -> u64 {
        u64::from(self.config.initial_window.max(1)) * self.mss
    }

    /// Whether the peer has our FIN.
    pub(crate) fn is_fin_acknowledged(&self) -> bool {
        self.fin.is_some_and(|fin| self.board.una() > fin)
    }

    /// There is no connection any more.
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

    /// The retransmission timeout begins anew, if something is outstanding.
    pub(crate) fn restart_timer(&mut self, now: Instant) {
        if self.board.is_empty() {
            self.timers.stop(Timer::Retransmit);
        } else {
            self.timers.set(Timer::Retransmit, now.after(self.rtt.timeout(&self.config)));
        }
    }

    /// TIME-WAIT begins, or begins anew.
    pub(crate) fn wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.timers = Timers::default();
        self.stuck_since = None;
        self.timers.set(Timer::Wait, now.after(nanoseconds(self.config.time_wait)));
    }

    /// The clock of timestamps: milliseconds.
    pub(crate) fn clock(&self, now: Instant) -> u32 {
        self.stamps.offset.wrapping_add((now.0 / 1_000_000) as u32)
    }
}
