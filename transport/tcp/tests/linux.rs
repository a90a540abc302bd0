//! Conversations with Linux's TCP, over a TUN device that loses, delays and doubles packets: both directions, either side as the one that connects, two
//! sizes of packets. Wants root, for a network namespace of its own.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this test is what drives the connection: it has a clock and a network"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant as Clock};
use vrdma_tcp::{Arrival, Config, Connection, Event, Instant, Ports, Reason, Segment, Source, State};
use vrdma_wire::checksum::Sum;
use vrdma_wire::num::Gid;
use vrdma_wire::tcp::{self, Flags, Header};

const OURS: [u8; 4] = [10, 9, 0, 2];
const THEIRS: [u8; 4] = [10, 9, 0, 1];
const IP_HEADER: usize = 20;

/// The byte of a stream at a place.
fn byte(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

fn check(first: u64, data: &[u8]) {
    for (place, byte_there) in (first..).zip(data) {
        assert_eq!(*byte_there, byte(place), "the stream at {place}");
    }
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn chance(&mut self, of_10_000: u64) -> bool {
        self.next() % 10_000 < of_10_000
    }
}

/// A TUN device in a network namespace of its own, which threads that this one starts are in too. None without root.
fn tun() -> Option<File> {
    // SAFETY: a plain system call, of this thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return None;
    }
    let file =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun").ok()?;
    // A `struct ifreq`: the name, then the flags.
    let mut request = [0u8; 40];
    request[..4].copy_from_slice(b"tun0");
    let flags = libc::IFF_TUN | libc::IFF_NO_PI;
    request[16..18].copy_from_slice(&(flags as u16).to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes a `struct ifreq`, which is 40 bytes, and `request` has them.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, request.as_mut_ptr()) };
    assert_eq!(result, 0, "a TUN device");
    Some(file)
}

fn ip(arguments: &str) {
    assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
}

/// Waits until there are packets, or for a time.
fn wait(tun: &File, time: Duration) {
    let mut poll = libc::pollfd { fd: tun.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which lives across the call.
    unsafe { libc::poll(&raw mut poll, 1, time.as_millis() as i32) };
}

/// What happens to packets, each in 10,000.
#[derive(Clone, Copy, Debug)]
struct Path {
    loss: u64,
    reordering: u64,
    duplication: u64,
}

#[derive(Clone, Copy, Debug)]
struct Conversation {
    path: Path,
    mtu: u16,
    we_connect: bool,
    we_send: u64,
    they_send: u64,
    port: u16,
}

/// What the stream is cut into.
struct Cuts {
    end: u64,
    mss: u64,
}

impl Source for Cuts {
    fn segment_at(&mut self, offset: u64, most: u32) -> u32 {
        self.end.saturating_sub(offset).min(self.mss).min(most.into()) as u32
    }
}

/// The other end: a socket of Linux, whose reader and writer wait.
fn linux(conversation: Conversation) -> JoinHandle<()> {
    let Conversation { we_connect, we_send, they_send, port, .. } = conversation;
    let listener = we_connect.then(|| TcpListener::bind((Ipv4Addr::from(THEIRS), port)).unwrap());
    thread::spawn(move || {
        let mut stream = match listener {
            Some(listener) => listener.accept().unwrap().0,
            None => TcpStream::connect((Ipv4Addr::from(OURS), port)).unwrap(),
        };
        let mut reader = stream.try_clone().unwrap();
        let read = thread::spawn(move || {
            let (mut buffer, mut got) = (vec![0; 65536], 0);
            loop {
                let length = reader.read(&mut buffer).unwrap();
                if length == 0 {
                    break;
                }
                check(got, &buffer[..length]);
                got += length as u64;
            }
            assert_eq!(got, we_send, "Linux has all of ours");
        });
        let mut sent = 0;
        while sent < they_send {
            let length = (they_send - sent).min(50_000);
            let data: Vec<u8> = (sent..sent + length).map(byte).collect();
            stream.write_all(&data).unwrap();
            sent += length;
        }
        stream.shutdown(Shutdown::Write).unwrap();
        read.join().unwrap();
    })
}

fn packet(segment: &Segment) -> Vec<u8> {
    let data: Vec<u8> = segment.data.clone().map(byte).collect();
    let mut packet = vec![0; IP_HEADER + tcp::MAX_LEN];
    let addresses = (Gid::from_ipv4(OURS), Gid::from_ipv4(THEIRS));
    let length = segment.header.emit(addresses.0, addresses.1, Sum::of(&data), &mut packet[IP_HEADER..]);
    packet.truncate(IP_HEADER + length);
    packet.extend_from_slice(&data);
    let total = (packet.len() as u16).to_be_bytes();
    packet[..12].copy_from_slice(&[0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 6, 0, 0]);
    packet[12..16].copy_from_slice(&OURS);
    packet[16..20].copy_from_slice(&THEIRS);
    let checksum = Sum::of(&packet[..IP_HEADER]).finish().to_be_bytes();
    packet[10..12].copy_from_slice(&checksum);
    packet
}

/// When it is due, its number, whether it is for us, and its bytes.
type Late = (Instant, u64, bool, Vec<u8>);

struct Near {
    tun: File,
    rng: Rng,
    start: Clock,
    conversation: Conversation,
    config: Config,
    connection: Option<Connection>,
    late: BinaryHeap<Reverse<Late>>,
    delayed: u64,
}

impl Near {
    fn now(&self) -> Instant {
        Instant(1_000_000_000 + self.start.elapsed().as_nanos() as u64)
    }

    /// How often a packet goes on now. One that is to come late goes on then.
    fn fate(&mut self, for_us: bool, packet: &[u8]) -> u32 {
        let Path { loss, reordering, duplication } = self.conversation.path;
        if self.rng.chance(loss) {
            return 0;
        }
        if self.rng.chance(reordering) {
            let due = Instant(self.now().0 + self.rng.next() % 3_000_000);
            self.delayed += 1;
            self.late.push(Reverse((due, self.delayed, for_us, packet.to_vec())));
            return 0;
        }
        1 + u32::from(self.rng.chance(duplication))
    }

    fn write(&mut self, packet: &[u8]) {
        // A full queue loses packets, as networks do.
        let _ = self.tun.write(packet);
    }

    fn receive(&mut self) {
        let mut buffer = vec![0; 65536];
        for _ in 0..64 {
            let Ok(length) = self.tun.read(&mut buffer) else { break };
            let packet = &buffer[..length];
            let is_tcp = packet[0] >> 4 == 4 && packet[9] == 6;
            if is_tcp {
                for _ in 0..self.fate(true, packet) {
                    self.take(packet);
                }
            }
        }
        while let Some(Reverse((due, ..))) = self.late.peek()
            && *due <= self.now()
        {
            let Reverse((_, _, for_us, packet)) = self.late.pop().expect("it was looked at");
            if for_us { self.take(&packet) } else { self.write(&packet) }
        }
    }

    fn take(&mut self, packet: &[u8]) {
        let now = self.now();
        let segment = &packet[IP_HEADER..usize::from(u16::from_be_bytes([packet[2], packet[3]]))];
        assert!(tcp::is_sound(Gid::from_ipv4(THEIRS), Gid::from_ipv4(OURS), segment), "Linux's checksum");
        let (header, data) = Header::parse(segment).expect("Linux's segment");
        if header.dst_port != self.conversation.port + u16::from(self.conversation.we_connect) {
            return; // Of the conversation before.
        }
        if self.connection.is_none() {
            if !header.flags.has(Flags::SYN) {
                return;
            }
            let (initial, clock) = (self.rng.next() as u32, self.rng.next() as u32);
            self.connection = Some(Connection::accept(self.config, &header, initial, clock, now));
        }
        let mut take = |arrival: Arrival| {
            check(arrival.offset, &data[arrival.at.clone()]);
            arrival.at.len()
        };
        self.connection.as_mut().expect("made above").handle_segment(now, &header, data.len(), &mut take);
    }

    fn transmit(&mut self) {
        let Conversation { we_send, mtu, .. } = self.conversation;
        let mut cuts = Cuts { end: we_send, mss: mtu.into() };
        for _ in 0..64 {
            let now = self.now();
            let Some(segment) =
                self.connection.as_mut().and_then(|connection| connection.poll_transmit(now, &mut cuts))
            else {
                break;
            };
            let packet = packet(&segment);
            for _ in 0..self.fate(false, &packet) {
                self.write(&packet);
            }
        }
    }

    /// Until the next deadline, or a little while.
    fn sleep(&self) {
        let now = self.now();
        let deadline = self.connection.as_ref().and_then(Connection::poll_timeout);
        let late = self.late.peek().map(|Reverse((due, ..))| *due);
        let due =
            deadline.into_iter().chain(late).map(|due| Duration::from_nanos(due.0.saturating_sub(now.0)));
        wait(&self.tun, due.fold(Duration::from_millis(20), Duration::min));
    }
}

fn converse(tun: &File, conversation: Conversation) {
    let Conversation { mtu, we_connect, we_send, they_send, port, .. } = conversation;
    let config = Config {
        mss: mtu - 40,
        window: 2 << 20,
        min_rto: Duration::from_millis(200),
        time_wait: Duration::from_millis(300),
        ..Config::default()
    };
    let mut near = Near {
        tun: tun.try_clone().unwrap(),
        rng: Rng(port.into()),
        start: Clock::now(),
        conversation,
        config,
        connection: None,
        late: BinaryHeap::new(),
        delayed: 0,
    };
    let linux = linux(conversation);
    if we_connect {
        let (initial, clock) = (near.rng.next() as u32, near.rng.next() as u32);
        let ports = Ports { local: port + 1, remote: port };
        near.connection = Some(Connection::connect(config, ports, initial, clock, near.now()));
    }
    let mut closed = None;
    while closed.is_none() {
        near.receive();
        let now = near.now();
        if let Some(connection) = &mut near.connection {
            if connection.poll_timeout().is_some_and(|due| due <= now) {
                connection.handle_timeout(now);
            }
            if connection.sent() == we_send && connection.state() != State::SynSent {
                connection.close();
            }
        }
        near.transmit();
        while let Some(event) = near.connection.as_mut().and_then(Connection::poll_event) {
            if let Event::Closed(reason) = event {
                closed = Some(reason);
            }
        }
        near.sleep();
        assert!(
            near.start.elapsed() < Duration::from_secs(120),
            "no end: {conversation:?} {:?}",
            near.connection
        );
    }
    linux.join().unwrap();
    let connection = near.connection.expect("it was closed");
    assert_eq!(closed, Some(Reason::Finished), "{conversation:?}");
    assert_eq!((connection.complete(), connection.acknowledged()), (they_send, we_send), "{conversation:?}");
    let counters = connection.counters();
    let counted: Vec<_> = counters.iter().filter(|(_, count)| *count > 0).collect();
    println!("{conversation:?}, {:?}: {counted:?}", near.start.elapsed());
}

#[test]
#[ignore = "long"]
fn streams_to_and_from_linux_are_whole() {
    let Some(tun) = tun() else {
        // Past the capture of what tests print, which shows nothing of those that pass.
        let _ = writeln!(
            std::io::stderr(),
            "TCP with Linux: skipped: a network namespace and a TUN device need root"
        );
        return;
    };
    ip("link set lo up");
    ip("addr add 10.9.0.1/24 dev tun0");
    let mut port = 7000;
    for mtu in [1500, 9000] {
        ip(&format!("link set tun0 mtu {mtu} up"));
        for (loss, reordering, duplication) in
            [(0, 0, 0), (10, 0, 0), (100, 0, 0), (500, 0, 0), (0, 100, 0), (0, 0, 500), (100, 100, 100)]
        {
            for we_connect in [true, false] {
                for (we_send, they_send) in [(20 << 20, 0), (0, 20 << 20), (5 << 20, 5 << 20)] {
                    let path = Path { loss, reordering, duplication };
                    let less = if loss >= 500 { 10 } else { 1 };
                    let (we_send, they_send) = (we_send / less, they_send / less);
                    converse(&tun, Conversation { path, mtu, we_connect, we_send, they_send, port });
                    port += 2;
                }
            }
        }
    }
}
