//! What comes, and what time does: the worker's turn.

use super::connection::{CLOSE_TIME, Connection, Phase, SET_UP_TIME, failure};
use super::{Entry, Host, READ, Streams};
use crate::tcp;
use crate::translate::cm::{Failure, What};
use std::io::{self, Read};
use vmm_sys_util::epoll::{EpollEvent, EventSet};
use vrdma_transport::{Agreed, Instant, Responder, SetUpError, StreamEnd};

/// Turns after which sockets are looked at while nothing came the last time: a look is a system call.
const LOOK_TURNS: u32 = 8;
/// Sockets that are served in one turn.
const SOCKETS: usize = 32;
/// Connections that are taken of a listener in one turn.
const ACCEPTS: usize = 4;
/// The shortest MSS that FPDUs are cut for: headers have room.
const MIN_MSS: u32 = 512;
/// READs that a peer means that does not say how many, or says more.
const UNKNOWN_DEPTH: u16 = 128;

impl Streams {
    /// Takes what has come, and ends what took too long; true if there was anything.
    pub fn turn(&mut self, host: &mut Host<'_>) -> bool {
        if self.entries.len() == self.free.len() {
            return false;
        }
        let mut busy = self.retry(host);
        self.turns += 1;
        if self.turns >= LOOK_TURNS {
            busy |= self.look(host);
            // What came is followed by more.
            self.turns = if busy { LOOK_TURNS } else { 0 };
        }
        if self.next_deadline.is_some_and(|at| at <= host.now) {
            self.expire(host);
        }
        busy
    }

    /// Has the sockets looked at in the next turn: the worker slept.
    pub fn woken(&mut self) {
        self.turns = LOOK_TURNS;
    }

    /// After the engine sent: hands over to the kernel what was put in.
    pub fn flush(&mut self, host: &mut Host<'_>) {
        let mut touched = std::mem::take(&mut self.touched);
        for number in touched.drain(..) {
            self.work_on(number, EventSet::empty(), host);
        }
        self.touched = touched;
    }

    fn look(&mut self, host: &mut Host<'_>) -> bool {
        let mut events = [EpollEvent::default(); SOCKETS];
        let count = match self.epoll.wait(0, &mut events) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => panic!("epoll_wait fails only for arguments that are wrong: {error}"),
        };
        for event in &events[..count] {
            let number = event.data() as u32;
            match self.entries.get(number as usize) {
                Some(Some(Entry::Listener(_))) => self.accept_all(number, host),
                _ => self.work_on(number, event.event_set(), host),
            }
        }
        count != 0
    }

    /// Offers the engine once more what it did not take.
    fn retry(&mut self, host: &mut Host<'_>) -> bool {
        let stalled = std::mem::take(&mut self.stalled);
        let before = stalled.len();
        for number in stalled {
            self.work_on(number, EventSet::empty(), host);
        }
        self.stalled.len() < before
    }

    fn expire(&mut self, host: &mut Host<'_>) {
        self.next_deadline = None;
        for number in 0..self.entries.len() as u32 {
            let Some(Some(Entry::Connection(connection))) = self.entries.get(number as usize) else {
                continue;
            };
            match connection.deadline {
                Some(at) if at <= host.now => {
                    let Some(mut connection) = self.take(number) else { continue };
                    self.abort(&mut connection, number, Failure::TimedOut, host);
                    self.put_back(number, connection);
                }
                deadline => self.arm(deadline),
            }
        }
    }

    /// Takes what peers have connected.
    fn accept_all(&mut self, number: u32, host: &mut Host<'_>) {
        for _ in 0..ACCEPTS {
            let Some(Some(Entry::Listener(listener))) = self.entries.get_mut(number as usize) else { return };
            if listener.waiting >= listener.backlog {
                return listener.watch(&self.epoll, number.into());
            }
            let device = listener.device;
            let accepted = listener.sockets.iter().find_map(|socket| tcp::accept(socket).transpose());
            let (socket, local, remote) = match accepted {
                Some(Ok(accepted)) => accepted,
                Some(Err(error)) => {
                    host.outputs.device(device).counters.failed_accepts += 1;
                    log::debug!("a connection cannot be taken: {error}");
                    return;
                }
                None => return,
            };
            if self.count(device) >= host.outputs.device(device).limits().guest.connections {
                host.outputs.device(device).counters.failed_accepts += 1;
                continue;
            }
            let phase = Phase::AwaitsRequest(Responder::default());
            let mut connection =
                Connection::new(device, socket, phase, (local, remote), host.now + SET_UP_TIME);
            connection.listener = Some(number);
            if let Some(Some(Entry::Listener(listener))) = self.entries.get_mut(number as usize) {
                listener.waiting += 1;
            }
            let at = self.insert(device, Entry::Connection(Box::new(connection)));
            self.work_on(at, EventSet::IN, host);
        }
    }

    /// Does what can be done for a connection.
    pub(super) fn work_on(&mut self, number: u32, events: EventSet, host: &mut Host<'_>) {
        let Some(mut connection) = self.take(number) else { return };
        match connection.ends.take() {
            Some(StreamEnd::Close) => self.close(&mut connection, number, host),
            Some(StreamEnd::Abort) => self.abort(&mut connection, number, Failure::Reset, host),
            None => {}
        }
        self.connected(&mut connection, number, events, host);
        self.offer(&mut connection, number, host);
        let ended = events.intersects(EventSet::ERROR | EventSet::HANG_UP);
        if events.intersects(EventSet::IN | EventSet::ERROR | EventSet::HANG_UP) && connection.may_read() {
            self.read(&mut connection, number, host);
        } else if ended && !matches!(connection.phase, Phase::Connecting(..)) {
            // What has come is still to be taken; but to be told of it again and again helps nobody.
            connection.is_broken = true;
        }
        self.follow_end(&mut connection, number, host);
        if !connection.flush() {
            self.lose(&mut connection, number, host);
        }
        // The peer may have ended first.
        self.follow_end(&mut connection, number, host);
        if connection.is_blocked
            && connection.output.has_room()
            && let Some(qpn) = connection.qpn
        {
            connection.is_blocked = false;
            // Its QP may have been destroyed.
            let _ = host.engine.stream_has_room(connection.device, qpn);
        }
        if !connection.input.is_empty() {
            self.stalled.push(number);
        }
        self.put_back(number, connection);
    }

    /// TCP is connected, or is not to be.
    fn connected(&mut self, connection: &mut Connection, number: u32, events: EventSet, host: &mut Host<'_>) {
        let ended = EventSet::OUT | EventSet::ERROR | EventSet::HANG_UP;
        if !matches!(connection.phase, Phase::Connecting(..)) || !events.intersects(ended) {
            return;
        }
        let result = connection.socket.as_ref().map(|socket| {
            socket.take_error()?.map_or(Ok(()), Err)?;
            let local = socket.local_addr()?.as_socket();
            Ok(local)
        });
        match result {
            Some(Ok(local)) => {
                connection.local = local.unwrap_or(connection.local);
                let phase = std::mem::replace(&mut connection.phase, Phase::Over);
                let Phase::Connecting(initiator, request) = phase else { unreachable!("it was so just now") };
                connection.output.push(&request);
                connection.phase = Phase::AwaitsReply(initiator);
            }
            Some(Err(error)) => {
                let error: io::Error = error;
                self.abort(connection, number, failure(&error), host);
            }
            None => {}
        }
    }

    /// Reads once.
    fn read(&mut self, connection: &mut Connection, number: u32, host: &mut Host<'_>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        if scratch.is_empty() {
            scratch = vec![0; READ].into();
        }
        let result = connection.socket.as_mut().map(|socket| socket.read(&mut scratch));
        match result {
            Some(Ok(0)) => connection.peer_ended = true,
            Some(Ok(length)) => self.arrived(connection, number, &scratch[..length], host),
            Some(Err(error))
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Some(Err(_)) => connection.is_broken = true,
            None => {}
        }
        self.scratch = scratch;
    }

    /// Bytes have come: to set-up, or to the engine.
    fn arrived(&mut self, connection: &mut Connection, number: u32, bytes: &[u8], host: &mut Host<'_>) {
        match &mut connection.phase {
            Phase::AwaitsReply(initiator) => match initiator.handle(bytes) {
                Ok((_, None)) => {}
                Ok((taken, Some((agreed, private_data)))) => {
                    self.replied(connection, number, &agreed, private_data, host);
                    self.arrived(connection, number, &bytes[taken..], host);
                }
                Err(SetUpError::Rejected(private_data)) => {
                    connection.abort();
                    let refused = What::ConnectReply(Err(Failure::Refused));
                    self.tell(connection, number, refused, private_data, host);
                }
                Err(_) => self.abort(connection, number, Failure::Protocol, host),
            },
            Phase::AwaitsRequest(responder) => match responder.handle(bytes) {
                Ok((_, None)) => {}
                // The peer may not send more before it has the reply.
                Ok((taken, Some(_))) if taken < bytes.len() => connection.abort(),
                Ok((_, Some(request))) => {
                    let (ird, ord) = request.depths().unwrap_or((UNKNOWN_DEPTH, UNKNOWN_DEPTH));
                    connection.depths = (ird.min(UNKNOWN_DEPTH), ord.min(UNKNOWN_DEPTH));
                    connection.is_known = true;
                    connection.deadline = None;
                    let private_data = request.private_data.clone();
                    connection.phase = Phase::Requested(request);
                    let listener = connection.listener.expect("it came from one, and was not answered");
                    self.tell(connection, number, What::ConnectRequest { listener }, private_data, host);
                }
                Err(_) => connection.abort(),
            },
            Phase::Open => {
                connection.input.extend_from_slice(bytes);
                self.offer(connection, number, host);
            }
            Phase::Connecting(..) | Phase::Requested(_) | Phase::Closing { .. } | Phase::Over => {}
        }
    }

    /// The peer has accepted.
    fn replied(
        &mut self,
        connection: &mut Connection,
        number: u32,
        agreed: &Agreed,
        private_data: Vec<u8>,
        host: &mut Host<'_>,
    ) {
        if !Self::open(connection, agreed, host) {
            return self.abort(connection, number, Failure::Reset, host);
        }
        self.tell(connection, number, What::ConnectReply(Ok(())), private_data, host);
    }

    /// The stream is the QP's from now on; false if the QP cannot have it.
    pub(super) fn open(connection: &mut Connection, agreed: &Agreed, host: &mut Host<'_>) -> bool {
        let Some(mss) = connection.socket.as_ref().and_then(|socket| socket.tcp_mss().ok()) else {
            return false;
        };
        let mss = mss.max(MIN_MSS);
        let attr = agreed.stream(mss);
        let connected = connection
            .qpn
            .is_some_and(|qpn| host.engine.connect_stream(connection.device, qpn, &attr).is_ok());
        if connected {
            connection.phase = Phase::Open;
            connection.deadline = None;
            connection.mss = mss as usize;
            connection.depths = (agreed.ird.into(), agreed.ord.into());
        }
        connected
    }

    /// Hands to the engine what has come.
    fn offer(&mut self, connection: &mut Connection, number: u32, host: &mut Host<'_>) {
        let Some(qpn) = connection.qpn.filter(|_| matches!(connection.phase, Phase::Open)) else {
            return connection.input.clear();
        };
        let mut rest = connection.input.as_slice();
        while !rest.is_empty() {
            match host.engine.handle_stream(connection.device, qpn, rest, host.outputs) {
                Ok(0) => break,
                Ok(taken) => rest = &rest[taken..],
                Err(_) => {
                    // The QP was reset or destroyed.
                    return self.abort(connection, number, Failure::Reset, host);
                }
            }
        }
        let left = rest.len();
        connection.input.drain(..connection.input.len() - left);
    }

    /// The peer has ended the connection, or it broke, and all that came before was taken.
    fn follow_end(&mut self, connection: &mut Connection, number: u32, host: &mut Host<'_>) {
        if !(connection.peer_ended || connection.is_broken) || !connection.input.is_empty() {
            return;
        }
        match connection.phase {
            Phase::Open if connection.peer_ended && !connection.is_broken => {
                self.lose_stream(connection, true, host);
                self.close(connection, number, host);
            }
            Phase::Closing { is_told: true } if !connection.is_broken => {
                connection.end();
                self.tell(connection, number, What::Close, Vec::new(), host);
            }
            Phase::Closing { .. } if !connection.is_broken => {}
            Phase::Connecting(..) | Phase::Over => {}
            _ => self.lose(connection, number, host),
        }
    }

    /// It broke.
    pub(super) fn lose(&mut self, connection: &mut Connection, number: u32, host: &mut Host<'_>) {
        if matches!(connection.phase, Phase::Open) {
            self.lose_stream(connection, false, host);
        }
        self.abort(connection, number, Failure::Reset, host);
    }

    fn lose_stream(&mut self, connection: &Connection, orderly: bool, host: &mut Host<'_>) {
        if let Some(qpn) = connection.qpn {
            // The QP may have been reset or destroyed: then there is nothing to tell.
            let _ = host.engine.lose_stream(connection.device, qpn, orderly, host.outputs);
        }
    }

    /// Nothing more goes into it; what was put in is sent.
    pub(super) fn close(&mut self, connection: &mut Connection, number: u32, host: &mut Host<'_>) {
        connection.phase = Phase::Closing { is_told: false };
        connection.deadline = Some(deadline(host.now));
        self.tell(connection, number, What::Disconnect, Vec::new(), host);
    }
}

fn deadline(now: Instant) -> Instant {
    now + CLOSE_TIME
}
