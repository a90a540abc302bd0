//! Streams: QPs are connected by them, and what comes in them is handed in.

use crate::agenda::look::{Asker, Fate, Question};
use crate::base::carrier::Carrier;
use crate::base::error::Error;
use crate::base::id::DeviceId;
use crate::base::memory::Region;
use crate::base::place::Place;
use crate::carrier::iwarp::placed::EarlyFpdu;
use crate::carrier::iwarp::qp::StreamQp;
use crate::engine::Engine;
use crate::message::outlet::PlacedFpdu;
use crate::objects::iwarp::attr::StreamAttr;
use crate::verbs::attr::{QpAttr, QpState, QpType};
use crate::verbs::completion::{NoSink, Sink};
use core::mem;
use vrdma_wire::iwarp::framing::MAX_FPDU;
use vrdma_wire::num::Qpn;

impl<R: Region> Engine<R> {
    /// A TCP connection is the QP's from now on, in which set-up has agreed about this: from INIT
    /// the QP goes to RTS. The stream is named by the QP. It stays until the engine ends it
    /// ([`StreamOutlet::end_stream`](crate::StreamOutlet::end_stream)), the caller loses it, or the
    /// QP is reset or destroyed: then it is the caller's to abort. `Invalid` if the QP is no
    /// reliable connection or not in INIT, or if so many READs, or such an MSS, cannot be.
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
        self.core.known(Place { device: device.0, qpn }, &mut NoSink).make_ready();
        Ok(())
    }

    /// Takes the next bytes of a QP's stream; how many. The rest is to be offered again: while a
    /// message waits for the answer to a question, or the device is suspended, none are taken. What
    /// comes after the connection has ended is taken and dropped. `Invalid` if the QP has no
    /// stream.
    pub fn handle_stream(
        &mut self,
        device: DeviceId,
        qpn: Qpn,
        bytes: &[u8],
        sink: &mut impl Sink,
    ) -> Result<usize, Error> {
        let mut buffer = mem::take(&mut self.fpdu);
        // Only the first time, and after a restoration.
        buffer.resize(MAX_FPDU, 0);
        let result = self
            .with_stream(device, qpn, sink)
            .map(|mut borrowed| borrowed.receive_stream(bytes, &mut buffer));
        self.fpdu = buffer;
        let (taken, fate) = result?;
        if fate == Fate::Look {
            self.ask_for_stream(Place { device: device.0, qpn }, sink);
        }
        Ok(taken)
    }

    /// Places what an FPDU carries that came beyond a hole of a QP's stream, in a TCP segment of
    /// which the peer says that it begins with an FPDU: if the bytes are just one FPDU with a right
    /// CRC, and its payload may be placed as things are. Then nothing but what this returns is to
    /// be kept of it, for [`Engine::handle_placed`]; else the bytes, for [`Engine::handle_stream`],
    /// which also says what is wrong with them; or nothing. Each byte of a stream is placed once:
    /// that is the caller's to see to.
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

    /// The turn of an FPDU has come that was placed: all before it was taken. False if it is to be
    /// offered again, as bytes that are not taken. `Invalid` if the QP has no stream.
    pub fn handle_placed(
        &mut self,
        device: DeviceId,
        qpn: Qpn,
        placed: &PlacedFpdu,
        sink: &mut impl Sink,
    ) -> Result<bool, Error> {
        self.with_stream(device, qpn, sink).map(|mut borrowed| borrowed.receive_placed(placed))
    }

    /// A stream has room for another FPDU, which it did not have. (It may be said for nothing.)
    pub fn stream_has_room(&mut self, device: DeviceId, qpn: Qpn) -> Result<(), Error> {
        let no_sink = &mut NoSink;
        self.with_stream(device, qpn, no_sink).map(|mut borrowed| borrowed.stream_has_room())
    }

    /// The QP's program leaves: no request begins any more, what has begun ends, then the engine
    /// ends the stream, and the QP goes to ERR.
    pub fn finish_stream(&mut self, device: DeviceId, qpn: Qpn) -> Result<(), Error> {
        let no_sink = &mut NoSink;
        self.with_stream(device, qpn, no_sink).map(|mut borrowed| borrowed.finish_stream())
    }

    /// A stream is over: the peer has ended it (`orderly`, and all of it was handed in), or it
    /// broke. Unless it has ended in this direction already, the QP goes to ERR; with
    /// [`Event::QpFatal`](crate::Event::QpFatal) if it broke, or something was under way.
    pub fn lose_stream(
        &mut self,
        device: DeviceId,
        qpn: Qpn,
        orderly: bool,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        self.with_stream(device, qpn, sink).map(|mut borrowed| borrowed.lose_stream(orderly))
    }

    /// The QP, if it has a stream.
    pub(super) fn with_stream<'a, S>(
        &'a mut self,
        device: DeviceId,
        qpn: Qpn,
        sink: &'a mut S,
    ) -> Result<StreamQp<'a, R, S>, Error> {
        let borrowed = self.core.borrow(Place { device: device.0, qpn }, sink).ok_or(Error::NotFound)?;
        if borrowed.qp.carrier == Carrier::Tcp { Ok(borrowed.stream()) } else { Err(Error::Invalid) }
    }

    /// The next message of a stream has no receive: the caller is asked to look.
    #[cold]
    fn ask_for_stream(&mut self, place: Place, sink: &mut impl Sink) {
        let (device, qp) = self.core.devices.known(place);
        let owner = device.owner_of_receives(qp);
        self.core.looks.last = self.core.looks.last.wrapping_add(1);
        let number = self.core.looks.last;
        self.core.known(place, sink).stream().set_waiting_number(number);
        self.core.looks.ask(Question { device: place.id(), owner }, Asker::Stream(place, number));
    }

    /// The caller has looked for the message with which a stream goes on.
    pub(super) fn handle_waiting(&mut self, place: Place, number: u32, sink: &mut impl Sink) {
        // It may have been destroyed, or reset, since it asked.
        if let Ok(mut borrowed) = self.with_stream(place.id(), place.qpn, sink) {
            borrowed.receive_waiting(number);
        }
    }
}
