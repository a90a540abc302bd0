//! Tests ports over `net_ring`, which returns what is sent, `net_memif`, and `net_vhost` with
//! `net_virtio_user`. They need no privilege.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use vrdma_backend::port::{Burst, Driver, Eal, Ethdev, External, Faults, LINK_POLL, Offload, Port};

#[path = "../../testing/guest/src/wait.rs"]
#[allow(dead_code, reason = "tests of other crates use the rest")]
mod wait;

/// Each port has its own buffers, which are never freed.
const MEMORY: &str = "--no-huge -m 2048";

fn device(name: &str) -> Port {
    let device = name.parse().unwrap();
    let eal = Eal::start(MEMORY, &device).unwrap();
    let mut port = Port::new(Box::new(Ethdev::open(eal, &device, Some(9000)).unwrap()));
    port.adopt();
    port
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31).wrapping_add(seed) as u8).collect()
}

/// Returns all frames that are there.
fn received(port: &mut Port) -> Vec<Vec<u8>> {
    let (mut burst, mut all) = (Burst::default(), Vec::new());
    while port.receive(&mut burst) != 0 {
        all.extend(burst.frames().iter().map(|frame| frame.to_vec()));
    }
    all
}

#[test]
fn frames_of_all_lengths_come_back_in_order() {
    let mut port = device("net_ring1");
    assert_eq!((port.capabilities().mtu, port.capabilities().max_frame), (9000, 9018));
    let lengths: Vec<usize> = (60..=9018).step_by(97).chain([9018]).collect();
    for (seed, len) in lengths.iter().enumerate() {
        let mut token = port.transmit(*len).unwrap();
        token.buf()[..*len].copy_from_slice(&pattern(*len, seed));
        token.commit(*len);
    }
    port.flush();
    assert_eq!(port.backlog(), 0);
    let frames = received(&mut port);
    let expected: Vec<_> = lengths.iter().enumerate().map(|(seed, len)| pattern(*len, seed)).collect();
    assert!(frames == expected);
    let stats = port.stats();
    assert_eq!(
        (stats["frames_sent"], stats["frames_received"]),
        (lengths.len() as u64, lengths.len() as u64)
    );
    assert_eq!(stats["bytes_sent"], lengths.iter().sum::<usize>() as u64);
    assert_eq!(stats["bytes_sent"], stats["bytes_received"]);
    assert!(port.transmit(9019).is_none());
    assert_eq!(port.stats()["tx_oversize"], 1);
}

/// The owner of a frame's bytes. It counts how often it is dropped.
struct Owner {
    bytes: Vec<u8>,
    gone: Arc<AtomicUsize>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.gone.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn memory_of_others_goes_out_and_is_let_go_once() {
    let mut port = device("net_ring2");
    assert!(port.capabilities().external);
    let gone = Arc::new(AtomicUsize::new(0));
    const FRAMES: usize = 500;
    for round in 0..FRAMES {
        let owner = Arc::new(Owner { bytes: pattern(4096, round), gone: gone.clone() });
        let piece = |from: usize, to: usize| {
            // SAFETY: the bytes are the owner's.
            unsafe { External::new(owner.bytes[from..].as_ptr(), (to - from) as u16, owner.clone()) }
        };
        let pieces = [piece(0, 1000), piece(1000, 4096)];
        let mut token = port.transmit(58 + 4096 + 4).unwrap();
        token.buf()[..58].copy_from_slice(&pattern(58, 1));
        token.commit_with(58, pieces, &[1, 2, 3, 4]);
        drop(owner);
        assert_eq!(gone.load(Ordering::SeqCst), round, "still in the frame");
        port.flush();
        let frames = received(&mut port);
        let expected = [pattern(58, 1), pattern(4096, round), vec![1, 2, 3, 4]].concat();
        assert!(frames == [expected], "round {round}");
        assert_eq!(gone.load(Ordering::SeqCst), round + 1, "let go");
    }
    assert_eq!(port.stats()["rx_linearized"], FRAMES as u64);
    // A piece that is not sent is dropped too.
    let owner = Arc::new(Owner { bytes: pattern(64, 0), gone: gone.clone() });
    // SAFETY: the bytes are the owner's.
    let piece = unsafe { External::new(owner.bytes.as_ptr(), 64, owner.clone()) };
    drop((piece, owner));
    assert_eq!(gone.load(Ordering::SeqCst), FRAMES + 1);
}

#[test]
fn a_pool_run_dry_is_survived_and_counted() {
    let mut port = device("net_ring3");
    let (mut held, mut sent) = (Vec::new(), 0);
    // Receives and keeps all frames, until there are no buffers.
    while port.transmit(60).map(|token| token.commit(60)).is_some() {
        port.flush();
        sent += 1;
        let mut burst = Burst::default();
        if port.receive(&mut burst) != 0 {
            held.push(burst);
        }
        assert!(sent < 1 << 20, "pools have an end");
    }
    assert!(sent > 1000 && port.stats()["tx_no_buffer"] == 1, "{sent} sent, {:?}", port.stats());
    assert!(!port.has_room() && port.transmit(60).is_none());
    drop(held);
    assert!(port.has_room());
    port.transmit(60).unwrap().commit(60);
    port.flush();
    assert_eq!(received(&mut port).len(), 1);
}

#[test]
fn a_device_that_is_wanted_back_is_let_go_and_its_port_stays_down() {
    let name = "net_ring31";
    let mut port = device(name);
    port.transmit(60).unwrap().commit(60);
    port.flush();
    assert_eq!(received(&mut port).len(), 1);
    port.transmit(60).unwrap().commit(60);
    // EAL calls this if the kernel wants a device back, for instance after QEMU's `device_del`.
    // SAFETY: EAL runs, and has a device of this name.
    unsafe {
        dpdk_sys::rte_dev_event_callback_process(c"net_ring31".as_ptr(), dpdk_sys::RTE_DEV_EVENT_REMOVE)
    };
    assert_eq!((port.is_up(), port.poll_link()), (true, Some(false)));
    assert!(port.transmit(60).is_none());
    port.flush();
    port.reclaim();
    assert!(received(&mut port).is_empty() && port.speed().is_none());
    port.arm();
    port.disarm();
    assert_eq!((port.poll_link(), port.stats()["tx_link_down"]), (None, 2));
    // EAL does not have it any more. It can be opened again while the old port still exists.
    let mut again = device(name);
    drop(port);
    again.transmit(60).unwrap().commit(60);
    again.flush();
    assert_eq!(received(&mut again).len(), 1);
}

#[test]
fn a_driver_that_takes_no_more_is_survived_and_counted() {
    let mut port = device("net_ring4");
    let mut sent = 0;
    while let Some(token) = port.transmit(60) {
        token.commit(60);
        sent += 1;
    }
    let stats = port.stats();
    assert!(stats["tx_full"] + stats["tx_no_buffer"] == 1 && sent > 512, "{sent} sent, {stats:?}");
    let mut back = 0;
    // The queued frames follow.
    loop {
        let now = received(&mut port).len();
        port.flush();
        back += now;
        if now == 0 && port.backlog() == 0 {
            break;
        }
    }
    assert_eq!(back, sent);
}

#[test]
fn frames_of_no_driver_are_sent_too() {
    let port = device("net_ring5");
    drop(port);
    let name = "net_ring6".parse().unwrap();
    let eal = Eal::start(MEMORY, &name).unwrap();
    let driver: Box<dyn Driver> = Box::new(Ethdev::open(eal, &name, None).unwrap());
    let faults = "dup=1,corrupt=1,dir=tx,seed=3".parse().unwrap();
    let mut port = Port::new(Box::new(Faults::new(driver, faults)));
    let mut token = port.transmit(60).unwrap();
    token.buf()[..60].copy_from_slice(&pattern(60, 0));
    token.commit(60);
    port.flush();
    let frames = received(&mut port);
    assert_eq!(frames.len(), 2);
    assert!(frames[0] == frames[1] && frames[0] != pattern(60, 0));
}

#[test]
fn a_device_is_had_by_one() {
    let mut port = device("net_ring7");
    let name = "net_ring7".parse().unwrap();
    let eal = Eal::start(MEMORY, &name).unwrap();
    let error = format!("{:#}", Ethdev::open(eal, &name, None).unwrap_err());
    assert!(error.contains("net_ring7: it is in use"), "{error}");
    port.transmit(60).unwrap().commit(60);
    port.flush();
    assert_eq!(received(&mut port).len(), 1);
    drop(port);
    assert!(Ethdev::open(eal, &name, None).is_ok());
}

#[test]
fn devices_that_are_not_there_are_named() {
    for (name, parts) in [
        ("net_nonsense0", &["net_nonsense0", "net_af_packet"][..]),
        ("net_af_packet0,iface=nonsense0", &["no interface nonsense0", "ip link"]),
        ("net_memif0,role=nonsense", &["net_memif0", "parameters"]),
        ("0000:ff:1f.7", &["0000:ff:1f.7", "lspci"]),
    ] {
        let device = name.parse().unwrap();
        let eal = Eal::start(MEMORY, &"net_ring0".parse().unwrap()).unwrap();
        let error = format!("{:#}", Ethdev::open(eal, &device, None).unwrap_err());
        for part in parts {
            assert!(error.contains(part), "{name}: {error}");
        }
    }
}

/// Makes both ends of a memif. Their device numbers are `number` and the next one.
fn memif(number: u8, dir: &tempfile::TempDir) -> (Port, Port) {
    let socket = dir.path().join("memif.sock");
    let name = |number, role| {
        format!("net_memif{number},role={role},socket={},socket-abstract=no", socket.display())
    };
    let (mut server, mut client) = (device(&name(number, "server")), device(&name(number + 1, "client")));
    wait_link(&mut [&mut server, &mut client], true);
    (server, client)
}

#[test]
fn memif_joins_two_ports() {
    let dir = tempfile::tempdir().unwrap();
    let (mut server, mut client) = memif(1, &dir);
    for (seed, len) in [60, 1500, 2048, 4200, 9018].into_iter().enumerate() {
        carry(&mut server, &mut client, &pattern(len, seed));
        carry(&mut client, &mut server, &pattern(len, !seed));
    }
    drop(client);
    wait_link(&mut [&mut server], false);
    drop(server);
}

#[test]
fn a_full_memif_ring_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut server, mut client) = memif(3, &dir);
    let length = |seed: usize| [9018, 60, 4200, 2049][seed % 4];
    for direction in 0..2 {
        let (from, to) = if direction == 0 { (&mut server, &mut client) } else { (&mut client, &mut server) };
        let (mut sent, mut came) = (0, 0);
        let mut burst = Burst::default();
        for _ in 0..50 {
            // Until the ring and the queue before it are full.
            while let Some(mut token) = from.has_room().then(|| from.transmit(length(sent)).unwrap()) {
                token.buf()[..length(sent)].copy_from_slice(&pattern(length(sent), sent));
                token.commit(length(sent));
                sent += 1;
            }
            to.receive(&mut burst);
            for frame in burst.frames() {
                assert!(frame[..] == pattern(length(came), came), "frame {came} of {sent}, {direction}");
                came += 1;
            }
            from.flush();
        }
        assert!(sent > 1000 + 50, "{sent} frames fill a ring of 1024 and more");
        while came < sent {
            from.flush();
            assert!(to.receive(&mut burst) != 0, "{came} of {sent} came, {direction}");
            for frame in burst.frames() {
                assert!(frame[..] == pattern(length(came), came), "frame {came} of {sent}, {direction}");
                came += 1;
            }
        }
    }
}

/// Tests two devices with more features: they interrupt, and fill in checksums.
#[test]
fn vhost_user_joins_two_ports() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("vhost.sock");
    let mut server = device(&format!("net_vhost1,iface={}", socket.display()));
    let mut client = device(&format!("net_virtio_user1,path={},queues=1", socket.display()));
    // Both copy frames themselves.
    assert!(!server.capabilities().external && !client.capabilities().external);
    wait_link(&mut [&mut server, &mut client], true);
    for (seed, len) in [60, 1500, 4200].into_iter().enumerate() {
        carry(&mut server, &mut client, &pattern(len, seed));
        carry(&mut client, &mut server, &pattern(len, !seed));
    }
    is_woken(&mut client, &mut server);
    assert!(server.readiness().is_none());
    for (from, to) in [(true, false), (false, true)] {
        let ports = [&mut server, &mut client];
        for ipv6 in [false, true] {
            for tcp in [false, true] {
                let [whole, partial] = checksummed(ipv6, tcp);
                let can = ports[usize::from(from)].capabilities().checksums;
                let start = if ipv6 { 54 } else { 34 };
                let offload = Offload::of(&partial, start, if tcp { 16 } else { 6 }, can).expect("both can");
                let mut token = ports[usize::from(from)].transmit(partial.len()).unwrap();
                token.buf()[..partial.len()].copy_from_slice(&partial);
                token.offload(offload);
                token.commit(partial.len());
                ports[usize::from(from)].flush();
                assert!(next(ports[usize::from(to)]) == [whole], "IPv6 {ipv6}, TCP {tcp}");
            }
        }
    }
    drop(client);
    wait_link(&mut [&mut server], false);
    // Fault injection may copy frames, which would lose offload requests. It therefore offers none.
    drop(server);
    let name = format!("net_vhost1,iface={}", socket.display()).parse().unwrap();
    let driver = Ethdev::open(Eal::start(MEMORY, &name).unwrap(), &name, None).unwrap();
    assert!(driver.capabilities().checksums.udp);
    let faults = Faults::new(Box::new(driver), "dup=1".parse().unwrap());
    assert!(!faults.capabilities().checksums.udp);
}

fn wait_link(ports: &mut [&mut Port], up: bool) {
    wait::until(if up { "the links to be up" } else { "the links to be down" }, || {
        if ports.iter().all(|port| port.is_up() == up) {
            return Some(());
        }
        wait::pause(
            LINK_POLL,
            "as seldom as the daemon looks: DPDK 22.11's net_virtio_user puts off work at each look",
        );
        ports.iter_mut().for_each(|port| _ = port.poll_link());
        None
    });
}

/// Waits for the next frames.
fn next(port: &mut Port) -> Vec<Vec<u8>> {
    wait::until("a frame", || Some(received(port)).filter(|got| !got.is_empty()))
}

fn carry(from: &mut Port, to: &mut Port, bytes: &[u8]) {
    let mut token = from.transmit(bytes.len()).unwrap();
    token.buf()[..bytes.len()].copy_from_slice(bytes);
    token.commit(bytes.len());
    let got = wait::until("a frame", || {
        // The receiver may have to return buffers first.
        from.flush();
        Some(received(to)).filter(|got| !got.is_empty())
    });
    assert!(got == [bytes], "{} bytes: {:?}", bytes.len(), got.iter().map(Vec::len).collect::<Vec<_>>());
}

fn is_woken(sleeper: &mut Port, other: &mut Port) {
    let readable = |port: &Port, time: Duration| {
        let fd = port.readiness().expect("it interrupts");
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec::try_from(time).unwrap())).unwrap() != 0
    };
    for seed in 0..3 {
        // Earlier events may still signal, but not for ever.
        let mut rings = 0;
        loop {
            sleeper.arm();
            assert!(received(sleeper).is_empty());
            if !readable(sleeper, Duration::ZERO) {
                break;
            }
            rings += 1;
            assert!(rings < 10, "it stays readable");
            sleeper.disarm();
        }
        let bytes = pattern(100, seed);
        let mut token = other.transmit(100).unwrap();
        token.buf()[..100].copy_from_slice(&bytes);
        token.commit(100);
        other.flush();
        assert!(readable(sleeper, wait::PATIENCE));
        sleeper.disarm();
        assert!(next(sleeper) == [bytes]);
    }
}

/// Makes a frame with UDP or TCP twice: complete, and with the pseudo-header's sum only.
fn checksummed(ipv6: bool, tcp: bool) -> [Vec<u8>; 2] {
    let sum = |bytes: &[u8]| {
        let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
        let mut sum: u32 = words.sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    };
    let protocol = if tcp { 6u8 } else { 17 };
    let mut segment = if tcp { vec![0; 20] } else { vec![0; 8] };
    segment.extend(pattern(101, 9));
    let len = segment.len();
    segment[..4].copy_from_slice(&[0x12, 0x34, 0x56, 0x78]);
    let place = if tcp {
        segment[12] = 0x50;
        16
    } else {
        segment[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        6
    };
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    let (addresses, start) = if ipv6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, len as u8, protocol, 64]);
        (pattern(32, 3), 54)
    } else {
        frame.extend([8, 0, 0x45, 0, 0, 20 + len as u8, 0, 1, 0x40, 0, 64, protocol, 0, 0]);
        (vec![192, 0, 2, 1, 192, 0, 2, 2], 34)
    };
    frame.extend(&addresses);
    if !ipv6 {
        let header = !sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&header.to_be_bytes());
    }
    let pseudo = sum(&[&addresses[..], &[0, protocol], &(len as u16).to_be_bytes()].concat());
    segment[place..place + 2].copy_from_slice(&pseudo.to_be_bytes());
    frame.extend(&segment);
    let mut whole = frame.clone();
    let checksum = !sum(&segment);
    whole[start + place..start + place + 2].copy_from_slice(&checksum.to_be_bytes());
    [whole, frame]
}

#[test]
fn frames_that_wait_keep_nobodys_memory() {
    let mut port = device("net_ring8");
    let gone = Arc::new(AtomicUsize::new(0));
    let mut frames = 0;
    while port.backlog() < 10 {
        let owner = Arc::new(Owner { bytes: pattern(4096, frames), gone: gone.clone() });
        // SAFETY: the bytes are the owner's.
        let piece = unsafe { External::new(owner.bytes.as_ptr(), 4096, owner.clone()) };
        let mut token = port.transmit(58 + 4096 + 4).unwrap();
        token.buf()[..58].copy_from_slice(&pattern(58, frames));
        token.commit_with(58, [piece], &[1, 2, 3, 4]);
        port.flush();
        frames += 1;
        assert!(frames < 1 << 16, "rings have an end");
    }
    let waiting = port.backlog();
    assert_eq!(gone.load(Ordering::SeqCst), 0);
    port.reclaim();
    assert_eq!((gone.load(Ordering::SeqCst), port.backlog()), (waiting, waiting));
    let mut found = Vec::new();
    wait::until("all frames", || {
        found.extend(received(&mut port));
        port.flush();
        (found.len() >= frames).then_some(())
    });
    assert_eq!(found.len(), frames);
    for (number, frame) in found.iter().enumerate() {
        let expected = [pattern(58, number), pattern(4096, number), vec![1, 2, 3, 4]].concat();
        assert!(*frame == expected, "frame {number}");
    }
    assert_eq!(gone.load(Ordering::SeqCst), frames);
}
