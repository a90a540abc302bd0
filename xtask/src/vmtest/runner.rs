//! Runs the tests in VMs: pairs are booted as the tests want them, and what fails is repeated alone.

use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};

use super::{Lab, Needs, Run, VmTest, all};
use crate::artefacts::Part;
use crate::flaky::{self, REPEATS};
use crate::proc::indent;
use crate::vm::{Pair, PairConfig, keep_run};
use crate::{older, paths, ui};

/// How a test went.
pub enum Outcome {
    /// Well.
    Passed,
    /// With this error.
    Failed(String),
    /// With this error, and well when it was repeated alone.
    Flaky(String),
    /// Not run: there is nothing to test yet.
    Skipped(&'static str),
}

/// Runs the tests that `wanted` picks in pairs of this kind, reporting each.
pub fn run(
    config: &PairConfig,
    wanted: impl Fn(&VmTest) -> bool,
    mut report: impl FnMut(&str, Duration, Outcome),
) {
    let mut runner = Runner { config, shared: None, hopeless: false };
    for test in all().into_iter().filter(|test| wanted(test)) {
        let (time, outcome) = runner.test(&test);
        report(test.name, time, outcome);
    }
}

struct Runner<'a> {
    config: &'a PairConfig,
    /// The pair that is up.
    shared: Option<(Lab, Pair)>,
    /// A pair that does not come up is not tried again for each test.
    hopeless: bool,
}

impl Runner<'_> {
    fn test(&mut self, test: &VmTest) -> (Duration, Outcome) {
        if self.hopeless && matches!(test.run, Run::InPair(_)) {
            return (Duration::ZERO, Outcome::Failed("no pair of VMs: see above".into()));
        }
        let (time, outcome) = self.once(test);
        let Outcome::Failed(why) = outcome else { return (time, outcome) };
        let why = self.put_away(test.name, why);
        let start = Instant::now();
        let sorted = flaky::repeat(&[test.name.to_owned()], |name, round| self.again(test, name, round));
        let time = time + start.elapsed();
        if sorted.failed.is_empty() { (time, Outcome::Flaky(why)) } else { (time, Outcome::Failed(why)) }
    }

    /// Ends the pair of a test that failed, so that nothing of it is there when the test is repeated; its logs are kept. The error tells where.
    fn put_away(&mut self, name: &str, why: String) -> String {
        self.shared = None;
        let kept = paths::log(name).and_then(|log| keep_run(&log.with_extension("vms")));
        let why = match kept {
            Ok(Some((from, to))) => why.replace(&from.display().to_string(), &to.display().to_string()),
            Ok(None) => why,
            Err(error) => format!("{why}\nthe VMs' logs are lost: {error:#}"),
        };
        // The text is printed too; a full disk shall not hide it.
        let _ = paths::log(name).and_then(|log| paths::write(&log, &why));
        why
    }

    /// A repeat, with a log of its own.
    fn again(&mut self, test: &VmTest, name: &str, round: u32) -> Result<()> {
        let (time, outcome) = self.once(test);
        let (how, result) = match outcome {
            Outcome::Failed(why) => (why.clone(), Err(Error::msg(why))),
            _ => ("passed".to_owned(), Ok(())),
        };
        let seconds = time.as_secs_f64();
        let word = if result.is_ok() { "  ok" } else { "FAIL" };
        ui::say(&format!("{word} {seconds:7.1} s  {name}, alone, {round} of {REPEATS}"));
        if result.is_err() {
            ui::say(&indent(&how));
        }
        let log = flaky::log("vms", name, round)?;
        paths::write(&log, format!("{how}\n"))?;
        result
    }

    /// Runs a test, in the pair that is up if it is one of its kind, and says how long it took beside the boot.
    fn once(&mut self, test: &VmTest) -> (Duration, Outcome) {
        match test.run {
            Run::InPair(run) => self.in_pair(test, run),
            Run::Alone(run) => {
                // Two pairs of VMs at a time are too many for a small machine.
                self.shared = None;
                let start = Instant::now();
                let result = run().map_err(|error| format!("{error:#}"));
                (start.elapsed(), result.map_or_else(Outcome::Failed, |()| Outcome::Passed))
            }
        }
    }

    fn in_pair(&mut self, test: &VmTest, run: fn(&mut Pair) -> Result<()>) -> (Duration, Outcome) {
        if test.needs == Needs::Older && !older::is_there() {
            return (Duration::ZERO, Outcome::Skipped("the repository's history lacks the older version"));
        }
        let reusable = self.shared.take().filter(|(lab, _)| *lab == test.lab).map(|(_, pair)| pair);
        let booted = reusable.map_or_else(|| Pair::boot(&test.lab.config(self.config)), Ok);
        self.hopeless = booted.is_err();
        let pair = match booted {
            Ok(pair) => &mut self.shared.insert((test.lab, pair)).1,
            Err(error) => {
                return (Duration::ZERO, Outcome::Failed(format!("no pair of VMs: {error:#}")));
            }
        };
        let lacks_a_part = self.config.without.iter().any(|part| *part != Part::Programs);
        if test.needs != Needs::Vms && (pair.backend().is_err() || lacks_a_part) {
            return (Duration::ZERO, Outcome::Skipped("the pair lacks a part of our device"));
        }
        let start = Instant::now();
        let work = || run(pair).and_then(|()| still_well(pair, test.needs));
        let result = ui::unless_quick(test.name, None, work);
        let outcome = match result {
            Ok(()) => Outcome::Passed,
            Err(error) => Outcome::Failed(format!("{error:#}\n{}", indent(&pair.post_mortem()))),
        };
        let time = start.elapsed();
        if matches!(outcome, Outcome::Failed(_)) || still_well(pair, test.needs).is_err() {
            self.shared = None;
        }
        (time, outcome)
    }
}

/// Whether a pair can be used for another test.
fn still_well(pair: &mut Pair, needs: Needs) -> Result<()> {
    for vm in pair.vms() {
        vm.check("true", pair.patience(2)).context("after the test")?;
    }
    if needs != Needs::Vms {
        // A test that ended between rmmod and insmod leaves none to those that follow.
        pair.b.check(
            "for name in vrdma0 rxe0 siw0; do test ! -e /sys/class/infiniband/$name || exit 0; done; exit 1",
            pair.patience(2),
        )?;
    }
    for backend in pair.backends() {
        anyhow::ensure!(backend.is_running()?, "a backend died during the test");
    }
    Ok(())
}
