//! The part of the engine that carries messages between QPs.

use crate::agenda::drains::{DrainRequest, Drains, MAX_HELD, Waiter};
use crate::agenda::schedule::Schedule;
use crate::base::memory::Region;
use crate::base::qp_ref::QpRef;
use crate::message::ctx::{Common, QpCtx};
use crate::objects::device::{Device, DeviceParts, Devices};
use crate::objects::outstanding::Scratch;
use crate::objects::port::Port;
use crate::objects::qp::requester::Wait;
use vrdma_wire::roce::MAX_FRAME;

/// The state that carries messages: devices, turns, questions to the caller, and the port.
pub(crate) struct Core<R> {
    pub(crate) devices: Devices<R>,
    pub(crate) schedule: Schedule,
    /// Messages that wait until the caller has answered whether a receive was posted.
    pub(crate) looks: Drains,
    /// Elements of the send that is being executed.
    pub(crate) send_scratch: Scratch,
    /// Elements of the receive that this send consumes.
    pub(crate) recv_scratch: Scratch,
    pub(crate) port: Port,
}

impl<R: Region> Core<R> {
    pub(crate) fn new() -> Core<R> {
        Core {
            devices: Devices::new(),
            schedule: Schedule::default(),
            looks: Drains::default(),
            send_scratch: Scratch::default(),
            recv_scratch: Scratch::default(),
            port: Port::default(),
        }
    }

    /// Makes the first request of the QP at `place` wait until the caller has drained posts of
    /// receives for `peer`.
    #[cold]
    pub(crate) fn ask(&mut self, place: QpRef, peer: QpRef) {
        let (device, qp) = self.devices.known(peer);
        let owner = device.owner_of_receives(qp);
        let (qp, _) = self.devices.known_mut(place);
        self.looks.last = self.looks.last.wrapping_add(1);
        qp.question = self.looks.last;
        qp.requester.wait = Wait::Drain;
        let asker = Waiter::Send(place, qp.question);
        self.looks.ask(DrainRequest { device: peer.id(), owner }, asker);
    }

    /// Queues a frame for the QP at `place` until the caller has drained posts of its receives.
    ///
    /// Later frames for the QP are queued behind it. The frame is dropped and counted if the device
    /// has too many queued frames, or if it is too long.
    #[cold]
    pub(crate) fn hold(&mut self, place: QpRef, frame: &[u8]) {
        let device = self.devices.known_device(place.device);
        if device.held >= MAX_HELD || frame.len() > MAX_FRAME {
            device.counters.drop_held += 1;
            return;
        }
        device.held += 1;
        device.qps.known(place.qpn).qp.held += 1;
        let (device, qp) = self.devices.known(place);
        let question = DrainRequest { device: place.id(), owner: device.owner_of_receives(qp) };
        self.looks.ask(question, Waiter::Frame(place, frame.into()));
    }

    /// Asks the caller to drain posts of receives for the QP at `place`, which dropped an
    /// inter-worker packet.
    #[cold]
    pub(crate) fn look_near(&mut self, place: QpRef) {
        let (device, qp) = self.devices.known(place);
        let question = DrainRequest { device: place.id(), owner: device.owner_of_receives(qp) };
        self.looks.ask(question, Waiter::Near(place));
    }

    /// Whether a device has rates, or a QP of it.
    #[inline]
    pub(crate) fn is_limited(&self, device: u32) -> bool {
        self.schedule.rates.any() && self.devices.get(device).is_some_and(|device| device.limited)
    }

    /// Returns how many packets a device has sent.
    pub(crate) fn packets_out(&self, device: u32) -> u64 {
        self.devices.get(device).map_or(0, |device| device.counters.packets_out)
    }

    /// Returns all devices, and what every QP needs of the engine.
    #[inline(always)]
    pub(crate) fn parts<'a, S>(&'a mut self, sink: &'a mut S) -> (&'a mut Devices<R>, Common<'a, S>) {
        let Core { devices, schedule, send_scratch, recv_scratch, port, .. } = self;
        (devices, Common { schedule, send_scratch, recv_scratch, sink, has_port: port.exists() })
    }

    /// Returns the QP at `place`, if there is one.
    #[inline]
    pub(crate) fn borrow<'a, S>(&'a mut self, place: QpRef, sink: &'a mut S) -> Option<QpCtx<'a, R, S>> {
        let Core { devices, schedule, send_scratch, recv_scratch, port, .. } = self;
        let Device { qps, parts, .. } = devices.get_mut(place.device)?;
        let DeviceParts { mrs, requests, srqs, counters, peers, mac, marks, suspended, limited } = parts;
        let (qp, conn) = qps.get_mut(place.qpn.number())?.parts();
        Some(QpCtx {
            place,
            qp,
            conn,
            mrs,
            requests,
            srqs,
            counters,
            peers,
            schedule,
            send_scratch,
            recv_scratch,
            sink,
            mac: *mac,
            marks: *marks,
            suspended: *suspended,
            limited: *limited,
            has_port: port.exists(),
        })
    }

    /// Returns the QP at `place`, which was found before in this call of the engine.
    ///
    /// No QP disappears within a call.
    #[inline]
    pub(crate) fn known<'a, S>(&'a mut self, place: QpRef, sink: &'a mut S) -> QpCtx<'a, R, S> {
        self.borrow(place, sink).expect("no QP goes within a call of the engine")
    }
}
