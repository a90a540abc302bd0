//! Fuzzes vhost-user messages: any ones, in any order, with any descriptors, and disconnections.

use super::guest::{FRONT_END, Ram, Ring, WRITE};
use super::input::Input;
use super::lab::{Lab, with};
use crate::functions::{EthernetFunction, RdmaFunction};
use crate::net::SwitchPort;
use crate::session::inline::Inline;
use crate::vhost::Function;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use vhost::vhost_user::message::FrontendReq as Request;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;
use vrdma_abi::control::{Opcode, ReqHeader};
use vrdma_abi::zerocopy::IntoBytes;
use vrdma_transport::Instant;
use vrdma_wire::num::Mtu;

/// Front-ends of both functions of a guest connect, one after the other, and send anything.
///
/// The session ends each conversation. Then nothing is left except what the guest's other function
/// has. No descriptor is left open.
pub fn vhost_user(data: &[u8]) {
    let mut input = Input::new(data);
    let lab = Lab::new();
    let ram = lab.guests[0].ram.clone();
    let parts = Parts::new(&ram);
    let (id, port, guest) = (lab.guests[0].id, lab.guests[0].port, &lab.config.guests[0]);
    let rdma = Inline::new(RdmaFunction::new(lab.handle.clone(), id, &lab.config, guest, Mtu::M1024));
    let ethernet =
        Inline::new(EthernetFunction::new(lab.handle.clone(), port, lab.config.limits.memory_bytes()));
    let before = descriptors();
    for _ in 0..4 {
        if input.is_empty() {
            break;
        }
        fill(&mut input, &ram);
        if input.once_in(3) {
            converse(&mut input, &parts, &ethernet, 2);
        } else {
            converse(&mut input, &parts, &rdma, 6);
        }
        assert_eq!(lab.counts(0), Default::default(), "what is left of a front-end");
        // A thread closes files of memory later, also those of sessions of the previous input.
        let begun = std::time::Instant::now();
        while descriptors() > before {
            assert!(begun.elapsed().as_secs() < 10, "descriptors are left open");
            std::thread::yield_now();
        }
    }
    with(|worker| worker.take_turn());
    lab.end();
}

/// Returns how many descriptors this process has.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc is mounted").count()
}

fn ring(index: u16) -> Ring {
    Ring::at(index, 16, 0x300 * u64::from(index))
}

const REQUEST: u64 = 0x1800;
const REPLY: u64 = 0x1900;

/// Fills rings in the guest's memory: some with commands, some with anything.
fn fill(input: &mut Input<'_>, ram: &Ram) {
    for index in 0..6 {
        for slot in 0..16 {
            ring(index).put_descriptor(ram, slot, (REPLY + 64 * u64::from(slot), 64, WRITE, 0));
        }
        ram.put16(ring(index).avail + 2, input.pick(&[0, 1, 16, 17]));
    }
    let opcode = input.pick(&[Opcode::QUERY_DEVICE, Opcode::ALLOC_CONTEXT, Opcode::QUERY_PORT]);
    let header = ReqHeader { opcode: opcode.0.into(), ..ReqHeader::default() };
    ram.write(REQUEST, header.as_bytes());
    ring(0).put_descriptor(ram, 0, (REQUEST, ReqHeader::SIZE as u32, super::guest::NEXT, 1));
    ring(0).put_descriptor(ram, 1, (REPLY, 256, WRITE, 0));
    ram.write(input.below(0x1200) as u64, input.bytes(16));
}

/// The parts of messages.
struct Parts<'a> {
    ram: &'a Ram,
    events: [OwnedFd; 2],
    others: [OwnedFd; 3],
}

impl Parts<'_> {
    fn new(ram: &Ram) -> Parts<'_> {
        let event = || eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
        let (one, _) = UnixStream::pair().expect("a socket");
        let null = File::open("/dev/null").expect("it is there");
        let short = rustix::fs::memfd_create("short", MemfdFlags::CLOEXEC).expect("a memfd");
        Parts { ram, events: [event(), event()], others: [one.into(), null.into(), short] }
    }
}

/// A message: its request, its payload, and the attached descriptors.
type Message = (u32, Vec<u8>, Vec<RawFd>);

/// Sends all messages of a front-end, and lets the session serve them.
fn converse<F: Function>(input: &mut Input<'_>, parts: &Parts<'_>, session: &Inline<F>, queues: u32) {
    let (ours, theirs) = UnixStream::pair().expect("a socket");
    ours.set_nonblocking(true).expect("a socket of ours");
    let mut opening = if input.once_in(4) { Vec::new() } else { opening(input, parts, F::FEATURES, queues) };
    opening.reverse();
    // The number of messages that the socket holds.
    for _ in 0..60 {
        let (request, payload, fds) = match opening.pop() {
            Some(message) => message,
            None if input.is_empty() => break,
            None => message(input, parts, queues, F::FEATURES),
        };
        let flags = 1 | if input.once_in(3) { 8 } else { 0 };
        let header = [request, flags, input.near(payload.len() as u32)].map(u32::to_le_bytes).concat();
        if ours.send_with_fds(&[&header[..], &payload], &fds).is_err() {
            break;
        }
    }
    ours.shutdown(Shutdown::Write).expect("a socket of ours");
    session.serve(theirs);
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn quads(quads: &[u64]) -> Vec<u8> {
    quads.iter().flat_map(|quad| quad.to_le_bytes()).collect()
}

/// Returns the messages of a proper front-end, up to running queues.
fn opening(input: &mut Input<'_>, parts: &Parts<'_>, features: u64, queues: u32) -> Vec<Message> {
    let event = parts.events[0].as_raw_fd();
    let table: Vec<u64> = (0..3).flat_map(|index| region(parts, index)).collect();
    let files = (0..3).map(|index| parts.ram.region(index).2.as_raw_fd()).collect();
    let mut messages = vec![
        (Request::SET_OWNER.into(), vec![], vec![]),
        (Request::GET_FEATURES.into(), vec![], vec![]),
        (Request::GET_PROTOCOL_FEATURES.into(), vec![], vec![]),
        (
            Request::SET_PROTOCOL_FEATURES.into(),
            quads(&[1 << 3 | 1 << 15 | 1 << 0 | 1 << 9 | 1 << 13]),
            vec![],
        ),
        (Request::SET_FEATURES.into(), quads(&[1 << 32 | 1 << 30 | 1 << 29 | features]), vec![]),
        (Request::SET_MEM_TABLE.into(), [words(&[3, 0]), quads(&table)].concat(), files),
    ];
    let some = input.byte();
    for index in (0..queues).filter(|index| some & 1 << index == 0) {
        let ring = ring(index as u16);
        let [desc, avail, used] = [ring.desc, ring.avail, ring.used].map(|gpa| gpa + FRONT_END);
        messages.extend([
            (Request::SET_VRING_NUM.into(), words(&[index, 16]), vec![]),
            (
                Request::SET_VRING_ADDR.into(),
                [words(&[index, 0]), quads(&[desc, used, avail, 0])].concat(),
                vec![],
            ),
            (Request::SET_VRING_BASE.into(), words(&[index, 0]), vec![]),
            (Request::SET_VRING_CALL.into(), quads(&[index.into()]), vec![event]),
            (Request::SET_VRING_KICK.into(), quads(&[index.into()]), vec![event]),
            (Request::SET_VRING_ENABLE.into(), words(&[index, 1]), vec![]),
        ]);
    }
    messages
}

/// Returns an entry of a memory table: guest-physical address, length, address in the front-end,
/// offset in the file.
fn region(parts: &Parts<'_>, index: usize) -> [u64; 4] {
    let (gpa, len, _) = parts.ram.region(index);
    [gpa, len, FRONT_END + gpa, 0]
}

/// Returns a message of any kind, mostly a plausible one.
fn message(input: &mut Input<'_>, parts: &Parts<'_>, queues: u32, features: u64) -> Message {
    let at = input.below(queues as usize) as u32;
    let queue = input.near(at);
    let any = |input: &mut Input<'_>| -> RawFd {
        match input.byte() % 8 {
            0..=4 => parts.events[input.below(2)].as_raw_fd(),
            5 => parts.ram.region(input.below(3)).2.as_raw_fd(),
            _ => parts.others[input.below(3)].as_raw_fd(),
        }
    };
    let one_region = |input: &mut Input<'_>| {
        let mut region = region(parts, input.below(3));
        if input.once_in(4) {
            let at = input.below(4);
            region[at] = match input.byte() % 3 {
                0 => input.quad(),
                1 => region[at].wrapping_add(0x1000),
                _ => u64::from(input.word()) & !0xfff,
            };
        }
        region
    };
    let file = |input: &mut Input<'_>| {
        if input.once_in(4) { any(input) } else { parts.ram.region(input.below(3)).2.as_raw_fd() }
    };
    let event = |input: &mut Input<'_>| match input.byte() % 8 {
        0 => (quads(&[u64::from(queue) | 0x100]), vec![]),
        1 => (quads(&[input.quad()]), vec![any(input)]),
        _ => (quads(&[queue.into()]), vec![any(input)]),
    };
    match input.byte() % 24 {
        0 => (
            Request::SET_FEATURES.into(),
            quads(&[1 << 32 | features & input.quad() | u64::from(input.byte() & 3) << 29]),
            vec![],
        ),
        1 | 2 => {
            let count = input.below(4);
            let table: Vec<u64> = (0..count).flat_map(|_| one_region(input)).collect();
            let files = (0..count).map(|_| file(input)).collect();
            (
                Request::SET_MEM_TABLE.into(),
                [words(&[input.near(count as u32), 0]), quads(&table)].concat(),
                files,
            )
        }
        3 => (Request::SET_VRING_NUM.into(), words(&[queue, input.pick(&[16, 1, 1024, 3, 0, 2048])]), vec![]),
        4 | 5 => {
            let mut address = |right: u64| match input.byte() % 8 {
                0 => input.quad(),
                1 => FRONT_END + u64::from(input.word()),
                _ => FRONT_END + right,
            };
            let ring = ring(at as u16);
            let rings = [address(ring.desc), address(ring.used), address(ring.avail), 0];
            (Request::SET_VRING_ADDR.into(), [words(&[queue, 0]), quads(&rings)].concat(), vec![])
        }
        6 => (Request::SET_VRING_BASE.into(), words(&[queue, input.near(0)]), vec![]),
        7 | 8 => (Request::GET_VRING_BASE.into(), words(&[queue, 0]), vec![]),
        9 | 10 => {
            let (payload, fds) = event(input);
            (Request::SET_VRING_KICK.into(), payload, fds)
        }
        11 => {
            let (payload, fds) = event(input);
            (Request::SET_VRING_CALL.into(), payload, fds)
        }
        12 => {
            let (payload, fds) = event(input);
            (Request::SET_VRING_ERR.into(), payload, fds)
        }
        13 | 14 => (Request::SET_VRING_ENABLE.into(), words(&[queue, input.near(1)]), vec![]),
        15 => (Request::SET_PROTOCOL_FEATURES.into(), quads(&[input.quad() & 0x8_a209]), vec![]),
        16 => (Request::GET_CONFIG.into(), words(&[input.near(0), input.near(64), 0, 0]), vec![]),
        17 => (Request::RESET_DEVICE.into(), vec![], vec![]),
        18 | 19 => {
            let request = input.pick(&[Request::ADD_MEM_REG, Request::REM_MEM_REG]);
            let payload = [vec![0; 8], quads(&one_region(input))].concat();
            (request.into(), payload, vec![file(input)])
        }
        20 => (Request::RESET_OWNER.into(), vec![], vec![]),
        21 => {
            // The guest acts meanwhile: its commands are served between messages.
            ring(0).offer(parts.ram, 0);
            let request = input.pick(&[
                Request::GET_FEATURES,
                Request::GET_PROTOCOL_FEATURES,
                Request::GET_QUEUE_NUM,
                Request::GET_MAX_MEM_SLOTS,
            ]);
            (request.into(), vec![], vec![])
        }
        22 => {
            let frame = [0xff; 60];
            let mut wire = Nowhere;
            let from = SwitchPort::Uplink;
            with(|worker| worker.net.receive(Instant(1), &frame, from, &mut wire, &mut |_: &[u8]| ()));
            (Request::GET_FEATURES.into(), vec![], vec![])
        }
        _ => {
            let count = input.below(3);
            let fds = (0..count).map(|_| any(input)).collect();
            (input.byte() as u32 % 48, input.bytes(64).to_vec(), fds)
        }
    }
}

/// An uplink that takes nothing.
struct Nowhere;

impl crate::net::SwitchUplink for Nowhere {
    fn completes(&self, _: &[u8], _: u16, _: u16) -> Option<crate::port::Offload> {
        None
    }

    fn room(&mut self) -> Option<usize> {
        None
    }

    fn transmit(
        &mut self,
        _: usize,
        _: Option<crate::port::Offload>,
        _: crate::net::Fill<'_>,
    ) -> Result<(), crate::net::Lost> {
        Err(crate::net::Lost)
    }
}
