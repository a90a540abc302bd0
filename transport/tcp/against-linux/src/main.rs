use std::collections::BinaryHeap;
use std::cmp::Reverse;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant as Clock};
use vrdma_tcp::*;
use vrdma_wire::checksum::Sum;
use vrdma_wire::num::Gid;
use vrdma_wire::tcp::{self, Header};

const US: [u8; 4] = [10, 9, 0, 2];
const THEM: [u8; 4] = [10, 9, 0, 1];

fn byte(place: u64) -> u8 { (place.wrapping_mul(0x9e3779b9) >> 13) as u8 }

struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn chance(&mut self, permyriad: u64) -> bool { self.next() % 10_000 < permyriad }
}

fn tun() -> i32 {
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWNET), 0);
        let fd = libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR | libc::O_NONBLOCK);
        assert!(fd >= 0, "no tun");
        let mut request = [0u8; 40];
        request[..4].copy_from_slice(b"tun0");
        request[16..18].copy_from_slice(&(0x1001u16).to_ne_bytes());
        assert_eq!(libc::ioctl(fd, 0x400454ca, request.as_mut_ptr()), 0);
        fd
    }
}

fn ip(args: &str) {
    assert!(std::process::Command::new("ip").args(args.split(' ')).status().unwrap().success(), "{args}");
}

struct Stream { end: u64, mss: u64 }
impl Source for Stream {
    fn segment_at(&mut self, offset: u64, most: u32) -> u32 {
        self.end.saturating_sub(offset).min(self.mss).min(most.into()) as u32
    }
}

fn kernel(mut stream: TcpStream, theirs: u64, ours: u64) {
    let mut reader = stream.try_clone().unwrap();
    let read = std::thread::spawn(move || {
        let mut buf = vec![0; 65536];
        let mut got = 0u64;
        loop {
            let n = reader.read(&mut buf).unwrap();
            if n == 0 { break }
            for (i, b) in buf[..n].iter().enumerate() { assert_eq!(*b, byte(got + i as u64)); }
            got += n as u64;
        }
        assert_eq!(got, ours, "kernel got all of ours");
    });
    let mut sent = 0;
    while sent < theirs {
        let n = (theirs - sent).min(50_000);
        let data: Vec<u8> = (sent..sent + n).map(byte).collect();
        stream.write_all(&data).unwrap();
        sent += n;
    }
    stream.shutdown(Shutdown::Write).unwrap();
    read.join().unwrap();
}

fn packet(segment: &Segment) -> Vec<u8> {
    let data: Vec<u8> = segment.data.clone().map(byte).collect();
    let mut packet = vec![0; 20 + tcp::MAX_LEN];
    let length = segment.header.emit(Gid::from_ipv4(US), Gid::from_ipv4(THEM), Sum::of(&data), &mut packet[20..]);
    packet.truncate(20 + length);
    packet.extend_from_slice(&data);
    let total = (packet.len() as u16).to_be_bytes();
    packet[..12].copy_from_slice(&[0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 6, 0, 0]);
    packet[12..16].copy_from_slice(&US);
    packet[16..20].copy_from_slice(&THEM);
    let checksum = Sum::of(&packet[..20]).finish().to_be_bytes();
    packet[10..12].copy_from_slice(&checksum);
    packet
}

fn run(fd: i32, seed: u64, we_connect: bool, loss: u64, reorder: u64, dup: u64, ours: u64, theirs: u64, port: u16, mtu: u16) {
    let mut rng = Rng(seed);
    let start = Clock::now();
    let now = || Instant(1_000_000_000 + start.elapsed().as_nanos() as u64);
    let config = Config { mss: mtu - 40, window: 2 << 20, min_rto: Duration::from_millis(200), time_wait: Duration::from_millis(300), ..Config::default() };
    let mut connection = None;
    let thread = if we_connect {
        let listener = TcpListener::bind((std::net::Ipv4Addr::from(THEM), port)).unwrap();
        let c = Connection::connect(config, Ports { local: port + 1, remote: port }, rng.next() as u32, rng.next() as u32, now());
        connection = Some(c);
        std::thread::spawn(move || kernel(listener.accept().unwrap().0, theirs, ours))
    } else {
        std::thread::spawn(move || kernel(TcpStream::connect((std::net::Ipv4Addr::from(US), port)).unwrap(), theirs, ours))
    };
    let mut stream = Stream { end: ours, mss: u64::from(mtu) };
    let mut late: BinaryHeap<Reverse<(Instant, u64, bool, Vec<u8>)>> = BinaryHeap::new();
    let mut count = 0;
    let mut buf = vec![0; 65536];
    let mut events = Vec::new();
    let mut took = Duration::ZERO;
    loop {
        let mut arrived = Vec::new();
        loop {
            let n = unsafe { libc::read(fd, buf.as_mut_ptr().cast(), buf.len()) };
            if n <= 0 { break }
            let p = buf[..n as usize].to_vec();
            if p[0] >> 4 != 4 || p[9] != 6 { continue }
            if rng.chance(loss) { continue }
            if rng.chance(dup) { arrived.push(p.clone()) }
            if rng.chance(reorder) { count += 1; late.push(Reverse((now().add_ns(rng.next() % 3_000_000), count, true, p))); continue }
            arrived.push(p);
            if arrived.len() > 64 { break }
        }
        while let Some(Reverse((at, ..))) = late.peek() && *at <= now() {
            let Reverse((_, _, to_us, p)) = late.pop().unwrap();
            if to_us { arrived.push(p) } else { unsafe { libc::write(fd, p.as_ptr().cast(), p.len()); } }
        }
        for p in arrived {
            let total = u16::from_be_bytes([p[2], p[3]]) as usize;
            let segment = &p[20..total];
            assert!(tcp::is_sound(Gid::from_ipv4(THEM), Gid::from_ipv4(US), segment));
            let (header, data) = Header::parse(segment).unwrap();
            if header.dst_port != port + u16::from(we_connect) { continue }
            if connection.is_none() {
                if header.flags != vrdma_wire::tcp::Flags::SYN && header.flags.0 & 2 == 0 { continue }
                connection = Some(Connection::accept(config, &header, rng.next() as u32, rng.next() as u32, now()));
            }
            let mut take = |a: Arrival| {
                for (i, b) in data[a.at.clone()].iter().enumerate() { assert_eq!(*b, byte(a.offset + i as u64)); }
                a.at.len()
            };
            connection.as_mut().unwrap().handle_segment(now(), &header, data.len(), &mut take);
        }
        if let Some(c) = &mut connection {
            if c.poll_timeout().is_some_and(|at| at <= now()) { c.handle_timeout(now()); }
            if c.sent() == ours && c.state() != State::SynSent { c.close(); }
            for _ in 0..64 {
                let Some(s) = c.poll_transmit(now(), &mut stream) else { break };
                let p = packet(&s);
                if rng.chance(loss) { continue }
                if rng.chance(reorder) { count += 1; late.push(Reverse((now().add_ns(rng.next() % 3_000_000), count, false, p))); continue }
                for _ in 0..1 + u8::from(rng.chance(dup)) { unsafe { libc::write(fd, p.as_ptr().cast(), p.len()); } }
            }
            if c.acknowledged() == ours && took.is_zero() { took = start.elapsed(); }
            while let Some(e) = c.poll_event() { events.push(e); }
            if events.iter().any(|e| matches!(e, Event::Closed(_))) { break }
        }
        let mut due = Duration::from_millis(20);
        if let Some(at) = connection.as_ref().and_then(|c| c.poll_timeout()) { due = due.min(Duration::from_nanos(at.0.saturating_sub(now().0))); }
        if let Some(Reverse((at, ..))) = late.peek() { due = due.min(Duration::from_nanos(at.0.saturating_sub(now().0))); }
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        unsafe { libc::poll(&mut poll, 1, due.as_millis() as i32); }
        assert!(start.elapsed() < Duration::from_secs(120), "too long: {:?}", connection);
    }
    thread.join().unwrap();
    let c = connection.unwrap();
    assert_eq!((c.complete(), c.acknowledged()), (theirs, ours));
    println!("{} loss {loss} reorder {reorder} dup {dup} ours {ours} theirs {theirs} mtu {mtu}: {events:?} acked after {took:?} ({:.2} Gb/s) {:?}",
        if we_connect { "connect" } else { "accept " }, ours as f64 * 8.0 / took.as_secs_f64() / 1e9,
        c.counters().iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>());
}

trait AddNs { fn add_ns(self, n: u64) -> Self; }
impl AddNs for Instant { fn add_ns(self, n: u64) -> Self { Instant(self.0 + n) } }

fn main() {
    let fd = tun();
    for (i, mtu) in [1500u16, 9000].into_iter().enumerate() {
        ip("link set lo up");
        if i == 0 { ip("addr add 10.9.0.1/24 dev tun0"); }
        ip(&format!("link set tun0 mtu {mtu} up"));
        let mut port = 7000 + 1000 * i as u16;
        for (loss, reorder, dup) in [(0, 0, 0), (10, 0, 0), (100, 0, 0), (500, 0, 0), (0, 100, 0), (0, 0, 500), (100, 100, 100)] {
            for we_connect in [true, false] {
                for (ours, theirs) in [(20 << 20, 0), (0, 20 << 20), (5 << 20, 5 << 20)] {
                    let scale = if loss >= 500 { 10 } else { 1 };
                    run(fd, port.into(), we_connect, loss, reorder, dup, ours / scale, theirs / scale, port, mtu);
                    port += 2;
                }
            }
        }
    }
    println!("all passed");
}
