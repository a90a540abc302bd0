//! Guests' Ethernet functions, and the switch between them.
//!
//! Shows: ethernet.

use vrdma_tests::net::{NetGuest, NetOptions, TRANSMIT, frame, mac};
use vrdma_tests::{Lab, LabOptions, Rng, wait};

const ALL: [u8; 6] = [0xff; 6];
/// EtherType for experiments (IEEE 802).
const TEST: u16 = 0x88b5;

fn lab(guests: u8) -> Lab {
    Lab::without_guests(guests, LabOptions::default())
}

fn guest(lab: &Lab, index: u8, options: NetOptions) -> NetGuest {
    NetGuest::connect(&lab.net_socket(index), options).expect("the daemon accepts the guest")
}

#[test]
fn frames_of_all_lengths_arrive_as_they_were_sent() {
    let lab = lab(2);
    let mut rng = Rng::from_env("ethernet");
    let mut padding = 0;
    for (event_idx, buffer_len) in [(true, 1536), (false, 1536), (true, 64), (true, 12000)] {
        let options = NetOptions { event_idx, buffer_len, ..NetOptions::default() };
        let (mut a, mut b) = (guest(&lab, 0, options.clone()), guest(&lab, 1, options));
        for round in 0..200 {
            let len = match round {
                0 => 0,
                1 => 9000,
                _ => rng.below(9000) as usize,
            };
            let sent = frame(mac(2), mac(1), TEST, &rng.bytes(len));
            let cuts = [12, 12 + 1 + rng.below(20) as usize, 40 + rng.below(5000) as usize];
            a.send_with(Default::default(), &sent, &cuts);
            let (header, found) = b.recv();
            let wanted = lab.arrives(0, 1, &sent);
            assert!(found == wanted, "{len} bytes: {} arrived", found.len());
            padding += (wanted.len() - sent.len()) as u64;
            assert_eq!((header.flags, header.gso_type, header.gso_size), (0, 0, 0));
            let buffers = (found.len() + 12).div_ceil(buffer_len as usize);
            assert_eq!(usize::from(header.num_buffers), buffers);
        }
        a.expect_nothing();
    }
    let stats = lab.stats();
    let switches = if lab.are_apart(0, 1) { 2 } else { 1 };
    assert_eq!(
        (stats.net(0, "tx_frames"), stats.net(1, "rx_frames"), stats.switch("forwarded")),
        (800, 800, 800 * switches)
    );
    assert_eq!(stats.net(0, "tx_bytes") + padding, stats.net(1, "rx_bytes"));
}

#[test]
fn a_broadcast_reaches_all_others_and_a_spoofed_frame_nobody() {
    let lab = lab(3);
    let mut guests: Vec<_> = (0..3).map(|index| guest(&lab, index, NetOptions::default())).collect();
    let sent = frame(ALL, mac(1), TEST, b"who has 10.0.0.2?");
    guests[0].send(&sent);
    let wanted = [1, 2].map(|to| lab.arrives(0, to, &sent));
    assert_eq!([guests[1].recv().1, guests[2].recv().1], wanted);
    for (dst, src) in [(ALL, mac(2)), (mac(3), mac(2)), (mac(3), [2, 0, 0, 0, 0, 1]), (mac(2), ALL)] {
        guests[0].send(&frame(dst, src, TEST, b"it was not me"));
    }
    guests[0].send(&frame([0x01, 0x80, 0xc2, 0, 0, 0], mac(1), TEST, b"a bridge"));
    guests[0].send(&frame([2, 0, 0, 0, 0, 1], mac(1), TEST, b"nobody"));
    guests[0].send(&mac(2)[..]);
    guests.iter_mut().for_each(NetGuest::expect_nothing);
    let stats = lab.stats();
    assert_eq!(
        (stats.net(0, "tx_spoofed"), stats.net(0, "tx_refused"), stats.net(0, "rx_frames")),
        (4, 2, 0)
    );
    let switch = ["group", "unknown", "drop_spoofed", "drop_group_source", "drop_reserved", "drop_runt"];
    // Each worker's switch counts the broadcast.
    assert_eq!(switch.map(|name| stats.switch(name)), [lab.workers().into(), 1, 3, 1, 1, 1]);
}

#[test]
fn a_guest_without_room_loses_frames_and_holds_nobody_up() {
    let lab = lab(3);
    let mut a = guest(&lab, 0, NetOptions::default());
    let mut full = guest(&lab, 1, NetOptions { buffers: 3, buffer_len: 100, ..NetOptions::default() });
    let mut c = guest(&lab, 2, NetOptions::default());
    let long = frame(mac(2), mac(1), TEST, &[7; 200]);
    let short = frame(mac(2), mac(1), TEST, &[8; 50]);
    a.send(&long);
    a.send(&short);
    for _ in 0..100 {
        a.send(&short);
        a.send(&frame(mac(3), mac(1), TEST, &[9; 100]));
        assert_eq!(c.recv().1[14..], [9; 100]);
    }
    // A receiver on a worker of its own may lag behind the sender.
    let (lost, taken) = wait::until("all frames to be lost or taken", || {
        let stats = lab.stats();
        let both = (stats.net(1, "rx_no_buffer"), stats.net(1, "rx_frames"));
        (both.0 + both.1 >= 102).then_some(both)
    });
    assert_eq!((lost, taken), (101, 1));
    assert_eq!(full.recv().1, long, "it is there, in all three buffers");
    a.send(&short);
    assert_eq!(full.recv().1, short);
}

#[test]
fn a_worker_that_sleeps_is_woken_by_a_frame() {
    for event_idx in [true, false] {
        let lab = Lab::without_guests(2, LabOptions { poll_us: 0, ..LabOptions::default() });
        let options = NetOptions { event_idx, ..NetOptions::default() };
        let (mut a, mut b) = (guest(&lab, 0, options.clone()), guest(&lab, 1, options));
        for round in 0..50u8 {
            let sleeps = lab.stats().worker_sleeps();
            wait::until("the worker to sleep", || (lab.stats().worker_sleeps() > sleeps).then_some(()));
            if !event_idx {
                let ring = &a.queues[usize::from(TRANSMIT)].ring;
                wait::until("a wish for a kick", || (ring.used_flags() & 1 == 0).then_some(()));
            }
            let sent = frame(mac(2), mac(1), TEST, &[round; 80]);
            a.send(&sent);
            assert_eq!(b.recv().1, sent);
        }
        // While the worker is awake it does not ask for kicks, so there may be fewer kicks than
        // frames.
        assert_ne!(lab.stats().net(0, "kicks"), 0);
        assert_eq!(lab.stats().net(1, "kicks"), 0, "nobody asks to be told of receive buffers");
    }
}
