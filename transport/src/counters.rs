//! What a device counts. Each counter answers an operator's question; none is ever reset.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the device was added.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// All zero.
            pub const ZERO: Counters = Counters { $($name: 0,)* };

            /// Names and values.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// SEND messages carried out as requester.
    sends,
    /// WRITE messages carried out as requester.
    writes,
    /// READs carried out as requester.
    reads,
    /// Compare and swaps carried out as requester.
    compare_swaps,
    /// Fetch and adds carried out as requester.
    fetch_adds,
    /// Bytes of SEND and WRITE payload that left.
    bytes_out,
    /// Bytes of SEND and WRITE payload that arrived.
    bytes_in,
    /// Bytes that own READs brought.
    bytes_read,
    /// Messages that consumed a receive.
    receives,
    /// RNR NAKs answered: a message found no receive.
    rnr_naks_sent,
    /// RNR NAKs received.
    rnr_naks,
    /// Local ACK timeouts.
    timeouts,
    /// Attempts after the first.
    retries,
    /// NAKs answered: invalid requests.
    naks_invalid,
    /// NAKs answered: access violations.
    naks_access,
    /// NAKs answered: failures here.
    naks_operational,
    /// Own messages that were lost: nobody here has the address.
    drop_no_route,
    /// Messages dropped on arrival: the QP does not exist.
    drop_no_qp,
    /// Messages dropped on arrival: the QP is not ready to receive.
    drop_state,
    /// Messages dropped on arrival: the QP is connected to another.
    drop_not_connected,
    /// Messages dropped on arrival: not the PSN expected.
    drop_psn,
    /// Completions with an error, flushes not counted.
    errors,
    /// Requests flushed.
    flushes,
    /// Posts for a QP that does not exist.
    post_no_qp,
    /// Posts for another context's QP.
    post_not_owner,
    /// Posts in a state that takes none.
    post_bad_state,
    /// Posts beyond a queue's length.
    post_overflow,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_names() {
        let counters = Counters { drop_psn: 3, ..Counters::ZERO };
        let found: Vec<_> = counters.iter().filter(|c| c.1 != 0).collect();
        assert_eq!(found, [("drop_psn", 3)]);
    }
}
