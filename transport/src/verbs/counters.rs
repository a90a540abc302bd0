//! Counters. Each answers a question of an operator, and none is ever reset.

use crate::save::Violation;
use crate::save::record::Counts;
use crate::verbs::op::WcOpcode;
use crate::verbs::reason::Reason;
use vrdma_wire::DropReason;

/// Checks that a count from a record can go on without an overflow.
fn to_count(value: u64) -> Result<u64, Violation> {
    if value <= u64::MAX / 2 { Ok(value) } else { Err(Violation::Counter) }
}

macro_rules! counters {
    ($(#[$what:meta])* $type:ident { $($(#[$doc:meta])* $name:ident $(was $old:literal)?,)* }) => {
        $(#[$what])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $type {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $type {
            /// All zero.
            pub const ZERO: $type = $type { $($name: 0,)* };

            /// Returns the record of the counters.
            pub(crate) fn save(&self) -> Counts {
                self.iter().map(|(name, value)| (name.to_owned(), value)).collect()
            }

            /// Restores counters from a record. A counter that it does not name is 0.
            pub(crate) fn restore(counts: &Counts) -> Result<$type, Violation> {
                let mut counters = $type::ZERO;
                for (name, &value) in counts {
                    match name.as_str() {
                        $(stringify!($name) $(| $old)? => counters.$name = to_count(value)?,)*
                        _ => return Err(Violation::Counter),
                    }
                }
                Ok(counters)
            }

            /// Iterates over names and values.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl Default for $type {
            fn default() -> $type {
                $type::ZERO
            }
        }
    };
}

counters! {
/// Counters of a device since it was added.
Counters {
    /// SEND messages executed as requester.
    sends,
    /// WRITE messages executed as requester.
    writes,
    /// READs executed as requester.
    reads,
    /// Compare and swaps executed as requester.
    compare_swaps,
    /// Fetch and adds executed as requester.
    fetch_adds,
    /// ATOMIC WRITEs executed as requester.
    atomic_writes,
    /// FLUSHes executed as requester.
    flush_requests,
    /// Memory windows bound by requests, and windows of type 1 unbound by requests.
    binds,
    /// Own keys that own requests invalidated.
    invalidations,
    /// Own keys that SENDs of peers invalidated.
    peer_invalidations,
    /// Fast registrations.
    registrations,
    /// Fast registrations that were refused because the QP is not the kernel's.
    refused_registrations,
    /// Bytes of SEND, WRITE and ATOMIC WRITE payload that left.
    bytes_out,
    /// Bytes of SEND, WRITE and ATOMIC WRITE payload that arrived.
    bytes_in,
    /// Bytes that own READs returned.
    bytes_read,
    /// Bytes that READs of peers took.
    bytes_served,
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
    /// Probes sent to peers that did not answer in the usual time.
    roce_adp_retrans,
    /// Requests that failed: the peer did not answer.
    retry_exceeded,
    /// Requests that failed: the peer posted no receive in time.
    rnr_exceeded,
    /// NAKs answered: invalid requests.
    naks_invalid,
    /// NAKs answered: access violations.
    naks_access,
    /// NAKs answered: failures of this device.
    naks_operational,
    /// Own messages that were lost: no device here has the address.
    drop_no_route,
    /// Messages dropped on arrival: the QP does not exist.
    drop_no_qp,
    /// Messages dropped on arrival: the QP is not ready to receive.
    drop_state,
    /// Messages dropped on arrival: the QP is connected to another.
    drop_not_connected,
    /// Messages dropped on arrival: the PSN is not the expected one.
    drop_psn,
    /// Datagrams dropped on arrival: the Q_Key is not the QP's.
    drop_qkey,
    /// Messages of unreliable services dropped on arrival: there was no receive.
    drop_no_receive,
    /// Packets dropped on arrival: too many waited until the posts of their QPs' owner were
    /// drained, or they were too long to wait.
    drop_held,
    /// Packets to multicast groups that not all members got, because too many packets waited for
    /// members to be served.
    drop_fan_out,
    /// Messages of unreliable services dropped on arrival: longer than the receive.
    drop_length,
    /// Messages of unreliable connections dropped on arrival: key, range or right of the memory
    /// that they name.
    drop_access,
    /// Messages of unreliable connections dropped on arrival: not allowed, or of a wrong length.
    drop_invalid,
    /// Gaps in messages of unreliable connections: messages, or parts of them, were lost.
    uc_gaps,
    /// Completions with an error, flushes not counted.
    errors,
    /// Requests flushed.
    flushes,
    /// Posts for a QP that does not exist.
    post_no_qp,
    /// Receives for a shared queue that does not exist.
    post_no_srq,
    /// Posts for a QP or shared queue of another context.
    post_not_owner,
    /// Posts in a state that allows none.
    post_bad_state,
    /// Posts beyond a queue's length.
    post_overflow,
    /// RoCE packets sent.
    packets_out,
    /// RoCE packets that arrived for QPs of this device.
    packets_in,
    /// Packets dropped: a P_Key that does not match that of a full member of the default partition
    /// (IBTA 10.9.3).
    drop_pkey,
    /// Messages dropped: of a service other than the QP's.
    drop_service,
    /// Packets dropped: the source is not the QP's peer, or the destination is not the QP's own
    /// address.
    drop_source,
    /// Duplicate requests, which are acknowledged or answered again.
    duplicates,
    /// Requests that came ahead of a gap: a packet before them is missing or late.
    out_of_sequence was "out_of_order",
    /// Requests ahead of a gap that were dropped, because there was no room to hold them.
    drop_reorder,
    /// Duplicate READs and atomics dropped: none that is remembered matches.
    drop_duplicate,
    /// NAKs answered: a gap in the PSNs.
    naks_sequence,
    /// NAKs received: a gap in the PSNs.
    naks_sequence_in,
    /// NAKs received that fail a request.
    naks_in,
    /// Packets received that met congestion: a switch marked them (RFC 3168, 5).
    np_ecn_marked_roce_packets,
    /// Congestion notifications sent to peers.
    np_cnp_sent,
    /// Congestion notifications received that lowered the rate of a QP, or kept it low.
    rp_cnp_handled,
    /// Round-trip times beyond the target that lowered the rate of a QP, or kept it low.
    rp_delay_handled,
    /// Congestion notifications received and ignored: not of the peer, for a service without
    /// congestion control, or congestion control is off.
    rp_cnp_ignored,
    /// Responses dropped: to requests that had been answered already.
    drop_response_old,
    /// Responses dropped: to requests that were never sent.
    drop_response_future,
    /// Responses dropped: the QP waits for no such response.
    drop_response_odd,
    /// Responses that were found missing when a later one arrived.
    responses_lost,
    /// Responses of a wrong kind or length, which fail a request.
    bad_responses,
    /// FPDUs sent in streams.
    fpdus_out,
    /// FPDUs received in streams.
    fpdus_in,
    /// FPDUs that arrived out of order beyond a gap of a stream, and whose payload was placed at
    /// once.
    fpdus_placed,
    /// FPDUs that arrived out of order beyond a gap of a stream, and were not taken. A SEND or
    /// immediate data had no receive yet.
    fpdus_too_early,
    /// Faulty streams of peers: the bytes are no FPDUs, or hold something other than a segment.
    stream_faults,
    /// Connections ended because a message in a stream had no receive.
    no_receive_ends,
    /// TERMINATEs sent.
    terminates_out,
    /// TERMINATEs received.
    terminates_in,
}
}

impl Counters {
    /// Returns the number of packets and messages dropped on arrival, for any reason.
    pub fn dropped_on_arrival(&self) -> u64 {
        let of_arrival = |name: &str| name.starts_with("drop_") && name != "drop_no_route";
        self.iter().filter(|(name, _)| of_arrival(name)).fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Returns the number of atomics executed as requester, ATOMIC WRITEs included.
    pub fn atomics(&self) -> u64 {
        let counts = [self.compare_swaps, self.fetch_adds, self.atomic_writes];
        counts.into_iter().fold(0, u64::saturating_add)
    }

    /// Counts a message that was dropped on arrival, or that could not be sent.
    pub(crate) fn dropped(&mut self, reason: Reason) {
        let count = match reason {
            Reason::NoRoute => &mut self.drop_no_route,
            Reason::NoQp => &mut self.drop_no_qp,
            Reason::NotConnected => &mut self.drop_not_connected,
            Reason::State => &mut self.drop_state,
            Reason::Psn => &mut self.drop_psn,
            Reason::Service => &mut self.drop_service,
            Reason::Qkey => &mut self.drop_qkey,
            Reason::NoReceive => &mut self.drop_no_receive,
            Reason::Length => &mut self.drop_length,
            Reason::Access => &mut self.drop_access,
            Reason::Invalid => &mut self.drop_invalid,
        };
        *count += 1;
    }
}

counters! {
/// Counters of the port since the engine was made, for events that concern no single device.
PortCounters {
    /// RoCE frames from the wire.
    frames_in,
    /// RoCE frames to the wire.
    frames_out,
    /// Packets that were lost because the link was down.
    lost_link_down,
    /// Frames dropped: no device has the destination address.
    drop_no_device,
    /// Frames dropped: a device has the destination address, but in another VLAN.
    drop_vlan,
    /// Frames dropped: the device that has the destination address has another MAC address.
    drop_mac,
    /// Frames dropped: the source is an address of one of this engine's devices.
    drop_spoofed,
    /// Frames dropped: to a multicast group that no QP here has joined in that VLAN, or not a
    /// datagram to all its members.
    drop_multicast,
    /// Congestion notification packets for QPs of this engine.
    congestion_notifications,
}
}

/// Frames that are no valid packets, by reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MalformedFrames([u64; DropReason::COUNT]);

impl MalformedFrames {
    pub(crate) const ZERO: MalformedFrames = MalformedFrames([0; DropReason::COUNT]);

    pub(crate) fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Returns the record of the counts.
    pub(crate) fn save(&self) -> Counts {
        self.iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Restores counts from a record. A reason that it does not name is 0.
    pub(crate) fn restore(counts: &Counts) -> Result<MalformedFrames, Violation> {
        let mut frames = MalformedFrames::ZERO;
        for (name, &value) in counts {
            let reason = DropReason::ALL.iter().find(|reason| reason.name() == name);
            let reason = *reason.ok_or(Violation::Counter)?;
            frames.0[reason as usize] = to_count(value)?;
        }
        Ok(frames)
    }

    /// Returns the count of a reason.
    pub fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Iterates over names of reasons and counts.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        DropReason::ALL.iter().map(|&reason| (reason.name(), self.of(reason)))
    }
}

impl Counters {
    /// Returns the counter of executed requests that complete with this operation.
    #[inline]
    pub(crate) fn of(&mut self, opcode: WcOpcode) -> &mut u64 {
        match opcode {
            WcOpcode::Send => &mut self.sends,
            WcOpcode::Write => &mut self.writes,
            WcOpcode::Read => &mut self.reads,
            WcOpcode::CompareSwap => &mut self.compare_swaps,
            WcOpcode::FetchAdd => &mut self.fetch_adds,
            WcOpcode::BindMw => &mut self.binds,
            WcOpcode::LocalInvalidate => &mut self.invalidations,
            WcOpcode::Flush => &mut self.flush_requests,
            WcOpcode::AtomicWrite => &mut self.atomic_writes,
            WcOpcode::RegMr => &mut self.registrations,
            WcOpcode::Recv | WcOpcode::RecvWriteImm => &mut self.receives,
        }
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

    #[test]
    fn what_is_dropped_on_arrival_is_all_that_is_dropped_but_own_messages() {
        let some = Counters { drop_no_qp: 1, drop_response_odd: 2, drop_held: 4, ..Counters::ZERO };
        assert_eq!(some.dropped_on_arrival(), 7);
        let others = Counters { drop_no_route: 1, post_overflow: 2, errors: 4, ..Counters::ZERO };
        assert_eq!(others.dropped_on_arrival(), 0);
        let full = Counters { drop_qkey: u64::MAX, ..some };
        assert_eq!(full.dropped_on_arrival(), u64::MAX);
    }
}
