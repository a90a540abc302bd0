//! What `vr-random` did, all in all.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, ensure};

/// Sums over all rounds.
#[derive(Debug, Default)]
pub struct Tally {
    rounds: u32,
    events: usize,
    /// Of each call: how many succeeded, and how many were refused.
    calls: BTreeMap<String, (u64, u64)>,
    /// Of processes: `started`, `killed` and the like.
    processes: BTreeMap<String, u64>,
}

/// Calls without which most of the module is not reached.
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
    /// Rounds so far.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Another round has ended, in which so many things happened.
    pub fn end_round(&mut self, events: usize) {
        self.rounds += 1;
        self.events += events;
    }

    /// Adds what one `vr-random` printed: `call NAME SUCCEEDED REFUSED` of each call, and at the end pairs of names and numbers.
    pub fn add(&mut self, printed: &str) -> Result<()> {
        let odd = || format!("vr-random printed something odd: {printed}");
        for line in printed.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["call", name, done, refused] => {
                    let sums = self.calls.entry(name.to_owned()).or_default();
                    sums.0 += done.parse::<u64>().with_context(odd)?;
                    sums.1 += refused.parse::<u64>().with_context(odd)?;
                }
                ["processes", ..] => {
                    for pair in words.chunks(2) {
                        let number = pair.get(1).with_context(odd)?.parse::<u64>().with_context(odd)?;
                        *self.processes.entry(pair[0].to_owned()).or_default() += number;
                    }
                }
                // The seed.
                _ => {}
            }
        }
        Ok(())
    }

    /// An error if what was to be tested was not.
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
        let never = self.calls.iter().filter(|(_, (done, _))| *done == 0).map(|(name, _)| name.as_str());
        let never: Vec<&str> = never.collect();
        if never.is_empty() { Ok(()) } else { write!(f, "; none succeeded of {}", never.join(", ")) }
    }
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
    fn odd_lines_are_refused() {
        assert!(Tally::default().add("call a 1 x").is_err());
        assert!(Tally::default().add("processes 5 killed").is_err());
    }
}
