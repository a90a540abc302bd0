//! Engines against reference peers, in both roles. Each plan has a connection to each kind of peer.

use crate::reference::Kind;
use crate::rng::Rng;
use crate::scenario::{self, Outcome, Peers, Plan};
use vrdma_transport::QpType;

/// Runs the plan of a seed with connections of RC between these peers.
fn run(seed: u64, peers: Peers, copies: Option<Rng>, verbose: bool) -> Outcome {
    let mut rng = Rng::new(seed);
    let mut plan = Plan::random(&mut rng);
    plan.services = vec![QpType::Rc; Kind::ALL.len()];
    plan.extras.peers = peers;
    scenario::run(seed, rng, &plan, copies, verbose)
}

/// Runs seeds. In half of them, engines are replaced by their copies.
fn seeds(range: std::ops::Range<u64>) {
    let (mut streams, mut failures, mut frames, mut replaced) = (0, 0, 0, 0);
    for seed in range {
        let copies = seed.is_multiple_of(2).then(|| Rng::new(!seed));
        let outcome = run(seed, Peers::Reference, copies, false);
        streams += outcome.streams;
        failures += outcome.failures;
        frames += outcome.frames;
        replaced += outcome.replaced;
    }
    println!("{streams} streams, of which {failures} failed as they may; {frames} frames; {replaced} copies");
    assert!(replaced > streams as u64 / 2, "engines are replaced in many stories");
    assert!(failures < streams / 2, "most streams come to a good end: {failures} of {streams} did not");
}

/// Runs a seed from the environment, and prints every step.
#[test]
#[ignore = "a tool: it tells a story"]
#[expect(clippy::disallowed_methods, reason = "it is how a person asks for a seed")]
fn a_seed_with_references() {
    let Ok(asked) = std::env::var("VRDMA_SIM_SEED") else { return };
    let seed = asked.parse().expect("VRDMA_SIM_SEED is a number");
    run(seed, Peers::Reference, None, true);
}

#[test]
fn seeds_0_to_249_with_references() {
    seeds(0..250);
}

#[test]
fn seeds_250_to_499_with_references() {
    seeds(250..500);
}

#[test]
fn seeds_500_to_749_with_references() {
    seeds(500..750);
}

#[test]
fn seeds_750_to_999_with_references() {
    seeds(750..1000);
}

#[test]
#[ignore = "long"]
fn seeds_1000_to_9999_with_references() {
    seeds(1000..10_000);
}

/// The reference itself obeys the model, without an engine.
#[test]
fn two_references_understand_each_other() {
    for seed in 0..200 {
        run(seed, Peers::References, None, false);
    }
}
