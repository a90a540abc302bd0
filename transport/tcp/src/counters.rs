//! What happened to connections, in numbers.

use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened to a connection. Each counts one thing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u32,)*
        }

        impl Counters {
            /// Names and values.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u32)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        /// What happened to all connections of a host.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Totals {
            /// Adds what happened to a connection.
            pub(crate) fn add(&mut self, counters: &Counters) {
                $(self.$name += u64::from(counters.$name);)*
            }

            /// Names and values.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Segments that were sent once more.
    retransmits,
    /// Retransmission timeouts.
    timeouts,
    /// Probes of the tail.
    tail_probes,
    /// Recoveries that began without a timeout.
    recoveries,
    /// Recoveries that had been for nothing, and were undone.
    undone,
    /// DSACKs: what the peer got twice.
    duplicates_reported,
    /// Segments that arrived beyond a hole, and were taken.
    beyond_hole,
    /// Segments that were refused, wholly or in part, by the user or for want of room.
    not_taken,
    /// Segments of which nothing was new.
    duplicates,
    /// Segments outside of the window.
    outside_window,
    /// Segments whose timestamp was old (PAWS), or missing.
    bad_timestamp,
    /// Acknowledgment numbers of what was never sent, or long ago.
    bad_ack,
    /// SACK blocks of what was never sent.
    bad_sack,
    /// RSTs and SYNs in the window that were answered by a challenge (RFC 5961).
    challenges,
    /// Probes of a closed window.
    window_probes,
    /// Probes of a silent peer.
    keep_alives,
    /// Times that the path's MTU became smaller: routers said so, or long segments had no answer.
    mtu_reduced,
    /// Times that the path took segments again that were too long for it before.
    mtu_raised,
    /// SYNs with an MSS below 216: segments are as long as if they had said 216.
    small_mss,
}
