//! A VMM that sends anything in any order, and leaves at any moment.
//!
//! Shows: hostile-guest.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use vhost::vhost_user::message::FrontendReq as Request;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;
use vrdma_tests::memory::Memory;
use vrdma_tests::net::{NetGuest, NetOptions, feature, mac};
use vrdma_tests::pingpong::{Canary, PingPong};
use vrdma_tests::{Lab, LabOptions, Rng, proc, wait};

/// The function that a front-end connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Rdma,
    Ethernet,
}
use Function::{Ethernet, Rdma};

impl Function {
    fn socket(self, lab: &Lab) -> PathBuf {
        if self == Rdma { lab.socket(0) } else { lab.net_socket(0) }
    }

    fn queues(self) -> u64 {
        if self == Rdma { 2 + 2 + 13 } else { 2 }
    }

    /// Returns `VERSION_1`, `PROTOCOL_FEATURES` and `EVENT_IDX`.
    ///
    /// For Ethernet, it adds `INDIRECT_DESC`, `MRG_RXBUF` and all offloads.
    fn features(self) -> u64 {
        1 << 32 | 1 << 30 | 1 << 29 | if self == Rdma { 0 } else { feature::ALL }
    }

    /// Returns `REPLY_ACK` and `CONFIGURE_MEM_SLOTS`, and for RDMA also `MQ` and `CONFIG`.
    fn protocol_features(self) -> u64 {
        1 << 3 | 1 << 15 | if self == Rdma { 1 << 0 | 1 << 9 } else { 0 }
    }
}

/// A vhost-user message as sent over the socket.
#[derive(Clone, Debug)]
struct Message {
    bytes: Vec<u8>,
    fds: Vec<RawFd>,
}

fn message(request: impl Into<u32>, flags: u32, payload: &[u8], fds: &[RawFd]) -> Message {
    let header = [request.into(), flags, payload.len() as u32].map(u32::to_le_bytes).concat();
    Message { bytes: [&header, payload].concat(), fds: fds.to_vec() }
}

/// The parts from which messages are made.
struct Parts {
    function: Function,
    rng: Rng,
    memory: Arc<Memory>,
    events: Vec<EventFd>,
    others: Vec<OwnedFd>,
}

impl Parts {
    fn new(function: Function, rng: Rng) -> Parts {
        let memory = Memory::new(&[(0x1000, 1 << 20), (0x40_0000, 1 << 20)]).unwrap();
        let events = (0..8).map(|_| EventFd::new(EFD_NONBLOCK).unwrap()).collect();
        let (one, two) = UnixStream::pair().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let others = vec![one.into(), two.into(), reader.into(), writer.into(), null.into()];
        Parts { function, rng, memory, events, others }
    }

    fn any_fd(&mut self) -> RawFd {
        match self.rng.below(4) {
            0 => self.memory.fd(),
            1 => self.rng.pick(&self.others).as_raw_fd(),
            _ => self.rng.pick(&self.events).as_raw_fd(),
        }
    }

    fn queue(&mut self) -> u64 {
        if self.rng.one_in(10) { self.rng.nasty() } else { self.rng.below(self.function.queues()) }
    }

    /// Returns an entry of a memory table: GPA, length, address, offset.
    fn region(&mut self) -> Vec<u8> {
        let region = *self.rng.pick(self.memory.regions());
        let mut words = [region.gpa, region.len, region.front_end_addr(), region.offset];
        if self.rng.one_in(8) {
            words[self.rng.below(4) as usize] = self.rng.nasty();
        }
        words.map(u64::to_le_bytes).concat()
    }

    /// Returns an address at which a ring could be.
    fn address(&mut self) -> u64 {
        if self.rng.one_in(10) {
            return self.rng.nasty();
        }
        let region = *self.rng.pick(self.memory.regions());
        region.front_end_addr() + (self.rng.below(region.len) & !63)
    }

    /// Returns 32-bit words as bytes.
    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| (*word as u32).to_le_bytes()).collect()
    }

    /// Returns a well-formed message that sets something up, perhaps with nonsensical values.
    fn sensible(&mut self) -> (Request, Vec<u8>, Vec<RawFd>) {
        let queue = self.queue();
        let event = |parts: &mut Parts| match parts.rng.below(8) {
            0 => (queue | 0x100, vec![]),
            1 => (queue, vec![parts.any_fd()]),
            _ => (queue, vec![parts.rng.pick(&parts.events).as_raw_fd()]),
        };
        match self.rng.below(24) {
            0 => (Request::GET_FEATURES, vec![], vec![]),
            1 => (
                Request::SET_FEATURES,
                self.rng.pick(&[1 << 32 | 1 << 30, self.function.features()]).to_le_bytes().to_vec(),
                vec![],
            ),
            2 => (Request::SET_OWNER, vec![], vec![]),
            3 if self.rng.one_in(5) => (Request::RESET_OWNER, vec![], vec![]),
            3 | 4 => {
                let (first, second) = (self.memory.regions()[0], self.memory.regions()[1]);
                let mut payload = Self::words(&[2, 0]);
                for r in [first, second] {
                    payload
                        .extend([r.gpa, r.len, r.front_end_addr(), r.offset].map(u64::to_le_bytes).concat());
                }
                (Request::SET_MEM_TABLE, payload, vec![self.memory.fd(); 2])
            }
            5 => {
                let count = self.rng.below(4);
                let mut payload = Self::words(&[count, 0]);
                (0..count).for_each(|_| payload.extend(self.region()));
                (Request::SET_MEM_TABLE, payload, (0..count).map(|_| self.memory.fd()).collect())
            }
            6 | 7 => {
                let num = *self.rng.pick(&[2u64, 64, 256, 1024, 3, 0, 4096, 1 << 31]);
                (Request::SET_VRING_NUM, Self::words(&[queue, num]), vec![])
            }
            8 | 9 => {
                let mut payload = Self::words(&[queue, 0]);
                for _ in 0..3 {
                    payload.extend(self.address().to_le_bytes());
                }
                payload.extend([0; 8]);
                (Request::SET_VRING_ADDR, payload, vec![])
            }
            10 => (Request::SET_VRING_BASE, Self::words(&[queue, self.rng.nasty() & 0xffff]), vec![]),
            11 => (Request::GET_VRING_BASE, Self::words(&[queue, 0]), vec![]),
            12 | 13 => {
                let (value, fds) = event(self);
                (Request::SET_VRING_KICK, value.to_le_bytes().to_vec(), fds)
            }
            14 | 15 => {
                let (value, fds) = event(self);
                (Request::SET_VRING_CALL, value.to_le_bytes().to_vec(), fds)
            }
            16 => {
                let (value, fds) = event(self);
                (Request::SET_VRING_ERR, value.to_le_bytes().to_vec(), fds)
            }
            17 | 18 => (Request::SET_VRING_ENABLE, Self::words(&[queue, self.rng.below(2)]), vec![]),
            19 => (
                *self.rng.pick(&[
                    Request::GET_PROTOCOL_FEATURES,
                    Request::GET_QUEUE_NUM,
                    Request::GET_MAX_MEM_SLOTS,
                ]),
                vec![],
                vec![],
            ),
            20 => (
                Request::SET_PROTOCOL_FEATURES,
                (self.rng.next_u64() & 0x8_a209).to_le_bytes().to_vec(),
                vec![],
            ),
            21 => {
                let request = *self.rng.pick(&[Request::GET_CONFIG, Request::SET_CONFIG]);
                let (offset, size) = (self.rng.nasty() & 0x1ff, self.rng.nasty() & 0x1ff);
                let mut payload = Self::words(&[offset, size, 0]);
                payload.resize(12 + size as usize, 0);
                (request, payload, vec![])
            }
            22 => (Request::RESET_DEVICE, vec![], vec![]),
            _ => {
                let request = *self.rng.pick(&[Request::ADD_MEM_REG, Request::REM_MEM_REG]);
                let payload = [&[0; 8], self.region().as_slice()].concat();
                let fds = if request == Request::ADD_MEM_REG { vec![self.memory.fd()] } else { vec![] };
                (request, payload, fds)
            }
        }
    }

    /// Returns any message: mostly a sensible one, often with something broken.
    fn any(&mut self) -> Message {
        let (request, mut payload, mut fds) = self.sensible();
        let mut request = u32::from(request);
        let mut flags = 1 | if self.rng.one_in(2) { 8 } else { 0 };
        if self.rng.one_in(4) {
            match self.rng.below(6) {
                0 => {
                    request = if self.rng.one_in(2) { self.rng.below(64) as u32 } else { self.rng.next_u32() }
                }
                1 => flags = self.rng.next_u32(),
                2 => payload.truncate(self.rng.below(payload.len() as u64 + 1) as usize),
                3 => payload.extend(self.rng.bytes(64)),
                4 => self.rng.fill(&mut payload),
                _ => fds = (0..self.rng.below(10)).map(|_| self.any_fd()).collect(),
            }
        }
        let mut message = message(request, flags, &payload, &fds);
        if self.rng.one_in(50) {
            // A size that differs from the payload's.
            let size = self.rng.nasty() as u32;
            message.bytes[8..12].copy_from_slice(&size.to_le_bytes());
        }
        message
    }

    /// Returns a front-end's messages from the first one until everything runs.
    fn complete_start(&mut self) -> Vec<Message> {
        let (flags, region) = (1 | 8, self.memory.regions()[0]);
        let word = |word: u64| word.to_le_bytes().to_vec();
        let mut table = Self::words(&[1, 0]);
        table.extend(
            [region.gpa, region.len, region.front_end_addr(), region.offset].map(u64::to_le_bytes).concat(),
        );
        let mut all = vec![
            message(Request::SET_OWNER, 1, &[], &[]),
            message(Request::GET_FEATURES, 1, &[], &[]),
            message(Request::GET_PROTOCOL_FEATURES, 1, &[], &[]),
            message(Request::SET_PROTOCOL_FEATURES, 1, &word(self.function.protocol_features()), &[]),
            message(Request::SET_FEATURES, flags, &word(self.function.features()), &[]),
            message(Request::SET_MEM_TABLE, flags, &table, &[self.memory.fd()]),
        ];
        for queue in 0..self.function.queues() {
            let at = region.front_end_addr() + queue * 0x4000;
            let mut addresses = Self::words(&[queue, 0]);
            addresses.extend([at, at + 0x2000, at + 0x1000, 0].map(u64::to_le_bytes).concat());
            let event = [self.events[0].as_raw_fd()];
            all.push(message(Request::SET_VRING_NUM, flags, &Self::words(&[queue, 64]), &[]));
            all.push(message(Request::SET_VRING_BASE, flags, &Self::words(&[queue, 0]), &[]));
            all.push(message(Request::SET_VRING_ADDR, flags, &addresses, &[]));
            all.push(message(Request::SET_VRING_CALL, flags, &word(queue), &event));
            all.push(message(Request::SET_VRING_KICK, flags, &word(queue), &event));
            all.push(message(Request::SET_VRING_ENABLE, flags, &Self::words(&[queue, 1]), &[]));
        }
        all
    }
}

/// Returns how many sent bytes the daemon has not read yet.
fn unread(stream: &UnixStream) -> libc::c_int {
    let mut bytes = 0;
    // SAFETY: the call writes one int.
    unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    bytes
}

/// Sends a message and waits until the daemon has read it.
///
/// Returns false if the daemon has closed the connection.
fn send(stream: &UnixStream, message: &Message) -> bool {
    let sent = stream.send_with_fds(&[message.bytes.as_slice()], &message.fds);
    wait::until("the daemon to take a message", || (unread(stream) == 0).then_some(()));
    // Read and ignore replies, so that the daemon is not blocked.
    let mut answers = [0; 4096];
    stream.set_nonblocking(true).unwrap();
    while matches!((&*stream).read(&mut answers), Ok(n) if n != 0) {}
    stream.set_nonblocking(false).unwrap();
    sent.is_ok()
}

fn connect(lab: &Lab, function: Function) -> UnixStream {
    let socket = function.socket(lab);
    let stream = wait::until("the daemon to accept", || UnixStream::connect(&socket).ok());
    stream.set_write_timeout(Some(wait::PATIENCE)).unwrap();
    stream
}

/// Starts a daemon as a process of its own, with a ping-pong between two bystanders.
///
/// Returns its numbers of descriptors and mappings, too.
fn lab() -> (Lab, PingPong, [Canary; 2], (usize, usize)) {
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_vrdma-test-daemon")));
    let mut lab = Lab::without_guests(3, LabOptions { program, ..LabOptions::default() });
    lab.guests = vec![lab.connect(1), lab.connect(2)];
    let canaries = [0, 1].map(|i| Canary::new(&lab.guests[i].memory, i as u64));
    let pingpong = PingPong::start(&lab.guests[0], &lab.guests[1]);
    let pid = lab.daemon.pid();
    let open = (proc::descriptors(pid), proc::guest_mappings(pid));
    (lab, pingpong, canaries, open)
}

/// Asserts that the daemon lives, has removed the guest, and accepts a well-behaved one.
fn expect_recovery(lab: &Lab, pingpong: PingPong, canaries: &[Canary], open: (usize, usize)) {
    lab.expect_nothing_left(0);
    let pid = lab.daemon.pid();
    let found = || (proc::descriptors(pid), proc::guest_mappings(pid));
    let same = wait::within(wait::PATIENCE, || (found().0 <= open.0 && found().1 <= open.1).then_some(()));
    assert!(same.is_some(), "{:?} descriptors and mappings, not {open:?}", found());
    let guest = lab.connect(0);
    assert!(guest.query_device().is_ok());
    let mut guest = NetGuest::connect(&lab.net_socket(0), NetOptions::default()).unwrap();
    guest.send(&[&mac(2)[..], &mac(1), &[0x88, 0xb5], &[0; 46]].concat());
    pingpong.stop();
    canaries.iter().for_each(Canary::check);
}

#[test]
fn ten_thousand_random_messages_hurt_nobody() {
    random_messages(Rdma);
}

#[test]
fn ten_thousand_random_messages_for_the_ethernet_function_hurt_nobody() {
    random_messages(Ethernet);
}

fn random_messages(function: Function) {
    let (lab, pingpong, canaries, open) = lab();
    let mut parts = Parts::new(function, Rng::from_env("ten_thousand_random_messages"));
    let (mut sent, mut connections) = (0, 0);
    while sent < 10_000 {
        let stream = connect(&lab, function);
        connections += 1;
        if parts.rng.one_in(2) {
            for message in parts.complete_start() {
                sent += 1;
                if !send(&stream, &message) {
                    break;
                }
            }
        }
        loop {
            sent += 1;
            if parts.rng.one_in(10) {
                // Garbage in the rings, and a kick.
                let region = *parts.rng.pick(parts.memory.regions());
                let at = region.gpa + (parts.rng.below(region.len - 4096) & !4095);
                let garbage = parts.rng.bytes(4096);
                parts.memory.write(at, &garbage);
                let _ = parts.rng.pick(&parts.events).write(1);
            }
            let message = parts.any();
            if !send(&stream, &message) || parts.rng.one_in(100) {
                break;
            }
        }
    }
    println!("{sent} messages in {connections} connections");
    expect_recovery(&lab, pingpong, &canaries, open);
}

#[test]
fn a_front_end_may_leave_after_each_message_and_within_it() {
    leave_everywhere(Rdma);
}

#[test]
fn a_front_end_may_leave_the_ethernet_function_at_any_time() {
    leave_everywhere(Ethernet);
}

fn leave_everywhere(function: Function) {
    let (lab, pingpong, canaries, open) = lab();
    let mut parts = Parts::new(function, Rng::from_env("a_front_end_may_leave"));
    let all = parts.complete_start();
    for last in 0..all.len() {
        for part in [false, true] {
            let stream = connect(&lab, function);
            for message in &all[..last] {
                assert!(send(&stream, message), "a decent front-end is not thrown out");
            }
            if part {
                // Part of the message: its header alone, or less.
                let mut cut = all[last].clone();
                cut.bytes.truncate(1 + parts.rng.below(cut.bytes.len() as u64 - 1) as usize);
                send(&stream, &cut);
            }
        }
    }
    expect_recovery(&lab, pingpong, &canaries, open);
}
