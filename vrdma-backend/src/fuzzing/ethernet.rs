//! Fuzzes Ethernet functions by hostile drivers: descriptors, virtio-net headers and frames.

use super::guest::{INDIRECT, NEXT, Ram, Ring, WRITE, descriptor};
use super::input::Input;
use super::lab::{ADDRESSES, GIDS, Lab, MACS, MTU, with};
use crate::net::offload_checker::OffloadChecker;
use crate::net::{Fill, Lost, SwitchPort, SwitchUplink};
use crate::port::{self, ETHERNET};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_net::*;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;
use vrdma_transport::Instant;
use vrdma_wire::num::Gid;
use vrdma_wire::roce::is_roce;

/// Fuzzes frames between three guests, the engine and the uplink.
///
/// Two guests have RDMA functions and listed addresses. The third may send from any address. The
/// drivers of the first and the third are hostile; the second receives properly.
///
/// Each frame that arrives was sent by a guest that may send it. What was checked is what is
/// delivered, except for checksums and the changes of TCP segmentation. Only used rings and buffers
/// are written.
pub fn ethernet(data: &[u8]) {
    let mut cable = Ethernet::new(Input::new(data));
    // More steps would only make an input slow.
    for _ in 0..100 {
        if cable.input.is_empty() {
            break;
        }
        cable.act();
    }
    cable.lab.end();
}

/// The virtqueues of a function: frames to the driver, and frames from it (virtio 1.2, 5.1.2).
const RECEIVE: u16 = 0;
const TRANSMIT: u16 = 1;
const GUESTS: usize = 3;
/// The guest whose driver behaves properly.
const HONEST: usize = 1;
/// The guest that may send from any address.
const ANY: usize = 2;
const OFFLOADS: u64 = 1 << VIRTIO_NET_F_CSUM
    | 1 << VIRTIO_NET_F_GUEST_CSUM
    | 1 << VIRTIO_NET_F_HOST_TSO4
    | 1 << VIRTIO_NET_F_HOST_TSO6
    | 1 << VIRTIO_NET_F_GUEST_TSO4
    | 1 << VIRTIO_NET_F_GUEST_TSO6;
const FEATURES: u64 =
    1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_NET_F_MRG_RXBUF | 1 << VIRTIO_RING_F_INDIRECT_DESC | OFFLOADS;
/// The longest frame that a function takes: two tags, IPv6, 64 KiB.
const LONGEST: usize = 22 + 40 + 65535;
const HEADER: usize = 12;

const TABLE: u64 = 0x800;
const FRAMES: u64 = 0x1000;
/// The address of the honest driver's receive buffers, and the length of each in bytes.
const BUFFERS: u64 = 0x4000;
const BUFFER: u64 = 0x400;

struct Ethernet<'a> {
    input: Input<'a>,
    lab: Lab,
    features: [u64; GUESTS],
    checker: OffloadChecker,
    /// The index of the next used entry of the honest driver's receive queue.
    seen: u16,
}

/// The content of a guest's chain: the header, and the frame after it.
struct Sent {
    guest: usize,
    header: [u8; HEADER],
    frame: Vec<u8>,
}

/// A frame that arrived, and where.
#[derive(Debug)]
struct Arrived {
    at: Place,
    frame: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Engine,
    Uplink,
    Guest(usize),
}

/// An uplink that takes all frames that fit its buffers, as ports do.
///
/// It completes some checksums itself.
#[derive(Default)]
struct Wire {
    sums: bool,
    frames: Vec<Vec<u8>>,
}

impl SwitchUplink for Wire {
    fn completes(&self, head: &[u8], start: u16, offset: u16) -> Option<port::Offload> {
        let can = port::Checksums { udp: self.sums, tcp: self.sums, ..port::Checksums::default() };
        port::Offload::of(head, start, offset, can)
    }

    fn room(&mut self) -> Option<usize> {
        None
    }

    fn transmit(&mut self, len: usize, _: Option<port::Offload>, fill: Fill<'_>) -> Result<(), Lost> {
        let mut room = [0xee; MTU as usize + ETHERNET];
        let frame = room.get_mut(..len).ok_or(Lost)?;
        fill(frame);
        self.frames.push(frame.to_vec());
        Ok(())
    }
}

fn ring(index: u16) -> Ring {
    Ring { event_idx: false, ..Ring::at(index, 16, 0x300 * u64::from(index)) }
}

impl<'a> Ethernet<'a> {
    fn new(mut input: Input<'a>) -> Ethernet<'a> {
        let lab = Lab::with_any_mac();
        let features =
            [0; GUESTS].map(|_: u64| if input.once_in(4) { input.quad() & FEATURES } else { FEATURES });
        let mut cable = Ethernet { input, lab, features, checker: OffloadChecker::default(), seen: 0 };
        for guest in 0..GUESTS {
            cable.start(guest);
        }
        let ram = &cable.lab.guests[HONEST].ram;
        for slot in 0..16u16 {
            let gpa = BUFFERS + BUFFER * u64::from(slot);
            ring(RECEIVE).put_descriptor(ram, slot, (gpa, BUFFER as u32, WRITE, 0));
            ring(RECEIVE).offer(ram, slot);
        }
        cable
    }

    fn start(&mut self, guest: usize) {
        let features = self.features[guest];
        let (port, ram) = (self.lab.guests[guest].port, &self.lab.guests[guest].ram);
        for index in [RECEIVE, TRANSMIT] {
            ram.write(ring(index).avail, &[0; 0x200]);
            with(|worker| worker.start_net_queue(port, &ram.memory, ring(index).setup(), 0, features));
        }
    }

    fn act(&mut self) {
        let guest = self.input.pick(&[0, 0, HONEST, ANY]);
        match self.input.byte() % 16 {
            0..=7 => self.frame(guest),
            8..=11 => self.turn(),
            12 => self.incoming(),
            13 if guest != HONEST => {
                let ram = &self.lab.guests[guest].ram;
                let at = self.input.pick(&[0, 0x300, TABLE, FRAMES]) + self.input.below(0x300) as u64;
                ram.write(at, self.input.bytes(32));
            }
            14 if guest != HONEST => {
                // Valid buffers, or invalid ones.
                let ram = &self.lab.guests[guest].ram;
                for slot in 0..self.input.below(6) as u16 {
                    let (gpa, len) = (self.input.near(0x4000).into(), self.input.near(0x600));
                    let flags = self.input.near(WRITE.into()) as u16;
                    ring(RECEIVE).put_descriptor(ram, slot, (gpa, len, flags, slot + 1));
                    ring(RECEIVE).offer(ram, slot);
                }
            }
            15 if guest != HONEST => {
                let (port, ram) = (self.lab.guests[guest].port, &self.lab.guests[guest].ram);
                match self.input.byte() % 4 {
                    0 => with(|worker| worker.net.remap(port, &ram.less)),
                    1 => with(|worker| worker.net.remap(port, &ram.memory)),
                    2 => _ = with(|worker| worker.stop_net_queue(port, RECEIVE)),
                    _ => self.start(guest),
                }
            }
            _ => self.turn(),
        }
    }

    /// Makes a frame available, in a chain of some shape.
    fn frame(&mut self, guest: usize) {
        let (header, packet) = (self.net_header(), self.packet(guest));
        self.checker.check(&header, self.features[guest], &packet, MTU);
        let mut bytes = header.to_vec();
        bytes.truncate(header_len(self.features[guest]));
        bytes.extend(packet);
        let ram = self.lab.guests[guest].ram.clone();
        let ring = ring(TRANSMIT);
        let first = ring.avail_idx(&ram) % 8 * 2;
        let gpa = FRAMES + 0x180 * u64::from(first / 2);
        bytes.truncate(0x180);
        ram.write(gpa, &bytes);
        let cut = self.input.below(bytes.len()) as u32;
        let long = self.input.once_in(8);
        let rest = if long { self.input.below(LONGEST) as u32 } else { bytes.len() as u32 - cut };
        let mut parts = vec![(gpa, cut, NEXT), (gpa + u64::from(cut), rest, 0)];
        if long {
            // Such a length is possible only by repeating the same bytes.
            let mut left = rest;
            parts.truncate(1);
            while left != 0 && parts.len() < 60 {
                let len = left.min(0x4000 - 0x1000);
                parts.push((if parts.len() == 1 { gpa + u64::from(cut) } else { FRAMES }, len, NEXT));
                left -= len;
            }
            parts.last_mut().expect("the first").2 = 0;
        }
        if self.input.once_in(16) {
            let at = self.input.below(parts.len());
            let part = &mut parts[at];
            match self.input.byte() % 4 {
                0 => part.0 = self.input.quad(),
                1 => part.1 = self.input.long(),
                2 => part.2 = self.input.word(),
                _ => part.1 = 0,
            }
        }
        if long || self.input.once_in(4) {
            let table = TABLE + 0x400 * u64::from(first / 2 % 2);
            let entry = |(index, &(gpa, len, flags)): (usize, &(u64, u32, u16))| {
                descriptor(gpa, len, flags, index as u16 + 1)
            };
            let entries: Vec<u8> = parts.iter().enumerate().flat_map(entry).collect();
            ram.write(table, &entries);
            let len = self.input.near(entries.len() as u32);
            ring.put_descriptor(&ram, first, (table, len, INDIRECT, 0));
        } else {
            for (index, &(gpa, len, flags)) in (first..).zip(&parts) {
                ring.put_descriptor(&ram, index, (gpa, len, flags, index + 1));
            }
        }
        let head = if guest == HONEST { first } else { self.input.near(first.into()) as u16 };
        ring.offer(&ram, head);
    }

    /// Returns a virtio-net header, mostly a plausible one.
    fn net_header(&mut self) -> [u8; HEADER] {
        let kinds = [VIRTIO_NET_HDR_GSO_NONE, VIRTIO_NET_HDR_GSO_TCPV4, VIRTIO_NET_HDR_GSO_TCPV6, 3, 0x81];
        let (flags, kind) = (self.input.pick(&[0, 1, 1, 2]), self.input.pick(&kinds));
        let size = self.input.near(500) as u16;
        let start = self.input.pick(&[34, 54, 38, 14, 28, 26, 74]);
        let (start, offset) = (self.input.near(start) as u16, self.input.pick(&[6, 16, 2, 0]));
        let mut header = [0; HEADER];
        (header[0], header[1]) = (flags, kind as u8);
        for (at, field) in [(4, size), (6, start), (8, self.input.near(offset) as u16)] {
            header[at..at + 2].copy_from_slice(&field.to_le_bytes());
        }
        header
    }

    /// Returns an Ethernet frame of a guest, mostly one that it may send.
    fn packet(&mut self, guest: usize) -> Vec<u8> {
        let mac = |input: &mut Input<'_>, right: [u8; 6]| match input.byte() {
            0..=191 => right,
            192..=208 => MACS[0].0,
            209..=223 => MACS[1].0,
            224..=239 => [2, 0, 0, 0, 0, 9],
            _ => [0xff; 6],
        };
        let other = MACS.get(1 - guest.min(1)).copied().unwrap_or_default().0;
        let own = MACS.get(guest).map_or([2, 0, 0, 0, 0, 0x33], |mac| mac.0);
        let mut frame = [mac(&mut self.input, other), mac(&mut self.input, own)].concat();
        for _ in 0..[0, 0, 0, 1, 2][self.input.below(5)] {
            frame.extend([0x81, 0x00, 0, self.input.byte()]);
        }
        let v6 = self.input.once_in(3);
        let protocol = self.input.pick(&[17, 6, 1, 58, 0, 44]);
        let address = self.input.pick(&[guest.min(1), 0, 1]);
        let payload = 20 + self.input.below(200) as u16;
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(payload.to_be_bytes());
            frame.extend([protocol, 9]);
            frame.extend(GIDS[address].0);
            frame.extend(GIDS[1 - address].0);
        } else {
            frame.extend([0x08, 0x00, self.input.near(0x45) as u8, 0]);
            frame.extend((20 + payload).to_be_bytes());
            frame.extend([0, 1, self.input.pick(&[0, 0, 0x20]), 0, 9, protocol, 0, 0]);
            frame.extend(ADDRESSES[address]);
            frame.extend(ADDRESSES[1 - address]);
        }
        let port = self.input.pick(&[4791u16, 4790, 53]);
        frame.extend([0xc0, 1]);
        frame.extend((self.input.near(port.into()) as u16).to_be_bytes());
        let mut rest = vec![0x5a; payload.into()];
        (rest[8], rest[9]) = (self.input.near(0x50) as u8, self.input.byte());
        frame.extend(rest);
        if self.input.once_in(8) {
            let (at, raw) = (self.input.below(frame.len().min(60)), self.input.bytes(24));
            let end = (at + raw.len()).min(frame.len());
            frame[at..end].copy_from_slice(&raw[..end - at]);
        }
        frame
    }

    /// Delivers a frame from the uplink.
    fn incoming(&mut self) {
        let frame = self.packet(ANY);
        let mut wire = Wire::default();
        let mut engine = Vec::new();
        with(|worker| {
            let inside = &mut |packet: &[u8]| engine.push(packet.to_vec());
            worker.net.receive(Instant(1), &frame, SwitchPort::Uplink, &mut wire, inside);
        });
        with(|worker| worker.net.flush());
        assert!(wire.frames.is_empty(), "back to where it came from");
        for packet in engine {
            assert_eq!(packet, frame);
            assert!(is_roce(&packet) && !MACS.iter().any(|mac| packet[6..12] == mac.0));
        }
        self.received(|arrived| assert_eq!(arrived.frame, frame));
    }

    /// Forwards all available frames of all guests, and checks where they arrive.
    fn turn(&mut self) {
        let mut sent: Vec<Sent> = Vec::new();
        for guest in 0..GUESTS {
            self.gather(guest, &mut sent);
        }
        let images = [0, HONEST].map(|guest| self.lab.guests[guest].ram.image());
        let mut wire = Wire { sums: self.input.byte() & 1 == 0, ..Wire::default() };
        let mut arrived = Vec::new();
        with(|worker| {
            worker.net.turn(Instant(1), &mut wire, &mut |packet: &[u8]| {
                arrived.push(Arrived { at: Place::Engine, frame: packet.to_vec() })
            })
        });
        with(|worker| worker.net.flush());
        arrived.extend(wire.frames.drain(..).map(|frame| Arrived { at: Place::Uplink, frame }));
        let honest = &self.lab.guests[HONEST].ram;
        let used = [RECEIVE, TRANSMIT].map(|index| ring(index).used_part());
        honest.assert_same_but(&images[1], &[used[0], used[1], (BUFFERS, 16 * BUFFER)], "frames");
        arrived.iter().for_each(|arrived| justify(arrived, &sent));
        self.received(|arrived| justify(arrived, &sent));
    }

    /// Appends the frames that a guest has made available, as the device would read them.
    fn gather(&self, guest: usize, sent: &mut Vec<Sent>) {
        let ram = &self.lab.guests[guest].ram;
        let ring = ring(TRANSMIT);
        let ahead = 16;
        // Every entry of the ring is read. Entries that the device does not take do no harm.
        for slot in 0..ahead {
            let head = ram.get16(ring.avail + 4 + 2 * slot);
            let header_len = header_len(self.features[guest]);
            let Some(bytes) = chain(ram, &ring, head, LONGEST + header_len) else { continue };
            if bytes.len() < header_len {
                continue;
            }
            let mut header = [0; HEADER];
            header[..header_len].copy_from_slice(&bytes[..header_len]);
            let known =
                sent.iter().any(|s| s.guest == guest && s.header == header && s.frame == bytes[header_len..]);
            if !known {
                sent.push(Sent { guest, header, frame: bytes[header_len..].to_vec() });
            }
        }
    }

    /// Takes what arrived at the honest driver, and returns its buffers.
    fn received(&mut self, check: impl Fn(&Arrived)) {
        let ram = self.lab.guests[HONEST].ram.clone();
        let ring = ring(RECEIVE);
        let header_len = header_len(self.features[HONEST]);
        let mergeable = self.features[HONEST] & 1 << VIRTIO_NET_F_MRG_RXBUF != 0;
        let used = ring.used_idx(&ram);
        while self.seen != used {
            let mut bytes = Vec::new();
            let mut buffers = 1;
            while buffers != 0 {
                let (slot, len) = ring.used_entry(&ram, self.seen);
                self.seen = self.seen.wrapping_add(1);
                assert!(slot < 16 && u64::from(len) <= BUFFER);
                let mut part = vec![0; len as usize];
                ram.read_to(BUFFERS + BUFFER * u64::from(slot), &mut part);
                if bytes.is_empty() && mergeable {
                    buffers = u16::from_le_bytes([part[10], part[11]]);
                    assert!((1..=16).contains(&buffers));
                }
                bytes.extend(part);
                ring.offer(&ram, slot as u16);
                buffers -= 1;
            }
            check(&Arrived { at: Place::Guest(HONEST), frame: bytes.split_off(header_len) });
        }
    }
}

fn header_len(features: u64) -> usize {
    let long = features & (1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_NET_F_MRG_RXBUF) != 0;
    if long { HEADER } else { HEADER - 2 }
}

/// Returns the bytes of a chain for the device, by the standard (virtio 1.2, 2.7.5).
///
/// Returns `None` if the chain is invalid, or longer than `most`.
fn chain(ram: &Ram, ring: &Ring, head: u16, most: usize) -> Option<Vec<u8>> {
    let entry = |table: u64, index: u16| -> (u64, u32, u16, u16) {
        let words = u128::from_le_bytes(ram.read(table + 16 * u64::from(index)));
        (words as u64, (words >> 64) as u32, (words >> 96) as u16, (words >> 112) as u16)
    };
    let (mut table, mut count, mut index) = (ring.desc, u32::from(ring.size), head);
    let mut bytes = Vec::new();
    for _ in 0..1100 {
        if u32::from(index) >= count {
            return None;
        }
        let (gpa, len, flags, next) = entry(table, index);
        if flags & INDIRECT != 0 {
            (table, count, index) = (gpa, len / 16, 0);
            continue;
        }
        if bytes.len() + len as usize > most {
            return None;
        }
        let start = bytes.len();
        bytes.resize(start + len as usize, 0);
        ram.read_to(gpa, &mut bytes[start..]);
        if flags & NEXT == 0 {
            return Some(bytes);
        }
        index = next;
    }
    None
}

/// Panics unless the frame was sent by a guest that may send what arrived.
fn justify(arrived: &Arrived, sent: &[Sent]) {
    let found = sent.iter().any(|sent| may_send(sent.guest, arrived) && comes_of(arrived, sent));
    assert!(
        found,
        "{:?} got {:x?}\nof {:x?}",
        arrived.at,
        &arrived.frame[..arrived.frame.len().min(100)],
        sent.iter().map(|s| (s.guest, s.header, &s.frame[..s.frame.len().min(100)])).collect::<Vec<_>>()
    );
}

/// Returns whether the host's rules permit a frame as it arrived.
fn may_send(guest: usize, Arrived { at, frame }: &Arrived) -> bool {
    if frame.len() < 14 || frame[6] & 1 != 0 {
        return false;
    }
    let owner = MACS.iter().position(|mac| frame[6..12] == mac.0);
    if owner != Some(guest) && !(guest == ANY && owner.is_none()) {
        return false;
    }
    let to = MACS.iter().position(|mac| frame[..6] == mac.0);
    let may_arrive = match at {
        Place::Engine => is_roce(frame) && (is_ip_group(frame) || to.is_some_and(|to| to != guest)),
        Place::Uplink => to.is_none(),
        Place::Guest(own) => *own != guest && (frame[0] & 1 != 0 || to == Some(*own)),
    };
    may_arrive && (guest == ANY || !is_roce(frame) || source(frame) == Some(GIDS[guest]))
}

/// Returns whether the destination is an IP multicast address.
fn is_ip_group(frame: &[u8]) -> bool {
    frame.starts_with(&[0x33, 0x33]) || frame.starts_with(&[0x01, 0x00, 0x5e]) && frame[3] < 0x80
}

/// Returns the source of an IP packet with at most one tag, as a GID.
fn source(frame: &[u8]) -> Option<Gid> {
    let at = if frame.get(12..14)? == [0x81, 0] { 18 } else { 14 };
    match frame.get(at - 2..at)? {
        [0x08, 0x00] => Some(Gid::from_ipv4(frame.get(at + 12..at + 16)?.try_into().ok()?)),
        [0x86, 0xdd] => Some(Gid(frame.get(at + 8..at + 24)?.try_into().ok()?)),
        _ => None,
    }
}

/// Returns whether a frame that arrived is the sent one, except for what its header requests.
fn comes_of(Arrived { at, frame }: &Arrived, sent: &Sent) -> bool {
    let field = |at: usize| usize::from(u16::from_le_bytes([sent.header[at], sent.header[at + 1]]));
    let (start, offset) = (field(6), field(8));
    let at_sum = |at: usize| at == start + offset || at == start + offset + 1;
    if frame.len() >= sent.frame.len() {
        // Short frames are padded on the way out.
        let (frame, padding) = frame.split_at(sent.frame.len());
        let padded = *at == Place::Uplink && padding.len() < 60 && padding.iter().all(|&byte| byte == 0);
        let asked = sent.header[0] & 1 != 0;
        let same = |(at, (is, was)): (usize, (&u8, &u8))| is == was || asked && at_sum(at);
        if (padding.is_empty() || padded) && frame.iter().zip(&sent.frame).enumerate().all(same) {
            return true;
        }
    }
    // Short segments are padded too.
    let zeroes = frame.iter().rev().take_while(|&&byte| byte == 0).count();
    let padding = if *at == Place::Uplink && frame.len() == SHORTEST { zeroes } else { 0 };
    (0..=padding).any(|padding| segment(&frame[..frame.len() - padding], sent))
}

/// The minimum length of frames on a wire, without check sequence (IEEE 802.3, 3.2.7).
const SHORTEST: usize = 60;

/// Returns whether it is a segment of a TCP packet whose sender requested segmentation.
fn segment(frame: &[u8], sent: &Sent) -> bool {
    let start = usize::from(u16::from_le_bytes([sent.header[6], sent.header[7]]));
    let whole = &sent.frame;
    if sent.header[1] == 0 || whole.len() < start + 20 || frame.len() < start + 20 {
        return false;
    }
    let payload = start + 4 * usize::from(whole[start + 12] >> 4);
    let seq = |bytes: &[u8]| u32::from_be_bytes([0, 1, 2, 3].map(|n| bytes[start + 4 + n]));
    let done = seq(frame).wrapping_sub(seq(whole)) as usize;
    let mut ip = 14;
    while whole[ip - 2..ip] == [0x81, 0] || whole[ip - 2..ip] == [0x88, 0xa8] {
        ip += 4;
    }
    // The length, identification and checksum of IPv4, or the length of IPv6; the sequence number,
    // flags and checksum of TCP.
    let changed: &[usize] = if whole[ip] >> 4 == 4 { &[2, 3, 4, 5, 10, 11] } else { &[4, 5] };
    let may_differ = |at: usize| {
        (at < start && changed.contains(&at.wrapping_sub(ip)))
            || [4, 5, 6, 7, 13, 16, 17].contains(&at.wrapping_sub(start))
    };
    let headers = (0..payload.min(frame.len())).all(|at| frame[at] == whole[at] || may_differ(at));
    let data = frame.get(payload..).unwrap_or_default();
    headers && !data.is_empty() && whole.get(payload + done..).is_some_and(|rest| rest.starts_with(data))
}
