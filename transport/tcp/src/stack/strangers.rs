//! Segments that belong to no connection: SYNs to listeners, and strays.

use super::state::{Listener, Outgoing, RESETS, Stack};
use crate::connection::{Connection, Ports};
use crate::output::Segment;
use crate::table::Table;
use crate::time::Instant;
use crate::tuple::{NextHop, Tuple};
use vrdma_wire::tcp::{Flags, Options, TcpHeader};

/// After this many nanoseconds a half-open connection was answered again in vain after one and
/// after three seconds.
const LONG: u64 = 3_500_000_000;

impl Stack {
    /// Handles a segment of no connection: for a listener, or for nobody (RFC 9293, 3.10.7.1 and
    /// 3.10.7.2).
    pub(super) fn handle_for_nobody(
        &mut self,
        now: Instant,
        (tuple, hop): (Tuple, NextHop),
        header: &TcpHeader,
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
        syn: &TcpHeader,
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

    /// Returns whether one more half-open connection may be kept.
    ///
    /// At the limit, the listener's oldest one is removed if it has waited for long.
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

    /// Answers with a RST: there is no such connection.
    fn reset(&mut self, (tuple, hop): (Tuple, NextHop), header: &TcpHeader, length: usize) {
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
        let header = TcpHeader { src_port, dst_port, seq, ack, flags, window: 0, urgent: 0, options };
        let segment = Segment { header, data: 0..0 };
        self.answers.push_back(Outgoing { id: None, tuple, hop, traffic_class: 0, segment });
    }
}
