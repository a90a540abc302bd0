//! The worker's turn: what is done for connections and listeners, and when.

use super::connection::{Connection, FINISH_TIME, Phase};
use super::handle::Handle;
use super::{Host, Streams};
use std::io;
use vmm_sys_util::epoll::{EpollEvent, EventSet};

/// Turns after which sockets are looked at while nothing came the last time: a look is a system call.
const LOOK_TURNS: u32 = 8;
/// Who sends no more than so many bytes in a turn waits for an answer: a peer of this host may have given it by the next. Who sends more has more to send.
const FEW: usize = 4 << 10;
/// Sockets that are served in one turn.
const SOCKETS: usize = 32;

impl Streams {
    /// Takes what has come, and ends what took too long; true if there was anything.
    pub fn turn(&mut self, host: &mut Host<'_>) -> bool {
        let mut has_more = self.own.expire(host.now);
        has_more |= self.close_some();
        if self.table.is_empty() && !self.has_waiting() {
            return has_more;
        }
        let mut busy = self.retry(host);
        busy |= self.serve_own(host);
        self.turns += 1;
        if self.turns >= LOOK_TURNS {
            busy |= self.look(host);
            // What came is followed by more.
            self.turns = if busy { LOOK_TURNS } else { 0 };
        }
        has_more |= self.expire(host);
        busy | has_more
    }

    /// Has the sockets looked at in the next turn.
    pub fn woken(&mut self) {
        self.turns = LOOK_TURNS;
    }

    /// After the engine sent: hands over to TCP what was put in. Without TCP it is at the other end by that, which takes it at once; true if there was any such.
    pub fn flush(&mut self, host: &mut Host<'_>) -> bool {
        let mut at = 0;
        // What is touched meanwhile comes behind.
        while let Some(&handle) = self.touched.get(at) {
            self.work_on(handle, EventSet::empty(), host);
            at += 1;
        }
        self.touched.clear();
        self.put = 0;
        if (1..=FEW).contains(&std::mem::take(&mut self.put_kernel)) {
            self.woken();
        }
        self.own.pipes().0.had_news() && self.serve_own(host)
    }

    fn look(&mut self, host: &mut Host<'_>) -> bool {
        let mut events = [EpollEvent::default(); SOCKETS];
        let count = match self.epoll.wait(0, &mut events) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => panic!("epoll_wait fails only for arguments that are wrong: {error}"),
        };
        for event in &events[..count] {
            // One that has gone since is neither.
            let handle = Handle::of_token(event.data());
            match self.table.listener(handle) {
                Some(_) => self.accept_some(handle, host),
                None => self.work_on(handle, event.event_set(), host),
            }
        }
        count != 0
    }

    /// What [`look`](Streams::look) does, for our own TCP.
    fn serve_own(&mut self, host: &mut Host<'_>) -> bool {
        // Those that come meanwhile are served in the next turn.
        let count = self.own.ready().min(SOCKETS);
        for _ in 0..count {
            let Some(handle) = self.own.next_ready() else { break };
            if self.table.listener(handle).is_some() {
                self.accept_some(handle, host);
            } else if let Some(connection) = self.table.take(handle) {
                let events = connection.carrier.as_ref().map(|carrier| carrier.events(&mut self.own));
                self.serve(connection, events.unwrap_or(EventSet::empty()), host);
            }
        }
        count != 0
    }

    /// Offers the engine once more what it did not take.
    pub(super) fn retry(&mut self, host: &mut Host<'_>) -> bool {
        let stalled = std::mem::take(&mut self.stalled);
        let before = stalled.len();
        for handle in stalled {
            if let Some(connection) = self.table.connection(handle) {
                connection.is_stalled = false;
                self.work_on(handle, EventSet::empty(), host);
            }
        }
        self.stalled.len() < before
    }

    /// Does what can be done for a connection, if there is one.
    pub(super) fn work_on(&mut self, handle: Handle, events: EventSet, host: &mut Host<'_>) {
        if let Some(connection) = self.table.take(handle) {
            self.serve(connection, events, host);
        }
    }

    /// Does what can be done for a connection that was taken out, or is new, and puts it in.
    pub(super) fn serve(&mut self, mut connection: Box<Connection>, events: EventSet, host: &mut Host<'_>) {
        self.follow_engine(&mut connection, host);
        self.connected(&mut connection, events, host);
        self.offer(&mut connection, host);
        let ended = events.intersects(EventSet::ERROR | EventSet::HANG_UP | EventSet::READ_HANG_UP);
        if (ended || events.contains(EventSet::IN)) && connection.may_read() {
            self.read(&mut connection, host);
        } else if ended && !matches!(connection.phase, Phase::Connecting(..)) {
            // What has come is still to be taken; but to be told of it again and again helps nobody.
            connection.is_broken = true;
        }
        self.follow_peer(&mut connection, host);
        if !connection.flush(&mut self.own) {
            self.lose(&mut connection, host);
        }
        // The peer may have ended first.
        self.follow_peer(&mut connection, host);
        self.follow_room(&mut connection, host);
        self.note_stalled(&mut connection);
        self.put_back(connection, host);
    }

    /// Tells the engine of room that it waits for.
    fn follow_room(&mut self, connection: &mut Connection, host: &mut Host<'_>) {
        let Some(qpn) = connection.bound.qpn().filter(|_| connection.is_blocked) else { return };
        if connection.output.has_room() {
            connection.is_blocked = false;
            // Its QP may have been destroyed.
            let _ = host.engine.stream_has_room(connection.device, qpn);
        } else if connection.deadline.is_none() {
            // For as long as the peer likes, but not if the QP has failed.
            connection.deadline = Some(host.now + FINISH_TIME);
        }
    }

    /// What the engine did not take is offered again: soon, or when its guest goes on.
    fn note_stalled(&mut self, connection: &mut Connection) {
        let is_soon = !connection.input.is_empty() && !self.is_suspended(connection.device);
        if is_soon && !std::mem::replace(&mut connection.is_stalled, true) {
            self.stalled.push(connection.handle);
        }
    }
}
