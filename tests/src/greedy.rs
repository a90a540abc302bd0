//! A guest that wants to send all the time.

use crate::lab::Lab;
use crate::{Context, Cq, Mr, Qp, QpOptions, connect, wait};
use vrdma_abi::cqe::WcStatus;
use vrdma_guest::verbs::{Data, Request};

/// QPs of the guest.
const QPS: u32 = 8;
/// Requests that each of them has pending.
const PENDING: u32 = 32;
/// Bytes of a long message.
pub const LONG: u32 = 64 << 10;

/// A guest that sends all the time, and its peer.
#[derive(Debug)]
pub struct Greedy {
    process: Context,
    cq: Cq,
    from: Mr,
    to: Mr,
    qps: Vec<(Qp, Qp)>,
    /// QPs without a pending request, by position. A QP appears once for each request to post.
    idle: Vec<u32>,
    length: u32,
    /// Messages that ended.
    pub messages: u64,
    outstanding: usize,
}

impl Greedy {
    /// Connects the QPs of guest `own` of a lab with those of the next guest.
    ///
    /// Messages have `length` bytes, at most [`LONG`].
    pub fn new(lab: &Lab, own: usize, length: u32) -> Greedy {
        let (process, peer) = (&lab.guests[own], &lab.guests[own + 1]);
        let process = Context::open(process).expect("a context");
        let peer = Context::open(peer).expect("a context");
        let (cq, peer_cq) = (process.cq(2 * QPS * PENDING), peer.cq(16));
        let options = QpOptions { send_wr: PENDING, recv_wr: 1, sges: 1, inline: 0, ..QpOptions::default() };
        let pairs = (0..QPS).map(|_| {
            let ends = (process.qp(&cq, &cq, &options), peer.qp(&peer_cq, &peer_cq, &options));
            connect(&ends.0, &ends.1);
            ends
        });
        let qps = pairs.collect();
        let (from, to) = (process.mr(LONG.into()), peer.mr(LONG.into()));
        let idle = (0..PENDING).flat_map(|_| 0..QPS).collect();
        Greedy { process, cq, from, to, qps, idle, length, messages: 0, outstanding: 0 }
    }

    /// Takes some completions, and posts as many requests.
    pub fn step(&mut self) {
        self.reap();
        let mut posted = false;
        while let Some(&at) = self.idle.last() {
            let own = [self.from.sge(0, self.length)];
            let request =
                Request::write(self.qps[at as usize].0.tag(at), self.to.remote(0), Data::Sges(&own));
            if self.process.channel.driver.push(&request.signaled(true)).is_err() {
                break;
            }
            self.idle.pop();
            self.outstanding += 1;
            posted = true;
        }
        if posted {
            self.process.channel.driver.ring();
        }
    }

    /// Takes completions.
    pub fn reap(&mut self) {
        while let Some(wc) = self.cq.poll() {
            assert_eq!(wc.status(), WcStatus::SUCCESS, "a request failed");
            self.outstanding -= 1;
            self.messages += 1;
            self.idle.push(wc.id());
        }
    }

    /// Waits until all requests have ended.
    pub fn end(&mut self) {
        wait::until("the end of all requests", || {
            self.reap();
            (self.outstanding == 0).then_some(())
        });
    }
}
