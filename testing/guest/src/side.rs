//! One side of a connection: a process with all objects that a connection needs.

use crate::context::Context;
use crate::cq::Cq;
use crate::guest::Guest;
use crate::mr::Mr;
use crate::qp::{Qp, QpOptions, connect};
use std::sync::Arc;
use vrdma_abi::control::QpType;
use vrdma_verbs::{Request, Sge};

/// One side of a connection: a process with a CQ, a region and a QP.
#[derive(Debug)]
#[allow(missing_docs, reason = "each field is named after its kind of object")]
pub struct Side {
    pub process: Context,
    pub cq: Cq,
    pub mr: Mr,
    pub qp: Qp,
}

impl Side {
    /// Creates a process with a channel of its own, a region of `len` bytes and a QP in RESET.
    pub fn new(guest: &Arc<Guest>, len: u64, options: &QpOptions) -> Side {
        Side::with_cq(guest, 256, len, options)
    }

    /// Creates a side whose CQ has at least `entries` entries.
    pub fn with_cq(guest: &Arc<Guest>, entries: u32, len: u64, options: &QpOptions) -> Side {
        let process = Context::open(guest).expect("a context with a channel");
        let (cq, mr) = (process.cq(entries), process.mr(len));
        let qp = process.qp(&cq, &cq, options);
        Side { process, cq, mr, qp }
    }

    /// Creates a process with a UC QP that is connected to itself.
    pub fn looped(guest: &Arc<Guest>, len: u64) -> Side {
        let side = Side::new(guest, len, &QpOptions::of(QpType::UC));
        side.qp.to_init().expect("to INIT");
        side.qp.to_rtr(guest.gid(), side.qp.number, side.qp.options.sq_psn).expect("to RTR");
        side.qp.to_rts().expect("to RTS");
        side
    }

    /// Returns the guest.
    pub fn guest(&self) -> &Arc<Guest> {
        &self.process.guest
    }

    /// Posts a request.
    #[inline]
    pub fn post(&mut self, request: &Request<'_>) {
        self.process.post(request);
    }

    /// Posts a receive.
    pub fn recv(&mut self, id: u32, sges: &[Sge]) {
        self.process.post(&Request::recv(self.qp.tag(id), sges));
    }

    /// Posts a receive into the whole region.
    pub fn recv_any(&mut self, id: u32) {
        let sge = self.mr.sge(0, self.mr.len as u32);
        self.recv(id, &[sge]);
    }

    /// Destroys all objects in the order in which a process does.
    pub fn close(self) {
        self.qp.destroy().expect("destroy the QP");
        self.mr.deregister().expect("deregister the region");
        self.cq.destroy().expect("destroy the CQ");
        self.process.close().expect("close the context");
    }
}

/// Connects two sides in these guests, each with a region of `len` bytes.
pub fn pair_between(a: &Arc<Guest>, b: &Arc<Guest>, len: u64, options: &QpOptions) -> (Side, Side) {
    let (a, b) = (Side::new(a, len, options), Side::new(b, len, options));
    connect(&a.qp, &b.qp);
    (a, b)
}
