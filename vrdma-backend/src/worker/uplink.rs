//! The way to other hosts: frames from the uplink, packets of the engine, and the link that guests
//! see.

use super::Worker;
use super::captures;
use super::link::{LoanState, PortState, USUAL_SPEED, Uplink};
use super::packets::PacketPort;
use super::sinks::{LocalSinks, UplinkSink};
use crate::cycles::{self, Stage};
use crate::device::broken::{contained, step};
use crate::device::outputs::Outputs;
use crate::frames;
use crate::memory::MrMemory;
use crate::net::{self, MIN_FRAME, Net, Verdict};
use crate::panics;
use crate::port::{External, LINK_POLL, Origin, Port, TURN};
use crate::ratelimit::limited;
use crate::service;
use crate::streams::{Host, SEGMENTS, Streams};
use crate::translate::event::AsyncEvent;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vrdma_transport::{
    self as transport, DeviceId, Engine, Fault, Fpdu, InterWorkerPart, Outlet, PacketOutlet, Piece, Pieces,
    PlacedFpdu, Region, StreamEnd, StreamOutlet, Way, WholeQpLines, each_packet, write_frame,
};
use vrdma_wire::icrc::{self, Icrc};
use vrdma_wire::num::{Mac, Mtu, Qpn};
use vrdma_wire::roce::{Body, Packet, Rc, pad};

/// The most packets that the engine may send in one round, if they are not FPDUs.
const PACKETS: usize = TURN;
/// The most bytes that a RoCE packet needs beside its payload, in an IP packet of the link's MTU.
///
/// The rdma core reckons with the same number (`iboe_get_mtu`).
const OVERHEAD: u32 = 96;

/// Returns the largest path MTU whose packets fit a link.
fn path_mtu(link: u16) -> Mtu {
    let fits = |code| Mtu::from_code(code).filter(|mtu| mtu.bytes() + OVERHEAD <= u32::from(link));
    (1..=5).rev().find_map(fits).unwrap_or(Mtu::M256)
}

impl Worker {
    /// Starts to use a port. It is called before any guest is added.
    pub fn set_uplink(&mut self, mut port: Port) {
        self.port = PortState {
            up: port.is_up(),
            mtu: path_mtu(port.capabilities().mtu),
            speed: port.speed().unwrap_or(USUAL_SPEED),
        };
        self.control_congestion();
        self.engine.set_link(port.is_up() || port.reaches_workers() || self.has_streams);
        if port.leads_out() {
            service::link(port.is_up());
        }
        let uplink = self.uplink.insert(Uplink::new(port));
        if let Some(fd) = uplink.port.readiness() {
            watch(&self.epoll, fd);
        }
    }

    /// Returns whether the uplink's link is up, and its MTU. `None` without an uplink.
    pub fn link(&self) -> Option<(bool, u16)> {
        let outside = self.uplink.as_ref().filter(|uplink| uplink.port.leads_out());
        outside.map(|uplink| (uplink.port.is_up(), uplink.port.capabilities().mtu))
    }

    /// Returns the counters of this worker's queue pair of the uplink, by name.
    ///
    /// There are none if another worker's queue pair is used.
    pub fn uplink_stats(&self) -> BTreeMap<&'static str, u64> {
        let outside =
            self.uplink.as_ref().filter(|uplink| uplink.port.leads_out() && uplink.port.has_queue());
        outside.map(|uplink| uplink.port.stats()).unwrap_or_default()
    }

    /// Returns the counters for frames to and from other workers, by name.
    pub fn worker_stats(&self) -> BTreeMap<&'static str, u64> {
        self.uplink.as_ref().map(|uplink| uplink.port.worker_stats()).unwrap_or_default()
    }

    /// Handles received frames. Returns true if there were any.
    pub(super) fn receive_frames(&mut self, now: transport::Instant) -> bool {
        let Worker { uplink: Some(uplink), net, engine, outputs, streams, gids, .. } = self else {
            return false;
        };
        let _mark = cycles::enter(Stage::Wire);
        if uplink.port.receive(&mut uplink.burst) == 0 {
            return uplink.port.has_relayed();
        }
        for frame in uplink.burst.frames() {
            let strangers = if frame.origin() == Origin::Engine { None } else { gids.as_mut() };
            let inside = &mut LocalSinks { now, engine, outputs, streams, strangers };
            let outside = &mut UplinkSink::of(Some(&mut uplink.port));
            match frame.origin() {
                Origin::Wire => net.receive(now, frame, net::SwitchPort::Uplink, outside, inside),
                Origin::WireCopy => net.receive_copy(now, frame, outside, inside),
                Origin::Guest | Origin::Flooder | Origin::Engine => {
                    net.receive(now, frame, net::SwitchPort::Worker, outside, inside);
                }
            }
        }
        uplink.port.recycle(&mut uplink.burst);
        true
    }

    /// Handles frames that guests sent. Returns true if there were any.
    pub(super) fn serve_ethernet(&mut self, now: transport::Instant) -> bool {
        let Worker { uplink, net, engine, outputs, streams, gids, .. } = self;
        let _mark = cycles::enter(Stage::Wire);
        let mut uplink_sink = UplinkSink::of(uplink.as_mut().map(|uplink| &mut uplink.port));
        let strangers = gids.as_mut();
        let sinks = &mut LocalSinks { now, engine, outputs, streams, strangers };
        net.turn(now, &mut uplink_sink, sinks)
    }

    /// Lets the engine send. Returns true if more could be sent at once.
    pub(super) fn transmit_packets(&mut self, now: transport::Instant) -> bool {
        let Worker { uplink, packet_port, net, engine, outputs, streams, has_streams, .. } = self;
        if net.tap.is_on() {
            captures::look_up(net, outputs, engine);
        }
        if uplink.is_none() && !*has_streams {
            return false;
        }
        let _mark = cycles::enter(Stage::Wire);
        let most = if *has_streams { SEGMENTS } else { PACKETS };
        let mut more = false;
        for _ in 0..ROUNDS {
            let packets = uplink.as_mut().map(|uplink| {
                let Uplink { port, scratch, pinned, pin_state, .. } = uplink;
                Packets { now, port, net, scratch, pinned, pin_state }
            });
            let wire = &mut Wire { packets, packet_port, streams };
            let transmit = |engine: &mut Engine<MrMemory>, outputs: &mut Outputs| {
                engine.transmit(now, most, wire, outputs)
            };
            more = cycles::within(Stage::Execute, || {
                // After a panic, the remaining devices may have more.
                contained(step::TRANSMIT, None, engine, outputs, transmit).unwrap_or(true)
            });
            if let Some(packet_port) = packet_port {
                packet_port.publish();
            }
            // A peer in this worker answers at once.
            let has_news = *has_streams && streams.flush(&mut Host { engine, outputs, now });
            more |= has_news;
            if !has_news {
                break;
            }
        }
        let Some(uplink) = uplink else { return more };
        let sinks = &mut LocalSinks { now, engine, outputs, streams, strangers: None };
        let sent = *has_streams && transmit_segments(uplink, net, sinks);
        uplink.port.flush();
        more || sent || uplink.port.backlog() != 0
    }

    /// Sets the parameters of congestion control, which depend on the speed of the link.
    fn control_congestion(&mut self) {
        let parameters = self.congestion.parameters(self.port.speed);
        self.engine.set_congestion(parameters).expect("the configuration was checked");
    }

    /// Checks the link if that is due.
    pub(super) fn watch_link(&mut self, now: transport::Instant) {
        let Some(uplink) = &mut self.uplink else { return };
        if now < uplink.link_due {
            return;
        }
        uplink.link_due = now + LINK_POLL;
        if let Some(up) = uplink.port.poll_link() {
            // A link that is down has no speed. Its previous speed is the best guess.
            self.port.speed = uplink.port.speed().unwrap_or(self.port.speed);
            self.control_congestion();
            self.tell_link(up);
        }
    }

    /// Tells QPs and guests that the link went up or down.
    fn tell_link(&mut self, up: bool) {
        let is_always_up =
            self.has_streams || self.uplink.as_ref().is_some_and(|uplink| uplink.port.reaches_workers());
        if is_always_up {
            // Streams and packets to other workers do not use the uplink. Other packets do. They
            // are lost while its link is down, and start over when it is up again.
            self.engine.set_link(false);
        }
        self.engine.set_link(up || is_always_up);
        self.port.up = up;
        // Anyone at the other end of the cable can pull it as often as they like, so the log is
        // limited.
        if let Some(uplink) = &mut self.uplink {
            limited!(uplink.changes, Info; "uplink: the link is {}", if up { "up" } else { "down" });
            if uplink.port.leads_out() {
                service::link(up);
            }
        }
        let devices: Vec<_> = self.outputs.devices().map(|device| device.id).collect();
        for id in devices {
            self.outputs.async_event(id, AsyncEvent::port(up));
        }
    }
}

/// Adds the uplink's descriptor to the epoll set, so that received frames wake the worker.
fn watch(epoll: &Epoll, fd: BorrowedFd<'_>) {
    let event = EpollEvent::new(EventSet::IN, UPLINK);
    if let Err(error) = epoll.ctl(ControlOperation::Add, fd.as_raw_fd(), event) {
        log::warn!("uplink: its descriptor cannot be watched: {error}");
    }
}

/// The epoll token of the uplink.
///
/// Channels have a device's number in the token's upper half. These numbers are small.
pub(super) const UPLINK: u64 = u64::MAX;

/// Lets guests' own TCP send what fits. Returns true if anything was sent.
fn transmit_segments(uplink: &mut Uplink, net: &mut Net, sinks: &mut LocalSinks<'_>) -> bool {
    let Uplink { port, scratch, .. } = uplink;
    let can = port.capabilities().checksums;
    let mut sent = false;
    for _ in 0..SEGMENTS {
        // A segment without room would be lost, so it is not made.
        if !port.has_room() {
            break;
        }
        let Some(segment) = sinks.streams.user_tcp.poll_transmit(sinks.now) else { break };
        sent = true;
        let len = sinks.streams.user_tcp.len(&segment);
        let padded = len.max(MIN_FRAME);
        let Some(mut frame) = port.transmit(padded) else { continue };
        let (headers, left) = sinks.streams.user_tcp.write(&segment, frame.buf(), can);
        frame.buf()[len..padded].fill(0);
        let verdict = net.route_packet(sinks.now, &headers);
        if net.tap.is_on() {
            net.show_segment(verdict, (headers.eth.src, headers.eth.dst), &frame.buf()[..len], |copy| {
                if let Some(offload) = left {
                    frames::complete_tcp(&mut copy[usize::from(offload.l2_len + offload.l3_len)..]);
                }
            });
        }
        if verdict == Verdict::To(net::SwitchPort::Uplink) {
            if let Some(offload) = left {
                frame.offload(offload);
            }
            frame.commit(padded);
        } else {
            scratch.clear();
            scratch.extend_from_slice(&frame.buf()[..len]);
            if let Some(offload) = left {
                frames::complete_tcp(&mut scratch[usize::from(offload.l2_len + offload.l3_len)..]);
            }
            let uplink_sink = &mut UplinkSink::of(Some(port));
            net.forward_packet(sinks.now, verdict, (&headers, scratch), uplink_sink, sinks);
        }
    }
    sent
}

/// Sends packets of the engine where the switch decides.
///
/// Most go out by the port, and are written straight into its buffer.
struct Packets<'a> {
    now: transport::Instant,
    port: &'a mut Port,
    net: &'a mut Net,
    /// Scratch space for packets that go elsewhere.
    scratch: &'a mut Vec<u8>,
    /// External memory of the frame at hand.
    pinned: &'a mut Vec<External>,
    pin_state: &'a mut LoanState,
}

impl Packets<'_> {
    fn has_room(&mut self) -> bool {
        self.port.has_room()
    }

    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, MrMemory>) -> Result<(), Fault> {
        let _mark = cycles::enter(Stage::Wire);
        // A packet that finds no room after all is counted by the port. It is lost, as any packet
        // may be.
        let Some(mut frame) = self.port.transmit(packet.frame_len(payload.len())) else { return Ok(()) };
        frame.made_by(Origin::Engine);
        let headers = packet.head();
        let verdict = self.net.route_packet(self.now, &headers);
        if self.net.tap.is_on() {
            self.net.show_packet(verdict, packet, payload);
        }
        if verdict != Verdict::To(net::SwitchPort::Uplink) {
            let len = write_frame(packet, payload, frame.buf())?;
            self.scratch.clear();
            self.scratch.extend_from_slice(&frame.buf()[..len]);
            // The packet is no TCP segment, and a packet of the engine does not return to the
            // engine. The switch drops that as a hairpin.
            let nobody = &mut |_: &[u8]| {};
            let uplink_sink = &mut UplinkSink::of_engine(self.port);
            self.net.forward_packet(self.now, verdict, (&headers, self.scratch), uplink_sink, nobody);
        } else if self.pin_state.may && is_pinned(packet, payload, self.pin_state.only_mapped) {
            self.pin_state.has_begun = true;
            let head = packet.emit(payload.len(), frame.buf());
            // Memory that was attached before a fault must not stay mapped until the next packet.
            let trailer = pin_payload(&frame.buf()[..head], payload, self.pinned)
                .inspect_err(|_| self.pinned.clear())?;
            frame.commit_with(head, self.pinned.drain(..), &trailer[..pad(payload.len()) + icrc::LEN]);
        } else {
            let len = write_frame(packet, payload, frame.buf())?;
            frame.commit(len);
        }
        Ok(())
    }
}

/// Sends what the engine makes: packets to the uplink, if there is one, and FPDUs to streams.
struct Wire<'a> {
    packets: Option<Packets<'a>>,
    packet_port: &'a mut Option<PacketPort>,
    streams: &'a mut Streams,
}

impl Outlet for Wire<'_> {
    fn has_room(&mut self) -> bool {
        self.streams.turn_has_room() && self.packets.as_mut().is_none_or(Packets::has_room)
    }

    fn expect(&mut self, device: DeviceId, qpn: Qpn, lines: WholeQpLines) {
        self.streams.expect(device, qpn, lines);
    }
}

impl PacketOutlet<MrMemory> for Wire<'_> {
    fn way_to(&mut self, dst: Mac) -> Way {
        if let Some(way) = self.packet_port.as_mut().and_then(|packet_port| packet_port.way_to(dst)) {
            return way;
        }
        self.packets.as_mut().map_or(Way::default(), |packets| packets.port.way_to(dst))
    }

    fn carries(&mut self, payload: &Pieces<'_, MrMemory>) -> bool {
        PacketPort::carries(payload)
    }

    fn send_inter_worker(
        &mut self,
        device: DeviceId,
        packet: &Packet,
        part: InterWorkerPart,
        payload: &Pieces<'_, MrMemory>,
    ) -> Result<(), Fault> {
        if let Some(packets) = &self.packets
            && packets.net.tap.is_on()
        {
            let net = &packets.net;
            each_packet(packet, part, payload, &mut |packet, payload| net.show_passed(packet, payload));
        }
        let packet_port = self.packet_port.as_mut().expect("it said which way is near");
        panics::shared(|| packet_port.send(device, packet, part, payload))
    }

    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, MrMemory>) -> Result<(), Fault> {
        match &mut self.packets {
            Some(packets) => panics::shared(|| packets.send(packet, payload)),
            // Without an uplink there are no other hosts.
            None => Ok(()),
        }
    }
}

impl StreamOutlet<MrMemory> for Wire<'_> {
    fn stream_has_room(&mut self, device: DeviceId, qpn: Qpn) -> bool {
        self.streams.has_room(device, qpn)
    }

    fn send_fpdu(
        &mut self,
        device: DeviceId,
        qpn: Qpn,
        fpdu: &Fpdu,
        payload: &Pieces<'_, MrMemory>,
    ) -> Result<(), Fault> {
        panics::shared(|| self.streams.send_fpdu(device, qpn, fpdu, payload))
    }

    fn takes_placed(&mut self, device: DeviceId, qpn: Qpn) -> bool {
        self.streams.takes_placed(device, qpn)
    }

    fn send_placed(&mut self, device: DeviceId, qpn: Qpn, placed: PlacedFpdu) {
        panics::shared(|| self.streams.send_placed(device, qpn, placed));
    }

    fn end_stream(&mut self, device: DeviceId, qpn: Qpn, end: StreamEnd) {
        panics::shared(|| self.streams.end(device, qpn, end));
    }
}

/// How often the engine sends in one round while loopback connections make progress by it.
///
/// A READ is answered the second time.
const ROUNDS: u32 = 2;

/// Shorter payloads are copied, because attaching memory to a frame takes longer.
const MIN_LOANED: usize = 1024;

/// Whether a payload is sent from its place in guest memory, without a copy.
///
/// Datagrams are copied: their senders may reuse the memory as soon as they are sent. READ
/// responses are copied too: the guest that is read may write there again and again, and each time
/// the ICRC would be wrong.
///
/// The payload of a SEND or WRITE of a connection stays unchanged until it is acknowledged. If
/// another copy is sent after that, its ICRC reveals a change. The region's deregistration waits
/// for such copies (`worker/release.rs`).
fn is_pinned(packet: &Packet, payload: &Pieces<'_, MrMemory>, only_mapped: bool) -> bool {
    let may_pin = |region: &MrMemory| region.may_pin() && (!only_mapped || region.is_for_dma());
    let in_memory =
        || payload.iter().all(|piece| matches!(piece, Piece::Memory { region, .. } if may_pin(region)));
    let body = match &packet.body {
        Body::Rc(body) => Some(body),
        Body::Xrc(body) => Some(body.rc()),
        _ => None,
    };
    payload.len() >= MIN_LOANED && matches!(body, Some(Rc::Send(_) | Rc::Write(_))) && in_memory()
}

/// Attaches a payload to a frame with these headers, without a copy.
///
/// The padding and ICRC that follow it are at the beginning of the result.
fn pin_payload(
    headers: &[u8],
    payload: &Pieces<'_, MrMemory>,
    out: &mut Vec<External>,
) -> Result<[u8; 3 + icrc::LEN], Fault> {
    let mut icrc = Icrc::new(headers);
    // The guest may write meanwhile, so the CRC is computed from a copy, which stays in the nearest
    // cache. (With 1 KiB at a time it takes 1.5 times as long.)
    let mut copy = [0; 2048];
    out.clear();
    for piece in payload.iter() {
        let Piece::Memory { region, offset, length } = piece else { continue };
        region.pin_for_dma(offset, length as u16, out)?;
        let mut done = 0;
        while done < length as usize {
            let part = (length as usize - done).min(copy.len());
            region.read(offset + done as u64, &mut copy[..part])?;
            icrc.update(&copy[..part]);
            done += part;
        }
    }
    let mut trailer = [0; 3 + icrc::LEN];
    let pad = pad(payload.len());
    icrc.update(&trailer[..pad]);
    trailer[pad..pad + icrc::LEN].copy_from_slice(&icrc.finish());
    Ok(trailer)
}
