//! Many senders to one receiver, over a switch whose queue cannot hold what they send at once.

use crate::link::Faults;
use crate::rng::Rng;
use crate::scenario::{self, Extras, Outcome, Plan};
use crate::stream::Shape;
use crate::switch::Queue;
use vrdma_transport::QpType;
use vrdma_wire::num::Mtu;

/// ECT(0): the ends understand congestion marks (RFC 3168, 5).
const ECT: u8 = 2;

/// Runs this many senders of 2 MB each to one receiver, at 100 Gb/s.
fn incast(senders: usize, traffic_class: u8, seed: u64) -> Outcome {
    let shape = Shape {
        requests: 30,
        bytes: 2 << 20,
        longest: 1 << 18,
        window: 1 << 20,
        depth: 16,
        receives: 16,
        send_pause: 0,
        recv_pause: 0,
        signal_every: 2,
        poison: false,
        one_way: false,
    };
    let queue = Queue { pace: 80, room: 100_000, ecn_min: 20_000, ecn_max: 80_000 };
    let plan = Plan {
        guests: vec![1; senders + 1],
        v4: true,
        faults: Faults { delay: 5_000, pace: 80, ..Faults::default() },
        services: vec![QpType::Rc; senders],
        loopback: false,
        shape,
        flaps: false,
        robust: true,
        mtu: Some(Mtu::M1024),
        extras: Extras { switch: Some(queue), incast: true, traffic_class, ..Extras::default() },
    };
    scenario::run(seed, Rng::new(seed), &plan, None, false)
}

#[test]
fn an_incast_ends_with_all_data_right() {
    for (senders, seed) in [(4, 1), (8, 2), (32, 3)] {
        let Outcome { streams, failures, bytes, dropped, took, frames, .. } = incast(senders, 0, seed);
        println!("{senders} senders: {dropped} of {frames} dropped; {:.2} ms", took as f64 / 1e6);
        assert_eq!((streams, failures), (senders, 0));
        assert!(bytes >= senders as u64 * (2 << 20));
        assert!(dropped > 0, "{senders} windows do not fit into the queue");
    }
}

#[test]
fn an_incast_whose_ends_understand_marks_gets_some() {
    let marked = [0, ECT].map(|class| incast(8, class, 4).marked);
    assert!(marked[0] == 0 && marked[1] > 0, "{marked:?}");
}
