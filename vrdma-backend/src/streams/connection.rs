//! A connection: how far it is, and what its socket is watched for.

use super::bindings::Bound;
use super::carrier::Carrier;
use super::cm::Failure;
use super::deadlines::Armed;
use super::guest::Told;
use super::handle::Handle;
use super::output::Output;
use super::own::Own;
use super::pending::Pending;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use vmm_sys_util::epoll::{Epoll, EventSet};
use vrdma_transport::{DeviceId, Initiator, Instant, Responder, SetUpRequest, StreamEnd, Wishes};

/// How long set-up may take, but for the answer of who is asked: the driver, or the peer's,
pub(super) const SET_UP_TIME: Duration = Duration::from_secs(20);
/// and that, since programs prepare much in between;
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(60);
/// what has begun, once the connection is to end;
pub(super) const FINISH_TIME: Duration = Duration::from_secs(20);
/// and what the end itself takes.
pub(super) const CLOSE_TIME: Duration = Duration::from_secs(5);

/// How far a connection is.
pub(super) enum Phase {
    /// TCP connects; then this request is sent.
    Connecting(Initiator, Vec<u8>),
    /// The request was sent.
    AwaitsReply(Initiator),
    /// TCP has been connected by the peer.
    AwaitsRequest(Responder),
    /// The driver was asked.
    Requested(SetUpRequest),
    /// It is the QP's.
    Open,
    /// What was put in is sent, then it ends; once the peer has ended too, it is over. `is_told`:
    /// the peer was told that no more comes.
    Closing { is_told: bool },
    /// Nothing is left of it but its number.
    Over,
}

impl Phase {
    /// Whether a QP belongs to a connection that is so far.
    pub(super) fn has_qp(&self) -> bool {
        matches!(self, Phase::Connecting(..) | Phase::AwaitsReply(_) | Phase::Open)
    }
}

/// See the module.
pub(super) struct Connection {
    pub(super) handle: Handle,
    pub(super) device: DeviceId,
    /// None when it is over.
    pub(super) carrier: Option<Carrier>,
    pub(super) phase: Phase,
    pub(super) bound: Bound,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// Where it came from, until the driver has answered.
    pub(super) listener: Option<Handle>,
    /// The driver knows of it, and is told what happens to it.
    pub(super) is_known: bool,
    pub(super) told: Told,
    /// It was over before the driver accepted or rejected it.
    pub(super) ended_unanswered: bool,
    /// READs and atomics answered at once, and outstanding, as agreed.
    pub(super) depths: (u16, u16),
    /// What has come and was not taken by the engine.
    pub(super) input: Pending,
    pub(super) output: Output,
    /// Bytes of memory that own TCP knows to be taken by both.
    charged: u64,
    /// The engine waits for room.
    pub(super) is_blocked: bool,
    /// The engine has left it.
    pub(super) ends: Option<StreamEnd>,
    /// No more comes: the peer has ended it,
    pub(super) peer_ended: bool,
    /// or it broke.
    pub(super) is_broken: bool,
    /// CM_DISCONNECT was for it.
    pub(super) is_finishing: bool,
    /// It waits for its guest's turn,
    pub(super) is_listed: bool,
    /// in which this is what its socket told.
    pub(super) due: EventSet,
    /// When it ends, or is looked at,
    pub(super) deadline: Option<Instant>,
    /// as far as the worker knows.
    pub(super) armed: Armed,
    /// Longest FPDU.
    pub(super) mss: usize,
    watched: Option<EventSet>,
}

impl Connection {
    pub(super) fn new(
        handle: Handle,
        device: DeviceId,
        carrier: Carrier,
        phase: Phase,
        (local, remote): (SocketAddr, SocketAddr),
        deadline: Instant,
    ) -> Connection {
        Connection {
            handle,
            device,
            carrier: Some(carrier),
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

    /// Whether the engine may have more of what comes, if any does.
    pub(super) fn may_read(&self) -> bool {
        let is_asked = match self.phase {
            Phase::AwaitsReply(_) | Phase::AwaitsRequest(_) | Phase::Closing { .. } => true,
            Phase::Open => self.input.is_empty(),
            Phase::Connecting(..) | Phase::Requested(_) | Phase::Over => false,
        };
        is_asked && !self.peer_ended && !self.is_broken
    }

    /// What its socket is to be watched for. One that broke would be told of for ever.
    fn wants(&self) -> Option<EventSet> {
        if self.is_broken || self.carrier.is_none() {
            return None;
        }
        let mut wants = EventSet::empty();
        if self.may_read() {
            wants |= EventSet::IN;
        } else if matches!(self.phase, Phase::Requested(_)) {
            // Who ends it now wants no answer.
            wants |= EventSet::READ_HANG_UP;
        }
        if !self.output.is_empty() || matches!(self.phase, Phase::Connecting(..)) {
            wants |= EventSet::OUT;
        }
        Some(wants)
    }

    /// Has its socket watched for what it wants now.
    ///
    /// # Errors
    /// The system is out of memory, or of watches of this user.
    pub(super) fn watch<'a>(
        &mut self,
        epoll: impl FnOnce() -> io::Result<&'a Epoll>,
        own: &mut Own,
    ) -> io::Result<()> {
        let wants = self.wants();
        // What has no socket any more is not watched.
        if let Some(carrier) = &self.carrier {
            carrier.watch(self.handle, (self.watched, wants), epoll, own)?;
        }
        self.watched = wants;
        Ok(())
    }

    /// Whether the engine may put more in. Where the guest's memory is short, nothing waits beside
    /// what own TCP has.
    pub(super) fn has_room(&self, own: &Own) -> bool {
        let is_short = || matches!(&self.carrier, Some(Carrier::Own(socket)) if own.is_short(socket));
        self.output.has_room() && (self.output.is_empty() || !is_short())
    }

    /// Has own TCP know how much memory is taken by what waits here.
    pub(super) fn charge(&mut self, own: &mut Own) {
        let waiting = self.input.memory() + self.output.memory();
        if let Some(Carrier::Own(socket)) = &self.carrier
            && std::mem::replace(&mut self.charged, waiting) != waiting
        {
            own.set_pending(socket, waiting);
        }
    }

    /// Hands over to TCP what it takes now, and the end behind it; false if the connection broke.
    pub(super) fn flush(&mut self, own: &mut Own) -> bool {
        let Some(carrier) = &self.carrier else { return true };
        if matches!(self.phase, Phase::Connecting(..)) {
            return true;
        }
        if carrier.send(&mut self.output, self.mss, own).is_err() {
            return false;
        }
        if let Phase::Closing { is_told } = &mut self.phase
            && self.output.is_empty()
            && !std::mem::replace(is_told, true)
        {
            carrier.finish(own);
        }
        true
    }

    /// It is over at once: the peer is told by a RST.
    pub(super) fn reset(&mut self, own: &mut Own) {
        if let Some(carrier) = self.carrier.take() {
            carrier.reset(own);
        }
        self.end(own);
    }

    /// It is over.
    pub(super) fn end(&mut self, own: &mut Own) {
        self.phase = Phase::Over;
        if let Some(carrier) = self.carrier.take() {
            carrier.leave(own);
        }
        (self.watched, self.deadline) = (None, None);
        (self.input, self.output) = (Pending::default(), Output::default());
    }
}

/// What this end wants of a connection; `crc`: it goes over a TCP.
pub(super) fn wishes(crc: bool, peer_to_peer: bool, (ird, ord): (u8, u8)) -> Wishes {
    Wishes { markers: false, crc, enhanced: true, peer_to_peer, ird, ord }
}

/// Why there is no connection.
pub(super) fn failure(error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => Failure::Refused,
        Some(libc::ETIMEDOUT) => Failure::TimedOut,
        Some(libc::EHOSTUNREACH | libc::ENETUNREACH) => Failure::Unreachable,
        Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL) => Failure::InUse,
        _ => Failure::Reset,
    }
}
