//! Tests two ports over `net_packet`, at the two ends of a veth in the test's own network
//! namespace. They need root.

mod veth;

use std::net::UdpSocket;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::mpsc::channel;
use veth::{
    a_pool_run_dry, carry_frames, every_length_both_ways, frame, ip, mtu, open, received, send, send_some,
    the_interface_goes, the_link_flaps, wait, wait_link,
};
use vrdma_backend::port::{self, BURST, Burst, Checksums, Eal, Offload, Port};
use vrdma_wire::checksum::Sum;
use vrdma_wire::num::{Gid, Mac};
use vrdma_wire::tcp::{Flags, Options, TcpHeader, TcpPacket};

#[test]
fn our_packet_sockets_carry_frames_and_segments_that_pass_as_one() {
    if !veth::veth() {
        return;
    }
    let mut a = open("net_packet0,iface=va", Some(9000));
    let mut b = open("net_packet1,iface=vb", Some(9000));
    carry_frames(&mut a, &mut b);
    segments_pass_as_one(&mut a, &mut b, true);
    // If a device accepts no long segments, the kernel cuts them.
    ip("link set va gso_max_size 2000");
    segments_pass_as_one(&mut a, &mut b, false);
    ip("link set va gso_max_size 65536");
    what_the_host_left_open_is_complete(&mut b);
    messages_with_any_number_of_tags();
    a_pool_run_dry(&mut a, &mut b);
    a_full_socket(&mut a, &mut b);
    what_the_kernel_refuses_is_counted(&mut a, &mut b);
    the_link_flaps(&mut a, &mut b);
    // The device can be opened again, and its interface has its own MTU back.
    drop(b);
    assert_eq!(mtu("vb"), 1500);
    a_device_that_cannot_be_had_changes_nothing();
    ip("link set vb mtu 9000");
    let mut b = open("net_packet1,iface=vb", None);
    assert_eq!(b.capabilities().mtu, 9000, "the interface's");
    every_length_both_ways(&mut a, &mut b);
    // DPDK's driver produces the same frames.
    drop(a);
    let mut a = open("net_af_packet0,iface=va", Some(9000));
    wait_link(&mut a, true);
    send_some(&mut a, &mut b, 9000);
    send_some(&mut b, &mut a, 9000);
    the_interface_goes(&mut a, &mut b);
}

fn a_device_that_cannot_be_had_changes_nothing() {
    let device = "net_packet1,iface=vb,blocksz=1".parse().unwrap();
    let error = port::open(Eal::start("", &device).unwrap(), &device, Some(9000), true, 1).unwrap_err();
    assert!(format!("{error:#}").contains("no parameter blocksz"), "{error:#}");
    assert_eq!(mtu("vb"), 1500);
}

/// Makes TCP segments of a connection, each with `length` bytes of data.
fn segments(count: usize, length: usize) -> Vec<Vec<u8>> {
    let gid = |last| Gid::from_ipv4([192, 0, 2, last]);
    let segment = |number: usize| {
        let header = TcpHeader {
            src_port: 4420,
            dst_port: 50_000,
            seq: (number * length) as u32,
            ack: 1,
            flags: Flags::ACK,
            window: 500,
            urgent: 0,
            options: Options { timestamps: Some((1, 2)), ..Options::default() },
        };
        let packet = TcpPacket {
            src_mac: Mac([2; 6]),
            dst_mac: Mac([4; 6]),
            vlan: None,
            src: gid(3),
            dst: gid(4),
            traffic_class: 0,
            header,
        };
        let mut frame = vec![0; packet.len()];
        frame.extend((0..length).map(|i| (i * 31 + number) as u8));
        packet.emit(Sum::of(&frame[packet.len()..]), &mut frame);
        frame
    };
    (0..count).map(segment).collect()
}

/// Fills a socket that nobody reads. Lost frames are counted, and the rest arrives.
fn a_full_socket(a: &mut Port, b: &mut Port) {
    let mut sent = 0;
    wait::until("a full socket to be counted", || {
        for seed in 0..1000 {
            send(a, &frame(60, seed));
        }
        sent += 1000;
        b.poll_link();
        (b.stats()["rx_ring_full"] > 0).then_some(())
    });
    let lost = b.stats()["rx_ring_full"];
    assert!(lost > 0 && lost < sent, "{lost} of {sent}");
    assert!(received(b, 1000).len() >= 1000);
    let mut burst = Burst::default();
    while b.receive(&mut burst) != 0 {}
}

/// Sends while the interface is down and the port has not noticed.
fn what_the_kernel_refuses_is_counted(a: &mut Port, b: &mut Port) {
    let before = a.stats()["tx_refused"];
    ip("link set va down");
    for seed in 0..3 {
        send(a, &frame(60, seed));
    }
    assert_eq!((a.stats()["tx_refused"] - before, a.backlog()), (3, 0));
    ip("link set va up");
    for port in [&mut *a, &mut *b] {
        port.poll_link();
        wait_link(port, true);
    }
    send_some(a, b, 1000);
}

/// Checks that consecutive segments travel as one, even if a burst ends between them or their
/// checksum is offloaded.
///
/// The receiver sees all of them unchanged. `together` says whether they travel as one.
fn segments_pass_as_one(a: &mut Port, b: &mut Port, together: bool) {
    for (length, count, is_open) in
        [(8948, 2 * BURST, false), (8948, 7, true), (1000, 3 * BURST, true), (300, 1, true)]
    {
        let frames = segments(count, length);
        let before = (a.stats()["tx_joined"], b.stats()["rx_cut"]);
        for frame in &frames {
            let mut token = a.transmit(frame.len()).unwrap();
            token.buf()[..frame.len()].copy_from_slice(frame);
            if is_open {
                // The sum of the pseudo-header: addresses, protocol, length.
                let mut sum = Sum::of(&frame[26..34]);
                sum.add(&[0, 6]);
                sum.add(&((frame.len() - 34) as u16).to_be_bytes());
                token.buf()[50..52].copy_from_slice(&(!sum.finish()).to_be_bytes());
                let fill = Checksums { tcp: true, ..Checksums::default() };
                token.offload(Offload { fill, ipv6: false, l2_len: 14, l3_len: 20 });
            }
            token.commit(frame.len());
        }
        a.flush();
        let (mut burst, mut came) = (Burst::default(), Vec::new());
        wait::until(&format!("{count} segments"), || {
            a.flush();
            b.receive(&mut burst);
            let ours = burst.frames().iter().filter(|frame| frame[12..14] == [8, 0] && frame[23] == 6);
            came.extend(
                ours.map(|frame| TcpPacket::parse(frame).map(|(packet, data)| (packet, data.to_vec()))),
            );
            (came.len() >= count).then_some(())
        });
        assert_eq!(came.len(), count, "{:?}", b.stats());
        for (came, sent) in came.iter().zip(&frames) {
            let (packet, data) = TcpPacket::parse(sent).unwrap();
            assert!(*came == Ok((packet, data.to_vec())), "{length} bytes");
        }
        let (joined, cut) = (a.stats()["tx_joined"] - before.0, b.stats()["rx_cut"] - before.1);
        assert_eq!((joined > 0, cut > 0), (count > 1, count > 1 && together), "{joined} joined, {cut} cut");
    }
}

/// Receives joined segments from a neighbour in another namespace, behind any number of tags. They
/// fill the MTU or not.
///
/// Segments that fit into no buffer are counted.
fn messages_with_any_number_of_tags() {
    ip("link add near type veth peer name far");
    let mut port = open("net_packet2,iface=near", Some(1500));
    let ((to_neighbour, messages), (says, said)) = (channel::<Vec<u8>>(), channel());
    let neighbour = std::thread::spawn(move || {
        // SAFETY: these are plain system calls. The thread and the programs that it starts are in a
        // namespace that ends with the thread.
        let thread = unsafe {
            assert_eq!(libc::unshare(libc::CLONE_NEWNET), 0);
            libc::gettid()
        };
        says.send(thread).unwrap();
        // The interface has been moved to this namespace.
        let Ok(first) = messages.recv() else { return };
        ip("link set far up");
        let socket = packet_socket("far");
        for message in std::iter::once(first).chain(messages) {
            rustix::net::send(&socket, &message, rustix::net::SendFlags::empty()).unwrap();
        }
    });
    ip(&format!("link set far netns {}", said.recv().unwrap()));
    ip("link set near up");
    to_neighbour.send(message(0, 100)).unwrap();
    assert_eq!(tcp_received(&mut port, 4), [100; 4]);
    let full = 1500 - 40;
    for (tags, size, comes) in [
        (0, full, true),
        (1, full, true),
        (2, full, false),
        (2, full - 4, true),
        (3, full, false),
        (3, full - 4, false),
        (3, full - 8, true),
    ] {
        let before = port.stats();
        to_neighbour.send(message(tags, size)).unwrap();
        // The next message arrives after it.
        to_neighbour.send(message(0, 200)).unwrap();
        let wanted = if comes { vec![size, size, size, size, 200, 200, 200, 200] } else { vec![200; 4] };
        assert_eq!(tcp_received(&mut port, wanted.len()), wanted, "{tags} tags: {:?}", port.stats());
        let grew = |name| port.stats()[name] - before[name];
        let counted = ("rx_cut", "rx_too_long");
        assert_eq!((grew(counted.0), grew(counted.1)), (1 + u64::from(comes), u64::from(!comes)), "{tags}");
    }
    drop(to_neighbour);
    neighbour.join().unwrap();
}

/// Makes four segments of `size` bytes joined in one frame, as a kernel would, behind `tags` tags.
fn message(tags: usize, size: usize) -> Vec<u8> {
    let mut frame = [[2; 6], [4; 6]].concat();
    (0..tags).for_each(|tag| frame.extend([if tag + 1 == tags { 0x81 } else { 0x88 }, 0, 0, 7]));
    // The outer tags are those of 802.1ad.
    (0..tags.saturating_sub(1)).for_each(|tag| frame[13 + 4 * tag] = 0xa8);
    frame.extend([8, 0]);
    let start = frame.len() as u16;
    let total = 40 + 4 * size;
    let addresses = [10, 77, 0, 9, 10, 77, 0, 1];
    let mut packet = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 1, 0x40, 0, 64, 6, 0, 0];
    packet.extend(addresses);
    let checksum = Sum::of(&packet).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend([4, 210, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 255, 255, 0, 0, 0, 0]);
    // The sum of the pseudo-header: addresses, protocol, length.
    let mut sum = Sum::of(&addresses);
    sum.add(&[0, 6]);
    sum.add(&((total - 20) as u16).to_be_bytes());
    packet[36..38].copy_from_slice(&(!sum.finish()).to_be_bytes());
    packet.extend((0..4 * size).map(|at| at as u8));
    let fields = [start + 40, size as u16, start + 20, 16].map(u16::to_ne_bytes).concat();
    [vec![1, 1], fields, frame, packet].concat()
}

/// Returns the number of data bytes in each of the next segments.
fn tcp_received(port: &mut Port, count: usize) -> Vec<usize> {
    let (mut burst, mut lengths) = (Burst::default(), Vec::new());
    wait::until(&format!("{count} segments"), || {
        port.receive(&mut burst);
        for frame in burst.frames() {
            let packet = frame.iter().skip(12).skip_while(|byte| **byte != 0x45).copied().collect::<Vec<_>>();
            if packet.get(9) == Some(&6) && packet[12..16] == [10, 77, 0, 9] {
                lengths.push(packet.len() - 40);
            }
        }
        (lengths.len() >= count).then_some(())
    });
    lengths
}

/// Opens a packet socket that passes offload data with each frame (PACKET_VNET_HDR, 15 in
/// `linux/if_packet.h`).
fn packet_socket(interface: &str) -> OwnedFd {
    // SAFETY: these are plain system calls. The descriptor is owned here alone, and the option is
    // an int. The address may be all zeros, and has the given length.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        let (socket, on) = (OwnedFd::from_raw_fd(fd), 1i32);
        assert_eq!(libc::setsockopt(fd, libc::SOL_PACKET, 15, (&raw const on).cast(), 4), 0);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = rustix::net::netdevice::name_to_index(&socket, interface).unwrap() as i32;
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), len), 0);
        socket
    }
}

/// Checks that checksums are complete. The other end of a veth may offload them to a device that
/// does not exist.
fn what_the_host_left_open_is_complete(b: &mut Port) {
    ip("addr add 192.0.2.1/24 dev va");
    ip("neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev va");
    let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
    socket.send_to(&[7; 777], "192.0.2.2:9").unwrap();
    let mut burst = Burst::default();
    let frame = wait::until("what the host sends", || {
        b.receive(&mut burst);
        let ours = burst.frames().iter().find(|frame| frame[12..14] == [8, 0] && frame[23] == 17);
        ours.map(|frame| frame.to_vec())
    });
    // The sum includes a pseudo-header with protocol and length.
    let mut sum = Sum::of(&[0, 17]);
    sum.add(&((frame.len() - 34) as u16).to_be_bytes());
    sum.add(&frame[26..]);
    assert_eq!((frame.len(), sum.finish()), (14 + 20 + 8 + 777, 0));
    ip("addr del 192.0.2.1/24 dev va");
}
