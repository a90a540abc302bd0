//! What was counted, as the guest is told of it.

use vrdma_abi::control::CountersResp;
use vrdma_transport::Counters;

/// What is counted beside what the engine counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Border {
    /// Requests in channels that were dropped, or could not be understood.
    pub bad_requests: u64,
    /// CQs that overran.
    pub cq_overruns: u64,
    /// Datagrams that named no address handle in use.
    pub bad_address_handles: u64,
}

/// For the driver that asks.
pub fn response(engine: &Counters, border: &Border) -> CountersResp {
    // Counts of a record may be of any size.
    let sum = |counts: &[u64]| counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
    let refused = sum(&[engine.naks_invalid, engine.naks_access, engine.naks_operational]);
    CountersResp {
        bytes_sent: sum(&[engine.bytes_out, engine.bytes_served]).into(),
        bytes_received: sum(&[engine.bytes_in, engine.bytes_read]).into(),
        packets_sent: engine.packets_out.into(),
        packets_received: engine.packets_in.into(),
        sends: engine.sends.into(),
        writes: engine.writes.into(),
        reads: engine.reads.into(),
        atomics: sum(&[engine.compare_swaps, engine.fetch_adds, engine.atomic_writes]).into(),
        receives: engine.receives.into(),
        duplicates: engine.duplicates.into(),
        out_of_order: engine.out_of_order.into(),
        rnr_naks_sent: engine.rnr_naks_sent.into(),
        rnr_naks_received: engine.rnr_naks.into(),
        sequence_naks_sent: engine.naks_sequence.into(),
        sequence_naks_received: engine.naks_sequence_in.into(),
        requests_refused: refused.into(),
        naks_received: engine.naks_in.into(),
        timeouts: engine.timeouts.into(),
        retries: engine.retries.into(),
        retry_exceeded: engine.retry_exceeded.into(),
        rnr_retry_exceeded: engine.rnr_exceeded.into(),
        dropped: engine.dropped_on_arrival().into(),
        unroutable: engine.drop_no_route.into(),
        errors: engine.errors.into(),
        flushes: engine.flushes.into(),
        bad_requests: border.bad_requests.into(),
        cq_overruns: border.cq_overruns.into(),
        bad_address_handles: border.bad_address_handles.into(),
    }
}
