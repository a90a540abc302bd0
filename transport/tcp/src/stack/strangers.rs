//! Listeners, and segments that belong to no connection.

use super::{Listener, Outgoing, RESETS, Refused, Stack};
use crate::config::Config;
use crate::connection::{Connection, Ports};
use crate::output::Segment;
use crate::table::Table;
use crate::time::Instant;
use crate::tuple::{NextHop, Tuple};
use std::collections::VecDeque;
use vrdma_wire::num::Gid;
use vrdma_wire::tcp::{Flags, Header, Options};

/// After so long one that is not set up has been answered twice more, in vain: after one and three
/// seconds.
const LONG: u64 = 3_500_000_000;
/// All addresses of a host, for a listener.
const ANY: [u8; 16] = [0; 16];

impl Stack {
    /// What the listener at an address is called, or else that at all addresses.
    pub(super) fn listener_of(&self, tuple: &Tuple) -> Option<([u8; 16], u16)> {
        let keys = [(tuple.local.0, tuple.ports.local), (ANY, tuple.ports.local)];
        keys.into_iter().find(|key| self.listeners.contains_key(key))
    }

    /// Takes connections at a port, of an address or (all zero) of each. Of those that are not set
    /// up, `backlog` are kept. Beyond that one that has waited for long makes room, since one whose
    /// peer is there is set up within a round trip, and those of a flood never; or else SYNs are
    /// answered by cookies (RFC 4987, 3.6).
    pub fn listen(&mut self, local: Gid, port: u16, backlog: usize, config: Config) -> Result<(), Refused> {
        if self.listeners.contains_key(&(local.0, port)) {
            return Err(Refused::InUse);
        }
        let listener =
            Listener { config: self.share(config), backlog: backlog.max(1), half_open: VecDeque::new() };
        self.listeners.insert((local.0, port), listener);
        Ok(())
    }

    /// Takes no more connections at a port, nor those that are not set up.
    pub fn unlisten(&mut self, local: Gid, port: u16) {
        let Some(listener) = self.listeners.remove(&(local.0, port)) else { return };
        for id in listener.half_open {
            if self.table.get(id).is_some_and(|entry| entry.half_open) {
                self.change(id, Connection::abort);
            }
        }
    }

    /// A segment that belongs to no connection: a listener's, or nobody's (RFC 9293, 3.10.7.1 and
    /// 3.10.7.2).
    pub(super) fn handle_for_nobody(
        &mut self,
        now: Instant,
        (tuple, hop): (Tuple, NextHop),
        header: &Header,
        length: usize,
        initial: Option<u32>,
    ) {
        let flags = header.flags;
        if flags.has(Flags::RST) {
            return;
        }
        match self.listener_of(&tuple).filter(|_| !flags.has(Flags::ACK)) {
            None => {
                self.counters.for_nobody += 1;
                self.reset((tuple, hop), header, length);
            }
            Some(listener) if flags.has(Flags::SYN) && !flags.has(Flags::FIN) => {
                self.accept(now, (tuple, hop), listener, header, initial);
            }
            Some(_) => {}
        }
    }

    fn accept(
        &mut self,
        now: Instant,
        (tuple, hop): (Tuple, NextHop),
        listener: ([u8; 16], u16),
        syn: &Header,
        initial: Option<u32>,
    ) {
        if !self.make_room(listener, now) {
            return self.send_cookie(now, (tuple, hop), listener, syn);
        }
        if self.table.len() >= self.limits.connections {
            self.counters.no_room += 1;
            return;
        }
        let (number, clock) = (self.secret.number(&tuple, now), self.secret.clock(&tuple));
        let listener = self.listeners.get_mut(&listener).expect("it was looked up");
        let connection =
            Connection::accept(listener.config.clone(), syn, initial.unwrap_or(number), clock, now);
        let id = self.table.insert((tuple, hop), connection, true);
        listener.half_open.push_back(id);
    }

    /// Whether one more that is not set up may be kept. If there are as many as may be, the
    /// listener's oldest makes room once it has waited for long.
    fn make_room(&mut self, listener: ([u8; 16], u16), now: Instant) -> bool {
        let listener = self.listeners.get_mut(&listener).expect("it was looked up");
        let table = &mut self.table;
        let is_full = |listener: &Listener, table: &Table| {
            listener.half_open.len() >= listener.backlog || table.half_open() >= self.limits.half_open
        };
        if !is_full(listener, table) {
            return true;
        }
        listener.half_open.retain(|id| table.get(*id).is_some_and(|entry| entry.half_open));
        let waited = |id| table.get(id).map_or(0, |entry| now.since(entry.connection.heard));
        if is_full(listener, table)
            && let Some(&oldest) = listener.half_open.front()
            && waited(oldest) >= LONG
        {
            listener.half_open.pop_front();
            table.remove(oldest);
            self.counters.evicted += 1;
        }
        !is_full(listener, table)
    }

    /// Tells the sender that there is no such connection.
    fn reset(&mut self, (tuple, hop): (Tuple, NextHop), header: &Header, length: usize) {
        if self.answers.len() >= RESETS {
            return;
        }
        let numbers =
            length as u32 + u32::from(header.flags.has(Flags::SYN)) + u32::from(header.flags.has(Flags::FIN));
        let (seq, ack, flags) = if header.flags.has(Flags::ACK) {
            (header.ack, 0, Flags::RST)
        } else {
            (0, header.seq.wrapping_add(numbers), Flags::RST | Flags::ACK)
        };
        let Ports { local: src_port, remote: dst_port } = tuple.ports;
        let options = Options::default();
        let header = Header { src_port, dst_port, seq, ack, flags, window: 0, urgent: 0, options };
        let segment = Segment { header, data: 0..0 };
        self.answers.push_back(Outgoing { id: None, tuple, hop, traffic_class: 0, segment });
    }
}
