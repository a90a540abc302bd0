//! Passes received data to MPA set-up, and later to the engine.

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

/// The shortest MSS for which FPDUs are cut. It has room for the headers.
const MIN_MSS: u32 = 512;
/// Already placed FPDUs that are taken from a connection in one round.
const PLACED: u32 = 64;
/// The depth of READs assumed for a peer that names none, and the most for any peer.
const UNKNOWN_DEPTH: u16 = 128;

impl Streams {
    /// Handles the end of TCP's connection set-up: success or failure.
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

    /// Reads once, or as long as already placed FPDUs are next.
    pub(super) fn read(&mut self, connection: &mut Connection, host: &mut Host<'_>) {
        for _ in 0..PLACED {
            if !self.read_once(connection, host) || !connection.may_read() {
                break;
            }
        }
    }

    /// Reads once. Returns true for an already placed FPDU, which needs little of a round's budget.
    fn read_once(&mut self, connection: &mut Connection, host: &mut Host<'_>) -> bool {
        let Some(carrier) = &mut connection.carrier else { return false };
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut was_placed = false;
        match carrier.read(&mut scratch, &mut self.own) {
            Ok(Came::Bytes(0)) => connection.peer_ended = true,
            Ok(Came::Placed(placed)) => {
                // Its payload was moved, and charged, when it was placed.
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

    /// Passes received bytes to set-up or to the engine. Returns how many were taken.
    fn arrived(&mut self, connection: &mut Connection, bytes: &[u8], host: &mut Host<'_>) -> usize {
        if matches!(connection.phase, Phase::Open) {
            // Reading happens only after the engine has taken all earlier bytes.
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
                // It is not a request, or the peer sent more before it had the reply.
                Ok(_) | Err(_) => self.lose(connection, host),
            },
            _ => {}
        }
        bytes.len()
    }

    /// Handles a peer's request for a connection: asks the driver.
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

    /// Handles the peer's acceptance.
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

    /// Tells the engine of a loopback connection, in the initiator's end.
    ///
    /// The QP at the other end has had its stream since it accepted.
    fn join(&mut self, connection: &Connection, qpn: Qpn, host: &mut Host<'_>) {
        let Some(Carrier::Local(pipe)) = &connection.carrier else { return };
        let peer = self.own.pipes().0.user_of_peer(pipe);
        let Some(peer) = peer.and_then(|handle| self.table.connection(handle)) else { return };
        if let (Phase::Open, Some(other)) = (&peer.phase, peer.bound.qpn()) {
            // The peer's QP may be gone. Then everything goes through the stream.
            let _ = host.engine.connect_loopback((connection.device, qpn), (peer.device, other));
        }
    }

    /// Makes the connection the stream of a QP.
    ///
    /// Returns false, and changes nothing, if the QP cannot have it.
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

    /// Offers the engine again what it did not take.
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

    /// Offers the engine an already placed FPDU, once it has taken everything before it.
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

    /// Passes received bytes to the engine, at most a quantum. Returns how many it took.
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
