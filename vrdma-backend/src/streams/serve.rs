//! Serves a connection: does all that can be done for it now.

use super::connection::{Connection, FINISH_TIME, Phase};
use super::handle::Handle;
use super::stream_transport::StreamTransport;
use super::{Host, Streams};
use crate::device::broken::break_off;
use crate::panics;
use vmm_sys_util::epoll::EventSet;
use vrdma_transport::DeviceId;

/// Name of the step that serves a connection.
const STREAM: &str = "a connection of it";

impl Streams {
    /// Does what can be done for a connection, if it exists.
    pub(super) fn work_on(&mut self, handle: Handle, events: EventSet, host: &mut Host<'_>) {
        if let Some(connection) = self.table.take(handle) {
            self.serve_contained(connection, events, host);
        }
    }

    /// Does what can be done for a connection, and ends its guest if that panics.
    ///
    /// vrdma's own TCP and loopback connections have state of other guests, too. With those, a
    /// panic ends the process.
    pub(super) fn serve_contained(
        &mut self,
        connection: Box<Connection>,
        events: EventSet,
        host: &mut Host<'_>,
    ) -> usize {
        let (handle, device) = (connection.handle, connection.device);
        if !connection.transport.as_ref().is_some_and(StreamTransport::is_kernels) {
            return self.serve(connection, events, host);
        }
        host.engine.begin_step();
        match panics::contain_step(STREAM, || self.serve(connection, events, host)) {
            Ok(moved) => moved,
            Err(panicked) => {
                panics::shared(|| {
                    self.lost(handle, device);
                    break_off(Some(device), host.engine, host.outputs, panicked);
                });
                0
            }
        }
    }

    /// Removes a connection that was taken out and is gone after a panic.
    #[cold]
    fn lost(&mut self, handle: Handle, device: DeviceId) {
        if self.table.connection(handle).is_some() {
            // It was put back.
            return;
        }
        self.bindings.forget(device, handle);
        self.deadlines.forget(handle);
        // Unless the connection was over.
        if self.guest(device).entries.contains(&handle) {
            self.release_handle(device, handle);
        }
    }

    /// Does what can be done for a connection that was taken out or is new, and puts it back.
    ///
    /// Charges its guest for the bytes that were moved. Returns how many they were.
    pub(super) fn serve(
        &mut self,
        mut connection: Box<Connection>,
        events: EventSet,
        host: &mut Host<'_>,
    ) -> usize {
        let device = connection.device;
        #[cfg(feature = "hooks")]
        crate::hooks::guest_step(&host.outputs.device(device).guest.name);
        self.moved = 0;
        self.follow_engine(&mut connection, host);
        self.connected(&mut connection, events, host);
        self.offer(&mut connection, host);
        let ended = events.intersects(EventSet::ERROR | EventSet::HANG_UP | EventSet::READ_HANG_UP);
        if (ended || events.contains(EventSet::IN)) && connection.may_read() {
            self.read(&mut connection, host);
        } else if ended && !matches!(connection.phase, Phase::Connecting(..)) {
            // Data that has come is still to be taken. But more reports of the end would be
            // useless.
            connection.is_broken = true;
        }
        self.follow_peer(&mut connection, host);
        if !connection.flush(&mut self.user_tcp) {
            self.lose(&mut connection, host);
        }
        // The peer may have ended its stream first.
        self.follow_peer(&mut connection, host);
        self.follow_room(&mut connection, host);
        self.note_stalled(&mut connection);
        self.put_back(connection, host);
        if self.moved != 0 {
            self.ready.charge(device, self.moved);
        }
        self.moved
    }

    /// Tells the engine of room that it waits for.
    fn follow_room(&mut self, connection: &mut Connection, host: &mut Host<'_>) {
        let Some(qpn) = connection.bound.qpn().filter(|_| connection.is_blocked) else { return };
        if connection.has_room(&self.user_tcp) {
            connection.is_blocked = false;
            // The QP may have been destroyed.
            let _ = host.engine.stream_has_room(connection.device, qpn);
        } else if connection.deadline.is_none() {
            // The peer may take as long as it likes, unless the QP has failed. Check that later.
            connection.deadline = Some(host.now + FINISH_TIME);
        }
    }

    /// Lists the connection again if the engine did not take everything.
    ///
    /// If its guest is paused, that is done when the guest continues.
    fn note_stalled(&mut self, connection: &mut Connection) {
        let is_soon = !connection.input.is_empty() && !self.is_suspended(connection.device);
        if is_soon && !std::mem::replace(&mut connection.is_listed, true) {
            self.ready.push(connection.device, connection.handle);
        }
    }
}
