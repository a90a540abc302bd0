//! Connections of iWARP in the worker's turn.

use super::Worker;
use crate::panics;
use crate::streams::{Host, Streams};
use vrdma_transport::{self as transport, DeviceId};
use vrdma_wire::num::Qpn;

/// What epoll returns for the sockets of streams.
pub(super) const STREAMS: u64 = u64::MAX - 1;

impl Worker {
    /// Does something with the connections.
    pub fn with_streams<T>(&mut self, f: impl FnOnce(&mut Streams, &mut Host<'_>) -> T) -> T {
        let now = self.now();
        let Worker { streams, engine, outputs, .. } = self;
        f(streams, &mut Host { engine, outputs, now })
    }

    /// Takes what came in streams; true if there was anything.
    pub(super) fn serve_streams(&mut self, now: transport::Instant) -> bool {
        let Worker { streams, engine, outputs, has_streams, .. } = self;
        *has_streams && streams.turn(&mut Host { engine, outputs, now })
    }

    /// A QP was modified or destroyed.
    pub(super) fn look_at_stream(&mut self, id: DeviceId, qpn: Qpn) {
        if self.has_streams {
            panics::shared(|| self.with_streams(|streams, host| streams.qp_changed(id, qpn, host)));
        }
    }

    /// The guest is paused, or goes on.
    pub(super) fn suspend_streams(&mut self, id: DeviceId, suspended: bool) {
        if self.has_streams {
            self.streams.set_suspended(id, suspended);
        }
    }
}
