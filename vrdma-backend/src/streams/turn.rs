//! The worker's turn: what is done for connections and listeners, and when.

use super::carrier::Carrier;
use super::connection::{Connection, FINISH_TIME, Phase};
use super::guest::wait;
use super::handle::Handle;
use super::ready::ENTRIES;
use super::{Host, Streams};
use crate::device::broken::break_off;
use crate::panics;
use vmm_sys_util::epoll::{EpollEvent, EventSet};
use vrdma_transport::DeviceId;

/// Turns after which sockets are looked at while nothing came the last time: a look is a system
/// call.
const LOOK_TURNS: u32 = 8;
/// Who sends no more than so many bytes in a turn waits for an answer: a peer of this host may have
/// given it by the next. Who sends more has more to send.
const FEW: usize = 4 << 10;
/// What a step is about that serves a connection.
const STREAM: &str = "a connection of it";
/// Guests whose sockets are looked at in one look.
const GUESTS: usize = 64;

impl Streams {
    /// Takes what has come, and ends what took too long; true if there was anything.
    pub fn turn(&mut self, host: &mut Host<'_>) -> bool {
        let mut has_more = self.own.expire(host.now);
        has_more |= self.close_some();
        if self.table.is_empty() && !self.has_waiting() {
            return has_more;
        }
        self.turns += 1;
        let is_look = self.turns >= LOOK_TURNS;
        let mut busy = is_look && self.look();
        busy |= self.serve_ready(host);
        if is_look {
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

    /// After the engine sent: hands over to TCP what was put in. Without TCP it is at the other end
    /// by that, which takes it at once; true if there was any such.
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
        self.own.pipes().0.had_news() && self.serve_ready(host)
    }

    /// Lists whose sockets have something; whether any have.
    fn look(&mut self) -> bool {
        let (mut guests, mut events) = ([EpollEvent::default(); GUESTS], [EpollEvent::default(); ENTRIES]);
        // A guest that is alone is looked at itself, which is a system call less.
        let mut all = self.guests.keys();
        let count = match (all.next(), all.next()) {
            (Some(only), None) => {
                guests[0] = EpollEvent::new(EventSet::IN, only.0.into());
                1
            }
            _ => wait(&self.epoll, &mut guests),
        };
        let mut any = false;
        for guest in &guests[..count] {
            let device = DeviceId(guest.data() as u32);
            let count = self.guests.get(&device).map_or(0, |guest| guest.wait(&mut events));
            for event in &events[..count] {
                self.list(Handle::of_token(event.data()), event.event_set());
            }
            any |= count != 0;
        }
        any
    }

    /// Has an entry served in its guest's turn, if it is there still.
    pub(super) fn list(&mut self, handle: Handle, events: EventSet) {
        if let Some(connection) = self.table.connection(handle) {
            connection.due |= events;
            if !std::mem::replace(&mut connection.is_listed, true) {
                self.ready.push(connection.device, handle);
                self.in_vain = 0;
            }
        } else if let Some(listener) = self.table.listener(handle)
            && !std::mem::replace(&mut listener.is_listed, true)
        {
            self.ready.push(listener.device, handle);
            self.in_vain = 0;
        }
    }

    /// Serves guests by turns; whether anything came of it, or may of those that wait for the next
    /// turn.
    fn serve_ready(&mut self, host: &mut Host<'_>) -> bool {
        while let Some(handle) = self.own.next_ready() {
            self.list(handle, EventSet::empty());
        }
        let (guests, mut busy) = (self.ready.begin(), false);
        for _ in 0..guests {
            let Some(mut visit) = self.ready.visit(guests > 1) else { break };
            while let Some(handle) = self.ready.next(&mut visit) {
                let came = self.serve_entry(handle, host);
                self.in_vain = if came { 0 } else { self.in_vain + 1 };
                busy |= came;
            }
            self.ready.leave(&visit);
        }
        busy || self.in_vain < self.ready.len()
    }

    /// The worker has slept: what the engine did not take before it may take now.
    pub fn slept(&mut self) {
        self.in_vain = 0;
    }

    /// Serves what is listed; whether it was more than an offer that was not taken.
    fn serve_entry(&mut self, handle: Handle, host: &mut Host<'_>) -> bool {
        if let Some(listener) = self.table.listener(handle) {
            listener.is_listed = false;
            self.accept_some(handle, host);
            return true;
        }
        let Some(mut connection) = self.table.take(handle) else { return false };
        connection.is_listed = false;
        let due = std::mem::replace(&mut connection.due, EventSet::empty());
        let events = due | connection.carrier.as_ref().map_or(due, |carrier| carrier.events(&mut self.own));
        let moved = self.serve_contained(connection, events, host);
        let is_listed = self.table.connection(handle).is_some_and(|connection| connection.is_listed);
        moved != 0 || !events.is_empty() || !is_listed
    }

    /// Does what can be done for a connection, if there is one.
    pub(super) fn work_on(&mut self, handle: Handle, events: EventSet, host: &mut Host<'_>) {
        if let Some(connection) = self.table.take(handle) {
            self.serve_contained(connection, events, host);
        }
    }

    /// Does what can be done for a connection, and ends its guest if that panics. What goes over
    /// our own TCP, or over none, is of other guests too: then the process ends.
    fn serve_contained(
        &mut self,
        connection: Box<Connection>,
        events: EventSet,
        host: &mut Host<'_>,
    ) -> usize {
        let (handle, device) = (connection.handle, connection.device);
        if !connection.carrier.as_ref().is_some_and(Carrier::is_kernels) {
            return self.serve(connection, events, host);
        }
        host.engine.begin_step();
        match panics::contain_step(STREAM, || self.serve(connection, events, host)) {
            Ok(moved) => moved,
            Err(panicked) => {
                panics::shared(|| {
                    self.lost(handle, device);
                    break_off(Some(device), host.engine, host.outputs, panicked);
                });
                0
            }
        }
    }

    /// A connection that was taken out is gone, with all that it knew.
    #[cold]
    fn lost(&mut self, handle: Handle, device: DeviceId) {
        if self.table.connection(handle).is_some() {
            // It was put back.
            return;
        }
        self.bindings.forget(device, handle);
        self.deadlines.forget(handle);
        // Unless it was over.
        if self.guest(device).entries.contains(&handle) {
            self.release_handle(device, handle);
        }
    }

    /// Does what can be done for a connection that was taken out, or is new, and puts it in. Its
    /// guest is charged for the bytes; how many they were.
    pub(super) fn serve(
        &mut self,
        mut connection: Box<Connection>,
        events: EventSet,
        host: &mut Host<'_>,
    ) -> usize {
        let device = connection.device;
        #[cfg(feature = "hooks")]
        crate::hooks::guest_step(&host.outputs.device(device).guest.name);
        self.moved = 0;
        self.follow_engine(&mut connection, host);
        self.connected(&mut connection, events, host);
        self.offer(&mut connection, host);
        let ended = events.intersects(EventSet::ERROR | EventSet::HANG_UP | EventSet::READ_HANG_UP);
        if (ended || events.contains(EventSet::IN)) && connection.may_read() {
            self.read(&mut connection, host);
        } else if ended && !matches!(connection.phase, Phase::Connecting(..)) {
            // What has come is still to be taken; but to be told of it again and again helps
            // nobody.
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
        if self.moved != 0 {
            self.ready.charge(device, self.moved);
        }
        self.moved
    }

    /// Tells the engine of room that it waits for.
    fn follow_room(&mut self, connection: &mut Connection, host: &mut Host<'_>) {
        let Some(qpn) = connection.bound.qpn().filter(|_| connection.is_blocked) else { return };
        if connection.has_room(&self.own) {
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
        if is_soon && !std::mem::replace(&mut connection.is_listed, true) {
            self.ready.push(connection.device, connection.handle);
        }
    }
}
