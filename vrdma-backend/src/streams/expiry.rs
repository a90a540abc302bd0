//! The deadlines of connections and listeners that have passed.

use super::cm::Failure;
use super::connection::{Connection, FINISH_TIME, Phase};
use super::handle::Handle;
use super::{Host, Streams};
use vrdma_transport::QpState;

/// Deadlines handled in one round.
const EXPIRED: usize = 32;

impl Streams {
    /// Ends connections whose deadline has passed, a few in each round. Returns true if more are
    /// due.
    pub(super) fn expire(&mut self, host: &mut Host<'_>) -> bool {
        for _ in 0..EXPIRED {
            let Some(handle) = self.deadlines.due(host.now) else { break };
            match self.table.take(handle) {
                Some(connection) => self.connection_expired(connection, host),
                None => self.listener_expired(handle, host),
            }
        }
        self.deadlines.due(host.now).is_some()
    }

    fn connection_expired(&mut self, mut connection: Box<Connection>, host: &mut Host<'_>) {
        connection.deadline = None;
        if matches!(connection.phase, Phase::Open) && !connection.is_finishing {
            let is_stuck = connection.is_blocked && has_failed(&connection, host);
            if !is_stuck {
                connection.deadline = connection.is_blocked.then_some(host.now + FINISH_TIME);
                return self.put_back(connection, host);
            }
        }
        self.abort(&mut connection, Failure::TimedOut, host);
        self.put_back(connection, host);
    }

    /// Watches a listener again after its pause.
    fn listener_expired(&mut self, handle: Handle, host: &mut Host<'_>) {
        let listener = self.table.listener(handle).expect("who has a deadline is there");
        listener.paused = None;
        self.watch_listener(handle, host);
    }
}

/// Whether a connection's QP is in ERR. Its output is not waited for without limit then.
fn has_failed(connection: &Connection, host: &Host<'_>) -> bool {
    let qpn = connection.bound.qpn().expect("an open connection has its QP");
    host.engine.query_qp(connection.device, qpn).is_ok_and(|attr| attr.state == QpState::Err)
}
