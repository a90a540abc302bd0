//! A hostile driver: its memory, its rings, and how it executes commands.

use crate::command::{Caller, serve};
use crate::config::Config;
use crate::device::counters::ObjectCounts;
use crate::fuzzing::guest::{Image, NEXT, Ram, Ring, WRITE};
use crate::fuzzing::input::Input;
use crate::fuzzing::lab::{Lab, with};
use crate::memory::GuestMemory;
use crate::tcp::KeepAlive;
use crate::worker::inline;
use std::rc::Rc;
use std::sync::Arc;
use virtio_queue::Queue;
use vrdma_abi::config::queue;
use vrdma_abi::control::{Opcode, RespHeader, Status};
use vrdma_abi::event::Event;
use vrdma_abi::zerocopy::FromBytes;

/// The layout of the driver's memory. Each ring has 0x300 bytes.
pub(super) const RINGS: u64 = 0;
pub(super) const CHANNELS: [u16; 3] = [3, 4, 5];
pub(super) const SLOTS: u64 = 0x1200;
const REQUESTS: u64 = 0x2000;
const REPLIES: u64 = 0x2800;
/// For commands with a long reply.
const LONG_REPLIES: u64 = 0x10000;
const EVENTS: u64 = 0x2a00;
pub(super) const AHS: u64 = 0x2c00;
pub(super) const CQS: u64 = 0x3000;
pub(super) const DATA: u64 = 0x4000;
/// The length of a channel's slots in bytes.
pub(super) const WINDOW: u64 = 0x400;

/// A driver, and what it knows of its objects.
pub(super) struct GuestDriver<'a> {
    pub(super) input: Input<'a>,
    pub(super) lab: Rc<Lab>,
    /// The index of its guest.
    pub(super) at: usize,
    /// The other guest does nothing.
    is_alone: bool,
    pub(super) ram: Ram,
    /// The memory that the front-end announced last.
    pub(super) memory: Arc<GuestMemory>,
    /// The control queue in the device; `None` until it is started again.
    queue: Option<Queue>,
    pub(super) contexts: Vec<u32>,
    pub(super) pds: Vec<u32>,
    pub(super) cqs: Vec<u32>,
    pub(super) keys: Vec<u32>,
    pub(super) qpns: Vec<u32>,
    pub(super) srqns: Vec<u32>,
    pub(super) xrcdns: Vec<u32>,
    pub(super) cookie: u64,
    /// The number of completions that it has taken, if it takes any.
    pub(super) consumer: u32,
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

impl<'a> GuestDriver<'a> {
    /// Creates the driver of the first guest. The other guest does nothing.
    pub(super) fn new(input: Input<'a>, lab: Lab) -> GuestDriver<'a> {
        GuestDriver::of(input, &Rc::new(lab), 0, true)
    }

    pub(super) fn of(input: Input<'a>, lab: &Rc<Lab>, at: usize, is_alone: bool) -> GuestDriver<'a> {
        let (lab, ram) = (lab.clone(), lab.guests[at].ram.clone());
        for &channel in &CHANNELS {
            for slot in 0..16u16 {
                let gpa = SLOTS + WINDOW * u64::from(channel - CHANNELS[0]) + 64 * u64::from(slot);
                ring(channel).put_descriptor(&ram, slot, (gpa, 64, 0, 0));
            }
        }
        let nothing = Vec::new;
        let mut driver = GuestDriver {
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
    pub(super) fn start(&mut self) {
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

    /// Puts a chain of any shape into the control queue.
    pub(super) fn hostile(&mut self) {
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
    pub(super) fn call(&mut self, opcode: Opcode, request: &[u8]) -> (Status, Vec<u8>) {
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
}

pub(super) fn ring(index: u16) -> Ring {
    Ring::at(index, 16, RINGS + 0x300 * u64::from(index))
}

/// Returns the address and length of the buffer for a command's reply.
fn replies_of(opcode: Opcode) -> (u64, u64) {
    if opcode == Opcode::CM_GET_EVENT { (LONG_REPLIES, 0x400) } else { (REPLIES, 0x100) }
}
