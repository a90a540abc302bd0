//! QUERY_DEVICE, QUERY_COUNTERS and QUERY_CLOCK.

use super::base::{Command, Nothing, StatusResult};
use super::caller::Caller;
use crate::device;
use crate::memory::Extent;
use crate::translate::limits;
use crate::worker::Worker;
use vrdma_abi::control::{ClockResp, CountersResp, Opcode, QueryDeviceExResp, QueryDeviceResp};
use vrdma_transport::DeviceId;

/// QUERY_DEVICE.
#[derive(Debug)]
pub struct QueryDevice;

impl Command for QueryDevice {
    const OPCODE: Opcode = Opcode::QUERY_DEVICE;
    type Request = Nothing;
    type Reply = QueryDeviceExResp;
    const FIRST_REPLY: usize = QueryDeviceResp::SIZE;

    fn parse(_: &Nothing, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self)
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<QueryDeviceExResp> {
        let device = worker.outputs.device(id);
        let guest = &device.guest;
        Ok(limits::response(&device.limits().guest, guest.mac, guest.transport, guest.has_own_tcp()))
    }
}

/// QUERY_COUNTERS.
#[derive(Debug)]
pub struct QueryCounters;

impl Command for QueryCounters {
    const OPCODE: Opcode = Opcode::QUERY_COUNTERS;
    type Request = Nothing;
    type Reply = CountersResp;

    fn parse(_: &Nothing, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self)
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<CountersResp> {
        let device = &worker.outputs.device(id).counters;
        let engine = worker.engine.counters(id);
        // Counts restored from a record may have any value, so the sum must not overflow.
        let sum = |counts: &[u64]| counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let refused = sum(&[engine.naks_invalid, engine.naks_access, engine.naks_operational]);
        Ok(CountersResp {
            bytes_sent: sum(&[engine.bytes_out, engine.bytes_served]).into(),
            bytes_received: sum(&[engine.bytes_in, engine.bytes_read]).into(),
            packets_sent: engine.packets_out.into(),
            packets_received: engine.packets_in.into(),
            sends: engine.sends.into(),
            writes: engine.writes.into(),
            reads: engine.reads.into(),
            atomics: engine.atomics().into(),
            receives: engine.receives.into(),
            duplicates: engine.duplicates.into(),
            out_of_order: engine.out_of_sequence.into(),
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
            bad_requests: device.bad_requests().into(),
            cq_overruns: device.cq_overruns.into(),
            bad_address_handles: device.bad_address_handles.into(),
        })
    }
}

/// QUERY_CLOCK.
#[derive(Debug)]
pub struct QueryClock;

impl Command for QueryClock {
    const OPCODE: Opcode = Opcode::QUERY_CLOCK;
    type Request = Nothing;
    type Reply = ClockResp;

    fn parse(_: &Nothing, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self)
    }

    fn run(self, worker: &mut Worker, _: DeviceId) -> device::Result<ClockResp> {
        Ok(ClockResp { clock: worker.outputs.clock.tell().0.into() })
    }
}
