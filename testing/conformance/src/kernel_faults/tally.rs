//! Sums of what all runs of `vr-random` did.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, ensure};

/// Sums over all rounds.
#[derive(Debug, Default)]
pub struct Tally {
    rounds: u32,
    events: usize,
    /// For each call: how often it succeeded, and how often it was refused.
    calls: BTreeMap<String, (u64, u64)>,
    /// For each uverbs method of the device: how often it succeeded and was refused, by any caller.
    methods: BTreeMap<String, (u64, u64)>,
    /// Numbers of processes: `started`, `killed` and the like.
    processes: BTreeMap<String, u64>,
}

/// Calls that are necessary to reach most of the module.
const NEEDED: [&str; 13] = [
    "alloc_pd",
    "reg_mr",
    "create_cq",
    "create_qp",
    "connect_qps",
    "post_send",
    "poll_cq",
    "create_srq",
    "alloc_mw",
    "open_xrcd",
    "alloc_dm",
    "create_ah",
    "raw",
];

impl Tally {
    /// Returns the number of rounds so far.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Counts a round that has ended, with this number of disturbances.
    pub fn end_round(&mut self, events: usize) {
        self.rounds += 1;
        self.events += events;
    }

    /// Adds the output of one `vr-random`.
    ///
    /// It has `call NAME SUCCEEDED REFUSED` for each call, and `method NAME SUCCEEDED REFUSED` for
    /// each method. Pairs of names and numbers follow at the end.
    pub fn add(&mut self, printed: &str) -> Result<()> {
        let odd = || format!("vr-random printed something odd: {printed}");
        for line in printed.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                [kind @ ("call" | "method"), name, done, refused] => {
                    let sums = if kind == "call" { &mut self.calls } else { &mut self.methods };
                    let sums = sums.entry(name.to_owned()).or_default();
                    sums.0 += done.parse::<u64>().with_context(odd)?;
                    sums.1 += refused.parse::<u64>().with_context(odd)?;
                }
                ["processes", ..] => {
                    for pair in words.chunks(2) {
                        let number = pair.get(1).with_context(odd)?.parse::<u64>().with_context(odd)?;
                        *self.processes.entry(pair[0].to_owned()).or_default() += number;
                    }
                }
                // This is the line with the seed.
                _ => {}
            }
        }
        Ok(())
    }

    /// Fails if something that had to be tested was not.
    pub fn check(&self) -> Result<()> {
        let done = |name: &str| self.calls.get(name).map_or(0, |(done, _)| *done);
        for name in NEEDED {
            ensure!(done(name) > 0, "no call of {name} succeeded: {self}");
        }
        for name in ["killed", "opened", "changed", "mapped"] {
            ensure!(self.processes.get(name).is_some_and(|number| *number > 0), "none was {name}: {self}");
        }
        Ok(())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done: u64 = self.calls.values().map(|(done, _)| done).sum();
        let refused: u64 = self.calls.values().map(|(_, refused)| refused).sum();
        let of = |name| self.processes.get(name).copied().unwrap_or_default();
        write!(
            f,
            "{} rounds in which {} things happened; {done} calls that succeeded, {refused} that were refused; {} changed on their way; {} processes, \
             {} of them killed, {} crashed",
            self.rounds,
            self.events,
            of("changed"),
            of("processes"),
            of("killed"),
            of("crashed")
        )?;
        say_names(f, "none succeeded of", &self.calls, |(done, _)| done == 0)?;
        say_names(f, "methods that never succeeded:", &self.methods, |(done, refused)| {
            done == 0 && refused > 0
        })?;
        say_names(f, "methods that were never called:", &self.methods, |sums| sums == (0, 0))
    }
}

/// Writes these words and the names whose sums match, if there are any.
fn say_names(
    f: &mut fmt::Formatter<'_>,
    words: &str,
    sums: &BTreeMap<String, (u64, u64)>,
    are_such: impl Fn((u64, u64)) -> bool,
) -> fmt::Result {
    let names: Vec<&str> =
        sums.iter().filter(|(_, sums)| are_such(**sums)).map(|(name, _)| name.as_str()).collect();
    if names.is_empty() { Ok(()) } else { write!(f, "; {words} {}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESSES: &str = "processes 5 killed 3 crashed 1 opened 6 changed 9 mapped 2\n";

    fn printed(without: &str) -> String {
        let line = |name: &&str| format!("call {name} {} 3\n", u32::from(*name != without));
        format!("seed 5\n{}{PROCESSES}", NEEDED.iter().map(line).collect::<String>())
    }

    #[test]
    fn what_was_never_done_is_an_error() {
        let mut tally = Tally::default();
        tally.add(&printed("create_qp")).unwrap();
        assert!(tally.check().unwrap_err().to_string().contains("no call of create_qp succeeded"));
        tally.add(&printed("")).unwrap();
        tally.check().unwrap();
        tally.end_round(2);
        let text = tally.to_string();
        assert!(
            text.starts_with("1 rounds in which 2 things happened; 25 calls that succeeded, 78 that"),
            "{text}"
        );
        assert!(text.ends_with("10 processes, 6 of them killed, 2 crashed"), "{text}");
    }

    #[test]
    fn methods_that_were_not_reached_are_named() {
        let mut tally = Tally::default();
        tally.add("method QUERY_MR 0 0\nmethod CQ_CREATE 3 1\nmethod OPEN_QP 0 2\n").unwrap();
        let text = tally.to_string();
        assert!(
            text.ends_with(
                "; methods that never succeeded: OPEN_QP; methods that were never called: QUERY_MR"
            )
        );
        tally.add("method QUERY_MR 1 0\nmethod CQ_CREATE 0 0\nmethod OPEN_QP 1 0\n").unwrap();
        assert!(!tally.to_string().contains("method"));
    }

    #[test]
    fn odd_lines_are_refused() {
        assert!(Tally::default().add("call a 1 x").is_err());
        assert!(Tally::default().add("processes 5 killed").is_err());
    }
}
