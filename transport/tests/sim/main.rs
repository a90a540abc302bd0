//! A deterministic simulation of engines on a bad link.
//!
//! The link loses, duplicates, reorders, corrupts and delays packets. The clock advances by events
//! only. A seed determines everything, so each run is repeatable exactly. The results are compared
//! with models that know no packets at all ([`stream`], [`unreliable`]). QPs of all services run
//! beside each other, on one engine and on several. They use receive queues of their own, or shared
//! ones. Each seed also runs with connections to a peer that was written separately.
//!
//! | module | contents |
//! |---|---|
//! | [`link`], [`switch`] | the link, and queues before receiving hosts, which drop and mark |
//! | [`scenario`] | what happens by a seed, and [`against`] [reference peers](reference) |
//! | [`stream`], [`unreliable`] | what is posted, and the models of the results |
//! | [`incast`], [`congestion`] | many senders to one receiver, without and with congestion control |
//! | [`reordering`] | a link that reorders, and loses nothing |
//! | [`silence`] | a peer that does not answer |
//! | [`iwarp`] | iWARP over vrdma's own TCP |
//!
//! `VRDMA_SIM_SEED=n cargo test -p vrdma-transport --test sim one_seed -- --ignored --nocapture`
//! prints each step of a single seed. A range, such as `0..1000`, prints the trace of all its
//! seeds. The trace stays equal if a change of the code does not change the behaviour.
//! `a_seed_with_references` instead of `one_seed` runs the seed against reference peers.
//!
//! Shows: bad-link, replaced-engine, iwarp, placed.

mod against;
mod area;
mod census;
mod congestion;
mod connect;
mod flow;
mod incast;
mod iwarp;
mod journal;
mod link;
mod memory;
mod reference;
mod reordering;
mod rng;
mod scenario;
mod silence;
mod stream;
mod switch;
mod unreliable;
mod world;

use link::Faults;
use rng::Rng;
use scenario::{Extras, Outcome, Plan};
use stream::Shape;
use vrdma_transport::QpType;

/// Runs a seed.
fn one(seed: u64, verbose: bool) -> Outcome {
    let mut rng = Rng::new(seed);
    let plan = Plan::random(&mut rng);
    scenario::run(seed, rng, &plan, None, verbose)
}

/// Runs a seed again, while engines are replaced by restored copies. The outcome must be equal.
fn replaced(seed: u64, outcome: &Outcome) -> u64 {
    let mut rng = Rng::new(seed);
    let plan = Plan::random(&mut rng);
    let again = scenario::run(seed, rng, &plan, Some(Rng::new(!seed)), false);
    let story = |it: &Outcome| (it.trace, it.frames, it.took, it.bytes, it.streams, it.failures);
    assert_eq!(story(&again), story(outcome), "seed {seed} with engines replaced");
    again.replaced
}

fn seeds(range: std::ops::Range<u64>) {
    let (mut streams, mut failures, mut frames, mut trace, mut copies) = (0, 0, 0, 0u64, 0);
    let mut windows = [0; 3];
    for seed in range {
        let outcome = one(seed, false);
        copies += replaced(seed, &outcome);
        streams += outcome.streams;
        failures += outcome.failures;
        frames += outcome.frames;
        windows.iter_mut().zip(outcome.windows).for_each(|(sum, count)| *sum += count);
        trace = trace.rotate_left(1) ^ outcome.trace;
    }
    println!(
        "{streams} streams, of which {failures} failed as they may; {frames} frames; trace {trace:016x}; {copies} engines replaced; \
         windows bound, and invalidated by either side: {windows:?}"
    );
    assert!(copies > streams as u64, "engines are replaced in most stories");
    assert!(windows.iter().all(|count| *count > streams as u64 / 20), "windows come and go: {windows:?}");
    assert!(failures < streams / 2, "most streams come to a good end: {failures} of {streams} did not");
}

/// Runs a seed from the environment and prints every step, or a range such as `1000..2000` without
/// steps.
#[test]
#[ignore = "a tool: it tells a story"]
#[expect(clippy::disallowed_methods, reason = "it is how a person asks for a seed")]
fn one_seed() {
    let Ok(asked) = std::env::var("VRDMA_SIM_SEED") else { return };
    let number = |text: &str| text.parse().expect("VRDMA_SIM_SEED is a number, or two with .. between");
    match asked.split_once("..") {
        Some((from, to)) => seeds(number(from)..number(to)),
        None => drop(one(number(&asked), true)),
    }
}

#[test]
fn seeds_0_to_249() {
    seeds(0..250);
}

#[test]
fn seeds_250_to_499() {
    seeds(250..500);
}

#[test]
fn seeds_500_to_749() {
    seeds(500..750);
}

#[test]
fn seeds_750_to_999() {
    seeds(750..1000);
}

#[test]
#[ignore = "long"]
fn seeds_1000_to_5499() {
    seeds(1000..5500);
}

#[test]
#[ignore = "long"]
fn seeds_5500_to_9999() {
    seeds(5500..10_000);
}

#[test]
fn a_seed_happens_again_exactly() {
    for seed in 0..20 {
        let [a, b] = [one(seed, false), one(seed, false)];
        assert_eq!((a.trace, a.frames, a.took), (b.trace, b.frames, b.took), "{seed}");
    }
}

/// Runs streams with a mix of operations over a link with these faults, in millionths of all
/// frames.
fn hard(loss: u32, others: u32, bytes: u64) -> Outcome {
    let faults = Faults {
        loss,
        duplication: others,
        reordering: others,
        delay: 5_000,
        jitter: 2_000,
        late: 100_000,
        pace: 80,
        ..Faults::default()
    };
    let shape = Shape {
        requests: 50,
        bytes,
        longest: 1 << 20,
        window: 4 << 20,
        depth: 16,
        receives: 16,
        send_pause: 0,
        recv_pause: 0,
        signal_every: 2,
        poison: false,
        one_way: false,
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
        mtu: None,
        extras: Extras::default(),
    };
    scenario::run(1 << 40, Rng::new(u64::from(loss)), &plan, None, false)
}

#[test]
fn two_hundred_megabytes_arrive_over_a_link_with_every_fault() {
    much_arrives(50 << 20);
}

#[test]
#[ignore = "long"]
fn a_gigabyte_arrives_over_a_link_with_every_fault() {
    much_arrives(1 << 28);
}

/// Sends this many bytes on each of four streams, and checks that all arrive.
fn much_arrives(of_each: u64) {
    let outcome = hard(10_000, 10_000, of_each);
    assert_eq!((outcome.streams, outcome.failures), (4, 0));
    assert!(outcome.bytes >= 4 * of_each);
    let Outcome { frames, took, lost, resent, resent_responses, .. } = outcome;
    println!(
        "{frames} frames in {:.2} s of the link; {resent} packets again, {resent_responses} of them of responses, {lost} lost",
        took as f64 / 1e9
    );
    assert!(resent >= lost / 4, "of what is lost, most are requests and data");
}

#[test]
fn without_faults_nothing_is_sent_again() {
    let Outcome { sent, lost, resent, failures, .. } = hard(0, 0, 1 << 23);
    assert_eq!((lost, resent, failures), (0, 0, 0));
    assert!(sent > 4 << 11, "{sent} packets of 4 KiB at most");
}

#[test]
fn with_a_tenth_of_all_packets_lost_it_ends() {
    let Outcome { streams, failures, frames, took, .. } = hard(100_000, 10_000, 1 << 23);
    println!("{failures} of {streams} failed; {frames} frames in {:.2} s of the link", took as f64 / 1e9);
}
