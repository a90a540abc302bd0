//! Accounts for the time of a WRITE to a guest of another worker. One thread runs the rounds of
//! both workers, and reads the processor's counter between stages.

use crate::wire::account::ticks;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// The stages of a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum WorkerStage {
    /// Posts the request.
    Post,
    /// Makes a packet and puts it into the ring.
    Send,
    /// Takes a packet out and executes it.
    Receive,
    /// The rest of the rounds, which looks for work.
    Around,
}

/// The account of one worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkerAccount {
    since: u64,
    /// Ticks by stage.
    ticks: [u64; 4],
    /// Number of times that each stage ended.
    ends: [u64; 4],
}

impl WorkerAccount {
    /// Starts a stage.
    pub fn begin(&mut self) {
        self.since = ticks();
    }

    /// Ends this stage, and starts the next.
    pub fn end(&mut self, stage: WorkerStage) {
        let now = ticks();
        self.ticks[stage as usize] += now.saturating_sub(self.since);
        self.ends[stage as usize] += 1;
        self.since = now;
    }

    /// Returns the ticks of each stage for one operation, without the cost of reading the counter.
    fn each(&self, operations: u64, reading: f64) -> [f64; 4] {
        let of = |(ticks, ends): (u64, u64)| {
            (ticks as f64 - reading * ends as f64).max(0.) / operations.max(1) as f64
        };
        let both = |at: usize| of((self.ticks[at], self.ends[at]));
        [0, 1, 2, 3].map(both)
    }
}

/// Returns the ticks that ending a stage costs.
pub(super) fn reading() -> f64 {
    const TRIALS: u64 = 100_000;
    let mut account = WorkerAccount::default();
    account.begin();
    (0..TRIALS).for_each(|_| account.end(WorkerStage::Around));
    account.ticks[WorkerStage::Around as usize] as f64 / TRIALS as f64
}

/// Returns the frequency of the processor's counter, in ticks per second.
pub(super) fn hertz() -> f64 {
    let (start, before) = (Instant::now(), ticks());
    while start.elapsed() < Duration::from_millis(20) {}
    (ticks() - before) as f64 / start.elapsed().as_secs_f64()
}

/// Formats the accounts of the sending worker and the other one, for this number of operations.
pub(super) fn table(accounts: [&WorkerAccount; 2], operations: u64, reading: f64, hertz: f64) -> String {
    let [near, far] = accounts.map(|account| account.each(operations, reading));
    let of = |of: &[f64; 4], stage: WorkerStage| of[stage as usize];
    let stages = [
        ("the request is posted", of(&near, WorkerStage::Post)),
        ("its packet is made and put into the ring", of(&near, WorkerStage::Send)),
        ("it is taken out and placed", of(&far, WorkerStage::Receive)),
        ("its ACK is made and put into the ring", of(&far, WorkerStage::Send)),
        ("that is taken out, and the request completes", of(&near, WorkerStage::Receive)),
        ("turns around all that", of(&near, WorkerStage::Around) + of(&far, WorkerStage::Around)),
    ];
    let mut text = String::from("| stage | cycles | ns |\n|---|---|---|");
    let all = ("all", stages.iter().map(|stage| stage.1).sum());
    for (name, cycles) in stages.into_iter().chain([all]) {
        let _ = write!(text, "\n| {name} | {cycles:.0} | {:.0} |", cycles / hertz * 1e9);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_has_what_passed_without_the_readings() {
        let near = WorkerAccount { since: 0, ticks: [500, 1000, 700, 90], ends: [10, 10, 10, 9] };
        let far = WorkerAccount { ticks: [0, 600, 800, 20], ends: [0, 10, 10, 2], ..near };
        assert_eq!(near.each(10, 10.), [40., 90., 60., 0.]);
        let text = table([&near, &far], 10, 10., 1e9);
        assert!(text.contains("| it is taken out and placed | 70 | 70 |"), "{text}");
        assert!(text.ends_with("| all | 310 | 310 |"), "{text}");
    }

    #[test]
    fn time_counts_for_the_stage_that_ends() {
        let mut account = WorkerAccount::default();
        account.begin();
        // This moves the start of the stage back.
        account.since -= 1_000_000;
        account.end(WorkerStage::Send);
        account.end(WorkerStage::Receive);
        assert!(
            account.ticks[WorkerStage::Send as usize] >= 1_000_000
                && account.ticks[WorkerStage::Post as usize] == 0
        );
        assert_eq!(account.ends, [0, 1, 1, 0]);
    }
}
