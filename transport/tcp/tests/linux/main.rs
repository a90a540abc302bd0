//! Conversations with the TCP of Linux, over TUN devices and a simulated network.
//!
//! The network loses, delays and duplicates packets, or silently drops long ones. Data flows in
//! both directions, and either side connects. The tests need root, for network namespaces of their
//! own.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this test is what drives the connection: it has a clock and a network"
)]

mod host;
mod link;
mod net;
mod ours;
mod rng;
mod stream;

use host::Linux;
use link::Path;
use net::Net;
use ours::{OURS, Ours};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vrdma_tcp::{Config, Ports, Reason};

const THEIRS: [u8; 4] = [10, 9, 0, 1];

#[derive(Clone, Copy, Debug)]
struct Conversation {
    path: Path,
    mtu: u16,
    we_connect: bool,
    we_send: u64,
    they_send: u64,
    port: u16,
}

/// The result of a conversation.
struct Told {
    /// Counters of our connection.
    retransmits: u32,
    timeouts: u32,
    /// The number of segments that we sent, and of Linux's retransmits.
    segments: u64,
    theirs: u32,
}

/// The peer: a Linux socket with blocking reader and writer. Returns how many segments it
/// retransmitted.
fn linux(linux: &Linux, conversation: Conversation) -> JoinHandle<u32> {
    let Conversation { we_connect, we_send, they_send, port, .. } = conversation;
    let listener = we_connect.then(|| linux.listen(port));
    linux.spawn(move || {
        let mut stream = match listener {
            Some(listener) => listener.accept().unwrap().0,
            None => TcpStream::connect((OURS, port)).unwrap(),
        };
        host::use_cubic(&stream);
        let mut reader = stream.try_clone().unwrap();
        let read = thread::spawn(move || {
            let (mut buffer, mut got) = (vec![0; stream::MOST], 0);
            loop {
                let length = reader.read(&mut buffer).unwrap();
                if length == 0 {
                    break;
                }
                stream::check(got, &buffer[..length]);
                got += length as u64;
            }
            assert_eq!(got, we_send, "Linux has all of ours");
        });
        let mut sent = 0;
        while sent < they_send {
            let length = (they_send - sent).min(50_000);
            stream.write_all(stream::bytes(sent, length as usize)).unwrap();
            sent += length;
        }
        stream.shutdown(Shutdown::Write).unwrap();
        read.join().unwrap();
        host::retransmits(&stream)
    })
}

fn converse(linux: &Linux, conversation: Conversation) -> Told {
    let Conversation { path, mtu, we_connect, we_send, they_send, port } = conversation;
    let config = Config { window: 2 << 20, ..ours::config(mtu) };
    let ports =
        if we_connect { Ports { local: port + 1, remote: port } } else { Ports { local: port, remote: 0 } };
    let mut ours = Ours::new(config, linux.address, ports);
    (ours.end, ours.closes) = (we_send, true);
    let mut net = Net::new(ours, path, &[(linux, path)], port.into());
    let linux = self::linux(linux, conversation);
    if we_connect {
        net.connect();
    }
    while net.ours.closed.is_none() {
        net.turn();
        net.sleep();
        let is_late = net.start.elapsed() > Duration::from_secs(120);
        assert!(!is_late, "no end: {conversation:?} {:?}", net.ours.connection);
    }
    let theirs = linux.join().unwrap();
    let connection = net.ours.connection.as_ref().expect("it was closed");
    assert_eq!(net.ours.closed, Some(Reason::Finished), "{conversation:?}");
    assert_eq!((connection.complete(), connection.acknowledged()), (they_send, we_send), "{conversation:?}");
    let counted: Vec<_> = connection.counters().iter().filter(|(_, count)| *count > 0).collect();
    println!("{conversation:?}, {:?}: {counted:?}, {theirs} of theirs", net.start.elapsed());
    let (retransmits, timeouts) = (net.ours.count("retransmits"), net.ours.count("timeouts"));
    Told { retransmits, timeouts, segments: net.ours.segments, theirs }
}

/// Returns a Linux host, or prints why there is none.
fn host(mtu: u16) -> Option<Linux> {
    let host = Linux::new(THEIRS, mtu);
    if host.is_none() {
        // Standard error is written directly, because the captured output of passing tests is not
        // shown.
        let text = "TCP with Linux: skipped: a network namespace and a TUN device need root";
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    host
}

/// A path with a round trip of one millisecond.
const RACK: Path = Path {
    loss: 0,
    reordering: 0,
    late: Duration::from_micros(500),
    duplication: 0,
    delay: Duration::from_micros(500),
    rate: 0,
    queue: 0,
    longest: 0,
};

#[test]
fn streams_are_whole_on_bad_paths() {
    let Some(linux) = host(1500) else { return };
    let mut port = 7000;
    for (loss, reordering, duplication) in [(100, 0, 0), (5000, 0, 0), (1000, 1000, 1000)] {
        for we_connect in [true, false] {
            let path = Path { loss, reordering, duplication, ..RACK };
            let (we_send, they_send) = (1 << 20, 1 << 20);
            converse(&linux, Conversation { path, mtu: 1500, we_connect, we_send, they_send, port });
            port += 2;
        }
    }
}

/// The path announces 1500 bytes, and silently drops segments of that length.
#[test]
fn a_black_hole_of_long_packets_is_left() {
    let Some(linux) = host(1500) else { return };
    // Linux detects a black hole only if this is set.
    linux.set("tcp_mtu_probing", "1");
    let path = Path { longest: 1200, ..RACK };
    for (port, we_send, they_send) in [(7000, 1 << 20, 0), (7010, 0, 1 << 20), (7020, 1 << 20, 1 << 20)] {
        converse(&linux, Conversation { path, mtu: 1500, we_connect: true, we_send, they_send, port });
    }
}

#[test]
fn reordering_alone_makes_us_send_little_again() {
    let Some(linux) = host(1500) else { return };
    let path = Path { reordering: 1000, ..RACK };
    let conversation =
        Conversation { path, mtu: 1500, we_connect: true, we_send: 40 << 20, they_send: 0, port: 7000 };
    let told = converse(&linux, conversation);
    let share = f64::from(told.retransmits) / told.segments as f64;
    println!("{} of {} segments were sent again for nothing", told.retransmits, told.segments);
    assert!(share <= 0.01, "{share} of segments were sent again for nothing");
    let theirs =
        converse(&linux, Conversation { we_send: 0, they_send: 40 << 20, port: 7010, ..conversation });
    println!("Linux: {} of {} segments", theirs.theirs, (40 << 20) / 1448);
}

#[test]
fn single_losses_need_no_timeout() {
    let Some(linux) = host(1500) else { return };
    let path = Path { loss: 100, ..RACK };
    for (port, we_connect) in [(7000, true), (7010, false)] {
        let conversation =
            Conversation { path, mtu: 1500, we_connect, we_send: 40 << 20, they_send: 0, port };
        let told = converse(&linux, conversation);
        assert!(told.retransmits >= 10, "there were losses: {}", told.retransmits);
        assert_eq!(told.timeouts, 0, "{conversation:?}");
    }
}

#[test]
#[ignore = "long"]
fn streams_to_and_from_linux_are_whole() {
    let Some(linux) = host(1500) else { return };
    let mut port = 7000;
    for mtu in [1500, 9000] {
        linux.set_mtu(mtu);
        for (loss, reordering, duplication) in [
            (0, 0, 0),
            (100, 0, 0),
            (1000, 0, 0),
            (5000, 0, 0),
            (0, 1000, 0),
            (0, 0, 5000),
            (1000, 1000, 1000),
        ] {
            for we_connect in [true, false] {
                for (we_send, they_send) in [(20 << 20, 0), (0, 20 << 20), (5 << 20, 5 << 20)] {
                    let path = Path { loss, reordering, duplication, ..RACK };
                    let less = if loss >= 5000 { 10 } else { 1 };
                    let (we_send, they_send) = (we_send / less, they_send / less);
                    converse(&linux, Conversation { path, mtu, we_connect, we_send, they_send, port });
                    port += 2;
                }
            }
        }
    }
}
