//! Counters of what happened to connections.

use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one connection. Each counts one kind of event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u32,)*
        }

        impl Counters {
            /// Returns names and values.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u32)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        /// Counters of all connections of a host.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Totals {
            /// Adds the counters of a connection.
            pub(crate) fn add(&mut self, counters: &Counters) {
                $(self.$name += u64::from(counters.$name);)*
            }

            /// Returns names and values.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Retransmitted segments.
    retransmits,
    /// Retransmission timeouts.
    timeouts,
    /// Tail loss probes.
    tail_probes,
    /// Recoveries that began without a timeout.
    recoveries,
    /// Recoveries that were spurious, and were undone.
    undone,
    /// DSACKs: reports of data that the peer got twice.
    duplicates_reported,
    /// Segments that arrived beyond a gap, and were taken.
    beyond_gap,
    /// Segments that end beyond the complete part of the stream, and of which nothing was taken.
    /// They were refused, had no room, or were duplicates beyond a gap.
    not_taken,
    /// Segments that end within the complete part of the stream.
    duplicates,
    /// Segments outside the window.
    outside_window,
    /// Segments whose timestamp was old (PAWS), or missing.
    bad_timestamp,
    /// Acknowledgment numbers that were never sent, or are too old.
    bad_ack,
    /// SACK blocks of data that was never sent.
    bad_sack,
    /// RSTs and SYNs in the window that were answered by a challenge (RFC 5961).
    challenges,
    /// Probes of a closed window.
    window_probes,
    /// Probes of a silent peer.
    keep_alives,
    /// Reductions of the path MTU: a router reported it, or long segments had no answer.
    mtu_reduced,
    /// Times that the path took longer segments again, after a reduction.
    mtu_raised,
    /// SYNs with an MSS below 216, which counts as 216.
    small_mss,
}
