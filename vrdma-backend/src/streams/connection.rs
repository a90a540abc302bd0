//! A connection: how far it is, and what its socket is watched for.

use super::output::Output;
use crate::translate::cm::Failure;
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vrdma_transport::{DeviceId, Initiator, Instant, Responder, SetUpRequest, StreamEnd, Wishes};
use vrdma_wire::num::Qpn;

/// How long set-up may take, and an end.
pub(super) const SET_UP_TIME: Duration = Duration::from_secs(20);
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
    /// What was put in is sent, then it ends; once the peer has ended too, it is over. `is_told`: the peer was told that no more comes.
    Closing { is_told: bool },
    /// Nothing is left of it but its number.
    Over,
}

/// See the module.
pub(super) struct Connection {
    pub(super) device: DeviceId,
    /// None when it is over.
    pub(super) socket: Option<Socket>,
    pub(super) phase: Phase,
    /// The QP that it connects, or will.
    pub(super) qpn: Option<Qpn>,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// Where it came from, until it was accepted or rejected.
    pub(super) listener: Option<u32>,
    /// The driver knows of it, and is told what happens to it.
    pub(super) is_known: bool,
    /// READs and atomics answered at once, and outstanding, as agreed.
    pub(super) depths: (u16, u16),
    /// What has come and was not taken by the engine.
    pub(super) input: Vec<u8>,
    pub(super) output: Output,
    /// The engine waits for room.
    pub(super) is_blocked: bool,
    /// The engine has left it.
    pub(super) ends: Option<StreamEnd>,
    /// No more comes: the peer has ended it,
    pub(super) peer_ended: bool,
    /// or it broke.
    pub(super) is_broken: bool,
    pub(super) deadline: Option<Instant>,
    /// Longest FPDU.
    pub(super) mss: usize,
    watched: Option<EventSet>,
}

impl Connection {
    pub(super) fn new(
        device: DeviceId,
        socket: Socket,
        phase: Phase,
        (local, remote): (SocketAddr, SocketAddr),
        deadline: Instant,
    ) -> Connection {
        Connection {
            device,
            socket: Some(socket),
            phase,
            qpn: None,
            local,
            remote,
            listener: None,
            is_known: false,
            depths: (0, 0),
            input: Vec::new(),
            output: Output::default(),
            is_blocked: false,
            ends: None,
            peer_ended: false,
            is_broken: false,
            deadline: Some(deadline),
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
        if self.is_broken || self.socket.is_none() {
            return None;
        }
        let mut wants = EventSet::empty();
        if self.may_read() {
            wants |= EventSet::IN;
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
    pub(super) fn watch(&mut self, epoll: &Epoll, token: u64) -> io::Result<()> {
        let wants = self.wants();
        if wants == self.watched {
            return Ok(());
        }
        // What has no socket any more is not watched.
        if let Some(socket) = &self.socket {
            let operation = match (self.watched, wants) {
                (None, _) => ControlOperation::Add,
                (Some(_), Some(_)) => ControlOperation::Modify,
                (Some(_), None) => ControlOperation::Delete,
            };
            epoll.ctl(
                operation,
                socket.as_raw_fd(),
                EpollEvent::new(wants.unwrap_or(EventSet::empty()), token),
            )?;
        }
        self.watched = wants;
        Ok(())
    }

    /// Hands over to the kernel what it takes now, and the end behind it; false if the connection broke.
    pub(super) fn flush(&mut self) -> bool {
        let Some(socket) = &self.socket else { return true };
        if matches!(self.phase, Phase::Connecting(..)) {
            return true;
        }
        if self.output.flush(socket).is_err() {
            return false;
        }
        if let Phase::Closing { is_told } = &mut self.phase
            && self.output.is_empty()
            && !std::mem::replace(is_told, true)
        {
            // It may be over already, which shows.
            let _ = socket.shutdown(std::net::Shutdown::Write);
        }
        true
    }

    /// Ends it at once: the peer is told by a RST.
    pub(super) fn abort(&mut self) {
        if let Some(socket) = self.socket.take() {
            let _ = socket.set_linger(Some(Duration::ZERO));
        }
        self.end();
    }

    /// It is over.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Over;
        (self.socket, self.watched, self.deadline) = (None, None, None);
        (self.input, self.output) = (Vec::new(), Output::default());
    }
}

/// What this end wants of a connection.
pub(super) fn wishes(peer_to_peer: bool, ird: u8, ord: u8) -> Wishes {
    Wishes { markers: false, crc: true, enhanced: true, peer_to_peer, ird, ord }
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
