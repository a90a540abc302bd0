//! Two ports over `net_af_packet`, at the two ends of a veth in a network namespace that goes with the test. Root only.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Write;
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};
use vrdma_backend::port::{BURST, Burst, Driver, Eal, Ethdev, LINK_POLL, Port};

/// For what happens at once, or not at all.
const PATIENCE: Duration = Duration::from_secs(10);

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// MTU of an interface of this thread's namespace.
fn mtu(interface: &str) -> u32 {
    let shown = Command::new("ip").args(["-o", "link", "show", interface]).output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    words[words.iter().position(|word| *word == "mtu").unwrap() + 1].parse().unwrap()
}

fn a_device_that_cannot_be_had_changes_nothing() {
    let device = "net_af_packet1,iface=vb,blocksz=1".parse().unwrap();
    assert!(Ethdev::open(Eal::start("", &device).unwrap(), &device, Some(9000)).is_err());
    assert_eq!(mtu("vb"), 1500);
}

fn open(name: &str, mtu: Option<u16>) -> Port {
    let device = name.parse().unwrap();
    let eal = Eal::start("", &device).unwrap();
    let mut port = Port::new(Box::new(Ethdev::open(eal, &device, mtu).unwrap()));
    port.adopt();
    port
}

/// A frame to everybody, of a type that nobody speaks.
fn frame(len: usize, seed: usize) -> Vec<u8> {
    let header = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 0x88, 0xb5];
    header.into_iter().chain((14..len).map(|i| (i * 31 + seed) as u8)).collect()
}

fn send(port: &mut Port, bytes: &[u8]) {
    let mut token = port.transmit(bytes.len()).unwrap();
    token.buf()[..bytes.len()].copy_from_slice(bytes);
    token.commit(bytes.len());
    port.flush();
}

/// The next frames of our type, as many as are expected.
fn received(port: &mut Port, count: usize) -> Vec<Vec<u8>> {
    let (mut burst, mut all, start) = (Burst::default(), Vec::new(), Instant::now());
    while all.len() < count && start.elapsed() < PATIENCE {
        port.receive(&mut burst);
        let ours = burst.frames().iter().filter(|frame| frame[12..14] == [0x88, 0xb5]);
        all.extend(ours.map(|frame| frame.to_vec()));
    }
    all
}

fn wait_link(port: &mut Port, up: bool) {
    let start = Instant::now();
    while port.is_up() != up {
        assert!(start.elapsed() < PATIENCE, "link is up: {}", !up);
        std::thread::sleep(LINK_POLL);
        port.poll_link();
    }
}

fn readable(port: &Port, time: Duration) -> bool {
    let fd = port.readiness().expect("packet sockets can be waited for");
    let time = Timespec::try_from(time).unwrap();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&time)).unwrap() != 0
}

#[test]
fn packet_sockets_carry_frames_and_tell_of_the_link() {
    // SAFETY: a plain system call. Threads that this one starts (EAL's) and programs are in the new namespace too.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        // Past the capture of what tests print, which shows nothing of those that pass.
        let _ = writeln!(std::io::stderr(), "packet sockets: skipped: a network namespace needs root");
        return;
    }
    ip("link add va type veth peer name vb");
    ip("link set va up");
    ip("link set vb up");
    let mut a = open("net_af_packet0,iface=va", Some(9000));
    let mut b = open("net_af_packet1,iface=vb", Some(9000));
    assert_eq!((a.capabilities().mtu, b.capabilities().max_frame), (9000, 9018));
    // Packet sockets copy frames themselves.
    assert!(!a.capabilities().external && !b.capabilities().external);
    wait_link(&mut a, true);
    wait_link(&mut b, true);

    every_length_both_ways(&mut a, &mut b);
    vlan_tags_stay(&mut a, &mut b);
    sleepers_are_woken(&mut a, &mut b);
    what_the_host_sends_is_not_received(&mut a, &mut b);
    a_pool_run_dry(&mut a, &mut b);
    a_full_ring(&mut a, &mut b);
    the_link_flaps(&mut a, &mut b);
    // The device can be had again, and its interface has its own MTU back.
    drop(b);
    assert_eq!(mtu("vb"), 1500);
    a_device_that_cannot_be_had_changes_nothing();
    ip("link set vb mtu 9000");
    let mut b = open("net_af_packet1,iface=vb", None);
    assert_eq!(b.capabilities().mtu, 9000, "the interface's");
    every_length_both_ways(&mut a, &mut b);
    let b = two_queues(&mut a, b);
    xdp_socket(&mut a, b);
    let mut b = open("net_af_packet1,iface=vb", None);
    the_interface_goes(&mut a, &mut b);
}

/// Both queues of a device send and receive, and it stays while one of them has not let go.
fn two_queues(a: &mut Port, b: Port) -> Port {
    drop(b);
    let device = "net_af_packet3,iface=vb,qpairs=2".parse().unwrap();
    let eal = Eal::start("", &device).unwrap();
    let open_for = |workers| Ethdev::open_with(eal, &device, Some(1500), true, workers);
    let error = format!("{:#}", open_for(3).expect_err("frames would be lost"));
    assert!(error.contains("qpairs=2") && error.contains("qpairs=3"), "{error}");
    let mut first = open_for(2).unwrap();
    let others = first.split();
    assert!(others.len() == 1 && first.split().is_empty(), "they are given once");
    let mut queues: Vec<Port> =
        [Box::new(first) as Box<dyn Driver>].into_iter().chain(others).map(Port::new).collect();
    wait_link(a, true);
    queues.iter_mut().for_each(|queue| wait_link(queue, true));
    // Each frame comes to one of them, whichever the kernel likes.
    for seed in 0..20 {
        send(a, &frame(100, seed));
        let start = Instant::now();
        let mut came = Vec::new();
        while came.is_empty() && start.elapsed() < PATIENCE {
            came.extend(queues.iter_mut().flat_map(received_now));
        }
        assert!(came == [frame(100, seed)]);
    }
    for queue in &mut queues {
        send(queue, &frame(100, 1));
        assert!(received(a, 1) == [frame(100, 1)]);
    }
    // SAFETY: EAL runs, and knows a device of this name.
    unsafe {
        dpdk_sys::rte_dev_event_callback_process(c"net_af_packet3".as_ptr(), dpdk_sys::RTE_DEV_EVENT_REMOVE)
    };
    assert_eq!((queues[0].poll_link(), queues[1].is_up()), (Some(false), true));
    send(&mut queues[1], &frame(100, 1));
    assert!(received(a, 1) == [frame(100, 1)], "it is there still");
    let error = format!("{:#}", open_for(2).expect_err("one has not let go"));
    assert!(error.contains("in use"), "{error}");
    assert_eq!(queues[1].poll_link(), Some(false));
    let again = open_for(2).expect("both have");
    drop(queues);
    drop(again);
    open("net_af_packet1,iface=vb", None)
}

/// What came by now.
fn received_now(port: &mut Port) -> Vec<Vec<u8>> {
    let mut burst = Burst::default();
    port.receive(&mut burst);
    let ours = burst.frames().iter().filter(|frame| frame[12..14] == [0x88, 0xb5]);
    ours.map(|frame| frame.to_vec()).collect()
}

fn the_interface_goes(a: &mut Port, b: &mut Port) {
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

/// Where the kernel and libxdp can do it.
fn xdp_socket(a: &mut Port, b: Port) {
    drop(b);
    ip("link set va mtu 1500");
    ip("link set vb mtu 1500");
    let device = "net_af_xdp0,iface=vb".parse().unwrap();
    let eal = Eal::start("", &device).unwrap();
    let mut b = match Ethdev::open(eal, &device, None) {
        Ok(ethdev) => Port::new(Box::new(ethdev)),
        Err(error) => return eprintln!("not over XDP: {error:#}"),
    };
    wait_link(a, true);
    wait_link(&mut b, true);
    for len in [60, 1000, 1514] {
        for (from, to) in [(0, 1), (1, 0)] {
            let ports = [&mut *a, &mut b];
            send(ports[from], &frame(len, from));
            assert!(received(ports[to], 1) == [frame(len, from)], "{len} bytes");
        }
    }
    sleepers_are_woken(a, &mut b);
}

fn every_length_both_ways(a: &mut Port, b: &mut Port) {
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

/// The kernel takes tags out of frames, and the driver puts them back.
fn vlan_tags_stay(a: &mut Port, b: &mut Port) {
    for len in [60, 1518, 9018] {
        let mut tagged = frame(len, 3);
        tagged[12..18].copy_from_slice(&[0x81, 0x00, 0x20, 0x2a, 0x88, 0xb5]);
        send(a, &tagged);
        let (mut burst, mut got, start) = (Burst::default(), Vec::new(), Instant::now());
        while got.is_empty() && start.elapsed() < PATIENCE {
            b.receive(&mut burst);
            let ours = burst.frames().iter().find(|frame| frame[12..14] == [0x81, 0x00]);
            got = ours.map(|frame| frame.to_vec()).unwrap_or_default();
        }
        assert!(got == tagged, "{len} bytes: {} came, {:?}", got.len(), b.stats());
    }
}

fn sleepers_are_woken(a: &mut Port, b: &mut Port) {
    let mut burst = Burst::default();
    while readable(b, Duration::ZERO) {
        // The kernel says something itself now and then.
        b.receive(&mut burst);
        b.arm();
    }
    send(a, &frame(60, 0));
    assert!(readable(b, PATIENCE));
    b.disarm();
    assert_eq!(received(b, 1).len(), 1);
}

fn what_the_host_sends_is_not_received(a: &mut Port, b: &mut Port) {
    ip("addr add 192.0.2.1/24 dev va");
    let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
    socket.send_to(b"who is there", "192.0.2.2:9").unwrap();
    // The kernel asks for the address by ARP.
    let (mut burst, start) = (Burst::default(), Instant::now());
    let arp = |burst: &Burst| burst.frames().iter().any(|frame| frame[12..14] == [0x08, 0x06]);
    while start.elapsed() < PATIENCE {
        b.receive(&mut burst);
        if arp(&burst) {
            break;
        }
    }
    assert!(arp(&burst), "the other end hears it");
    while a.receive(&mut burst) != 0 {
        assert!(!arp(&burst), "this end does not");
    }
    ip("addr del 192.0.2.1/24 dev va");
}

fn a_pool_run_dry(a: &mut Port, b: &mut Port) {
    let (mut held, start) = (Vec::new(), Instant::now());
    while b.stats()["rx_pool_empty"] == 0 && start.elapsed() < PATIENCE {
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
    }
    assert!(held.len() > 1000 && b.stats()["rx_pool_empty"] > 0, "{:?}", b.stats());
    drop(held);
    // What the ring still holds, and then something new.
    let mut burst = Burst::default();
    while b.receive(&mut burst) != 0 {}
    send(a, &frame(60, 77));
    assert!(received(b, 1) == [frame(60, 77)]);
}

fn a_full_ring(a: &mut Port, b: &mut Port) {
    for seed in 0..3000 {
        send(a, &frame(60, seed));
    }
    let start = Instant::now();
    while b.stats()["rx_ring_full"] == 0 && start.elapsed() < PATIENCE {
        b.poll_link();
    }
    let (dropped, kept) = (b.stats()["rx_ring_full"], received(b, 1000).len());
    assert!(dropped > 0 && kept >= 1000, "{dropped} dropped, {kept} kept: {:?}", b.stats());
    let mut burst = Burst::default();
    while b.receive(&mut burst) != 0 {}
}

fn the_link_flaps(a: &mut Port, b: &mut Port) {
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

fn send_many(from: &mut Port, to: &mut Port) {
    for seed in 0..2 * BURST {
        send(from, &frame(8192, seed));
    }
    let expected: Vec<_> = (0..2 * BURST).map(|seed| frame(8192, seed)).collect();
    assert!(received(to, 2 * BURST) == expected);
}
