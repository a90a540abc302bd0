//! Checks of ports at the two ends of a veth, for any driver. Each test has its own network
//! namespace.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Write;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;
use vrdma_backend::port::{self, BURST, Burst, Eal, Port};

#[path = "../../../testing/guest/src/wait.rs"]
#[allow(dead_code, reason = "tests of other crates use the rest")]
pub mod wait;

/// Creates a veth in a new network namespace of this thread. Without root it reports that, and
/// returns false.
pub fn veth() -> bool {
    // SAFETY: this is a plain system call. Threads that this one starts (EAL's) and programs are in
    // the new namespace too.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        // The test harness does not capture this stream. The output of passing tests is otherwise
        // not shown.
        let _ = writeln!(std::io::stderr(), "packet sockets: skipped: a network namespace needs root");
        return false;
    }
    ip("link add va type veth peer name vb");
    ip("link set va up");
    ip("link set vb up");
    true
}

pub fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// Returns the MTU of an interface in this thread's namespace.
pub fn mtu(interface: &str) -> u32 {
    let shown = Command::new("ip").args(["-o", "link", "show", interface]).output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    words[words.iter().position(|word| *word == "mtu").unwrap() + 1].parse().unwrap()
}

pub fn open(name: &str, mtu: Option<u16>) -> Port {
    let device = name.parse().unwrap();
    // EAL never frees buffers, and a test opens many devices.
    let eal = Eal::start("--no-huge -m 1024", &device).unwrap();
    let mut port = Port::new(port::open(eal, &device, mtu, true, 1).unwrap());
    port.adopt();
    port
}

/// Makes a broadcast frame, of an `EtherType` that nothing else uses.
pub fn frame(len: usize, seed: usize) -> Vec<u8> {
    let header = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 0x88, 0xb5];
    header.into_iter().chain((14..len).map(|i| (i * 31 + seed) as u8)).collect()
}

pub fn send(port: &mut Port, bytes: &[u8]) {
    let mut token = port.transmit(bytes.len()).unwrap();
    token.buf()[..bytes.len()].copy_from_slice(bytes);
    token.commit(bytes.len());
    port.flush();
}

/// Receives `count` frames of that `EtherType`.
pub fn received(port: &mut Port, count: usize) -> Vec<Vec<u8>> {
    let (mut burst, mut all) = (Burst::default(), Vec::new());
    wait::until(&format!("{count} frames"), || {
        port.receive(&mut burst);
        let ours = burst.frames().iter().filter(|frame| frame[12..14] == [0x88, 0xb5]);
        all.extend(ours.map(|frame| frame.to_vec()));
        (all.len() >= count).then_some(())
    });
    all
}

pub fn wait_link(port: &mut Port, up: bool) {
    wait::until(if up { "the link to be up" } else { "the link to be down" }, || {
        port.poll_link();
        (port.is_up() == up).then_some(())
    });
}

fn readable(port: &Port, time: Duration) -> bool {
    let fd = port.readiness().expect("packet sockets can be waited for");
    let time = Timespec::try_from(time).unwrap();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&time)).unwrap() != 0
}

/// Checks what a port of any driver does.
pub fn carry_frames(a: &mut Port, b: &mut Port) {
    assert_eq!((a.capabilities().mtu, b.capabilities().max_frame), (9000, 9018));
    // Packet sockets copy the frames themselves.
    assert!(!a.capabilities().external && !b.capabilities().external);
    wait_link(a, true);
    wait_link(b, true);
    every_length_both_ways(a, b);
    vlan_tags_stay(a, b);
    sleepers_are_woken(a, b);
    what_the_host_sends_is_not_received(a, b);
}

pub fn the_interface_goes(a: &mut Port, b: &mut Port) {
    wait_link(a, true);
    wait_link(b, true);
    send(a, &frame(60, 0));
    ip("link del va");
    wait_link(a, false);
    wait_link(b, false);
    let mut burst = Burst::default();
    for port in [a, b] {
        while port.receive(&mut burst) != 0 {}
        port.arm();
        assert!(!readable(port, Duration::ZERO));
        assert!(port.transmit(60).is_none());
    }
}

pub fn every_length_both_ways(a: &mut Port, b: &mut Port) {
    let (mut from, mut to) = (a, b);
    for seed in 1..=2 {
        for len in (60..=9014).step_by(61).chain([9014]) {
            send(from, &frame(len, seed));
            let got = received(to, 1);
            assert!(
                got == [frame(len, seed)],
                "{len} bytes: {:?}",
                got.iter().map(Vec::len).collect::<Vec<_>>()
            );
        }
        std::mem::swap(&mut from, &mut to);
    }
}

/// Checks VLAN tags. The kernel takes them out of frames, and the driver puts them back.
fn vlan_tags_stay(a: &mut Port, b: &mut Port) {
    for len in [60, 1518, 9018] {
        let mut tagged = frame(len, 3);
        tagged[12..18].copy_from_slice(&[0x81, 0x00, 0x20, 0x2a, 0x88, 0xb5]);
        send(a, &tagged);
        let mut burst = Burst::default();
        let got = wait::until("a frame with a tag", || {
            b.receive(&mut burst);
            let ours = burst.frames().iter().find(|frame| frame[12..14] == [0x81, 0x00]);
            ours.map(|frame| frame.to_vec())
        });
        assert!(got == tagged, "{len} bytes: {} came, {:?}", got.len(), b.stats());
    }
}

pub fn sleepers_are_woken(a: &mut Port, b: &mut Port) {
    let mut burst = Burst::default();
    while readable(b, Duration::ZERO) {
        // The kernel sends frames of its own from time to time.
        b.receive(&mut burst);
        b.arm();
    }
    send(a, &frame(60, 0));
    assert!(readable(b, wait::PATIENCE));
    b.disarm();
    assert_eq!(received(b, 1).len(), 1);
}

fn what_the_host_sends_is_not_received(a: &mut Port, b: &mut Port) {
    ip("addr add 192.0.2.1/24 dev va");
    let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
    socket.send_to(b"who is there", "192.0.2.2:9").unwrap();
    // The kernel asks for the address by ARP.
    let mut burst = Burst::default();
    let arp = |burst: &Burst| burst.frames().iter().any(|frame| frame[12..14] == [0x08, 0x06]);
    wait::until("the other end to hear it", || {
        b.receive(&mut burst);
        arp(&burst).then_some(())
    });
    while a.receive(&mut burst) != 0 {
        assert!(!arp(&burst), "this end does not");
    }
    ip("addr del 192.0.2.1/24 dev va");
}

pub fn a_pool_run_dry(a: &mut Port, b: &mut Port) {
    let mut held = Vec::new();
    wait::until("an empty pool", || {
        if let Some(mut token) = a.transmit(60) {
            token.buf()[..60].copy_from_slice(&frame(60, 0));
            token.commit(60);
        }
        a.flush();
        let mut burst = Burst::default();
        if b.receive(&mut burst) != 0 {
            held.push(burst);
        } else {
            b.poll_link();
        }
        assert!(held.len() < 1 << 16, "pools have an end");
        (b.stats()["rx_pool_empty"] > 0).then_some(())
    });
    assert!(held.len() > 1000 && b.stats()["rx_pool_empty"] > 0, "{:?}", b.stats());
    drop(held);
    // This empties the ring. A new frame then has to arrive.
    let mut burst = Burst::default();
    while b.receive(&mut burst) != 0 {}
    send(a, &frame(60, 77));
    assert!(received(b, 1) == [frame(60, 77)]);
}

pub fn the_link_flaps(a: &mut Port, b: &mut Port) {
    for _ in 0..3 {
        ip("link set vb down");
        wait_link(a, false);
        wait_link(b, false);
        let before = a.stats()["tx_link_down"];
        assert!(a.transmit(60).is_none() && !a.has_room());
        assert_eq!(a.stats()["tx_link_down"], before + 1);
        let mut burst = Burst::default();
        while b.receive(&mut burst) != 0 {}
        b.arm();
        assert!(!readable(b, Duration::ZERO), "an error does not keep the user awake");
        ip("link set vb up");
        wait_link(a, true);
        wait_link(b, true);
        send_many(a, b);
        send_many(b, a);
    }
    assert_eq!(a.stats()["link_changes"] % 2, 0);
}

pub fn send_some(from: &mut Port, to: &mut Port, len: usize) {
    for seed in 0..2 * BURST {
        send(from, &frame(len, seed));
    }
    let expected: Vec<_> = (0..2 * BURST).map(|seed| frame(len, seed)).collect();
    assert!(received(to, 2 * BURST) == expected);
}
fn send_many(from: &mut Port, to: &mut Port) {
    send_some(from, to, 8192);
}
