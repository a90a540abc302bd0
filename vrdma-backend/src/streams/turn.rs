//! The worker's round for connections and listeners.

use super::guest::wait;
use super::handle::Handle;
use super::ready::ENTRIES;
use super::{Host, Streams};
use vmm_sys_util::epoll::{EpollEvent, EventSet};
use vrdma_transport::DeviceId;

/// Rounds between two polls of the sockets while nothing comes. A poll is a system call.
const LOOK_TURNS: u32 = 8;
/// Bytes of a round up to which the sender is assumed to wait for an answer.
///
/// A peer on this host may have answered by the next round. A sender of more has more to send.
const FEW: usize = 4 << 10;
/// Guests whose sockets are polled at a time.
const GUESTS: usize = 64;

impl Streams {
    /// Handles received data, and ends what took too long. Returns true if there was any work.
    pub fn turn(&mut self, host: &mut Host<'_>) -> bool {
        let mut has_more = self.user_tcp.expire(host.now);
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
        self.user_tcp.loopbacks().0.had_news() && self.serve_ready(host)
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

    /// Serves guests in turns.
    ///
    /// Returns whether that had any effect, or may have one for entries that wait for the next
    /// round.
    fn serve_ready(&mut self, host: &mut Host<'_>) -> bool {
        while let Some(handle) = self.user_tcp.next_ready() {
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
        let events =
            due | connection.transport.as_ref().map_or(due, |transport| transport.events(&mut self.user_tcp));
        let moved = self.serve_contained(connection, events, host);
        let is_listed = self.table.connection(handle).is_some_and(|connection| connection.is_listed);
        moved != 0 || !events.is_empty() || !is_listed
    }
}
