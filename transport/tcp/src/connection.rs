//! What a connection is: its state as plain data, and what its user reads of it.

use crate::config::Config;
use crate::congestion::Congestion;
use crate::counters::Counters;
use crate::prr::Prr;
use crate::rack::Rack;
use crate::reassembly::Reassembly;
use crate::rtt::Rtt;
use crate::scoreboard::Scoreboard;
use crate::seq::{Origin, Range, SYN, offset};
use crate::time::{Instant, nanoseconds};
use crate::timers::{Timer, Timers};
use serde::{Deserialize, Serialize};

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

/// Whether something is taken for lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Recovery {
    /// Nothing is.
    Open,
    /// Something is, and what comes after it arrives. It is over when `until` is acknowledged.
    Fast { until: u64, prr: Prr },
    /// The retransmission timeout ran out.
    Timeout { until: u64 },
}

/// How a recovery may turn out to have been for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Undo {
    /// What was sent again is within these numbers.
    pub within: Range,
    /// How many segments were, that no DSACK has told of.
    pub unexplained: u32,
    /// The timestamp of the first of them (RFC 3522), until something is acknowledged.
    pub first_sent: Option<u32>,
}

/// What both ends agreed on, or one says, in their SYNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Agreed {
    /// Shift of the peer's windows, and of ours.
    pub send_scale: u8,
    pub receive_scale: u8,
    /// Both SYNs have a scale.
    pub scaled: bool,
    pub sack: bool,
    pub timestamps: bool,
    /// Segments say that they are whole FPDUs.
    #[serde(default)]
    pub fpdus: bool,
}

/// What is known of the peer's timestamps, and ours (RFC 7323).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamps {
    /// What is added to our clock of milliseconds.
    pub offset: u32,
    /// TS.Recent, and when it was.
    pub recent: u32,
    pub recent_at: Instant,
    /// Last.ACK.sent.
    pub last_ack: u64,
}

/// The window that the peer allows: SND.WND.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SendWindow {
    pub size: u64,
    /// The numbers of the segment that told it last: SND.WL1, SND.WL2.
    pub seq: u64,
    pub ack: u64,
    /// The largest that there was: MAX.SND.WND.
    pub largest: u64,
}

/// What is to be sent as soon as possible, beside data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Due {
    pub ack: bool,
    /// A segment that probes the tail.
    pub tail_probe: bool,
    /// Something that makes the peer tell its window.
    pub window_probe: bool,
    pub keep_alive: bool,
    /// A RST with this number, and whether it acknowledges.
    pub reset: Option<(u32, bool)>,
}

/// A connection: plain data, that equal calls make equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    pub(crate) config: Config,
    pub(crate) ports: Ports,
    pub(crate) state: State,
    /// It began with a SYN of the peer's, to a listener.
    pub(crate) is_passive: bool,
    /// The user has closed: a FIN follows what is to be sent.
    pub(crate) is_closing: bool,
    pub(crate) agreed: Agreed,
    pub(crate) stamps: Stamps,
    /// Most data of a segment: what the peer and the path take, less the options of each segment.
    pub(crate) mss: u64,

    pub(crate) send_origin: Origin,
    pub(crate) board: Scoreboard,
    /// The number of our FIN, once it was sent.
    pub(crate) fin: Option<u64>,
    pub(crate) window: SendWindow,
    pub(crate) rtt: Rtt,
    pub(crate) congestion: Congestion,
    pub(crate) recovery: Recovery,
    pub(crate) undo: Option<Undo>,
    pub(crate) rack: Rack,
    /// Acknowledges that brought nothing new, where the peer has no SACKs (RFC 5681).
    pub(crate) duplicate_acks: u32,
    /// What limits us is not the congestion window.
    pub(crate) is_app_limited: bool,
    /// When something was sent last that is acknowledged.
    pub(crate) sent_last: Instant,
    /// Since when nothing new was acknowledged although something, or a probe, is outstanding.
    pub(crate) stuck_since: Option<Instant>,

    pub(crate) receive_origin: Origin,
    pub(crate) received: Reassembly,
    /// Bytes that may arrive beyond what is complete,
    pub(crate) receive_window: u64,
    /// and segments that were taken since the last acknowledge.
    pub(crate) unacknowledged: u8,
    /// So many segments more are acknowledged at once: something was out of order.
    #[serde(default)]
    pub(crate) at_once: u8,
    /// When the peer was heard last.
    pub(crate) heard: Instant,
    /// When an acknowledge was sent last for what cannot be (RFC 5961, 7).
    pub(crate) challenged: Option<Instant>,
    /// How often the closed window, or the silent peer, was probed.
    pub(crate) probes: u8,

    pub(crate) timers: Timers,
    pub(crate) due: Due,
    /// What the user has not been told yet: at most one of each kind.
    pub(crate) established: bool,
    pub(crate) end_of_stream: bool,
    pub(crate) closed: Option<Reason>,
    pub(crate) counters: Counters,
}

impl Connection {
    /// A connection that begins with a SYN of ours. The initial sequence number and the beginning of the clock of timestamps should be hard to guess
    /// (RFC 6528; RFC 7323, 5.4).
    #[must_use]
    pub fn connect(config: Config, ports: Ports, initial: u32, clock: u32, now: Instant) -> Connection {
        let mut connection = Connection::new(config, ports, initial, clock, now);
        connection.agreed.sack = config.sack;
        connection.agreed.timestamps = config.timestamps;
        connection.agreed.fpdus = config.fpdus;
        connection.agreed.receive_scale = config.window_scale();
        connection
    }

    pub(crate) fn new(config: Config, ports: Ports, initial: u32, clock: u32, now: Instant) -> Connection {
        let mss = u64::from(config.mss);
        Connection {
            config,
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
            rack: Rack::new(SYN),
            duplicate_acks: 0,
            is_app_limited: true,
            sent_last: now,
            stuck_since: None,
            receive_origin: Origin(0),
            received: Reassembly::new(),
            receive_window: config.receive_window(),
            unacknowledged: 0,
            at_once: 0,
            heard: now,
            challenged: None,
            probes: 0,
            timers: Timers::default(),
            due: Due::default(),
            established: false,
            end_of_stream: false,
            closed: None,
            counters: Counters::default(),
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

    /// Most data of a segment by now. It may become less (path MTU): then what was cut before goes in parts.
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

    /// The user sends no more than it has by now: a FIN follows. What the peer sends is taken still. Without a connection yet, there will be none.
    pub fn close(&mut self) {
        match self.state {
            State::SynSent => self.end(Reason::Aborted),
            State::SynReceived | State::Established | State::CloseWait => self.is_closing = true,
            _ => {}
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
