//! A host with the TCP of Linux.
//!
//! It is a network namespace of its own, whose only way out is a TUN device.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

type Work = Box<dyn FnOnce() + Send>;

pub struct Linux {
    pub address: Ipv4Addr,
    /// The TUN device. It reads and writes plain IP packets, and does not block.
    pub tun: File,
    /// The queue of a thread in the namespace.
    work: Sender<Work>,
}

impl Linux {
    /// Creates a host. Returns `None` without root.
    pub fn new(address: [u8; 4], mtu: u16) -> Option<Linux> {
        let ((work, inbox), (ready, is_ready)) = (channel(), channel());
        let address = Ipv4Addr::from(address);
        thread::spawn(move || live(address, mtu, &ready, &inbox));
        Some(Linux { address, tun: is_ready.recv().expect("its thread says either")?, work })
    }

    /// Runs a closure in the namespace, and waits for its result.
    pub fn run<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        let (result, done) = channel();
        self.work.send(Box::new(move || drop(result.send(what())))).expect("its thread is there");
        done.recv().expect("what is done does not panic")
    }

    /// Starts a thread in the namespace.
    pub fn spawn<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.run(move || thread::spawn(what))
    }

    pub fn listen(&self, port: u16) -> TcpListener {
        let address = self.address;
        self.run(move || TcpListener::bind((address, port)).expect("a port of its own"))
    }

    /// Sets a `sysctl` variable of the namespace, below `net.ipv4`.
    pub fn set(&self, name: &'static str, value: &'static str) {
        self.run(move || set(name, value));
    }

    pub fn set_mtu(&self, mtu: u16) {
        self.run(move || ip(&format!("link set tun0 mtu {mtu} up txqueuelen 10000")));
    }
}

/// Runs the thread of a host.
fn live(address: Ipv4Addr, mtu: u16, ready: &Sender<Option<File>>, inbox: &Receiver<Work>) {
    let tun = tun();
    let is_there = tun.is_some();
    if is_there {
        ip("link set lo up");
        ip(&format!("addr add {address}/24 dev tun0"));
        ip(&format!("link set tun0 mtu {mtu} up txqueuelen 10000"));
        // A connection must not know what an earlier one has learned.
        set("tcp_no_metrics_save", "1");
    }
    ready.send(tun).expect("the one who makes it waits");
    for what in inbox {
        what();
    }
}

fn set(name: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value).expect("a setting of the namespace");
}

/// Moves this thread, and threads that it starts, into a new network namespace with a TUN device.
///
/// Returns `None` without root.
fn tun() -> Option<File> {
    // SAFETY: `unshare` has no pointers, and affects this thread only.
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
    // SAFETY: TUNSETIFF reads and writes a `struct ifreq`, which is 40 bytes, and `request` has
    // them.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, request.as_mut_ptr()) };
    assert_eq!(result, 0, "a TUN device");
    Some(file)
}

fn ip(arguments: &str) {
    assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
}

/// Makes a socket send by CUBIC, whatever the default of this machine is.
pub fn use_cubic(stream: &TcpStream) {
    let name = c"cubic";
    let (socket, length) = (stream.as_raw_fd(), name.count_bytes() as libc::socklen_t);
    // SAFETY: `name` is valid for `length` bytes.
    let result = unsafe {
        libc::setsockopt(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_ptr().cast(), length)
    };
    assert_eq!(result, 0, "CUBIC: {}", std::io::Error::last_os_error());
}

/// Returns how many segments a Linux socket has retransmitted.
pub fn retransmits(stream: &TcpStream) -> u32 {
    /// The offset of `tcpi_total_retrans` in `struct tcp_info`.
    const PLACE: usize = 100;
    let mut info = [0u8; PLACE + 4];
    let mut length = info.len() as libc::socklen_t;
    let (socket, buffer) = (stream.as_raw_fd(), info.as_mut_ptr());
    // SAFETY: the kernel writes at most `length` bytes, which `info` has.
    let result = unsafe {
        libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, buffer.cast(), &raw mut length)
    };
    assert_eq!((result, length as usize), (0, info.len()), "TCP_INFO");
    u32::from_ne_bytes(info[PLACE..].try_into().expect("4 bytes"))
}
