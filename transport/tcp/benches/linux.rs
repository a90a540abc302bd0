//! Compares our TCP with CUBIC of Linux, in turns, with one receiver and equal losses in the
//! network. Then two flows share one bottleneck.
//!
//! `cargo bench -p vrdma-tcp [-- SECONDS [NAME]]`: the seconds of each measurement, and which one
//! to run (`OursToLinux`, `LinuxToOurs`, `Jain`). It needs root, and two idle processors.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    missing_docs,
    reason = "a bench has a clock, a network and no users"
)]

#[path = "../tests/linux/host.rs"]
#[allow(dead_code, reason = "the test uses all of it")]
mod host;
#[path = "../tests/linux/link.rs"]
#[allow(dead_code, reason = "the test uses all of it")]
mod link;
#[path = "../tests/linux/net.rs"]
#[allow(dead_code, reason = "the test uses all of it")]
mod net;
#[path = "../tests/linux/ours.rs"]
#[allow(dead_code, reason = "the test uses all of it")]
mod ours;
#[path = "../tests/linux/rng.rs"]
#[allow(dead_code, reason = "the test uses all of it")]
mod rng;
#[path = "../tests/linux/stream.rs"]
#[allow(dead_code, reason = "the test uses all of it")]
mod stream;

use host::Linux;
use link::Path;
use net::Net;
use ours::{OURS, Ours};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use vrdma_tcp::Ports;

const MTU: u16 = 1500;
const ROUNDS: u64 = 4;
/// The time of a flow before it is measured.
const WARM_UP: Duration = Duration::from_millis(700);
/// The rate of the link in the first tables, in bytes per second: 1 Gbit/s.
const LINK: u64 = 125_000_000;
/// The bottleneck: 100 Mbit/s with a round trip of 10 ms, and a queue for one round trip.
const BOTTLENECK: Path = Path {
    loss: 0,
    reordering: 0,
    late: Duration::ZERO,
    duplication: 0,
    delay: Duration::from_millis(5),
    rate: 12_500_000,
    queue: 125_000,
    longest: 0,
};

/// Two Linux hosts, which communicate with each other and with ours.
struct Hosts {
    sender: Linux,
    receiver: Linux,
}

/// The sender and the receiver of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flow {
    OursToLinux,
    LinuxToOurs,
    LinuxToLinux,
}

/// The Linux sockets of a measurement.
#[derive(Default)]
struct Sockets {
    stop: Arc<AtomicBool>,
    received: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
}

impl Sockets {
    /// Accepts a connection and reads it.
    fn read(&mut self, host: &Linux, port: u16) {
        let listener = host.listen(port);
        let (stop, count) = (self.stop.clone(), Arc::new(AtomicU64::new(0)));
        self.received.push(count.clone());
        self.threads.push(host.spawn(move || read(&listener, &stop, &count)));
    }

    /// Connects, and sends for as long as the measurement lasts.
    fn write(&mut self, host: &Linux, to: Ipv4Addr, port: u16) {
        let stop = self.stop.clone();
        self.threads.push(host.spawn(move || write(to, port, &stop)));
    }

    fn received(&self, flow: usize) -> u64 {
        self.received[flow].load(Ordering::Relaxed)
    }
}

/// After this time a waiting thread checks whether the measurement is over.
const LOOK: Option<Duration> = Some(Duration::from_millis(50));

fn read(listener: &TcpListener, stop: &AtomicBool, count: &AtomicU64) {
    let Ok((mut stream, _)) = listener.accept() else { return };
    stream.set_read_timeout(LOOK).expect("a socket");
    let mut buffer = vec![0; 1 << 18];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => _ = count.fetch_add(length as u64, Ordering::Relaxed),
            Err(_) => {}
        }
    }
}

fn write(to: Ipv4Addr, port: u16, stop: &AtomicBool) {
    let Ok(mut stream) = TcpStream::connect((to, port)) else { return };
    host::use_cubic(&stream);
    stream.set_write_timeout(LOOK).expect("a socket");
    let mut place = 0;
    while !stop.load(Ordering::Relaxed) {
        match stream.write(stream::bytes(place, stream::MOST)) {
            Ok(length) => place += length as u64,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
    // Unsent data is discarded.
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = size_of::<libc::linger>() as libc::socklen_t;
    let (socket, option) = (stream.as_raw_fd(), (&raw const linger).cast());
    // SAFETY: the pointer is valid for `size` bytes, the length of the option.
    unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_LINGER, option, size) };
}

/// Runs the network for some time.
fn run(net: &mut Net<'_>, time: Duration) {
    let end = net.now() + time.as_nanos() as u64;
    while net.now() < end {
        net.turn();
    }
}

/// Ends a measurement: sends RSTs, and lets the threads end.
fn finish(mut net: Net<'_>, sockets: Sockets) {
    sockets.stop.store(true, Ordering::Relaxed);
    if let Some(connection) = &mut net.ours.connection {
        connection.abort();
    }
    while !sockets.threads.iter().all(JoinHandle::is_finished) {
        run(&mut net, Duration::from_millis(10));
    }
    run(&mut net, Duration::from_millis(30));
}

/// Measures a flow. Returns bytes per second, and the counters of our end.
fn measure(hosts: &Hosts, flow: Flow, path: Path, time: Duration, port: u16) -> (f64, String) {
    let back = Path { delay: path.delay, ..Path::default() };
    let (peer, ports) = match flow {
        Flow::LinuxToOurs => (&hosts.sender, Ports { local: port, remote: 0 }),
        _ => (&hosts.receiver, Ports { local: port, remote: port }),
    };
    let ours = Ours::new(ours::config(MTU), peer.address, ports);
    let seed = u64::from(port);
    let hosts_and_paths = [(&hosts.sender, back), (&hosts.receiver, path)];
    // Data is lost, whoever sends it, but no ACK is.
    let to_ours = if flow == Flow::LinuxToOurs { path } else { back };
    let mut net = Net::new(ours, to_ours, &hosts_and_paths, seed);
    let mut sockets = Sockets::default();
    match flow {
        Flow::OursToLinux => {
            sockets.read(&hosts.receiver, port);
            net.ours.end = u64::MAX >> 1;
            net.connect();
        }
        Flow::LinuxToOurs => sockets.write(&hosts.sender, OURS, port),
        Flow::LinuxToLinux => {
            sockets.read(&hosts.receiver, port);
            sockets.write(&hosts.sender, hosts.receiver.address, port);
        }
    }
    let received = |net: &Net<'_>, sockets: &Sockets| match flow {
        Flow::LinuxToOurs => net.ours.connection.as_ref().map_or(0, vrdma_tcp::Connection::complete),
        _ => sockets.received(0),
    };
    run(&mut net, WARM_UP);
    let (before, start) = (received(&net, &sockets), net.now());
    run(&mut net, time);
    let rate = (received(&net, &sockets) - before) as f64 * 1e9 / (net.now() - start) as f64;
    let counters = net.ours.connection.as_ref().map(|connection| *connection.counters());
    let counted = counters.iter().flat_map(vrdma_tcp::Counters::iter).filter(|(_, count)| *count > 0);
    let text = counted.map(|(name, count)| format!(" {name} {count}")).collect();
    finish(net, sockets);
    (rate, text)
}

/// Compares a flow with one between Linux hosts, in turns with equal losses.
fn beside(hosts: &Hosts, flow: Flow, path: Path, time: Duration, port: &mut u16) {
    let (mut sums, mut text) = ([0.; 2], String::new());
    for _ in 0..ROUNDS {
        *port += 1;
        for (sum, flow) in sums.iter_mut().zip([flow, Flow::LinuxToLinux]) {
            let (rate, told) = measure(hosts, flow, path, time, *port);
            *sum += rate / ROUNDS as f64;
            text = if flow == Flow::LinuxToLinux { text } else { told };
        }
        // The former port is in TIME-WAIT.
        *port += 1;
    }
    let [ours, linux] = sums.map(|rate| rate / 1e6);
    let (trip, loss) = (2. * path.delay.as_secs_f64() * 1e3, f64::from(path.loss) / 1e3);
    println!("{flow:?}\t{trip} ms\t{loss} %\t{ours:.2}\t{linux:.2} MB/s\t{:.2}\t{text}", ours / linux);
}

/// Prints Jain's index of two flows through one bottleneck: 1 if both have equal shares, 0.5 if one
/// has all.
fn fairness(hosts: &Hosts, with_ours: bool, time: Duration, port: u16) {
    let back = Path { delay: BOTTLENECK.delay, ..Path::default() };
    let ports = Ports { local: port, remote: port };
    let mut ours = Ours::new(ours::config(MTU), hosts.receiver.address, ports);
    ours.end = u64::MAX >> 1;
    let mut net = Net::new(ours, back, &[(&hosts.sender, back), (&hosts.receiver, BOTTLENECK)], port.into());
    let mut sockets = Sockets::default();
    sockets.read(&hosts.receiver, port);
    sockets.read(&hosts.receiver, port + 1);
    if with_ours {
        net.connect();
    } else {
        sockets.write(&hosts.sender, hosts.receiver.address, port);
    }
    sockets.write(&hosts.sender, hosts.receiver.address, port + 1);
    run(&mut net, Duration::from_secs(5));
    let before = [0, 1].map(|flow| sockets.received(flow));
    run(&mut net, time);
    let [first, second] = [0, 1].map(|flow| (sockets.received(flow) - before[flow]) as f64);
    let index = (first + second).powi(2) / (2. * (first * first + second * second));
    let name = if with_ours { "ours" } else { "Linux" };
    let [first, second] = [first, second].map(|bytes| bytes / time.as_secs_f64() / 1e6);
    println!("{name} {first:.2}, Linux {second:.2} MB/s: Jain's index {index:.3}");
    finish(net, sockets);
}

/// The measurements that can be run alone.
const NAMES: [&str; 3] = ["OursToLinux", "LinuxToOurs", "Jain"];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let seconds = arguments.iter().find_map(|word| word.parse().ok()).unwrap_or(2.);
    let name = arguments.iter().find(|word| word.parse::<f64>().is_err());
    if let Some(name) = name.filter(|name| !NAMES.contains(&name.as_str())) {
        eprintln!("{name} is none of {NAMES:?}");
        std::process::exit(2);
    }
    let wants = |of: &str| name.is_none_or(|name| name == of);
    let time = Duration::from_secs_f64(seconds);
    let (sender, receiver) = (Linux::new([10, 9, 0, 1], MTU), Linux::new([10, 9, 0, 3], MTU));
    let (Some(sender), Some(receiver)) = (sender, receiver) else {
        println!("skipped: network namespaces and TUN devices need root");
        return;
    };
    let (hosts, mut port) = (Hosts { sender, receiver }, 7000);
    println!("flow\tround trip\tloss\trate\tLinux to Linux\tratio\tour last connection");
    let row = |flow, microseconds, loss, port: &mut u16| {
        let delay = Duration::from_micros(microseconds / 2);
        let queue = LINK * microseconds / 1_000_000 + 64 * u64::from(MTU);
        let path = Path { loss, delay, rate: LINK, queue, ..Path::default() };
        beside(&hosts, flow, path, time, port);
    };
    let losses = if wants("OursToLinux") { [0, 100, 1000, 5000].as_slice() } else { &[] };
    for &loss in losses {
        for microseconds in [100, 1000, 10_000] {
            row(Flow::OursToLinux, microseconds, loss, &mut port);
        }
    }
    let losses = if wants("LinuxToOurs") { [100, 1000].as_slice() } else { &[] };
    for &loss in losses {
        row(Flow::LinuxToOurs, 1000, loss, &mut port);
    }
    let pairs = if wants("Jain") { [true, true, false].as_slice() } else { &[] };
    for &with_ours in pairs {
        port += 2;
        fairness(&hosts, with_ours, time * 10, port);
    }
}
