//! Tests two ports over `net_af_packet`, at the two ends of a veth in the test's own network
//! namespace. They need root.
//!
//! Shows: queues.

mod veth;

use veth::{
    a_pool_run_dry, carry_frames, every_length_both_ways, frame, ip, mtu, open, received, send,
    sleepers_are_woken, the_interface_goes, the_link_flaps, wait, wait_link,
};
use vrdma_backend::port::{Burst, Driver, Eal, Ethdev, Port, Queues};

fn a_device_that_cannot_be_had_changes_nothing() {
    let device = "net_af_packet1,iface=vb,blocksz=1".parse().unwrap();
    assert!(Ethdev::open(Eal::start("", &device).unwrap(), &device, Some(9000)).is_err());
    assert_eq!(mtu("vb"), 1500);
}

#[test]
fn packet_sockets_carry_frames_and_tell_of_the_link() {
    if !veth::veth() {
        return;
    }
    let mut a = open("net_af_packet0,iface=va", Some(9000));
    let mut b = open("net_af_packet1,iface=vb", Some(9000));
    carry_frames(&mut a, &mut b);
    a_pool_run_dry(&mut a, &mut b);
    a_full_ring(&mut a, &mut b);
    the_link_flaps(&mut a, &mut b);
    // The device can be opened again, and its interface has its own MTU back.
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

/// Checks that both queues of a device send and receive. The device stays until both queues are
/// dropped.
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
    // The kernel chooses the queue of each frame.
    for seed in 0..20 {
        send(a, &frame(100, seed));
        let came = wait::until("a frame at one of the queues", || {
            let came: Vec<_> = queues.iter_mut().flat_map(received_now).collect();
            (!came.is_empty()).then_some(came)
        });
        assert!(came == [frame(100, seed)]);
    }
    for queue in &mut queues {
        send(queue, &frame(100, 1));
        assert!(received(a, 1) == [frame(100, 1)]);
    }
    // SAFETY: EAL runs, and has a device of this name.
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

/// Returns the frames that have arrived.
fn received_now(port: &mut Port) -> Vec<Vec<u8>> {
    let mut burst = Burst::default();
    port.receive(&mut burst);
    let ours = burst.frames().iter().filter(|frame| frame[12..14] == [0x88, 0xb5]);
    ours.map(|frame| frame.to_vec()).collect()
}

/// Tests AF_XDP, if the kernel and libxdp support it.
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
    buffers_of_all_the_pool_take_frames(a, &mut b);
}

/// Checks all buffers of a pool. Only its first buffers are in use unless somebody keeps many
/// frames.
fn buffers_of_all_the_pool_take_frames(a: &mut Port, b: &mut Port) {
    let mut held: Vec<Burst> = Vec::new();
    for seed in 0..5000 {
        send(a, &frame(100, seed));
        wait::until(&format!("frame {seed}"), || {
            let mut burst = Burst::default();
            if b.receive(&mut burst) == 0 {
                return None;
            }
            let came = burst.frames().iter().any(|found| found[..] == frame(100, seed));
            held.push(burst);
            came.then_some(())
        });
    }
    drop(held);
    send(b, &frame(100, 1));
    assert!(received(a, 1) == [frame(100, 1)]);
}

fn a_full_ring(a: &mut Port, b: &mut Port) {
    for seed in 0..3000 {
        send(a, &frame(60, seed));
    }
    wait::until("a full ring to be counted", || {
        b.poll_link();
        (b.stats()["rx_ring_full"] > 0).then_some(())
    });
    let (dropped, kept) = (b.stats()["rx_ring_full"], received(b, 1000).len());
    assert!(dropped > 0 && kept >= 1000, "{dropped} dropped, {kept} kept: {:?}", b.stats());
    let mut burst = Burst::default();
    while b.receive(&mut burst) != 0 {}
}
