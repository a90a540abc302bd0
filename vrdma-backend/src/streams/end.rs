//! The end of connections: by the peer, the engine or the driver, and with their guest.

use super::cm::{Failure, What};
use super::connection::{CLOSE_TIME, Connection, Phase};
use super::{Host, Streams};
use vmm_sys_util::epoll::EventSet;
use vrdma_transport::{DeviceId, StreamEnd};

/// Connections of reset guests that are closed in one round.
const CLOSED: usize = 32;

impl Streams {
    /// Ends a connection at once, in any phase, and tells the driver.
    ///
    /// If its guest is paused, it ends when the guest continues. Its QP must not change until then.
    pub(super) fn abort(&mut self, connection: &mut Connection, why: Failure, host: &mut Host<'_>) {
        if matches!(connection.phase, Phase::Open) && self.is_suspended(connection.device) {
            connection.is_broken = true;
        } else {
            self.end_now(connection, why, host);
        }
    }

    /// Ends a connection whose guest is not paused, or whose QP has no stream any more.
    pub(super) fn end_now(&mut self, connection: &mut Connection, why: Failure, host: &mut Host<'_>) {
        let told: &[What] = match connection.phase {
            Phase::Open => {
                self.lose_stream(connection, false, host);
                &[What::Disconnect, What::Close]
            }
            Phase::Connecting(..) | Phase::AwaitsReply(_) => &[What::ConnectReply(Err(why))],
            Phase::Closing { .. } => &[What::Close],
            Phase::Requested(_) => {
                connection.ended_unanswered = true;
                let guest = self.guest(connection.device);
                if guest.has_first_of(&connection.told) {
                    // The driver has not fetched the request's event, and never gets it.
                    connection.is_known = false;
                }
                &[]
            }
            Phase::AwaitsRequest(_) | Phase::Over => &[],
        };
        self.bindings.unbind(&mut connection.bound);
        connection.reset(&mut self.user_tcp);
        for &what in told {
            self.tell(connection, what, Vec::new(), host);
        }
    }

    /// Ends a connection that broke.
    pub(super) fn lose(&mut self, connection: &mut Connection, host: &mut Host<'_>) {
        self.abort(connection, Failure::Reset, host);
    }

    /// Ends a connection that the peer's program rejected.
    pub(super) fn refused(
        &mut self,
        connection: &mut Connection,
        private_data: Vec<u8>,
        host: &mut Host<'_>,
    ) {
        self.bindings.unbind(&mut connection.bound);
        connection.reset(&mut self.user_tcp);
        self.tell(connection, What::ConnectReply(Err(Failure::Refused)), private_data, host);
    }

    /// Closes a connection: queued output is still sent, but nothing is added to it.
    pub(super) fn close(&mut self, connection: &mut Connection, host: &mut Host<'_>) {
        self.bindings.unbind(&mut connection.bound);
        connection.phase = Phase::Closing { is_told: false };
        connection.deadline = Some(host.now + CLOSE_TIME);
        self.tell(connection, What::Disconnect, Vec::new(), host);
    }

    /// Ends the connection if the engine has ended its stream.
    pub(super) fn follow_engine(&mut self, connection: &mut Connection, host: &mut Host<'_>) {
        match connection.ends.take().filter(|_| matches!(connection.phase, Phase::Open)) {
            Some(StreamEnd::Close) => self.close(connection, host),
            Some(StreamEnd::Abort) => self.lose(connection, host),
            None => {}
        }
    }

    /// Ends the connection if the peer has ended it, or if it broke. Received data must be taken
    /// first.
    pub(super) fn follow_peer(&mut self, connection: &mut Connection, host: &mut Host<'_>) {
        if !(connection.peer_ended || connection.is_broken) || !connection.input.is_empty() {
            return;
        }
        match connection.phase {
            Phase::Open if self.is_suspended(connection.device) => {}
            Phase::Open if !connection.is_broken => {
                self.lose_stream(connection, true, host);
                self.close(connection, host);
            }
            Phase::Closing { is_told: true } if !connection.is_broken => {
                connection.end(&mut self.user_tcp);
                self.tell(connection, What::Close, Vec::new(), host);
            }
            Phase::Closing { .. } if !connection.is_broken => {}
            Phase::Connecting(..) | Phase::Over => {}
            _ => self.lose(connection, host),
        }
    }

    fn lose_stream(&mut self, connection: &Connection, orderly: bool, host: &mut Host<'_>) {
        let qpn = connection.bound.qpn().expect("an open connection has its QP");
        // The QP may have been reset or destroyed. Then the error does not matter.
        let _ = host.engine.lose_stream(connection.device, qpn, orderly, host.outputs);
    }

    /// Notes that a guest is paused, or continues.
    pub fn set_suspended(&mut self, device: DeviceId, is_suspended: bool) {
        let guest = self.guest(device);
        if std::mem::replace(&mut guest.is_suspended, is_suspended) && !is_suspended {
            // Input that came during the pause is handled in the guest's turns.
            for handle in guest.entries.clone() {
                self.list(handle, EventSet::empty());
            }
        }
    }

    /// Drops all connections and listeners of a guest that was reset or is gone.
    ///
    /// Its listeners close at once. Each round closes a few connections.
    pub fn forget(&mut self, device: DeviceId) {
        self.ready.forget(device);
        for handle in self.guest(device).reset() {
            if let Some(mut connection) = self.table.take(handle) {
                self.bindings.unbind(&mut connection.bound);
                self.deadlines.set(handle, &mut connection.armed, None);
                self.leaving.push_back(connection);
                self.guest(device).leaving += 1;
            } else {
                let listener = self.table.listener(handle).expect("what a guest has is there");
                listener.close(&mut self.user_tcp);
                self.deadlines.set(handle, &mut listener.armed, None);
            }
            self.table.free(handle);
        }
        self.close_some();
    }

    /// Closes all connections of reset guests. Their peers hear of it by what is sent next.
    pub fn close_all(&mut self) {
        while self.close_some() {}
    }

    /// Removes a guest that [`Streams::forget`] was called for. All of its connections close.
    pub fn remove(&mut self, device: DeviceId) {
        self.close_all();
        self.guests.remove(&device);
        self.ready.remove(device);
        self.user_tcp.remove(device);
    }

    /// Closes some connections of reset guests. Returns true if there are more.
    pub(super) fn close_some(&mut self) -> bool {
        let count = self.leaving.len().min(CLOSED);
        for mut connection in self.leaving.drain(..count) {
            connection.reset(&mut self.user_tcp);
            let guest = self.guests.get_mut(&connection.device).expect("it counts what is leaving");
            guest.leaving -= 1;
        }
        !self.leaving.is_empty()
    }
}
