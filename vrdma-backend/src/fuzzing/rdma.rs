//! Fuzzes an RDMA function by a hostile driver: control commands and work requests.

mod command;
mod connections;
mod request;

use super::guest::{Image, NEXT, Ram, Ring, WRITE};
use super::input::Input;
use super::lab::{ADDRESSES, GIDS, Lab, MACS, with};
use crate::command::{Caller, serve};
use crate::config::Config;
use crate::device::counters::ObjectCounts;
use crate::memory::GuestMemory;
use crate::tcp::KeepAlive;
use crate::worker::{Worker, inline};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use virtio_queue::Queue;
use vrdma_abi::config::queue;
use vrdma_abi::control::{Opcode, RespHeader, Status};
use vrdma_abi::event::Event;
use vrdma_abi::zerocopy::{FromBytes, IntoBytes};

pub use connections::connections;
pub use request::wqe;

/// Fuzzes control commands, most of them nearly right. The device's queues have requests, and the
/// driver writes arbitrary memory.
///
/// Each command is answered once, and a refused one changes nothing. The device writes only to its
/// rings, to buffers and to registered memory. The other guest is not affected.
pub fn control(data: &[u8]) {
    let mut driver = Driver::new(Input::new(data), Lab::new());
    // More steps would only make an input slow.
    for _ in 0..200 {
        if driver.input.is_empty() {
            break;
        }
        driver.act();
    }
    driver.lab.end();
}

/// Returns the address and length of the buffer for a command's reply.
fn replies_of(opcode: Opcode) -> (u64, u64) {
    if opcode == Opcode::CM_GET_EVENT { (LONG_REPLIES, 0x400) } else { (REPLIES, 0x100) }
}

/// The layout of the driver's memory. Each ring has 0x300 bytes.
const RINGS: u64 = 0;
const CHANNELS: [u16; 3] = [3, 4, 5];
const SLOTS: u64 = 0x1200;
const REQUESTS: u64 = 0x2000;
const REPLIES: u64 = 0x2800;
/// For commands with a long reply.
const LONG_REPLIES: u64 = 0x10000;
const EVENTS: u64 = 0x2a00;
const AHS: u64 = 0x2c00;
const CQS: u64 = 0x3000;
const DATA: u64 = 0x4000;
/// The length of a channel's slots in bytes.
const WINDOW: u64 = 0x400;

/// A driver, and what it knows of its objects.
struct Driver<'a> {
    input: Input<'a>,
    lab: Rc<Lab>,
    /// The index of its guest.
    at: usize,
    /// The other guest does nothing.
    is_alone: bool,
    ram: Ram,
    /// The memory that the front-end announced last.
    memory: Arc<GuestMemory>,
    /// The control queue in the device; `None` until it is started again.
    queue: Option<Queue>,
    contexts: Vec<u32>,
    pds: Vec<u32>,
    cqs: Vec<u32>,
    keys: Vec<u32>,
    qpns: Vec<u32>,
    srqns: Vec<u32>,
    xrcdns: Vec<u32>,
    cookie: u64,
    /// The number of completions that it has taken, if it takes any.
    consumer: u32,
}

/// Commands before which earlier requests are executed.
///
/// This happens in turns of the worker, in which peers come and go too.
const TAKES_TURNS: [Opcode; 6] = [
    Opcode::MODIFY_QP,
    Opcode::DESTROY_QP,
    Opcode::MODIFY_SRQ,
    Opcode::DESTROY_SRQ,
    Opcode::UNBIND_CHANNEL,
    Opcode::RESIZE_CQ,
];
/// Commands that may end a connection.
const ENDS: [Opcode; 6] = [
    Opcode::CM_CLOSE_LISTENER,
    Opcode::CM_CONNECT,
    Opcode::CM_ACCEPT,
    Opcode::CM_REJECT,
    Opcode::CM_DISCONNECT,
    Opcode::CM_RELEASE,
];

fn ring(index: u16) -> Ring {
    Ring::at(index, 16, RINGS + 0x300 * u64::from(index))
}

impl<'a> Driver<'a> {
    /// Creates the driver of the first guest. The other guest does nothing.
    fn new(input: Input<'a>, lab: Lab) -> Driver<'a> {
        Driver::of(input, &Rc::new(lab), 0, true)
    }

    fn of(input: Input<'a>, lab: &Rc<Lab>, at: usize, is_alone: bool) -> Driver<'a> {
        let (lab, ram) = (lab.clone(), lab.guests[at].ram.clone());
        for &channel in &CHANNELS {
            for slot in 0..16u16 {
                let gpa = SLOTS + WINDOW * u64::from(channel - CHANNELS[0]) + 64 * u64::from(slot);
                ring(channel).put_descriptor(&ram, slot, (gpa, 64, 0, 0));
            }
        }
        let nothing = Vec::new;
        let mut driver = Driver {
            input,
            lab,
            at,
            is_alone,
            memory: ram.memory.clone(),
            ram,
            queue: None,
            contexts: vec![0],
            pds: nothing(),
            cqs: nothing(),
            keys: nothing(),
            qpns: nothing(),
            srqns: nothing(),
            xrcdns: nothing(),
            cookie: 0,
            consumer: 0,
        };
        driver.start();
        driver
    }

    /// The front-end starts the control and event queues, and a driver begins.
    fn start(&mut self) {
        for index in [queue::ASYNC_EVENTS, queue::FIRST_COMP_EVENTS] {
            self.ram.write(ring(index).avail, &[0; 0x200]);
            for slot in 0..16 {
                let gpa = EVENTS + 16 * (u64::from(index) * 16 + u64::from(slot)) - 256;
                ring(index).put_descriptor(&self.ram, slot, (gpa, Event::SIZE as u32, WRITE, 0));
                ring(index).offer(&self.ram, slot);
            }
            let (id, memory) = (self.lab.guests[self.at].id, self.memory.clone());
            with(|worker| worker.start_queue(id, &memory, ring(index).setup(), 0));
        }
        self.start_control();
        let id = self.lab.guests[self.at].id;
        with(|worker| worker.start_device(id, true, None));
        self.contexts = vec![0];
        let all =
            [&mut self.pds, &mut self.cqs, &mut self.keys, &mut self.qpns, &mut self.srqns, &mut self.xrcdns];
        for numbers in all {
            numbers.clear();
        }
    }

    /// Starts the control queue with intact rings.
    fn start_control(&mut self) {
        let ring = ring(queue::CONTROL);
        self.ram.write(ring.avail, &[0; 0x200]);
        self.queue = ring.setup().queue(0, &self.memory);
    }

    fn act(&mut self) {
        match self.input.byte() % 16 {
            0..=8 => self.command(),
            9 | 10 => self.post(),
            11 => with(Worker::take_turn),
            12 => {
                let time = Duration::from_nanos(1 << (self.input.byte() % 40));
                with(|worker| worker.pass(time));
                with(Worker::take_turn);
            }
            13 => {
                let base = self.input.pick(&[RINGS, 0x300, 0x900, 0xc00, SLOTS, AHS, CQS, DATA]);
                let at = base + self.input.below(0x300) as u64;
                self.ram.write(at, self.input.bytes(16));
            }
            14 => self.hostile(),
            _ => self.front_end(),
        }
    }

    /// Does what the VMM may do at any time.
    fn front_end(&mut self) {
        let id = self.lab.guests[self.at].id;
        let less = self.input.once_in(3);
        let memory = if less { self.ram.less.clone() } else { self.ram.memory.clone() };
        match self.input.byte() % 8 {
            0 => self.start(),
            1 => with(|worker| worker.suspend_device(id)),
            2 => with(|worker| worker.start_device(id, false, None)),
            3 | 4 => {
                self.memory = memory.clone();
                self.lab.remap(self.at, &memory);
            }
            5 => {
                let index = self.input.below(7) as u16;
                let base = with(|worker| worker.stop_queue(id, index));
                let base = self.input.near(base.unwrap_or_default().into()) as u16;
                with(|worker| worker.start_queue(id, &memory, ring(index).setup(), base));
            }
            6 => _ = with(|worker| worker.stop_queue(id, 4)),
            _ => {
                // Returns event buffers that the driver has taken.
                for index in [queue::ASYNC_EVENTS, queue::FIRST_COMP_EVENTS] {
                    let slot = self.input.below(16) as u16;
                    ring(index).offer(&self.ram, slot);
                }
            }
        }
    }

    /// Puts a chain of any shape into the control queue.
    fn hostile(&mut self) {
        let ring = ring(queue::CONTROL);
        for index in 0..self.input.below(5) as u16 {
            let gpa = match self.input.byte() % 4 {
                0 => self.input.quad(),
                1 => RINGS + u64::from(self.input.byte()),
                _ => REQUESTS + u64::from(self.input.word() % 0xa00),
            };
            let len = match self.input.byte() % 8 {
                0 => self.input.long(),
                _ => u32::from(self.input.byte()),
            };
            let (flags, next) = (self.input.byte() & 7, self.input.near(u32::from(index) + 1) as u16);
            ring.put_descriptor(&self.ram, index, (gpa, len, flags.into(), next));
        }
        self.ram.write(REQUESTS + 64 * self.input.below(4) as u64, self.input.bytes(32));
        ring.offer(&self.ram, self.input.near(0) as u16);
        if self.input.once_in(8) {
            self.ram.put16(ring.avail + 2, self.input.word());
        }
        self.serve();
        // The next command begins with intact rings, whatever was written there.
        self.start_control();
    }

    /// Returns the counts of a guest's objects that a command of another guest does not change.
    fn counts(&self, guest: usize) -> ObjectCounts {
        let counts = self.lab.counts(guest);
        ObjectCounts { connections: if self.is_alone { counts.connections } else { 0 }, ..counts }
    }

    /// Lets the device serve its control queue.
    fn serve(&mut self) {
        let Some(queue) = &mut self.queue else { return };
        let Config { limits, guests, .. } = &self.lab.config;
        let keep_alive = &KeepAlive::after(0);
        let virtqueue = &|index: u16| CHANNELS.contains(&index).then(|| ring(index).setup());
        let guest = &guests[self.at];
        let caller = Caller { memory: &self.memory, limits, guest, keep_alive, virtqueue };
        let id = self.lab.guests[self.at].id;
        let execute = |job| {
            let (done, answer) = crossbeam_channel::bounded(1);
            with(|worker| worker.execute_in_order(id, job, move |result| drop(done.send(result))));
            inline::wait(&answer).expect("a command is answered")
        };
        let result = serve(queue, &caller, execute);
        if result.is_err() {
            self.queue = None;
        }
    }

    /// Executes a command in a valid chain. Returns its status and the bytes of the reply.
    fn call(&mut self, opcode: Opcode, request: &[u8]) -> (Status, Vec<u8>) {
        let ring = ring(queue::CONTROL);
        let before = (self.ram.image(), self.counts(self.at), self.counts(1 - self.at));
        let cut = self.input.below(request.len());
        self.ram.write(REQUESTS, request);
        let (replies, room) = replies_of(opcode);
        let split = if self.input.once_in(4) { self.input.byte().into() } else { RespHeader::SIZE as u64 };
        let parts = [
            (REQUESTS, cut as u64, NEXT),
            (REQUESTS + cut as u64, (request.len() - cut) as u64, NEXT),
            (replies, split, NEXT | WRITE),
            (replies + split, room - split, WRITE),
        ];
        let used = ring.used_idx(&self.ram);
        for (index, (gpa, len, flags)) in (0u16..).zip(parts) {
            ring.put_descriptor(&self.ram, index, (gpa, len as u32, flags, index + 1));
        }
        ring.offer(&self.ram, 0);
        let offered = self.ram.image();
        self.serve();
        if self.queue.is_none() || ring.used_idx(&self.ram) != used.wrapping_add(1) {
            // The driver has overwritten the rings of its control queue meanwhile.
            self.start_control();
            return (Status::INTERNAL, Vec::new());
        }
        let (head, written) = ring.used_entry(&self.ram, used);
        let mut reply = vec![0; written as usize];
        self.ram.read_to(replies, &mut reply);
        let (header, reply) = RespHeader::read_from_prefix(&reply).expect("a reply has a header");
        let status = Status(header.status.get());
        assert_eq!((head, header.cookie.get()), (0, self.cookie), "the answer to another command");
        assert!(status.0 <= Status::TOO_LARGE.0 && status != Status::INTERNAL, "status {}", status.0);
        self.check(opcode, status, &offered);
        if status != Status::OK {
            let (mut now, mut before) = (self.counts(self.at), before.1);
            if TAKES_TURNS.contains(&opcode) {
                (now.connections, before.connections) = (0, 0);
            }
            assert_eq!(now, before, "{} refused with {}, and changed something", opcode.0, status.0);
            assert!(reply.is_empty());
        }
        assert_eq!(self.counts(1 - self.at), before.2, "the other guest's objects");
        (status, reply.to_vec())
    }

    /// Checks what memory a command changed.
    ///
    /// It does not check commands that take turns, or that may end a connection, since these flush
    /// requests of the QP.
    fn check(&self, opcode: Opcode, status: Status, before: &Image) {
        if TAKES_TURNS.contains(&opcode) || ENDS.contains(&opcode) || !self.is_alone {
            return;
        }
        let mut allowed = vec![ring(queue::CONTROL).used_part(), replies_of(opcode)];
        if opcode == Opcode::BIND_CHANNEL && status == Status::OK {
            allowed.extend(CHANNELS.map(|channel| (ring(channel).used, 2)));
        }
        self.ram.assert_same_but(before, &allowed, format_args!("command {}", opcode.0));
    }

    /// Posts requests to a channel, bound or not.
    fn post(&mut self) {
        let ring = ring(self.input.pick(&CHANNELS));
        for _ in 0..1 + self.input.below(4) {
            let slot = (ring.avail_idx(&self.ram) % 16) as u64;
            let gpa = SLOTS + WINDOW * u64::from(ring.index - CHANNELS[0]) + 64 * slot;
            let objects = request::Objects {
                qpns: &self.qpns,
                srqns: &self.srqns,
                keys: &self.keys,
                iova: command::IOVA,
                length: 0x1000,
                peer: &self.qpns,
                peer_keys: &self.keys,
            };
            let words = request::request(&mut self.input, &objects, 1);
            self.ram.write(gpa, &words.as_bytes()[..64]);
            let slot = self.input.near(slot as u32) as u16;
            ring.offer(&self.ram, slot);
        }
    }
}
