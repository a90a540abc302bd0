//! Waiting for events: of connections that were worked on, and of listeners.

use super::connection::{Connection, Phase};
use super::handle::Handle;
use super::{Host, Streams};
use std::time::Duration;

/// How long a listener is left alone if the system is out of something that a connection needs.
///
/// Its sockets would report the waiting connection all the time.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

impl Streams {
    /// Puts back a connection that was worked on.
    ///
    /// It is forgotten instead if it is over and no driver knows of it.
    pub(super) fn put_back(&mut self, mut connection: Box<Connection>, host: &mut Host<'_>) {
        connection.charge(&mut self.user_tcp);
        let (guests, all, device) = (&mut self.guests, &self.epoll, connection.device);
        let watched =
            connection.watch(|| guests.entry(device).or_default().epoll(device, all), &mut self.user_tcp);
        if let Err(error) = watched {
            log::warn!("a connection cannot be watched: {error}");
            // Without a watch, nothing would report received bytes. (A connection without a socket
            // needs no watch.)
            self.lose(&mut connection, host);
        }
        let phase = &connection.phase;
        assert_eq!(connection.bound.qpn().is_some(), phase.has_qp(), "it has a QP as long as it needs one");
        let is_gone = matches!(phase, Phase::Over) && !connection.is_known;
        let deadline = connection.deadline.filter(|_| !is_gone);
        self.deadlines.set(connection.handle, &mut connection.armed, deadline);
        if !is_gone {
            return self.table.put(connection);
        }
        self.answered(&mut connection, host);
        self.guest(connection.device).forget(&mut connection.told);
        self.release_handle(connection.device, connection.handle);
    }

    /// Watches a listener, if it accepts connections now. If that fails, it is retried later.
    pub(super) fn watch_listener(&mut self, handle: Handle, host: &mut Host<'_>) {
        let Some(listener) = self.table.listener(handle) else { return };
        let (guests, all, device) = (&mut self.guests, &self.epoll, listener.device);
        let watched =
            listener.watch(|| guests.entry(device).or_default().epoll(device, all), &mut self.user_tcp);
        if let Err(error) = watched {
            log::warn!("a listener cannot be watched: {error}");
            listener.paused = Some(host.now + PAUSE);
        }
        self.deadlines.set(handle, &mut listener.armed, listener.paused);
    }

    /// Notes that a connection no longer waits for the driver's answer.
    pub(super) fn answered(&mut self, connection: &mut Connection, host: &mut Host<'_>) {
        let Some(handle) = connection.listener.take() else { return };
        let listener = self.table.listener(handle).expect("its connections end with it");
        listener.waiting.remove(&connection.handle);
        self.watch_listener(handle, host);
    }
}
