//! Streams: they connect QPs, and the caller delivers the bytes that arrive in them.

use crate::agenda::drains::{DrainRequest, Fate, Waiter};
use crate::base::error::Error;
use crate::base::id::DeviceId;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::base::transport_kind::TransportKind;
use crate::engine::Engine;
use crate::message::outlet::PlacedFpdu;
use crate::objects::iwarp::attr::StreamAttr;
use crate::protocol::iwarp::placement::EarlyFpdu;
use crate::protocol::iwarp::qp::StreamQp;
use crate::verbs::attr::{QpAttr, QpState, QpType};
use crate::verbs::completion::{NoSink, Sink};
use core::mem;
use vrdma_wire::iwarp::framing::MAX_FPDU;
use vrdma_wire::num::Qpn;

impl<R: Region> Engine<R> {
    /// Connects a QP by a TCP connection with these attributes, which set-up has negotiated.
    ///
    /// The QP goes from INIT to RTS. It identifies the stream. The stream stays until the engine
    /// ends it ([`StreamOutlet::end_stream`](crate::StreamOutlet::end_stream)), the caller loses
    /// it, or the QP is reset or destroyed. In the last case the caller has to abort it.
    ///
    /// Returns `Invalid` if the QP is no reliable connection, or not in INIT. Also returns
    /// `Invalid` if the numbers of READs or the MSS are out of range.
    pub fn connect_stream(&mut self, device: DeviceId, qpn: Qpn, attr: &StreamAttr) -> Result<(), Error> {
        let known = self.core.devices.find_mut(device)?;
        let limits = &known.limits;
        let depths_are_possible =
            u32::from(attr.ird) <= limits.max_dest_rd_atomic && u32::from(attr.ord) <= limits.max_rd_atomic;
        let (qp, service) = known.qps.get_mut(qpn.number()).ok_or(Error::NotFound)?.parts();
        let is_new = qp.service() == QpType::Rc && qp.state == QpState::Init;
        if !is_new || !depths_are_possible || !attr.is_possible() {
            return Err(Error::Invalid);
        }
        qp.set(&QpAttr { max_rd_atomic: attr.ord, max_dest_rd_atomic: attr.ird, ..qp.all_attrs() });
        service.set_stream(qp, attr);
        qp.state = QpState::Rts;
        self.core.known(QpRef { device: device.0, qpn }, &mut NoSink).make_ready();
        Ok(())
    }

    /// Takes the next bytes of a QP's stream. Returns how many it took.
    ///
    /// The caller offers the rest again. Nothing is taken while a message waits for the answer to a
    /// question, or while the device is suspended. Bytes after the end of the connection are taken
    /// and dropped.
    ///
    /// Returns `Invalid` if the QP has no stream.
    pub fn handle_stream(
        &mut self,
        device: DeviceId,
        qpn: Qpn,
        bytes: &[u8],
        sink: &mut impl Sink,
    ) -> Result<usize, Error> {
        let mut buffer = mem::take(&mut self.fpdu);
        // This allocates only the first time, and after a restoration.
        buffer.resize(MAX_FPDU, 0);
        let result = self
            .with_stream(device, qpn, sink)
            .map(|mut borrowed| borrowed.receive_stream(bytes, &mut buffer));
        self.fpdu = buffer;
        let (taken, fate) = result?;
        if fate == Fate::NeedsDrain {
            self.ask_for_stream(QpRef { device: device.0, qpn }, sink);
        }
        Ok(taken)
    }

    /// Places the payload of an FPDU that arrived beyond a gap of a QP's stream.
    ///
    /// The peer says of the TCP segment that it begins with an FPDU. The payload is placed if the
    /// bytes are exactly one FPDU with a correct CRC, and if it may be placed at present.
    ///
    /// If it was placed, the caller keeps only the returned value, for [`Engine::handle_placed`].
    /// Otherwise the caller keeps the bytes, for [`Engine::handle_stream`], which also reports what
    /// is wrong with them. Or it keeps nothing ([`EarlyFpdu::NoReceive`]). The caller makes sure
    /// that each byte of a stream is placed once.
    pub fn place_fpdu(
        &mut self,
        device: DeviceId,
        qpn: Qpn,
        bytes: &[u8],
        sink: &mut impl Sink,
    ) -> EarlyFpdu {
        match self.with_stream(device, qpn, sink) {
            Ok(mut borrowed) => borrowed.place_fpdu(bytes),
            Err(_) => EarlyFpdu::Keep,
        }
    }

    /// Delivers an FPDU that was placed, in its turn: everything before it was taken.
    ///
    /// Returns false if the caller has to offer it again, like bytes that are not taken. Returns
    /// `Invalid` if the QP has no stream.
    pub fn handle_placed(
        &mut self,
        device: DeviceId,
        qpn: Qpn,
        placed: &PlacedFpdu,
        sink: &mut impl Sink,
    ) -> Result<bool, Error> {
        self.with_stream(device, qpn, sink).map(|mut borrowed| borrowed.receive_placed(placed))
    }

    /// Reports that a stream has room for another FPDU again. A needless report is harmless.
    pub fn stream_has_room(&mut self, device: DeviceId, qpn: Qpn) -> Result<(), Error> {
        let no_sink = &mut NoSink;
        self.with_stream(device, qpn, no_sink).map(|mut borrowed| borrowed.stream_has_room())
    }

    /// Ends a stream because the QP's program leaves.
    ///
    /// No request begins any more. After everything under way has ended, the engine ends the
    /// stream, and the QP goes to ERR.
    pub fn finish_stream(&mut self, device: DeviceId, qpn: Qpn) -> Result<(), Error> {
        let no_sink = &mut NoSink;
        self.with_stream(device, qpn, no_sink).map(|mut borrowed| borrowed.finish_stream())
    }

    /// Reports the end of a stream: the peer has ended it (`orderly`), or it broke.
    ///
    /// `orderly` also means that all its bytes were delivered. Unless the stream has ended in this
    /// direction already, the QP goes to ERR. It does so with
    /// [`Event::QpFatal`](crate::Event::QpFatal) if the stream broke, or if something was under
    /// way.
    pub fn lose_stream(
        &mut self,
        device: DeviceId,
        qpn: Qpn,
        orderly: bool,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        self.with_stream(device, qpn, sink).map(|mut borrowed| borrowed.lose_stream(orderly))
    }

    /// Returns the view of the QP, if it has a stream.
    pub(super) fn with_stream<'a, S>(
        &'a mut self,
        device: DeviceId,
        qpn: Qpn,
        sink: &'a mut S,
    ) -> Result<StreamQp<'a, R, S>, Error> {
        let borrowed = self.core.borrow(QpRef { device: device.0, qpn }, sink).ok_or(Error::NotFound)?;
        if borrowed.qp.transport == TransportKind::Tcp { Ok(borrowed.stream()) } else { Err(Error::Invalid) }
    }

    /// Asks the caller to drain posts, because the next message of a stream has no receive.
    #[cold]
    fn ask_for_stream(&mut self, place: QpRef, sink: &mut impl Sink) {
        let (device, qp) = self.core.devices.known(place);
        let owner = device.owner_of_receives(qp);
        self.core.looks.last = self.core.looks.last.wrapping_add(1);
        let number = self.core.looks.last;
        self.core.known(place, sink).stream().set_waiting_number(number);
        self.core.looks.ask(DrainRequest { device: place.id(), owner }, Waiter::Stream(place, number));
    }

    /// Resumes a stream whose next message waited. The caller has drained the posts.
    pub(super) fn handle_waiting(&mut self, place: QpRef, number: u32, sink: &mut impl Sink) {
        // The QP may have been destroyed or reset since it asked.
        if let Ok(mut borrowed) = self.with_stream(place.id(), place.qpn, sink) {
            borrowed.receive_waiting(number);
        }
    }
}
