//! What drivers ask for.

use super::connection::{Connection, Phase, SET_UP_TIME, wishes};
use super::{Entry, Host, Listener, Streams};
use crate::translate::cm::{Accept, CmEvent, Connect, Failure, What};
use socket2::Socket;
use vmm_sys_util::epoll::EventSet;
use vrdma_transport::{DeviceId, Error, Initiator, QpState};
use vrdma_wire::num::Qpn;

type Result<T> = std::result::Result<T, Error>;

impl Streams {
    /// CM_LISTEN, with sockets that do.
    ///
    /// # Errors
    /// `NoResources`: the guest has as many connections and listeners as it may.
    pub fn listen(
        &mut self,
        device: DeviceId,
        sockets: Vec<Socket>,
        backlog: usize,
        host: &mut Host<'_>,
    ) -> Result<u32> {
        self.check_room(device, host)?;
        let listener = Listener { device, sockets, backlog, waiting: 0, is_watched: false };
        let number = self.insert(device, Entry::Listener(listener));
        if let Some(Some(Entry::Listener(listener))) = self.entries.get_mut(number as usize) {
            listener.watch(&self.epoll, number.into());
        }
        Ok(number)
    }

    /// CM_CLOSE_LISTENER.
    ///
    /// # Errors
    /// `NotFound`: the guest has no such listener.
    pub fn close_listener(&mut self, device: DeviceId, number: u32) -> Result<()> {
        let entry = self.entries.get_mut(number as usize).ok_or(Error::NotFound)?;
        if !matches!(entry, Some(Entry::Listener(listener)) if listener.device == device) {
            return Err(Error::NotFound);
        }
        *entry = None;
        self.removed(device, number);
        Ok(())
    }

    /// CM_CONNECT, with a socket that is on its way.
    ///
    /// # Errors
    /// `NoResources`: the guest has as many connections and listeners as it may. Those of a QP that cannot be connected.
    pub fn connect(
        &mut self,
        device: DeviceId,
        socket: Socket,
        connect: &Connect,
        host: &mut Host<'_>,
    ) -> Result<u32> {
        self.check_room(device, host)?;
        self.check_qp(device, connect.qpn, host)?;
        let wishes = wishes(connect.peer_to_peer, connect.depths.ird, connect.depths.ord);
        let (initiator, request) = Initiator::new(wishes, &connect.private_data);
        let phase = Phase::Connecting(initiator, request);
        let addresses = (connect.local, connect.remote);
        let mut connection = Connection::new(device, socket, phase, addresses, host.now + SET_UP_TIME);
        connection.qpn = Some(connect.qpn);
        connection.is_known = true;
        let number = self.insert(device, Entry::Connection(Box::new(connection)));
        self.of_qp.insert((device, connect.qpn), number);
        // It is watched from now on.
        self.work_on(number, EventSet::empty(), host);
        Ok(number)
    }

    /// CM_ACCEPT.
    ///
    /// # Errors
    /// `NotFound`: the guest has no such connection. `Invalid`: it is none that was requested and still is there, or the peer wants what cannot be. Those of a QP that
    /// cannot be connected.
    pub fn accept(&mut self, device: DeviceId, accept: &Accept, host: &mut Host<'_>) -> Result<()> {
        self.check_qp(device, accept.qpn, host)?;
        let mut connection = self.take_of(device, accept.connection)?;
        let result = self.accept_it(&mut connection, accept, host);
        if result.is_err() {
            connection.qpn = None;
        }
        self.put_back(accept.connection, connection);
        // The reply is sent.
        self.work_on(accept.connection, EventSet::empty(), host);
        result
    }

    fn accept_it(&mut self, connection: &mut Connection, accept: &Accept, host: &mut Host<'_>) -> Result<()> {
        let Phase::Requested(request) = &connection.phase else { return Err(Error::Invalid) };
        let wishes = wishes(false, accept.depths.ird, accept.depths.ord);
        let accepted = request.accept(&wishes, &accept.private_data);
        let (agreed, reply) = accepted.map_err(|_| Error::Invalid)?;
        connection.qpn = Some(accept.qpn);
        if !Self::open(connection, &agreed, host) {
            return Err(Error::Invalid);
        }
        connection.output.push(&reply);
        self.of_qp.insert((connection.device, accept.qpn), accept.connection);
        self.tell(connection, accept.connection, What::Established, Vec::new(), host);
        Ok(())
    }

    /// CM_REJECT.
    ///
    /// # Errors
    /// `NotFound`: the guest has no such connection. `Invalid`: it is none that was requested.
    pub fn reject(
        &mut self,
        device: DeviceId,
        number: u32,
        private_data: &[u8],
        host: &mut Host<'_>,
    ) -> Result<()> {
        let mut connection = self.take_of(device, number)?;
        let result = match &connection.phase {
            Phase::Requested(request) => {
                connection.output.push(&request.reject(private_data));
                Ok(true)
            }
            // The peer has gone: it needs no answer any more.
            Phase::Over => Ok(false),
            _ => Err(Error::Invalid),
        };
        if let Ok(has_peer) = result {
            self.forget_events(device, number);
            connection.is_known = false;
            if has_peer {
                self.close(&mut connection, number, host);
            }
        }
        self.put_back(number, connection);
        self.work_on(number, EventSet::empty(), host);
        result.map(|_| ())
    }

    /// CM_RELEASE.
    ///
    /// # Errors
    /// `NotFound`: the guest has no such connection.
    pub fn release(&mut self, device: DeviceId, number: u32, host: &mut Host<'_>) -> Result<()> {
        let mut connection = self.take_of(device, number)?;
        connection.is_known = false;
        self.lose(&mut connection, number, host);
        self.forget_events(device, number);
        self.put_back(number, connection);
        Ok(())
    }

    /// CM_GET_EVENT.
    pub fn next_event(&mut self, device: DeviceId) -> Option<CmEvent> {
        self.guests.get_mut(&device)?.events.pop_front()
    }

    /// A QP was modified or destroyed: if it has no stream any more, its connection ends.
    pub fn qp_changed(&mut self, device: DeviceId, qpn: Qpn, host: &mut Host<'_>) {
        let Some(&number) = self.of_qp.get(&(device, qpn)) else { return };
        let state = host.engine.query_qp(device, qpn).map(|attr| attr.state);
        let Some(mut connection) = self.take(number) else { return };
        let keeps_it = match connection.phase {
            Phase::Connecting(..) | Phase::AwaitsReply(_) => state == Ok(QpState::Init),
            // In ERR the engine ends it.
            Phase::Open => state.is_ok_and(|state| state != QpState::Reset && state != QpState::Init),
            _ => true,
        };
        if !keeps_it {
            self.abort(&mut connection, number, Failure::Reset, host);
        }
        self.put_back(number, connection);
    }

    /// The guest was reset, or has gone: it has none any more.
    pub fn forget(&mut self, device: DeviceId) {
        self.of_qp.retain(|(of, _), _| *of != device);
        for number in 0..self.entries.len() as u32 {
            match self.entries[number as usize].take() {
                Some(Entry::Connection(mut connection)) if connection.device == device => {
                    connection.abort();
                    self.free.push_back(number);
                }
                Some(Entry::Listener(listener)) if listener.device == device => self.free.push_back(number),
                other => self.entries[number as usize] = other,
            }
        }
        self.guests.remove(&device);
    }

    fn check_room(&self, device: DeviceId, host: &mut Host<'_>) -> Result<()> {
        let most = host.outputs.device(device).limits().guest.connections;
        if self.count(device) < most { Ok(()) } else { Err(Error::NoResources) }
    }

    /// Whether a QP can be connected: it is in INIT, and no other connection has it.
    fn check_qp(&self, device: DeviceId, qpn: Qpn, host: &mut Host<'_>) -> Result<()> {
        let state = host.engine.query_qp(device, qpn)?.state;
        match self.of_qp.contains_key(&(device, qpn)) {
            true => Err(Error::Busy),
            false if state == QpState::Init => Ok(()),
            false => Err(Error::Invalid),
        }
    }

    /// Takes out a connection that the guest's driver knows of.
    fn take_of(&mut self, device: DeviceId, number: u32) -> Result<Box<Connection>> {
        match self.entries.get(number as usize) {
            Some(Some(Entry::Connection(connection)))
                if connection.device == device && connection.is_known =>
            {
                Ok(self.take(number).expect("it is there"))
            }
            _ => Err(Error::NotFound),
        }
    }

    fn forget_events(&mut self, device: DeviceId, number: u32) {
        if let Some(guest) = self.guests.get_mut(&device) {
            guest.events.retain(|event| event.connection != number);
        }
    }
}
