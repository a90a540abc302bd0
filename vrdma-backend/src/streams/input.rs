//! What comes in connections: to set-up, and then to the engine.

use super::carrier::Carrier;
use super::cm::{Failure, ListenerId, What};
use super::connection::{ANSWER_TIME, Connection, Phase, failure};
use super::own::Came;
use super::pending::Pending;
use super::ready::{COST, QUANTUM};
use super::{Host, Streams};
use std::io;
use vmm_sys_util::epoll::EventSet;
use vrdma_transport::{Agreed, SetUpError, SetUpRequest};
use vrdma_wire::num::Qpn;

/// The shortest MSS that FPDUs are cut for: headers have room.
const MIN_MSS: u32 = 512;
/// FPDUs that were placed and are taken of a connection in one turn.
const PLACED: u32 = 64;
/// READs that a peer means that does not say how many, or says more.
const UNKNOWN_DEPTH: u16 = 128;

impl Streams {
    /// TCP is connected, or is not to be.
    pub(super) fn connected(&mut self, connection: &mut Connection, events: EventSet, host: &mut Host<'_>) {
        let ended = EventSet::OUT | EventSet::ERROR | EventSet::HANG_UP;
        if !matches!(connection.phase, Phase::Connecting(..)) || !events.intersects(ended) {
            return;
        }
        let carrier = connection.carrier.as_ref().expect("it is there until the connection is over");
        match carrier.connected(&mut self.own) {
            Ok(local) => {
                connection.local = local.unwrap_or(connection.local);
                let phase = std::mem::replace(&mut connection.phase, Phase::Over);
                let Phase::Connecting(initiator, request) = phase else { unreachable!("it was so just now") };
                connection.output.push(&request);
                connection.phase = Phase::AwaitsReply(initiator);
                connection.deadline = Some(host.now + ANSWER_TIME);
            }
            Err(error) => self.abort(connection, failure(&error), host),
        }
    }

    /// Reads once, or as often as there are FPDUs that were placed.
    pub(super) fn read(&mut self, connection: &mut Connection, host: &mut Host<'_>) {
        for _ in 0..PLACED {
            if !self.read_once(connection, host) || !connection.may_read() {
                break;
            }
        }
    }

    /// True if it was an FPDU that was placed, which leaves much of a turn.
    fn read_once(&mut self, connection: &mut Connection, host: &mut Host<'_>) -> bool {
        let Some(carrier) = &mut connection.carrier else { return false };
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut was_placed = false;
        match carrier.read(&mut scratch, &mut self.own) {
            Ok(Came::Bytes(0)) => connection.peer_ended = true,
            Ok(Came::Placed(placed)) => {
                // Its bytes were moved before.
                self.moved += COST;
                connection.input.placed = Some(placed);
                self.offer(connection, host);
                was_placed = true;
            }
            Ok(Came::Bytes(length)) => {
                let taken = self.arrived(connection, &scratch[..length], host);
                if taken < length && matches!(connection.phase, Phase::Open) {
                    self.moved += connection.input.keep(&mut scratch, taken, length);
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => connection.is_broken = true,
        }
        self.scratch = scratch;
        was_placed
    }

    /// Bytes have come: to set-up, or to the engine, which may leave some.
    fn arrived(&mut self, connection: &mut Connection, bytes: &[u8], host: &mut Host<'_>) -> usize {
        if matches!(connection.phase, Phase::Open) {
            // It is read only once the engine has all that came before.
            return self.hand_over(connection, bytes, host);
        }
        self.moved += bytes.len();
        match &mut connection.phase {
            Phase::AwaitsReply(initiator) => match initiator.handle(bytes) {
                Ok((_, None)) => {}
                Ok((taken, Some((agreed, private_data)))) => {
                    self.replied(connection, &agreed, private_data, host);
                    return taken + self.arrived(connection, &bytes[taken..], host);
                }
                Err(SetUpError::Rejected(private_data)) => self.refused(connection, private_data, host),
                Err(_) => self.abort(connection, Failure::Protocol, host),
            },
            Phase::AwaitsRequest(responder) => match responder.handle(bytes) {
                Ok((_, None)) => {}
                Ok((taken, Some(request))) if taken == bytes.len() => {
                    self.requested(connection, request, host);
                }
                // The peer may not send more before it has the reply; or it is no request.
                Ok(_) | Err(_) => self.lose(connection, host),
            },
            _ => {}
        }
        bytes.len()
    }

    /// A peer wants a connection: the driver is asked.
    fn requested(&mut self, connection: &mut Connection, request: SetUpRequest, host: &mut Host<'_>) {
        let (ird, ord) = request.depths().unwrap_or((UNKNOWN_DEPTH, UNKNOWN_DEPTH));
        connection.depths = (ird.min(UNKNOWN_DEPTH), ord.min(UNKNOWN_DEPTH));
        connection.is_known = true;
        connection.deadline = Some(host.now + ANSWER_TIME);
        let private_data = request.private_data.clone();
        connection.phase = Phase::Requested(request);
        let listener = connection.listener.expect("it came from one, and was not answered");
        let listener = ListenerId(listener.number);
        self.tell(connection, What::ConnectRequest { listener }, private_data, host);
    }

    /// The peer has accepted.
    fn replied(
        &mut self,
        connection: &mut Connection,
        agreed: &Agreed,
        private_data: Vec<u8>,
        host: &mut Host<'_>,
    ) {
        let qpn = connection.bound.qpn().expect("who connects has a QP");
        if !self.open(connection, qpn, agreed, host) {
            return self.lose(connection, host);
        }
        self.join(connection, qpn, host);
        self.tell(connection, What::ConnectReply(Ok(())), private_data, host);
    }

    /// Tells the engine of an initiator's peer that is a QP of its own: it has had its stream since
    /// it was accepted.
    fn join(&mut self, connection: &Connection, qpn: Qpn, host: &mut Host<'_>) {
        let Some(Carrier::Local(pipe)) = &connection.carrier else { return };
        let peer = self.own.pipes().0.user_of_peer(pipe);
        let Some(peer) = peer.and_then(|handle| self.table.connection(handle)) else { return };
        if let (Phase::Open, Some(other)) = (&peer.phase, peer.bound.qpn()) {
            // It may be gone; then all goes through the stream.
            let _ = host.engine.join_streams((connection.device, qpn), (peer.device, other));
        }
    }

    /// The stream is the QP's from now on; false if the QP cannot have it, and nothing has changed.
    pub(super) fn open(
        &self,
        connection: &mut Connection,
        qpn: Qpn,
        agreed: &Agreed,
        host: &mut Host<'_>,
    ) -> bool {
        let Some(mss) = connection.carrier.as_ref().and_then(|carrier| carrier.mss(&self.own)) else {
            return false;
        };
        let mss = mss.max(MIN_MSS);
        let attr = agreed.stream(mss);
        let connected = host.engine.connect_stream(connection.device, qpn, &attr).is_ok();
        if connected {
            connection.phase = Phase::Open;
            connection.deadline = None;
            connection.mss = mss as usize;
            connection.depths = (agreed.ird.into(), agreed.ord.into());
        }
        connected
    }

    /// Offers the engine once more what it did not take.
    pub(super) fn offer(&mut self, connection: &mut Connection, host: &mut Host<'_>) {
        if connection.bound.qpn().is_none() || !matches!(connection.phase, Phase::Open) {
            connection.input = Pending::default();
            return;
        }
        if connection.input.is_empty() {
            return;
        }
        let mut input = std::mem::take(&mut connection.input);
        let taken = self.hand_over(connection, input.bytes(), host);
        if matches!(connection.phase, Phase::Open) {
            input.advance(taken);
            connection.input = input;
            self.offer_placed(connection, host);
        }
    }

    /// The same of an FPDU that was placed, once all before it was taken.
    fn offer_placed(&mut self, connection: &mut Connection, host: &mut Host<'_>) {
        let Some(placed) = connection.input.take_placed() else { return };
        let qpn = connection.bound.qpn().expect("an open connection has its QP");
        match host.engine.handle_placed(connection.device, qpn, &placed, host.outputs) {
            Ok(true) => {}
            Ok(false) => connection.input.placed = Some(placed),
            // The QP was reset or destroyed.
            Err(_) => self.end_now(connection, Failure::Reset, host),
        }
    }

    /// Hands to the engine what has come, a part of it if it is much; how much it took.
    fn hand_over(&mut self, connection: &mut Connection, bytes: &[u8], host: &mut Host<'_>) -> usize {
        let qpn = connection.bound.qpn().expect("an open connection has its QP");
        let bytes = &bytes[..bytes.len().min(QUANTUM)];
        let mut taken = 0;
        while taken < bytes.len() {
            match host.engine.handle_stream(connection.device, qpn, &bytes[taken..], host.outputs) {
                Ok(0) => break,
                Ok(some) => taken += some,
                Err(_) => {
                    // The QP was reset or destroyed.
                    self.end_now(connection, Failure::Reset, host);
                    break;
                }
            }
        }
        self.moved += taken;
        taken
    }
}
