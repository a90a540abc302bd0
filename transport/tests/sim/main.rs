//! Engines on a link that loses, doubles, reorders, bends and delays packets, with a clock that only knows what happens: a seed tells everything,
//! and happens again exactly. What comes of it is compared with a model that knows no packets at all ([`stream`]).
//!
//! `VRDMA_SIM_SEED=n cargo test -p vrdma-transport --test sim one_seed -- --nocapture` tells a single seed's story.

mod link;
mod memory;
mod rng;
mod scenario;
mod stream;
mod world;

use rng::Rng;
use scenario::{Outcome, Plan};

/// The story of a seed.
fn one(seed: u64, verbose: bool) -> Outcome {
    let mut rng = Rng::new(seed);
    let plan = Plan::random(&mut rng);
    scenario::run(seed, rng, &plan, verbose)
}

fn seeds(range: std::ops::Range<u64>) {
    let (mut streams, mut failures, mut frames) = (0, 0, 0);
    for seed in range {
        let outcome = one(seed, false);
        streams += outcome.streams;
        failures += outcome.failures;
        frames += outcome.frames;
    }
    println!("{streams} streams, of which {failures} failed as they may; {frames} frames");
    assert!(failures < streams / 2, "most streams come to a good end: {failures} of {streams} did not");
}

/// A seed from the environment, with every step told.
#[test]
#[expect(clippy::disallowed_methods, reason = "it is how a person asks for a seed")]
fn one_seed() {
    if let Ok(seed) = std::env::var("VRDMA_SIM_SEED") {
        one(seed.parse().expect("VRDMA_SIM_SEED is a number"), true);
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
fn a_seed_happens_again_exactly() {
    for seed in 0..20 {
        let [a, b] = [one(seed, false), one(seed, false)];
        assert_eq!((a.trace, a.frames, a.took), (b.trace, b.frames, b.took), "{seed}");
    }
}
