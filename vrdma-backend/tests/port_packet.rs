//! Two ports over `net_packet`, at the two ends of a veth in a network namespace that goes with the test. Root only.

mod veth;

use std::net::UdpSocket;
use std::time::Instant;
use veth::{
    PATIENCE, a_pool_run_dry, carry_frames, every_length_both_ways, frame, ip, mtu, open, received, send,
    send_some, the_interface_goes, the_link_flaps, wait_link,
};
use vrdma_backend::port::{self, BURST, Burst, Checksums, Eal, Offload, Port};
use vrdma_wire::checksum::Sum;
use vrdma_wire::num::{Gid, Mac};
use vrdma_wire::tcp::{Flags, Header, Options, Packet};

#[test]
fn our_packet_sockets_carry_frames_and_segments_that_pass_as_one() {
    if !veth::veth() {
        return;
    }
    let mut a = open("net_packet0,iface=va", Some(9000));
    let mut b = open("net_packet1,iface=vb", Some(9000));
    carry_frames(&mut a, &mut b);
    segments_pass_as_one(&mut a, &mut b, true);
    // Of a device that takes no long ones the kernel cuts them.
    ip("link set va gso_max_size 2000");
    segments_pass_as_one(&mut a, &mut b, false);
    ip("link set va gso_max_size 65536");
    what_the_host_left_open_is_complete(&mut b);
    a_pool_run_dry(&mut a, &mut b);
    a_full_socket(&mut a, &mut b);
    what_the_kernel_refuses_is_counted(&mut a, &mut b);
    the_link_flaps(&mut a, &mut b);
    // The device can be had again, and its interface has its own MTU back.
    drop(b);
    assert_eq!(mtu("vb"), 1500);
    a_device_that_cannot_be_had_changes_nothing();
    ip("link set vb mtu 9000");
    let mut b = open("net_packet1,iface=vb", None);
    assert_eq!(b.capabilities().mtu, 9000, "the interface's");
    every_length_both_ways(&mut a, &mut b);
    // Frames are the same as those of DPDK's driver.
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

/// Segments of a connection, each with so many bytes of data.
fn segments(count: usize, length: usize) -> Vec<Vec<u8>> {
    let gid = |last| Gid::from_ipv4([192, 0, 2, last]);
    let segment = |number: usize| {
        let header = Header {
            src_port: 4420,
            dst_port: 50_000,
            seq: (number * length) as u32,
            ack: 1,
            flags: Flags::ACK,
            window: 500,
            urgent: 0,
            options: Options { timestamps: Some((1, 2)), ..Options::default() },
        };
        let packet = Packet {
            src_mac: Mac([2; 6]),
            dst_mac: Mac([4; 6]),
            vlan: None,
            src: gid(3),
            dst: gid(4),
            header,
        };
        let mut frame = vec![0; packet.len()];
        frame.extend((0..length).map(|i| (i * 31 + number) as u8));
        packet.emit(Sum::of(&frame[packet.len()..]), &mut frame);
        frame
    };
    (0..count).map(segment).collect()
}

/// What nobody takes is lost at an end, which is counted, and the rest is there.
fn a_full_socket(a: &mut Port, b: &mut Port) {
    let start = Instant::now();
    let mut sent = 0;
    while b.stats()["rx_ring_full"] == 0 && start.elapsed() < PATIENCE {
        for seed in 0..1000 {
            send(a, &frame(60, seed));
        }
        sent += 1000;
        b.poll_link();
    }
    let lost = b.stats()["rx_ring_full"];
    assert!(lost > 0 && lost < sent, "{lost} of {sent}");
    assert!(received(b, 1000).len() >= 1000);
    let mut burst = Burst::default();
    while b.receive(&mut burst) != 0 {}
}

/// The interface is down before the port has looked.
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

/// Those that follow each other do, also if a burst ends within or their checksum is left to the port; who gets them sees all of them as they were. `together` says whether they come so.
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
                // The sum of the pseudo header: addresses, protocol, length.
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
        let (mut burst, mut came, start) = (Burst::default(), Vec::new(), Instant::now());
        while came.len() < count && start.elapsed() < PATIENCE {
            a.flush();
            b.receive(&mut burst);
            let ours = burst.frames().iter().filter(|frame| frame[12..14] == [8, 0] && frame[23] == 6);
            came.extend(ours.map(|frame| Packet::parse(frame).map(|(packet, data)| (packet, data.to_vec()))));
        }
        assert_eq!(came.len(), count, "{:?}", b.stats());
        for (came, sent) in came.iter().zip(&frames) {
            let (packet, data) = Packet::parse(sent).unwrap();
            assert!(*came == Ok((packet, data.to_vec())), "{length} bytes");
        }
        let (joined, cut) = (a.stats()["tx_joined"] - before.0, b.stats()["rx_cut"] - before.1);
        assert_eq!((joined > 0, cut > 0), (count > 1, count > 1 && together), "{joined} joined, {cut} cut");
    }
}

/// The other end of a veth may leave checksums to a device that is none.
fn what_the_host_left_open_is_complete(b: &mut Port) {
    ip("addr add 192.0.2.1/24 dev va");
    ip("neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev va");
    let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
    socket.send_to(&[7; 777], "192.0.2.2:9").unwrap();
    let (mut burst, start) = (Burst::default(), Instant::now());
    let mut came = None;
    while came.is_none() && start.elapsed() < PATIENCE {
        b.receive(&mut burst);
        let ours = burst.frames().iter().find(|frame| frame[12..14] == [8, 0] && frame[23] == 17);
        came = ours.map(|frame| frame.to_vec());
    }
    let frame = came.expect("the host sends it");
    // With the protocol and the length in a pseudo header before it.
    let mut sum = Sum::of(&[0, 17]);
    sum.add(&((frame.len() - 34) as u16).to_be_bytes());
    sum.add(&frame[26..]);
    assert_eq!((frame.len(), sum.finish()), (14 + 20 + 8 + 777, 0));
    ip("addr del 192.0.2.1/24 dev va");
}
