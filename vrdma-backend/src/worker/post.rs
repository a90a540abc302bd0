//! Posts requests from channels to the engine.

use super::Worker;
use crate::cycles::{self, Stage};
use crate::device::outputs::Outputs;
use crate::memory::MrMemory;
use crate::translate::wqe::{List, Request, destination, parse};
use std::slice::from_ref;
use vrdma_transport::{
    DeviceId, Engine, Instant, OwnerId, Payload, PostError, Queue, RecvList, RecvRequest, SendOp, SendRequest,
};

impl Worker {
    /// Posts a fetched request to the engine.
    #[inline]
    pub(super) fn post(&mut self, device: DeviceId, owner: OwnerId, at: usize, units: usize, now: Instant) {
        let _mark = cycles::enter(Stage::Execute);
        let engine = &mut self.engine;
        engine.begin_step();
        let words = &self.fetched.words[at];
        let request = {
            let _mark = cycles::enter(Stage::Parse);
            parse(words, units, &mut self.sges)
        };
        // The match is by reference, so that the request is read where the parser wrote it, field
        // by field.
        let result = match &request {
            &Request::Send(qpn, None, ref request)
                if matches!(request.op, SendOp::Send { .. }) && engine.is_datagram(device, qpn) =>
            {
                let handles = self.outputs.device(device).ah_table();
                match handles.and_then(|handles| destination(words, |index| handles.get(index))) {
                    Some(to) => {
                        engine.post_datagram(now, device, owner, qpn, request, &to, &mut self.outputs)
                    }
                    None => {
                        self.outputs.device(device).counters.bad_address_handles += 1;
                        let queue = Queue::Send;
                        engine.post_invalid(now, device, owner, qpn, request.id, queue, &mut self.outputs)
                    }
                }
            }
            &Request::Send(qpn, None, ref request) => {
                self.outputs.carries(request.payload.length());
                engine.post_send(now, device, owner, qpn, request, &mut self.outputs)
            }
            &Request::Send(qpn, Some(srqn), ref request) => {
                self.outputs.carries(request.payload.length());
                engine.post_xrc(now, device, owner, qpn, request, srqn, &mut self.outputs)
            }
            &Request::Recv(qpn, RecvRequest { id, sges }) => {
                engine.post_recv(now, device, owner, qpn, RecvRequest { id, sges }, &mut self.outputs)
            }
            &Request::SrqRecv(srq, RecvRequest { id, sges }) => {
                engine.post_srq_recv(device, owner, srq, RecvRequest { id, sges }, &mut self.outputs)
            }
            Request::List(list) => post_list(engine, &mut self.outputs, (now, device, owner), list),
            &Request::InvalidSrq(srq) => {
                self.outputs.device(device).counters.invalid_requests += 1;
                engine.post_invalid_srq(device, owner, srq, &mut self.outputs)
            }
            &Request::Invalid(qpn, id, queue) => {
                self.outputs.device(device).counters.invalid_requests += 1;
                engine.post_invalid(now, device, owner, qpn, id, queue, &mut self.outputs)
            }
            Request::Stray => Err(PostError::NoSuchQp),
        };
        if let Err(error) = result {
            let counters = &mut self.outputs.device(device).counters;
            match error {
                PostError::NoSuchQp | PostError::NoSuchSrq | PostError::NotOwner => {
                    counters.stray_requests += 1
                }
                PostError::BadState => counters.untimely_requests += 1,
                PostError::Overflow => counters.overflows += 1,
            }
        }
    }
}

/// Posts the requests of a list, one after the other. Returns the first error.
#[inline]
fn post_list(
    engine: &mut Engine<MrMemory>,
    outputs: &mut Outputs,
    (now, device, owner): (Instant, DeviceId, OwnerId),
    list: &List<'_>,
) -> Result<(), PostError> {
    match list {
        &List::Sends(qpn, ref like, ..) if !engine.is_connection(device, qpn) => {
            outputs.device(device).counters.invalid_requests += 1;
            engine.post_invalid(now, device, owner, qpn, like.id, Queue::Send, outputs)
        }
        &List::Sends(qpn, ref like, ref ids, sges) => {
            let mut result = Ok(());
            for (&id, sge) in ids.iter().zip(sges) {
                outputs.carries(sge.length.into());
                let request = SendRequest { id, payload: Payload::Sges(from_ref(sge)), ..*like };
                result = result.and(engine.post_send(now, device, owner, qpn, &request, outputs));
            }
            result
        }
        List::Recvs(qpn, ids, sges) => {
            let list = RecvList::new(&ids[..sges.len()], sges);
            engine.post_recvs(now, device, owner, *qpn, list, outputs)
        }
        List::SrqRecvs(srq, ids, sges) => {
            let list = RecvList::new(&ids[..sges.len()], sges);
            engine.post_srq_recvs(device, owner, *srq, list, outputs)
        }
    }
}
