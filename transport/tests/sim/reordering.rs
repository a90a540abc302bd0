//! A link that reorders packets and loses none.

use crate::link::Faults;
use crate::rng::Rng;
use crate::scenario::{self, Extras, Outcome, Plan};
use crate::stream::Shape;
use vrdma_transport::QpType;
use vrdma_wire::num::Mtu;

/// Sends this many bytes on each of four streams. One packet in a hundred is up to `late` ns late.
fn reordered(late: u64, bytes: u64) -> Outcome {
    let faults = Faults { reordering: 10_000, delay: 5_000, late, pace: 80, ..Faults::default() };
    let shape = Shape {
        requests: 50,
        bytes,
        longest: 1 << 20,
        window: 4 << 20,
        depth: 16,
        receives: 32,
        send_pause: 0,
        recv_pause: 0,
        signal_every: 2,
        poison: false,
        one_way: true,
    };
    let plan = Plan {
        guests: vec![1, 1],
        v4: true,
        faults,
        services: vec![QpType::Rc; 2],
        loopback: false,
        shape,
        flaps: false,
        robust: true,
        mtu: Some(Mtu::M4096),
        extras: Extras::default(),
    };
    scenario::run(7, Rng::new(late), &plan, None, false)
}

#[test]
fn reordering_alone_costs_almost_no_packet_once_it_is_known() {
    // Up to 6, 15, 30, and 300 packets overtake one. The last is beyond what is tolerated.
    for (late, is_tolerated) in [(2_000, true), (5_000, true), (10_000, true), (100_000, false)] {
        let Outcome { streams, failures, sent, resent, resent_by_epoch, lost, .. } =
            reordered(late, 20 << 20);
        let later: u64 = resent_by_epoch.iter().skip(4).sum();
        println!("up to {late} ns late: {resent} of {sent} packets again, {later} after the first 4000");
        assert_eq!((streams, failures, lost), (4, 0, 0));
        // A responder that holds nothing has one in six sent again, at any depth.
        assert!(resent < sent / 10);
        assert!(!is_tolerated || later < sent / 200);
    }
}
