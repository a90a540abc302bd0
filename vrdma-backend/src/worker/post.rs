//! Requests of channels, handed to the engine.

use super::Worker;
use crate::cycles::{self, Stage};
use crate::translate::wqe::{Request, destination, parse};
use vrdma_transport::{DeviceId, Instant, OwnerId, PostError, Queue, RecvRequest, SendOp};

impl Worker {
    /// Hands the request in `self.words` to the engine.
    #[inline]
    pub(super) fn post(&mut self, device: DeviceId, owner: OwnerId, units: usize, now: Instant) {
        let _mark = cycles::enter(Stage::Execute);
        let engine = &mut self.engine;
        let request = {
            let _mark = cycles::enter(Stage::Parse);
            parse(&self.words, units, &mut self.sges)
        };
        // By reference: the request is read where the parser wrote it, field by field.
        let result = match &request {
            &Request::Send(qpn, None, ref request)
                if matches!(request.op, SendOp::Send { .. }) && engine.is_datagram(device, qpn) =>
            {
                let handles = self.outputs.device(device).ah_table();
                match handles.and_then(|handles| destination(&self.words, |index| handles.get(index))) {
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
