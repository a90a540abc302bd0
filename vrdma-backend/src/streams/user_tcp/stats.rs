//! The counters of a guest's own TCP.

use super::node::{Node, NodeCounters};

impl Node {
    /// Reports the counters by name.
    pub fn stats(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        self.stack.totals().iter().for_each(|(name, value)| tell(name, value));
        let NodeCounters {
            segments_in,
            segments_out,
            bad_checksum,
            malformed,
            refused,
            short_of_memory,
            too_long_ignored,
            local,
        } = self.counters;
        let stack = self.stack.counters();
        let held: usize = self.ends.values().map(|end| end.input.held()).sum();
        let round_trips = || self.ends.keys().filter_map(|&id| self.stack.get(id)?.round_trip());
        for (name, value) in [
            ("segments_in", segments_in),
            ("segments_out", segments_out),
            ("bad_checksum", bad_checksum),
            ("malformed", malformed),
            ("refused", refused),
            ("short_of_memory", short_of_memory),
            ("memory_bytes", self.budget.used()),
            ("too_long_ignored", too_long_ignored),
            ("local", local),
            ("evicted", stack.evicted),
            ("cookies_sent", stack.cookies_sent),
            ("cookies_taken", stack.cookies_taken),
            ("cookies_refused", stack.cookies_refused),
            ("no_room", stack.no_room),
            ("for_nobody", stack.for_nobody),
            ("bad_address", stack.bad_address),
            ("held_bytes", held as u64),
            ("connections", self.stack.connections() as u64),
            ("least_round_trip_ns", round_trips().min().unwrap_or(0)),
            ("most_round_trip_ns", round_trips().max().unwrap_or(0)),
        ] {
            tell(name, value);
        }
    }
}
