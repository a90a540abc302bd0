//! Accounts for the time of a packet, by stage. Both ends of its connection are in one thread.
//!
//! The processor's counter is read whenever one stage ends and the next begins. The cost of reading
//! it is measured first, and subtracted.

use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::time::Instant;

/// The stages of a packet, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// The measurement itself: its loop, and both engines' search for work.
    Harness,
    /// Posts requests.
    Post,
    /// The sender's engine determines the next packet.
    Send,
    /// Writes its headers.
    Build,
    /// Copies its payload into the frame.
    CopyOut,
    /// Computes its ICRC.
    Seal,
    /// Sends it at one end of the port, and receives it at the other.
    Port,
    /// Parses it.
    Parse,
    /// Checks its ICRC.
    Check,
    /// The receiver's engine finds its QP, compares its PSN, and finds the place of its payload.
    Receive,
    /// Copies its payload there.
    CopyIn,
    /// All work of ACKs: making, sending and receiving them, and completing requests by them.
    Acknowledge,
}

/// All stages, with their names.
pub const STAGES: [(Stage, &str); 12] = [
    (Stage::Post, "post"),
    (Stage::Send, "engine"),
    (Stage::Build, "headers"),
    (Stage::CopyOut, "copy"),
    (Stage::Seal, "ICRC"),
    (Stage::Port, "port"),
    (Stage::Parse, "parsing"),
    (Stage::Check, "ICRC"),
    (Stage::Receive, "engine"),
    (Stage::CopyIn, "copy"),
    (Stage::Acknowledge, "ACKs"),
    (Stage::Harness, "rest"),
];
/// Number of readings of the counter that determine the cost of one.
const TRIALS: u32 = 100_000;

struct State {
    /// Ticks by stage.
    ticks: [Cell<u64>; STAGES.len()],
    /// Number of times that each stage ended.
    ends: [Cell<u64>; STAGES.len()],
    stage: Cell<Stage>,
    since: Cell<u64>,
}

thread_local!(static STATE: State = const {
    State {
        ticks: [const { Cell::new(0) }; STAGES.len()],
        ends: [const { Cell::new(0) }; STAGES.len()],
        stage: Cell::new(Stage::Harness),
        since: Cell::new(0),
    }
});

fn add(to: &Cell<u64>, more: u64) {
    to.set(to.get() + more);
}

/// Switches to another stage, if there is an account. Returns the previous stage.
#[inline(always)]
pub fn switch<const ACCOUNT: bool>(stage: Stage) -> Stage {
    if !ACCOUNT {
        return stage;
    }
    STATE.with(|state| {
        let now = ticks();
        let old = state.stage.replace(stage);
        add(&state.ticks[old as usize], now.saturating_sub(state.since.replace(now)));
        add(&state.ends[old as usize], 1);
        old
    })
}

/// Runs `work` as part of a stage. Within [`Stage::Acknowledge`], it counts for that stage.
#[inline(always)]
pub fn within<const ACCOUNT: bool, R>(stage: Stage, work: impl FnOnce() -> R) -> R {
    if ACCOUNT && STATE.with(|state| state.stage.get()) == Stage::Acknowledge {
        return work();
    }
    let before = switch::<ACCOUNT>(stage);
    let result = work();
    switch::<ACCOUNT>(before);
    result
}

/// The nanoseconds of a packet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Account {
    /// By stage, in the order of [`STAGES`], without the overhead of the account.
    pub stages: Vec<f64>,
    /// The overhead of the account.
    pub marks: f64,
}

impl Account {
    /// Returns the time of one stage.
    pub fn of(&self, stage: Stage) -> f64 {
        STAGES.iter().zip(&self.stages).find(|((of, _), _)| *of == stage).map_or(0., |(_, ns)| *ns)
    }

    /// Returns the time of all stages.
    pub fn sum(&self) -> f64 {
        self.stages.iter().sum()
    }
}

/// An account that has begun.
#[derive(Debug)]
pub struct Begun {
    ticks: u64,
    start: Instant,
    /// Ticks that each end of a stage costs.
    mark: f64,
}

/// Begins an account of this thread.
pub fn begin() -> Begun {
    let before = ticks();
    for _ in 0..TRIALS {
        switch::<true>(Stage::Harness);
    }
    let mark = ticks().saturating_sub(before) as f64 / f64::from(TRIALS);
    STATE.with(|state| {
        state.ticks.iter().chain(&state.ends).for_each(|cell| cell.set(0));
        state.since.set(ticks());
    });
    Begun { ticks: ticks(), start: Instant::now(), mark }
}

impl Begun {
    /// Ends the account, for this number of packets.
    pub fn end(self, packets: u64) -> Account {
        switch::<true>(Stage::Harness);
        let passed = ticks().saturating_sub(self.ticks).max(1);
        let each = self.start.elapsed().as_nanos() as f64 / passed as f64 / packets.max(1) as f64;
        STATE.with(|state| {
            let of = |stage: Stage| {
                let own = self.mark * state.ends[stage as usize].get() as f64;
                (state.ticks[stage as usize].get() as f64 - own).max(0.) * each
            };
            let marks: u64 = state.ends.iter().map(Cell::get).sum();
            Account {
                stages: STAGES.iter().map(|(stage, _)| of(*stage)).collect(),
                marks: self.mark * marks as f64 * each,
            }
        })
    }
}

/// Returns the processor's time stamp counter, which has a constant rate.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: all processors of this architecture have the instruction, and Linux lets programs use
    // it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Returns nanoseconds, on other processors.
#[cfg(not(target_arch = "x86_64"))]
pub fn ticks() -> u64 {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SPELL: Duration = Duration::from_millis(5);

    fn spend() {
        let start = Instant::now();
        while start.elapsed() < SPELL {}
    }

    #[test]
    fn each_moment_counts_for_one_stage_and_what_is_of_acknowledges_stays_so() {
        let (begun, start) = (begin(), Instant::now());
        within::<true, _>(Stage::Send, || {
            spend();
            within::<true, _>(Stage::Build, spend);
        });
        within::<true, _>(Stage::Acknowledge, || within::<true, _>(Stage::Build, spend));
        let account = begun.end(2);
        let elapsed = start.elapsed().as_nanos() as f64 / 2.;
        let spell = SPELL.as_nanos() as f64 / 2.;
        // The counter and the clock may differ slightly.
        for stage in [Stage::Send, Stage::Build, Stage::Acknowledge] {
            assert!(account.of(stage) > 0.9 * spell, "{stage:?} {account:?}");
        }
        assert!(account.sum() < 1.1 * elapsed, "{account:?} in {elapsed} ns");
    }

    #[test]
    fn without_an_account_nothing_is_counted() {
        let begun = begin();
        within::<false, _>(Stage::Parse, spend);
        assert_eq!(begun.end(1).of(Stage::Parse), 0.);
    }

    #[test]
    fn each_stage_is_there_once() {
        let mut all: Vec<usize> = STAGES.iter().map(|(stage, _)| *stage as usize).collect();
        all.sort_unstable();
        assert_eq!(all, (0..STAGES.len()).collect::<Vec<_>>());
    }
}
