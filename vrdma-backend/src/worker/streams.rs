//! iWARP connections in the worker's round.

use super::Worker;
use crate::panics;
use crate::streams::{Host, Streams};
use vrdma_transport::{self as transport, DeviceId};
use vrdma_wire::num::Qpn;

/// The epoll token of the sockets of streams.
pub(super) const STREAMS: u64 = u64::MAX - 1;

impl Worker {
    /// Calls `f` with the connections.
    pub fn with_streams<T>(&mut self, f: impl FnOnce(&mut Streams, &mut Host<'_>) -> T) -> T {
        let now = self.now();
        let Worker { streams, engine, outputs, .. } = self;
        f(streams, &mut Host { engine, outputs, now })
    }

    /// Handles what came in streams. Returns true if there was anything.
    pub(super) fn serve_streams(&mut self, now: transport::Instant) -> bool {
        let Worker { streams, engine, outputs, has_streams, .. } = self;
        *has_streams && streams.turn(&mut Host { engine, outputs, now })
    }

    /// Reports to the streams that a QP was modified or destroyed.
    pub(super) fn look_at_stream(&mut self, id: DeviceId, qpn: Qpn) {
        if self.has_streams {
            panics::shared(|| self.with_streams(|streams, host| streams.qp_changed(id, qpn, host)));
        }
    }

    /// Closes the connections of guests whose front-ends are gone.
    pub fn close_streams(&mut self) {
        self.streams.close_all();
    }

    /// Suspends the streams of a guest that is paused, or resumes them.
    pub(super) fn suspend_streams(&mut self, id: DeviceId, suspended: bool) {
        if self.has_streams {
            self.streams.set_suspended(id, suspended);
        }
    }
}
