//! Executes the driver's commands on connections.

use super::cm::{Accept, CmEvent, Connect, ConnectionId, Failure, What};
use super::connection::{Connection, FINISH_TIME, Phase, SET_UP_TIME, wishes};
use super::handle::Handle;
use super::listener::AcceptedConnection;
use super::stream_transport::StreamTransport;
use super::{Host, Result, Streams};
use crate::tcp::{self, Dial, Path};
use std::net::SocketAddr;
use vmm_sys_util::epoll::EventSet;
use vrdma_transport::{DeviceId, Error, Initiator, QpState};
use vrdma_wire::num::Qpn;

impl Streams {
    /// Executes CM_CONNECT.
    ///
    /// `dial` is a socket that is bound to the local address, or the path of vrdma's own TCP. The
    /// peer is contacted only if all checks pass.
    ///
    /// # Errors
    /// `NoResources`: the guest has all connections and listeners that its limit allows. Also the
    /// errors of a QP that cannot be connected, and those of [`tcp::refusal`].
    pub fn connect(
        &mut self,
        device: DeviceId,
        dial: Dial,
        connect: &Connect,
        host: &mut Host<'_>,
    ) -> Result<ConnectionId> {
        self.check_room(device, 1, host)?;
        self.check_qp(device, connect.qpn, host)?;
        let ends = (connect.local, connect.remote);
        let listener = self.local_listener(device, ends, &dial);
        let depths = (connect.depths.ird, connect.depths.ord);
        let wishes = wishes(listener.is_none(), connect.peer_to_peer, depths);
        let (initiator, request) = Initiator::new(wishes, &connect.private_data);
        let phase = Phase::Connecting(initiator, request);
        let (remote, deadline) = (connect.remote, host.now + SET_UP_TIME);
        let handle = self.reserve(device);
        let mut far = None;
        let carried = match dial {
            Dial::Own(_) if listener.is_some() => {
                self.user_tcp.pair(device, ends).map(|(near, loopback, local)| {
                    far = Some(loopback);
                    (StreamTransport::Local(near), local)
                })
            }
            Dial::Kernel(socket) => tcp::begin(&socket, remote)
                .map(|()| (StreamTransport::Kernel(socket), connect.local))
                .map_err(|error| tcp::refusal(&error)),
            Dial::Own(path) => self
                .user_tcp
                .connect(host.now, device, ends, path, handle)
                .map(|(socket, local)| (StreamTransport::Own(socket), local)),
        };
        let (transport, local) = match carried {
            Ok(carried) => carried,
            Err(error) => {
                self.release_handle(device, handle);
                return Err(error);
            }
        };
        let mut connection = Connection::new(handle, device, transport, phase, (local, remote), deadline);
        connection.is_known = true;
        self.bindings.bind(&mut connection.bound, connect.qpn);
        // This starts to watch the connection.
        self.serve(Box::new(connection), EventSet::empty(), host);
        if let Some((listener, loopback)) = listener.zip(far) {
            let accepted = AcceptedConnection {
                transport: StreamTransport::Local(loopback),
                local: remote,
                remote: local,
            };
            self.take_accepted(listener, accepted, host);
        }
        Ok(ConnectionId(handle.number))
    }

    /// Returns the listener of a guest of this worker, if the connection can be a loopback
    /// connection to it.
    fn local_listener(
        &mut self,
        device: DeviceId,
        ends: (SocketAddr, SocketAddr),
        dial: &Dial,
    ) -> Option<Handle> {
        let Dial::Own(Path { hop, .. }) = dial else { return None };
        let handle = self.user_tcp.local_listener(device, ends, hop).filter(|_| self.has_local_way)?;
        // If it accepts no more now, use TCP: there the connection waits.
        self.table.listener(handle).filter(|listener| listener.takes_more()).map(|_| handle)
    }

    /// Executes CM_ACCEPT.
    ///
    /// # Errors
    /// `NotFound`: the guest has no such connection. `Invalid`: the connection was not requested,
    /// it is gone, or the peer requests something impossible. Also the errors of a QP that cannot
    /// be connected. The connection does not change on an error.
    pub fn accept(&mut self, device: DeviceId, accept: &Accept, host: &mut Host<'_>) -> Result<()> {
        let mut connection = self.take_known(device, accept.connection)?;
        let result = self.accept_requested(&mut connection, accept, host);
        // This sends the reply.
        self.serve(connection, EventSet::empty(), host);
        result
    }

    fn accept_requested(
        &mut self,
        connection: &mut Connection,
        accept: &Accept,
        host: &mut Host<'_>,
    ) -> Result<()> {
        let Phase::Requested(request) = &connection.phase else { return Err(Error::Invalid) };
        self.check_qp(connection.device, accept.qpn, host)?;
        let is_local = matches!(connection.transport, Some(StreamTransport::Local(_)));
        let wishes = wishes(!is_local, false, (accept.depths.ird, accept.depths.ord));
        let accepted = request.accept(&wishes, &accept.private_data);
        let (agreed, reply) = accepted.map_err(|_| Error::Invalid)?;
        if !self.open(connection, accept.qpn, &agreed, host) {
            return Err(Error::Invalid);
        }
        self.bindings.bind(&mut connection.bound, accept.qpn);
        self.answered(connection, host);
        connection.output.push(&reply);
        self.tell(connection, What::Established, Vec::new(), host);
        Ok(())
    }

    /// Executes CM_REJECT.
    ///
    /// # Errors
    /// `NotFound`: the guest has no such connection. `Invalid`: the connection was not requested.
    pub fn reject(
        &mut self,
        device: DeviceId,
        connection: ConnectionId,
        private_data: &[u8],
        host: &mut Host<'_>,
    ) -> Result<()> {
        let mut connection = self.take_known(device, connection)?;
        let result = match &connection.phase {
            Phase::Requested(request) => {
                connection.output.push(&request.reject(private_data));
                self.leave(&mut connection, host);
                self.close(&mut connection, host);
                Ok(())
            }
            // The peer has gone and needs no answer.
            Phase::Over if connection.ended_unanswered => {
                self.leave(&mut connection, host);
                Ok(())
            }
            _ => Err(Error::Invalid),
        };
        self.serve(connection, EventSet::empty(), host);
        result
    }

    /// Executes CM_DISCONNECT.
    ///
    /// # Errors
    /// `NotFound`: the guest has no such QP. `Invalid`: it has not been connected since it was
    /// reset.
    pub fn disconnect(&mut self, device: DeviceId, qpn: Qpn, host: &mut Host<'_>) -> Result<()> {
        host.engine.finish_stream(device, qpn)?;
        // Without a connection, it has ended already.
        let connection = self.bindings.find(device, qpn).and_then(|handle| self.table.connection(handle));
        if let Some(connection) = connection.filter(|connection| !connection.is_finishing) {
            connection.is_finishing = true;
            connection.deadline = Some(host.now + FINISH_TIME);
            self.deadlines.set(connection.handle, &mut connection.armed, connection.deadline);
        }
        Ok(())
    }

    /// Executes CM_RELEASE.
    ///
    /// # Errors
    /// `NotFound`: the guest has no such connection.
    pub fn release(&mut self, device: DeviceId, connection: ConnectionId, host: &mut Host<'_>) -> Result<()> {
        let mut connection = self.take_known(device, connection)?;
        self.leave(&mut connection, host);
        self.lose(&mut connection, host);
        self.put_back(connection, host);
        Ok(())
    }

    /// Marks a connection as unknown to the driver. The driver gets no more events about it.
    fn leave(&mut self, connection: &mut Connection, host: &mut Host<'_>) {
        connection.is_known = false;
        self.guest(connection.device).forget(&mut connection.told);
        self.answered(connection, host);
    }

    /// Executes CM_GET_EVENT.
    pub fn next_event(&mut self, device: DeviceId) -> Option<CmEvent> {
        self.guest(device).next_event()
    }

    /// Ends the connection of a QP that was modified or destroyed, if the QP lost its stream.
    pub fn qp_changed(&mut self, device: DeviceId, qpn: Qpn, host: &mut Host<'_>) {
        let Some(handle) = self.bindings.find(device, qpn) else { return };
        let state = host.engine.query_qp(device, qpn).map(|attr| attr.state);
        let mut connection = self.table.take(handle).expect("a QP's connection is there");
        let keeps_it = match connection.phase {
            // In ERR the engine ends the stream.
            Phase::Open => state.is_ok_and(|state| state != QpState::Reset && state != QpState::Init),
            _ => state == Ok(QpState::Init),
        };
        if !keeps_it {
            self.end_now(&mut connection, Failure::Reset, host);
        }
        self.put_back(connection, host);
    }

    /// Checks that a QP can be connected: it is in INIT, and no other connection has it.
    fn check_qp(&self, device: DeviceId, qpn: Qpn, host: &mut Host<'_>) -> Result<()> {
        let state = host.engine.query_qp(device, qpn)?.state;
        match self.bindings.find(device, qpn) {
            Some(_) => Err(Error::Busy),
            None if state == QpState::Init => Ok(()),
            None => Err(Error::Invalid),
        }
    }

    /// Takes out a connection that the guest's driver knows of.
    ///
    /// The driver knows of it if it asked for the connection, or was told of it.
    fn take_known(&mut self, device: DeviceId, connection: ConnectionId) -> Result<Box<Connection>> {
        let handle = self.table.find(connection.0).ok_or(Error::NotFound)?;
        let connection = self.table.connection(handle).ok_or(Error::NotFound)?;
        let is_told = match self.guests.get(&device) {
            Some(guest) => connection.listener.is_none() || !guest.has_first_of(&connection.told),
            None => false,
        };
        if connection.device != device || !connection.is_known || !is_told {
            return Err(Error::NotFound);
        }
        Ok(self.table.take(handle).expect("it is there"))
    }
}
