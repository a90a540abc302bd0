//! A listener: its kernel sockets or its place in vrdma's own TCP, and its unanswered connections.

use super::deadlines::Armed;
use super::handle::Handle;
use super::stream_transport::StreamTransport;
use super::user_tcp::UserTcp;
use crate::tcp;
use socket2::Socket;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vrdma_transport::{DeviceId, Instant};

/// The source of a listener's connections.
pub(super) enum AcceptSource {
    /// Kernel sockets, and the index of the one to accept from next.
    Kernel { sockets: Vec<Socket>, next: usize },
    /// vrdma's own TCP.
    Own,
}

/// An accepted connection, with the addresses of both ends.
pub(super) struct AcceptedConnection {
    pub(super) transport: StreamTransport,
    /// Address of the listener's end.
    pub(super) local: SocketAddr,
    /// Address of the peer.
    pub(super) remote: SocketAddr,
}

/// A listener on a port of the guest, at one or all of the guest's addresses.
pub(super) struct StreamListener {
    pub(super) handle: Handle,
    pub(super) device: DeviceId,
    pub(super) port: u16,
    source: AcceptSource,
    backlog: usize,
    /// Its connections that the driver has not answered.
    pub(super) waiting: BTreeSet<Handle>,
    is_watched: bool,
    /// Whether it waits for its guest's turn.
    pub(super) is_listed: bool,
    /// Until when it is not watched.
    pub(super) paused: Option<Instant>,
    pub(super) armed: Armed,
}

impl StreamListener {
    pub(super) fn new(
        (handle, device): (Handle, DeviceId),
        port: u16,
        source: AcceptSource,
        backlog: usize,
    ) -> StreamListener {
        StreamListener {
            handle,
            device,
            port,
            source,
            backlog,
            waiting: BTreeSet::new(),
            is_watched: false,
            is_listed: false,
            paused: None,
            armed: Armed::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn for_tests(handle: Handle) -> StreamListener {
        StreamListener::new(
            (handle, DeviceId(0)),
            0,
            AcceptSource::Kernel { sockets: Vec::new(), next: 0 },
            1,
        )
    }

    /// Whether it accepts another connection now.
    pub(super) fn takes_more(&self) -> bool {
        self.waiting.len() < self.backlog && self.paused.is_none()
    }

    /// Returns the number of its sockets beyond one.
    pub(super) fn more_sockets(&self) -> u32 {
        match &self.source {
            AcceptSource::Kernel { sockets, .. } => (sockets.len() as u32).saturating_sub(1),
            AcceptSource::Own => 0,
        }
    }

    /// Accepts the next connection, from one socket after another.
    pub(super) fn accept(&mut self, user_tcp: &mut UserTcp) -> io::Result<Option<AcceptedConnection>> {
        let AcceptSource::Kernel { sockets, next } = &mut self.source else {
            let accepted = user_tcp.accept(self.device, self.handle);
            return Ok(accepted.map(|(socket, local, remote)| AcceptedConnection {
                transport: StreamTransport::Own(socket),
                local,
                remote,
            }));
        };
        for _ in 0..sockets.len() {
            let socket = &sockets[*next];
            *next = (*next + 1) % sockets.len();
            if let Some(tcp::Accepted { socket, local, remote }) = tcp::accept(socket)? {
                return Ok(Some(AcceptedConnection {
                    transport: StreamTransport::Kernel(socket),
                    local,
                    remote,
                }));
            }
        }
        Ok(None)
    }

    /// Watches its sockets, as long as it accepts connections.
    pub(super) fn watch<'a>(
        &mut self,
        epoll: impl FnOnce() -> io::Result<&'a Epoll>,
        user_tcp: &mut UserTcp,
    ) -> io::Result<()> {
        let wanted = self.takes_more();
        let sockets = match &self.source {
            AcceptSource::Own => {
                user_tcp.watch_listener(self.device, self.handle, wanted);
                return Ok(());
            }
            AcceptSource::Kernel { sockets, .. } => sockets,
        };
        if wanted == self.is_watched {
            return Ok(());
        }
        let epoll = epoll()?;
        self.is_watched = wanted;
        let operation = || if wanted { ControlOperation::Add } else { ControlOperation::Delete };
        let event = EpollEvent::new(EventSet::IN, self.handle.token());
        for at in 0..sockets.len() {
            if let Err(error) = epoll.ctl(operation(), sockets[at].as_raw_fd(), event) {
                // Undo the watches that were set.
                for socket in &sockets[..at] {
                    let _ = epoll.ctl(ControlOperation::Delete, socket.as_raw_fd(), event);
                }
                self.is_watched = false;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Stops listening.
    pub(super) fn close(&mut self, user_tcp: &mut UserTcp) {
        match &mut self.source {
            AcceptSource::Kernel { sockets, .. } => sockets.clear(),
            AcceptSource::Own => user_tcp.unlisten(self.device, self.handle),
        }
    }
}
