//! The account of this thread's time by stage.

use super::stage::Stage;
use serde::Serialize;
use std::array;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Instant;

const STAGES: [(Stage, &str); 8] = [
    (Stage::Poll, "poll"),
    (Stage::Fetch, "fetch"),
    (Stage::Parse, "parse"),
    (Stage::Execute, "execute"),
    (Stage::Copy, "copy"),
    (Stage::Complete, "complete"),
    (Stage::Wire, "wire"),
    (Stage::Idle, "idle"),
];
/// Number of marks in one trial, and number of trials, that determine the cost of a mark.
///
/// The shortest trial counts, because the system did not interrupt it.
const TRIALS: u32 = 1000;
const TIMES: usize = 20;

/// The time that a thread spent, by stage.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Account {
    /// Nanoseconds by stage, including the overhead of the account.
    pub ns: BTreeMap<&'static str, u64>,
    /// Number of times that each stage ended or was interrupted by another.
    pub marks: BTreeMap<&'static str, u64>,
    /// Nanoseconds that one mark costs.
    pub mark_ns: f64,
}

/// Ticks or marks by stage, in one cache line.
#[repr(align(64))]
struct Line([Cell<u64>; STAGES.len()]);

impl Line {
    const fn new() -> Line {
        Line([const { Cell::new(0) }; STAGES.len()])
    }

    fn take(&self) -> [u64; STAGES.len()] {
        array::from_fn(|stage| self.0[stage].take())
    }

    #[inline(always)]
    fn add(&self, stage: usize, more: u64) {
        self.0[stage].set(self.0[stage].get() + more);
    }

    /// Adds the values of a round. If the round found no work, all of them count as
    /// [`Stage::Idle`].
    fn add_turn(&self, turn: &Line, busy: bool) {
        let turn = turn.take();
        if busy {
            turn.into_iter().enumerate().for_each(|(stage, more)| self.add(stage, more));
        } else {
            self.add(Stage::Idle as usize, turn.iter().sum());
        }
    }
}

struct State {
    /// Ticks of this round.
    turn: Line,
    /// Ticks of all earlier rounds.
    sums: Line,
    /// Marks of this round.
    turn_marks: Line,
    /// Marks of all earlier rounds.
    marks: Line,
    stage: Cell<Stage>,
    since: Cell<u64>,
    mark_ns: Cell<f64>,
    /// Ticks and time at the start.
    begin: Cell<Option<(u64, Instant)>>,
}

thread_local!(static STATE: State = const {
    State {
        turn: Line::new(),
        sums: Line::new(),
        turn_marks: Line::new(),
        marks: Line::new(),
        stage: Cell::new(Stage::Poll),
        since: Cell::new(0),
        mark_ns: Cell::new(0.),
        begin: Cell::new(None),
    }
});

impl State {
    /// Switches to another stage. Returns the previous one.
    #[inline(always)]
    fn switch(&self, stage: Stage) -> Stage {
        let now = ticks();
        let old = self.stage.replace(stage);
        self.turn.add(old as usize, now.saturating_sub(self.since.replace(now)));
        self.turn_marks.add(old as usize, 1);
        old
    }
}

/// The scope of a stage. The previous stage continues when this is dropped.
#[derive(Debug)]
pub struct Mark(Stage);

impl Drop for Mark {
    #[inline(always)]
    fn drop(&mut self) {
        STATE.with(|state| state.switch(self.0));
    }
}

/// Enters a stage.
#[inline(always)]
pub fn enter(stage: Stage) -> Mark {
    Mark(STATE.with(|state| state.switch(stage)))
}

/// Starts the account of this thread.
pub fn begin() {
    let trial = |_| {
        let start = Instant::now();
        for _ in 0..TRIALS {
            drop(enter(Stage::Idle));
        }
        // Each mark switches twice: it enters and leaves the stage.
        start.elapsed().as_nanos() as f64 / f64::from(2 * TRIALS)
    };
    let mark_ns = (0..TIMES).map(trial).fold(f64::INFINITY, f64::min);
    STATE.with(|state| {
        state.mark_ns.set(mark_ns);
        state.turn_marks.take();
        state.turn.take();
        state.begin.set(Some((ticks(), Instant::now())));
        state.since.set(ticks());
    });
}

/// Ends a round. If it found no work, all of it counts as idle.
#[inline]
pub fn end_turn(busy: bool) {
    STATE.with(|state| {
        state.switch(Stage::Poll);
        state.sums.add_turn(&state.turn, busy);
        state.marks.add_turn(&state.turn_marks, busy);
    });
}

/// Returns the account of this thread so far, without the current round.
pub fn tell() -> Account {
    STATE.with(|state| {
        let (begin, start) = state.begin.get().unwrap_or((ticks(), Instant::now()));
        let passed = ticks().saturating_sub(begin).max(1);
        let each = start.elapsed().as_nanos() as f64 / passed as f64;
        let ns = |&(stage, name): &(Stage, &'static str)| {
            (name, (state.sums.0[stage as usize].get() as f64 * each) as u64)
        };
        Account {
            ns: STAGES.iter().map(ns).collect(),
            marks: STAGES.iter().map(|&(stage, name)| (name, state.marks.0[stage as usize].get())).collect(),
            mark_ns: state.mark_ns.get(),
        }
    })
}

/// Returns the processor's time stamp counter, which has a constant rate.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(unsafe_code, reason = "the instruction reads a counter, and touches no memory")]
fn ticks() -> u64 {
    // SAFETY: all processors of this architecture have the instruction, and Linux lets programs use
    // it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Returns nanoseconds, on other processors.
#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::super::within;
    use super::*;
    use std::time::Duration;

    const SPELL: Duration = Duration::from_millis(5);

    fn spend() {
        let start = Instant::now();
        while start.elapsed() < SPELL {}
    }

    #[test]
    fn each_moment_counts_for_one_stage_alone() {
        begin();
        within(Stage::Execute, || {
            spend();
            within(Stage::Copy, spend);
            spend();
        });
        end_turn(true);
        let (account, spell) = (tell(), SPELL.as_nanos() as u64);
        // The counter and the clock may differ slightly.
        assert!(account.ns["execute"] > spell * 19 / 10, "{account:?}");
        assert!(account.ns["copy"] > spell * 9 / 10, "{account:?}");
        let marks = ["poll", "execute", "copy", "idle"].map(|stage| account.marks[stage]);
        assert_eq!((account.ns["idle"], marks), (0, [2, 2, 1, 0]));
        assert!(account.mark_ns > 0.);
    }

    #[test]
    fn a_turn_without_work_is_idle() {
        begin();
        within(Stage::Fetch, spend);
        end_turn(false);
        let account = tell();
        assert!(account.ns["idle"] > 0 && account.ns["fetch"] == 0, "{account:?}");
    }

    #[test]
    fn the_last_stage_goes_on_where_one_ends() {
        begin();
        let outer = enter(Stage::Wire);
        drop(enter(Stage::Copy));
        spend();
        drop(outer);
        end_turn(true);
        let account = tell();
        assert!(account.ns["wire"] > account.ns["copy"], "{account:?}");
    }
}
