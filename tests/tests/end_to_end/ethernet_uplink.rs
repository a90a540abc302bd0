//! The switch and the uplink. The test holds the remote end of the uplink's cable.
//!
//! Shows: ethernet.

use std::time::Duration;
use vrdma_backend::port::{Burst, Port};
use vrdma_tests::lab::CableOptions;
use vrdma_tests::net::{NetGuest, NetOptions, frame, mac};
use vrdma_tests::packets::{ID, Packet, SEQ, check};
use vrdma_tests::{Lab, LabOptions, Rng, wait};

const ALL: [u8; 6] = [0xff; 6];
/// MAC address of a remote host.
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 77];
const TEST: u16 = 0x88b5;

/// A daemon with guests whose uplink ends in this test.
struct Host {
    lab: Lab,
    guests: Vec<NetGuest>,
    outside: Port,
    came: Vec<Vec<u8>>,
}

impl Host {
    fn new(guests: u8) -> Host {
        let cable = Some(CableOptions { held: true, ..CableOptions::default() });
        let mut lab = Lab::without_guests(guests, LabOptions { cable, ..LabOptions::default() });
        let connect =
            |index| NetGuest::connect(&lab.net_socket(index), NetOptions::default()).expect("accepted");
        let guests = (0..guests).map(connect).collect();
        let outside = lab.outside.take().expect("its end");
        Host { lab, guests, outside, came: Vec::new() }
    }

    fn send(&mut self, frame: &[u8]) {
        let mut room = self.outside.transmit(frame.len()).expect("room");
        room.buf()[..frame.len()].copy_from_slice(frame);
        room.commit(frame.len());
        self.outside.flush();
    }

    /// Receives the next frame that leaves the host.
    fn recv(&mut self) -> Vec<u8> {
        let mut burst = Burst::default();
        wait::until("a frame on the wire", || {
            if self.came.is_empty() {
                self.outside.receive(&mut burst);
                self.came.extend(burst.frames().iter().map(|frame| frame.to_vec()));
            }
            (!self.came.is_empty()).then(|| self.came.remove(0))
        })
    }

    /// Asserts that only the frame sent by `last` leaves the host.
    fn expect_silence(&mut self, last: &mut impl FnMut(&mut Host) -> Vec<u8>) {
        let marker = last(self);
        assert_eq!(self.recv()[..marker.len()], marker);
        assert!(self.came.is_empty(), "{:?}", self.came);
    }

    /// Returns how many frames were lost because the link is down.
    ///
    /// With several workers, the switch still forwards frames to the uplink, because that path also
    /// leads to the other workers.
    fn lost(&self) -> u64 {
        let stats = self.lab.stats();
        stats.switch("uplink_lost") + if self.lab.workers() > 1 { stats.uplink("tx_link_down") } else { 0 }
    }

    /// Waits until a counter of the switch has reached `wanted`, and asserts that it is equal.
    fn expect_count(&self, counter: &str, wanted: u64) {
        let found =
            wait::within(wait::PATIENCE, || (self.lab.stats().switch(counter) >= wanted).then_some(()));
        assert!(found.is_some(), "{counter} {}", self.lab.stats().switch(counter));
        assert_eq!(self.lab.stats().switch(counter), wanted, "{counter}");
    }
}

/// Sends a broadcast from guest 0, which leaves after everything the guest sent earlier.
fn marker(host: &mut Host) -> Vec<u8> {
    let sent = frame(ALL, mac(1), TEST, &[0x77; 60]);
    host.guests[0].send(&sent);
    sent
}

#[test]
fn guests_and_the_world_talk_and_the_host_s_own_affairs_stay_in() {
    let mut host = Host::new(2);
    // To an unknown address: it leaves the host, padded to the shortest frame.
    let question = frame(FAR, mac(1), TEST, b"are you there?");
    host.guests[0].send(&question);
    let found = host.recv();
    assert_eq!(
        (found.len(), &found[..question.len()], &found[question.len()..]),
        (60, &question[..], &[0; 32][..])
    );
    let answer = frame(mac(1), FAR, TEST, &[1; 9000]);
    host.send(&answer);
    assert_eq!(host.guests[0].recv().1, answer);
    // A broadcast from either side reaches all others.
    let shout = frame(ALL, mac(2), TEST, &[2; 100]);
    host.guests[1].send(&shout);
    assert_eq!((host.recv(), host.guests[0].recv().1), (shout.clone(), shout));
    let shout = [&frame(ALL, FAR, 0x8100, &[0x20, 5])[..], &[0x88, 0xb5], &[3; 100]].concat();
    host.send(&shout);
    assert_eq!((host.guests[0].recv().1, host.guests[1].recv().1), (shout.clone(), shout));
    // A frame from guest to guest stays inside. A frame to an address that is not here goes
    // nowhere.
    let inside = frame(mac(2), mac(1), TEST, &[4; 100]);
    host.guests[0].send(&inside);
    assert_eq!(host.guests[1].recv().1, inside);
    host.send(&frame([2, 0, 0, 0, 0, 78], FAR, TEST, &[5; 100]));
    host.expect_silence(&mut marker);
    host.expect_count("unknown", 2);
    host.expect_count("drop_own_source", 0);
    host.guests[0].expect_nothing();
}

#[test]
fn what_comes_in_as_a_guest_of_ours_is_dropped() {
    let mut host = Host::new(2);
    for (dst, src) in [(mac(1), mac(2)), (ALL, mac(1)), (FAR, mac(2))] {
        host.send(&frame(dst, src, TEST, &[9; 100]));
    }
    host.expect_count("drop_own_source", 3);
    // A frame from a guest under a remote host's address does not leave.
    host.guests[0].send(&frame(ALL, FAR, TEST, &[9; 100]));
    host.expect_silence(&mut marker);
    assert_eq!(host.guests[1].recv().1[6..12], mac(1));
    host.guests.iter_mut().for_each(NetGuest::expect_nothing);
    assert_eq!(host.lab.stats().net(0, "tx_spoofed"), 1);
}

#[test]
fn what_leaves_the_host_is_whole() {
    let mut host = Host::new(1);
    let mut rng = Rng::from_env("what_leaves_the_host");
    for (v6, vlan) in [(false, None), (true, None), (false, Some(9)), (true, Some(9))] {
        let packet = |tcp| Packet { hosts: (1, 200), v6, tcp, vlan };
        for len in [20, 100, 1999] {
            let payload = rng.bytes(len);
            for tcp in [false, true] {
                let (header, sent) = packet(tcp).unfinished(&payload);
                host.guests[0].send_with(header, &sent, &[12, 50]);
                let found = host.recv();
                assert!(found[..sent.len()] == packet(tcp).frame(&payload));
                assert!(found.len() == sent.len().max(60) && check(&found[..sent.len()]).payload == payload);
            }
        }
        let payload = rng.bytes(60_000);
        let (header, sent) = packet(true).uncut(&payload, 1448);
        host.guests[0].send_with(header, &sent, &[12, 5000]);
        for (index, piece) in payload.chunks(1448).enumerate() {
            let found = check(&host.recv());
            let id = if v6 { 0 } else { ID.wrapping_add(index as u16) };
            assert_eq!((found.seq, found.id), (SEQ.wrapping_add(1448 * index as u32), id));
            assert!(found.payload == piece);
        }
    }
    host.expect_silence(&mut marker);
}

#[test]
fn roce_goes_to_the_engine_and_never_to_the_netdev() {
    let mut host = Host::new(2);
    let mut packet = Packet { hosts: (200, 1), v6: false, tcp: false, vlan: None }.frame(&[0; 64]);
    packet[6..12].copy_from_slice(&FAR);
    let port = packet.len() - 64 - 6;
    packet[port..port + 2].copy_from_slice(&4791u16.to_be_bytes());
    host.send(&packet);
    host.expect_count("roce", 1);
    assert_eq!(host.lab.stats().roce("frames_in"), 1);
    // From a guest's netdev, too, which may run soft-RoCE.
    packet[6..12].copy_from_slice(&mac(2));
    host.guests[1].send(&packet);
    host.expect_count("roce", 2);
    packet[port..port + 2].copy_from_slice(&4792u16.to_be_bytes());
    host.guests[1].send(&packet);
    assert_eq!(host.guests[0].recv().1, packet);
    host.guests[0].expect_nothing();
}

#[test]
fn without_a_link_guests_still_have_each_other() {
    let mut host = Host::new(2);
    let out = frame(FAR, mac(1), TEST, &[1; 100]);
    host.guests[0].send(&out);
    assert_eq!(host.recv(), out);
    let cable = host.lab.cable.clone().expect("a cable");
    cable.plug(false);
    wait::until("the daemon to notice", || {
        host.guests[0].send(&out);
        (host.lost() != 0).then_some(())
    });
    let inside = frame(mac(2), mac(1), TEST, &[2; 100]);
    host.guests[0].send(&inside);
    assert_eq!(host.guests[1].recv().1, inside);
    cable.plug(true);
    host.outside.poll_link();
    wait::until("the link to be back", || {
        host.guests[0].send(&out);
        let lost = host.lost();
        host.guests[0].send(&out);
        (host.lost() == lost).then_some(())
    });
    host.came.clear();
    assert_eq!(host.recv(), out);
    let back = frame(mac(1), FAR, TEST, &[3; 100]);
    wait::until("a frame back", || {
        host.send(&back);
        host.guests[0].recv_within(Duration::from_millis(100)).map(|(_, found)| assert_eq!(found, back))
    });
}

#[test]
fn two_hosts_exchange_megabytes() {
    let cable = Some(CableOptions::default());
    let lab = Lab::without_guests(2, LabOptions { cable, ..LabOptions::default() });
    let connect = |index| NetGuest::connect(&lab.net_socket(index), NetOptions::default()).expect("accepted");
    let (mut a, mut b) = (connect(0), connect(1));
    let mut rng = Rng::from_env("two_hosts");
    let packet = Packet { hosts: (1, 2), v6: true, tcp: true, vlan: None };
    let mut bytes = 0;
    for _ in 0..300 {
        let payload = rng.bytes(60_000);
        let (header, sent) = packet.uncut(&payload, 8900);
        a.send_with(header, &sent, &[]);
        let mut found = Vec::new();
        while found.len() < payload.len() {
            found.extend(check(&b.recv().1).payload);
        }
        assert!(found == payload);
        bytes += found.len();
    }
    println!("{bytes} bytes");
    assert_eq!((lab.stats().switch("uplink_lost"), lab.remote_stats().net(0, "rx_no_buffer")), (0, 0));
}
