//! Executes the driver's commands on listeners, and accepts connections from them.

use super::cm::{Failure, ListenerId};
use super::connection::{Connection, Phase, SET_UP_TIME};
use super::handle::Handle;
use super::listener::{AcceptSource, AcceptedConnection, StreamListener};
use super::watch::PAUSE;
use super::{Host, Result, Streams};
use crate::tcp::ListenAddrs;
use vmm_sys_util::epoll::EventSet;
use vrdma_transport::{DeviceId, Error, SetUpResponder};

/// Connections accepted from a listener in one round.
const ACCEPTS: usize = 4;

impl Streams {
    /// Executes CM_LISTEN, with listening sockets or an address for vrdma's own TCP.
    ///
    /// # Errors
    /// `NoResources`: the guest has all connections and listener sockets that its limit allows.
    /// `Busy`: vrdma's own TCP has such a listener already.
    pub fn listen(
        &mut self,
        device: DeviceId,
        addrs: ListenAddrs,
        backlog: usize,
        host: &mut Host<'_>,
    ) -> Result<ListenerId> {
        let sockets = addrs.sockets();
        self.check_room(device, sockets, host)?;
        self.guest(device).more_sockets += sockets - 1;
        let (handle, port) = (self.reserve(device), addrs.port());
        let source = match addrs {
            ListenAddrs::Kernel(sockets) => AcceptSource::Kernel { sockets, next: 0 },
            ListenAddrs::Own { at, traffic_class } => {
                if let Err(error) = self.user_tcp.listen(device, handle, at, traffic_class) {
                    self.release_handle(device, handle);
                    return Err(error);
                }
                AcceptSource::Own
            }
        };
        self.table.put_listener(Box::new(StreamListener::new((handle, device), port, source, backlog)));
        self.watch_listener(handle, host);
        Ok(ListenerId(handle.number))
    }

    /// Executes CM_CLOSE_LISTENER. Connections of the listener that were not accepted end.
    ///
    /// # Errors
    /// `NotFound`: the guest has no such listener.
    pub fn close_listener(
        &mut self,
        device: DeviceId,
        listener: ListenerId,
        host: &mut Host<'_>,
    ) -> Result<()> {
        let handle = self.table.find(listener.0).ok_or(Error::NotFound)?;
        let listener = self.table.listener(handle).filter(|listener| listener.device == device);
        let listener = listener.ok_or(Error::NotFound)?;
        listener.paused = None;
        let waiting = std::mem::take(&mut listener.waiting);
        let more_sockets = listener.more_sockets();
        listener.close(&mut self.user_tcp);
        self.deadlines.set(handle, &mut listener.armed, None);
        self.guest(device).more_sockets -= more_sockets;
        for handle in waiting {
            let mut connection =
                self.table.take(handle).expect("a listener names connections that are there");
            connection.listener = None;
            self.abort(&mut connection, Failure::Reset, host);
            self.put_back(connection, host);
        }
        self.release_handle(device, handle);
        Ok(())
    }

    /// Accepts a few connections that peers have made.
    pub(super) fn accept_some(&mut self, handle: Handle, host: &mut Host<'_>) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.table.listener(handle) else { return };
            if !listener.takes_more() {
                break;
            }
            let device = listener.device;
            match listener.accept(&mut self.user_tcp) {
                Ok(Some(accepted)) => self.accepted(handle, device, accepted, host),
                Ok(None) => break,
                Err(error) => {
                    listener.paused = Some(host.now + PAUSE);
                    host.outputs.device(device).counters.failed_accepts += 1;
                    log::debug!("a connection cannot be taken: {error}");
                    break;
                }
            }
        }
        self.watch_listener(handle, host);
    }

    /// Accepts a loopback connection.
    pub(super) fn take_accepted(
        &mut self,
        listener: Handle,
        accepted: AcceptedConnection,
        host: &mut Host<'_>,
    ) {
        let device = self.table.listener(listener).expect("it was found just now").device;
        self.accepted(listener, device, accepted, host);
        self.watch_listener(listener, host);
    }

    fn accepted(
        &mut self,
        listener: Handle,
        device: DeviceId,
        accepted: AcceptedConnection,
        host: &mut Host<'_>,
    ) {
        let AcceptedConnection { transport, local, remote } = accepted;
        if self.check_room(device, 1, host).is_err() {
            host.outputs.device(device).counters.failed_accepts += 1;
            return transport.reset(&mut self.user_tcp);
        }
        let handle = self.reserve(device);
        let phase = Phase::AwaitsRequest(SetUpResponder::default());
        let deadline = host.now + SET_UP_TIME;
        let mut connection = Connection::new(handle, device, transport, phase, (local, remote), deadline);
        connection.listener = Some(listener);
        let listener = self.table.listener(listener).expect("its turn ends after this");
        listener.waiting.insert(handle);
        self.serve(Box::new(connection), EventSet::IN, host);
    }
}
