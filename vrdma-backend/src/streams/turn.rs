//! The worker's round for connections and listeners.

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

/// Rounds between two polls of the sockets while nothing comes. A poll is a system call.
const LOOK_TURNS: u32 = 8;
/// Bytes of a round up to which the sender is assumed to wait for an answer.
///
/// A peer on this host may have answered by the next round. A sender of more has more to send.
const FEW: usize = 4 << 10;
/// Name of the step that serves a connection.
const STREAM: &str = "a connection of it";
/// Guests whose sockets are polled at a time.
const GUESTS: usize = 64;

impl Streams {
    /// Handles received data, and ends what took too long. Returns true if there was any work.
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
            // Received data is often followed by more.
            self.turns = if busy { LOOK_TURNS } else { 0 };
        }
        has_more |= self.expire(host);
        busy | has_more
    }

    /// Makes the next round poll the sockets.
    pub fn woken(&mut self) {
        self.turns = LOOK_TURNS;
    }

    /// Passes the engine's output to TCP, after the engine has sent.
    ///
    /// Loopback connections have no TCP: their output is at the other end then, which takes it at
    /// once. Returns true if there was any such output.
    pub fn flush(&mut self, host: &mut Host<'_>) -> bool {
        let mut at = 0;
        // Connections that are touched meanwhile are appended.
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

    /// Polls the sockets and lists entries with events. Returns whether there are any.
    fn look(&mut self) -> bool {
        let (mut guests, mut events) = ([EpollEvent::default(); GUESTS], [EpollEvent::default(); ENTRIES]);
        // The epoll set of a single guest is polled directly, which saves a system call.
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

    /// Lists an entry to be served in its guest's turn, if it still exists.
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

    /// Serves guests in turns.
    ///
    /// Returns whether that had any effect, or may have one for entries that wait for the next
    /// round.
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

    /// Notes that the worker slept. What the engine did not take before may be taken now.
    pub fn slept(&mut self) {
        self.in_vain = 0;
    }

    /// Serves a listed entry. Returns whether it did more than an offer that the engine did not
    /// take.
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

    /// Does what can be done for a connection, if it exists.
    pub(super) fn work_on(&mut self, handle: Handle, events: EventSet, host: &mut Host<'_>) {
        if let Some(connection) = self.table.take(handle) {
            self.serve_contained(connection, events, host);
        }
    }

    /// Does what can be done for a connection, and ends its guest if that panics.
    ///
    /// vrdma's own TCP and loopback connections have state of other guests, too. With those, a
    /// panic ends the process.
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

    /// Removes a connection that was taken out and is gone after a panic.
    #[cold]
    fn lost(&mut self, handle: Handle, device: DeviceId) {
        if self.table.connection(handle).is_some() {
            // It was put back.
            return;
        }
        self.bindings.forget(device, handle);
        self.deadlines.forget(handle);
        // Unless the connection was over.
        if self.guest(device).entries.contains(&handle) {
            self.release_handle(device, handle);
        }
    }

    /// Does what can be done for a connection that was taken out or is new, and puts it back.
    ///
    /// Charges its guest for the bytes that were moved. Returns how many they were.
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
            // Data that has come is still to be taken. But more reports of the end would be
            // useless.
            connection.is_broken = true;
        }
        self.follow_peer(&mut connection, host);
        if !connection.flush(&mut self.own) {
            self.lose(&mut connection, host);
        }
        // The peer may have ended its stream first.
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
            // The QP may have been destroyed.
            let _ = host.engine.stream_has_room(connection.device, qpn);
        } else if connection.deadline.is_none() {
            // The peer may take as long as it likes, unless the QP has failed. Check that later.
            connection.deadline = Some(host.now + FINISH_TIME);
        }
    }

    /// Lists the connection again if the engine did not take everything.
    ///
    /// If its guest is paused, that is done when the guest continues.
    fn note_stalled(&mut self, connection: &mut Connection) {
        let is_soon = !connection.input.is_empty() && !self.is_suspended(connection.device);
        if is_soon && !std::mem::replace(&mut connection.is_listed, true) {
            self.ready.push(connection.device, connection.handle);
        }
    }
}
