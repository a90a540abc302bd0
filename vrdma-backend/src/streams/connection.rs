//! A connection: its phase, and the events that its socket is watched for.

use super::bindings::Bound;
use super::cm::Failure;
use super::deadlines::Armed;
use super::guest::Told;
use super::handle::Handle;
use super::output::Output;
use super::pending::Pending;
use super::stream_transport::StreamTransport;
use super::user_tcp::UserTcp;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use vmm_sys_util::epoll::{Epoll, EventSet};
use vrdma_transport::{DeviceId, Initiator, Instant, SetUpRequest, SetUpResponder, StreamEnd, Wishes};

/// Time limit for set-up, except for the answer of the driver or of the peer's program.
pub(super) const SET_UP_TIME: Duration = Duration::from_secs(20);
/// Time limit for that answer. It is longer, because programs prepare much before they answer.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(60);
/// Time limit for requests in progress, once the connection is to end.
pub(super) const FINISH_TIME: Duration = Duration::from_secs(20);
/// Time limit for closing the stream.
pub(super) const CLOSE_TIME: Duration = Duration::from_secs(5);

/// The phase of a connection.
pub(super) enum Phase {
    /// TCP is connecting. After that, this request is sent.
    Connecting(Initiator, Vec<u8>),
    /// The request was sent.
    AwaitsReply(Initiator),
    /// The peer has connected TCP, and is to send its request.
    AwaitsRequest(SetUpResponder),
    /// The driver was asked to accept or reject the request.
    Requested(SetUpRequest),
    /// The connection is the stream of its QP.
    Open,
    /// Queued output is sent, then the stream ends. Once the peer has ended its stream too, the
    /// connection is over. `is_told`: the end was passed to TCP.
    Closing { is_told: bool },
    /// Only its number is left.
    Over,
}

impl Phase {
    /// Whether a connection in this phase has a QP.
    pub(super) fn has_qp(&self) -> bool {
        matches!(self, Phase::Connecting(..) | Phase::AwaitsReply(_) | Phase::Open)
    }
}

/// A connection of a guest.
pub(super) struct Connection {
    pub(super) handle: Handle,
    pub(super) device: DeviceId,
    /// The transport; `None` once the connection is over.
    pub(super) transport: Option<StreamTransport>,
    pub(super) phase: Phase,
    pub(super) bound: Bound,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// The listener that it came from, until the driver has answered.
    pub(super) listener: Option<Handle>,
    /// Whether the driver knows of it and gets its events.
    pub(super) is_known: bool,
    pub(super) told: Told,
    /// Whether it ended before the driver accepted or rejected it.
    pub(super) ended_unanswered: bool,
    /// The agreed depths: READs and atomics answered at the same time, and outstanding.
    pub(super) depths: (u16, u16),
    /// Received data that the engine has not taken.
    pub(super) input: Pending,
    pub(super) output: Output,
    /// Bytes of memory of input and output that vrdma's own TCP was told of.
    charged: u64,
    /// Whether the engine waits for room in the output.
    pub(super) is_blocked: bool,
    /// How the engine ended the stream, if it did.
    pub(super) ends: Option<StreamEnd>,
    /// Whether the peer has ended its stream.
    pub(super) peer_ended: bool,
    /// Whether the connection broke.
    pub(super) is_broken: bool,
    /// Whether CM_DISCONNECT was given for it.
    pub(super) is_finishing: bool,
    /// Whether it waits for its guest's turn.
    pub(super) is_listed: bool,
    /// Socket events to be handled in that turn.
    pub(super) due: EventSet,
    /// When it ends, or is checked.
    pub(super) deadline: Option<Instant>,
    /// The deadline in the worker's set of deadlines.
    pub(super) armed: Armed,
    /// Longest FPDU, in bytes.
    pub(super) mss: usize,
    watched: Option<EventSet>,
}

impl Connection {
    pub(super) fn new(
        handle: Handle,
        device: DeviceId,
        transport: StreamTransport,
        phase: Phase,
        (local, remote): (SocketAddr, SocketAddr),
        deadline: Instant,
    ) -> Connection {
        Connection {
            handle,
            device,
            transport: Some(transport),
            phase,
            bound: Bound::to_none(device, handle),
            local,
            remote,
            listener: None,
            is_known: false,
            told: Told::default(),
            ended_unanswered: false,
            depths: (0, 0),
            input: Pending::default(),
            output: Output::default(),
            charged: 0,
            is_blocked: false,
            ends: None,
            peer_ended: false,
            is_broken: false,
            is_finishing: false,
            is_listed: false,
            due: EventSet::empty(),
            deadline: Some(deadline),
            armed: Armed::default(),
            mss: 0,
            watched: None,
        }
    }

    /// Whether received data, if there is any, can go to set-up or to the engine.
    pub(super) fn may_read(&self) -> bool {
        let is_asked = match self.phase {
            Phase::AwaitsReply(_) | Phase::AwaitsRequest(_) | Phase::Closing { .. } => true,
            Phase::Open => self.input.is_empty(),
            Phase::Connecting(..) | Phase::Requested(_) | Phase::Over => false,
        };
        is_asked && !self.peer_ended && !self.is_broken
    }

    /// Returns the events that its socket is to be watched for.
    ///
    /// A broken connection is not watched, because it would report events all the time.
    fn wants(&self) -> Option<EventSet> {
        if self.is_broken || self.transport.is_none() {
            return None;
        }
        let mut wants = EventSet::empty();
        if self.may_read() {
            wants |= EventSet::IN;
        } else if matches!(self.phase, Phase::Requested(_)) {
            // A peer that ends the connection now wants no answer any more.
            wants |= EventSet::READ_HANG_UP;
        }
        if !self.output.is_empty() || matches!(self.phase, Phase::Connecting(..)) {
            wants |= EventSet::OUT;
        }
        Some(wants)
    }

    /// Watches its socket for the events that it wants now.
    ///
    /// # Errors
    /// The system is out of memory, or this user has no watches left.
    pub(super) fn watch<'a>(
        &mut self,
        epoll: impl FnOnce() -> io::Result<&'a Epoll>,
        user_tcp: &mut UserTcp,
    ) -> io::Result<()> {
        let wants = self.wants();
        // A connection without a socket is not watched.
        if let Some(transport) = &self.transport {
            transport.watch(self.handle, (self.watched, wants), epoll, user_tcp)?;
        }
        self.watched = wants;
        Ok(())
    }

    /// Whether the engine may add to the output.
    ///
    /// If the guest's memory is short, nothing is queued beyond what vrdma's own TCP has.
    pub(super) fn has_room(&self, user_tcp: &UserTcp) -> bool {
        let is_short =
            || matches!(&self.transport, Some(StreamTransport::Own(socket)) if user_tcp.is_short(socket));
        self.output.has_room() && (self.output.is_empty() || !is_short())
    }

    /// Tells vrdma's own TCP how much memory the data queued here takes.
    pub(super) fn charge(&mut self, user_tcp: &mut UserTcp) {
        let waiting = self.input.memory() + self.output.memory();
        if let Some(StreamTransport::Own(socket)) = &self.transport
            && std::mem::replace(&mut self.charged, waiting) != waiting
        {
            user_tcp.set_pending(socket, waiting);
        }
    }

    /// Passes output, and then its end, to TCP. Returns false if the connection broke.
    pub(super) fn flush(&mut self, user_tcp: &mut UserTcp) -> bool {
        let Some(transport) = &self.transport else { return true };
        if matches!(self.phase, Phase::Connecting(..)) {
            return true;
        }
        if transport.send(&mut self.output, self.mss, user_tcp).is_err() {
            return false;
        }
        if let Phase::Closing { is_told } = &mut self.phase
            && self.output.is_empty()
            && !std::mem::replace(is_told, true)
        {
            transport.finish(user_tcp);
        }
        true
    }

    /// Ends the connection at once, with a RST to the peer.
    pub(super) fn reset(&mut self, user_tcp: &mut UserTcp) {
        if let Some(transport) = self.transport.take() {
            transport.reset(user_tcp);
        }
        self.end(user_tcp);
    }

    /// Ends the connection.
    pub(super) fn end(&mut self, user_tcp: &mut UserTcp) {
        self.phase = Phase::Over;
        if let Some(transport) = self.transport.take() {
            transport.leave(user_tcp);
        }
        (self.watched, self.deadline) = (None, None);
        (self.input, self.output) = (Pending::default(), Output::default());
    }
}

/// Returns the wishes of this end for a connection. `crc` is true if it goes over TCP.
pub(super) fn wishes(crc: bool, peer_to_peer: bool, (ird, ord): (u8, u8)) -> Wishes {
    Wishes { markers: false, crc, enhanced: true, peer_to_peer, ird, ord }
}

/// Translates the error of a socket into the reason that the driver is told.
pub(super) fn failure(error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => Failure::Refused,
        Some(libc::ETIMEDOUT) => Failure::TimedOut,
        Some(libc::EHOSTUNREACH | libc::ENETUNREACH) => Failure::Unreachable,
        Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL) => Failure::InUse,
        _ => Failure::Reset,
    }
}
