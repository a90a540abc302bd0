//! A guest's process, with the objects that it needs to send or receive.

use crate::args::Connection;
use crate::host::refused;
use crate::plan::{GRH, Plan};
use anyhow::Result;
use std::sync::Arc;
use vrdma_guest::abi::control::{CreateSrqReq, QpType, access, limit};
use vrdma_guest::verbs::{Request, Tag};
use vrdma_guest::{Context, Cq, Guest, Mr, Qp, QpOptions};

/// Largest number of requests in the send queues of all QPs.
const ALL_REQUESTS: u32 = 1 << 20;

/// A process with a CQ and a buffer.
#[derive(Debug)]
pub struct Process {
    /// Its context and channel.
    pub context: Context,
    /// Its CQ.
    pub cq: Cq,
    /// Its buffer.
    pub mr: Mr,
}

impl Process {
    /// Creates a process with a CQ for `completions` completions.
    ///
    /// # Errors
    /// The device refuses a command.
    pub fn new(guest: &Arc<Guest>, completions: u32, plan: &Plan) -> Result<Process> {
        let context = refused(Context::open(guest), "a context")?;
        let cq = refused(Cq::create(guest, context.number, completions, 0), "a CQ")?;
        let mr = refused(Mr::register(guest, context.pd, access::REGION, plan.span), "a memory region")?;
        mr.fill(guest.options.host);
        Ok(Process { context, cq, mr })
    }

    /// Creates the QPs. `srqn` and `xrcdn` are those of [`QpOptions`].
    ///
    /// # Errors
    /// The device refuses.
    pub fn qps(&self, plan: &Plan, qp_type: QpType, srqn: u32, xrcdn: u32) -> Result<Vec<Qp>> {
        let own_receives = srqn == limit::NONE && qp_type != QpType::XRC_RECV && qp_type != QpType::XRC_SEND;
        let options = QpOptions {
            send_wr: requests_of_each(plan),
            recv_wr: if own_receives { receives_of_each(plan) } else { 0 },
            sges: 1,
            srqn,
            xrcdn,
            ..QpOptions::of(qp_type)
        };
        let (number, pd, cq) = (self.context.number, self.context.pd, self.cq.number);
        let make = |_| {
            let guest = &self.context.guest;
            let qp = match qp_type {
                QpType::XRC_RECV => {
                    let none = limit::NONE;
                    Qp::create(guest, limit::KERNEL_CONTEXT, none, none, none, &options)
                }
                QpType::XRC_SEND => Qp::create(guest, number, pd, cq, limit::NONE, &options),
                _ => Qp::create(guest, number, pd, cq, cq, &options),
            };
            refused(qp, "a QP")
        };
        (0..plan.qps).map(make).collect()
    }

    /// Creates a shared receive queue, in an XRC domain if one is given.
    ///
    /// # Errors
    /// The device refuses.
    pub fn srq(&self, plan: &Plan, xrcdn: Option<u32>) -> Result<u32> {
        let cq = if xrcdn.is_some() { self.cq.number } else { limit::NONE };
        let req = CreateSrqReq {
            context: self.context.number.into(),
            pdn: self.context.pd.into(),
            max_wr: shared_receives(plan).into(),
            max_sge: 1.into(),
            xrcdn: xrcdn.unwrap_or(limit::NONE).into(),
            cqn: cq.into(),
        };
        refused(self.context.guest.create_srq(&req), "a shared receive queue")
    }
}

/// Returns the size of each send queue. It has room for all outstanding requests, unless there are
/// very many QPs. These get one request each in turn.
fn requests_of_each(plan: &Plan) -> u32 {
    let all = plan.depth.max(plan.cq_mod);
    if all.saturating_mul(plan.qps) <= ALL_REQUESTS { all } else { all.div_ceil(plan.qps) * 4 }
}

/// Returns the number of receives of each QP.
pub fn receives_of_each(plan: &Plan) -> u32 {
    (2 * plan.depth).div_ceil(plan.qps).max(2)
}

/// Returns the number of receives of a shared receive queue.
pub fn shared_receives(plan: &Plan) -> u32 {
    2 * plan.depth
}

/// Posts receives, and counts those that are posted.
#[derive(Debug)]
pub struct Receives {
    /// Number of posted receives: of the shared receive queue if there is one, otherwise of each
    /// QP.
    pub ready: Vec<u32>,
    /// Number of the shared receive queue.
    pub srqn: Option<u32>,
    /// Numbers of the QPs.
    qps: Vec<u32>,
    length: u32,
    stride: u64,
    span: u64,
    at: u64,
}

impl Receives {
    /// Creates it, without posted receives.
    pub fn new(plan: &Plan, srqn: Option<u32>, qps: &[Qp]) -> Receives {
        let length = plan.size + if plan.connection == Connection::Ud { GRH } else { 0 };
        Receives {
            ready: vec![0; if srqn.is_some() { 1 } else { qps.len() }],
            srqn,
            qps: qps.iter().map(|qp| qp.number).collect(),
            length,
            stride: plan.stride,
            span: plan.span,
            at: 0,
        }
    }

    /// Posts as many receives as there is room for.
    pub fn post_all(&mut self, process: &mut Process, plan: &Plan) {
        let each = if self.srqn.is_some() { shared_receives(plan) } else { receives_of_each(plan) };
        for index in 0..self.ready.len() {
            (0..each).for_each(|_| self.post(process, index));
        }
        process.context.channel.driver.ring();
    }

    /// Posts a receive for QP `index`, or for the shared receive queue.
    ///
    /// The device sees it when the channel's doorbell is rung, at the latest when the channel is
    /// full.
    #[inline]
    pub fn post(&mut self, process: &mut Process, index: usize) {
        let own = [process.mr.sge(self.at, self.length)];
        self.at = next(self.at, self.stride, self.length, self.span);
        let request = match self.srqn {
            Some(srqn) => Request::srq_recv(srqn, index as u32, &own),
            None => Request::recv(Tag { qpn: self.qps[index], wqe_id: index as u32 }, &own),
        };
        if process.context.channel.driver.push(&request).is_err() {
            process.context.post(&request);
        }
        self.ready[index] += 1;
    }
}

/// Returns the offset of the message after the one at `at`.
#[inline]
pub fn next(at: u64, stride: u64, length: u32, span: u64) -> u64 {
    let next = at + stride;
    if next + u64::from(length) > span { 0 } else { next }
}
