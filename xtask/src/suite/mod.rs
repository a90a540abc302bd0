//! `cargo xtask test`: every check of the project, one after the other, with counts at the end.

mod checkpatch;
mod comments;
mod counts;
mod cycles;
mod floors;
mod fuzz;
mod names;
mod runners;
mod rust;
mod sizes;
pub(crate) mod sources;
mod steps;
mod tools;
mod verdict;
mod waits;

use std::io::Write;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use vrdma_lab::artefacts::{self, Build, Part};
use vrdma_lab::proc::indent;
use vrdma_lab::vm::PairConfig;
use vrdma_lab::{image, needs, paths, space, ui};
use vrdma_vm_tests::Outcome;

use crate::bare::{self, Due};
use crate::flaky;
use counts::Counts;
use steps::{STEPS, Step};
use verdict::Verdict;

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Without the tests in VMs.
    pub no_vm: bool,
    /// VMs without these parts of our device; tests that need them are skipped.
    pub without: Vec<Part>,
    /// Only steps and VM tests whose name contains one of these.
    pub only: Vec<String>,
    /// Also what takes too long for every day.
    pub long: bool,
    /// Also the bare machine, if that is due.
    pub ci: bool,
}

/// What continuous integration gives us is an hour and a half; some minutes of it are for the
/// checkout and for what is slower there.
const CI: Duration = Duration::from_secs(85 * 60);

/// What a selection is made of: the name of a step or of a VM test, and whether it takes long.
struct Choice {
    name: &'static str,
    long: bool,
    vm: bool,
}

/// All steps, then all VM tests, in the order in which they run.
fn choices() -> Vec<Choice> {
    let steps = STEPS.iter().map(|step| Choice { name: step.name, long: step.long, vm: false });
    let vm_tests =
        vrdma_vm_tests::all().into_iter().map(|test| Choice { name: test.name, long: test.long, vm: true });
    steps.chain(vm_tests).collect()
}

impl Selection {
    fn takes(&self, name: &str, long: bool) -> bool {
        let named = self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()));
        named && (self.long || !long)
    }

    /// How the programs are built that run in VMs and beside them. Every day it is how the tests
    /// before have built them; that the release is built too takes minutes.
    fn build(&self) -> Build {
        if self.long { Build::Release } else { Build::Tests }
    }

    /// An error if a name selects nothing.
    fn check(&self) -> Result<()> {
        let choices = choices();
        for part in &self.only {
            let named: Vec<&Choice> =
                choices.iter().filter(|choice| choice.name.contains(part.as_str())).collect();
            if named.is_empty() {
                let names: Vec<&str> = choices.iter().map(|choice| choice.name).collect();
                bail!(
                    "no step or VM test has `{part}` in its name; there are:\n{}",
                    indent(&names.join("\n"))
                );
            }
            if !self.long && named.iter().all(|choice| choice.long) {
                bail!("what has `{part}` in its name takes long: add --long");
            }
            if self.no_vm && named.iter().all(|choice| choice.vm) {
                bail!("what has `{part}` in its name is tested in VMs: leave --no-vm out");
            }
        }
        Ok(())
    }
}

/// Prints the names of all steps and VM tests, as far as somebody reads them.
pub fn list() {
    let mut stdout = std::io::stdout().lock();
    for Choice { name, long, .. } in choices() {
        if writeln!(stdout, "{name}{}", if long { " (--long)" } else { "" }).is_err() {
            return;
        }
    }
}

#[derive(Default)]
struct Suite {
    selection: Selection,
    counts: Counts,
    failures: Vec<String>,
    skipped: Vec<String>,
    /// How long each step and each test in VMs took.
    times: Vec<(Duration, String)>,
    /// Tests that failed and passed alone: counted when all are known.
    flaky: Vec<Flaky>,
    /// Tests that were flaky before.
    known: Vec<String>,
    /// Makes the VMs' roots and image.
    image: Option<JoinHandle<Result<()>>>,
    /// Builds the programs that the tests in VMs need.
    programs: Vec<JoinHandle<Result<()>>>,
    /// What runs within VMs is to be built ahead.
    wants_programs: bool,
}

/// A test that failed and passed alone.
struct Flaky {
    name: String,
    /// What it is of, which its failure's log has its name from.
    step: String,
}

/// Runs the selected steps; an error if one failed.
pub fn run(selection: Selection) -> Result<()> {
    let start = Instant::now();
    selection.check()?;
    let mut suite = Suite { selection, known: flaky::known()?, ..Suite::default() };
    suite.prepare()?;
    for step in STEPS {
        if suite.selection.takes(step.name, step.long) {
            if step.wants_guest_root {
                suite.wait_for_image()?;
            } else {
                suite.begin_guest_programs();
            }
            suite.step(step);
        }
    }
    suite.wait_for_image()?;
    suite.wait_for_programs();
    suite.vm_tests();
    if suite.selection.ci && suite.selection.only.is_empty() {
        suite.bare(start + CI);
    }
    suite.sum_up(start.elapsed())
}

impl Suite {
    /// What is downloaded and built for the VMs takes minutes the first time: the first checks run
    /// beside it, which need no time of their own.
    fn prepare(&mut self) -> Result<()> {
        let root = nix::unistd::geteuid().is_root();
        needs::ensure()?;
        if let Some(warning) = space::warning() {
            ui::say(&format!("note: {warning}"));
        }
        let selection = &self.selection;
        let guest = STEPS.iter().any(|step| step.wants_guest_root && selection.takes(step.name, step.long));
        let vm = vrdma_vm_tests::all().iter().any(|test| selection.takes(test.name, test.long));
        if selection.no_vm || !(vm || guest) {
            return Ok(());
        }
        if root {
            self.image = Some(thread::spawn(|| image::ensure().map(|_| ())));
            // A run of some tests may not need them.
            self.wants_programs = vm && selection.without.is_empty() && selection.only.is_empty();
            if self.wants_programs && selection.build() == Build::Release {
                self.programs.push(thread::spawn(artefacts::ahead));
            }
            return Ok(());
        }
        if vm {
            bail!("the VM tests are run as root: use sudo, or `cargo xtask test --no-vm`");
        }
        Ok(())
    }

    fn wait_for_image(&mut self) -> Result<()> {
        match self.image.take() {
            Some(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            None => Ok(()),
        }
    }

    /// What runs within VMs is built beside the tests without VMs, as soon as the image is there
    /// and no step uses it: else the VMs would wait for one compiler after the other.
    fn begin_guest_programs(&mut self) {
        if self.image.is_none() && std::mem::take(&mut self.wants_programs) {
            let how = self.selection.build();
            self.programs.push(thread::spawn(move || artefacts::guest_ahead(how)));
        }
    }

    fn wait_for_programs(&mut self) {
        for thread in self.programs.drain(..) {
            // Where a program is needed it is built again, and an error told.
            let _ = thread.join();
        }
    }

    fn step(&mut self, step: &Step) {
        if step.wants_guest_root && !paths::guest_root().exists() {
            return self.skip(step.name, "no guest root (`cargo xtask image` makes it)");
        }
        let start = Instant::now();
        let verdict = (step.run)(step.name);
        self.record(step.name, start.elapsed(), verdict);
    }

    fn vm_tests(&mut self) {
        if self.selection.no_vm {
            return;
        }
        let selection = self.selection.clone();
        vrdma_vm_tests::run(
            &PairConfig {
                without: selection.without.clone(),
                build: selection.build(),
                ..PairConfig::default()
            },
            |test| selection.takes(test.name, test.long),
            |name, time, outcome| {
                let verdict = match outcome {
                    Outcome::Passed => Verdict::Passed(Counts::PASSED),
                    Outcome::Failed(why) => Verdict::Failed(Counts::FAILED, anyhow::Error::msg(why)),
                    Outcome::Flaky(why) => {
                        Verdict::Flaky(Counts::default(), vec![name.to_owned()], anyhow::Error::msg(why))
                    }
                    Outcome::Skipped(why) => Verdict::Skipped(why.to_owned()),
                };
                self.record(name, time, verdict);
            },
        );
    }

    /// What is left of the time is for the bare machine.
    fn bare(&mut self, until: Instant) {
        let start = Instant::now();
        let verdict = match bare::in_ci(until) {
            Ok(Due::Tried) => Verdict::Passed(Counts::PASSED),
            Ok(Due::Skipped(why)) => Verdict::Skipped(why),
            Err(error) => Verdict::Failed(Counts::FAILED, error),
        };
        self.record("bare", start.elapsed(), verdict);
    }

    fn record(&mut self, name: &str, time: Duration, verdict: Verdict) {
        let seconds = time.as_secs_f64();
        self.times.push((time, name.to_owned()));
        match verdict {
            Verdict::Passed(counts) => {
                let tests =
                    if counts.passed > 1 { format!(" ({} tests)", counts.passed) } else { String::new() };
                ui::say(&format!("  ok {seconds:7.1} s  {name}{tests}"));
                self.count(counts);
            }
            Verdict::Failed(counts, error) => self.fail(name, time, counts, &error),
            Verdict::Flaky(counts, flaky, error) => {
                if counts.failed > 0 {
                    self.fail(name, time, counts, &error);
                } else {
                    ui::say(&format!("flaky {seconds:6.1} s  {name}\n{}", indent(&format!("{error:#}"))));
                    self.count(counts);
                }
                for test in flaky {
                    ui::say(&format!("flaky: {test}"));
                    self.flaky.push(Flaky { name: test, step: name.to_owned() });
                }
            }
            Verdict::Skipped(why) => self.skip(name, &why),
        }
    }

    fn fail(&mut self, name: &str, time: Duration, counts: Counts, error: &anyhow::Error) {
        let full = space::full().map_or_else(String::new, |full| format!("\n{full}"));
        let seconds = time.as_secs_f64();
        ui::say(&format!("FAIL {seconds:7.1} s  {name}\n{}", indent(&format!("{error:#}{full}"))));
        // What failed before a test could run is a failure too.
        self.count(Counts { failed: counts.failed.max(1), ..counts });
        let why = error.to_string().lines().next().unwrap_or_default().to_owned();
        self.failures.push(if why.starts_with(name) { why } else { format!("{name}: {why}") });
    }

    fn count(&mut self, counts: Counts) {
        self.counts.passed += counts.passed;
        self.counts.failed += counts.failed;
    }

    fn skip(&mut self, name: &str, why: &str) {
        ui::say(&format!("skip            {name}: {why}"));
        self.skipped.push(name.to_owned());
    }

    fn sum_up(self, time: Duration) -> Result<()> {
        ui::say(&format!("\ntook {:.0} s; logs are in {}", time.as_secs_f64(), paths::logs().display()));
        ui::say(&format!("longest: {}", longest(self.times)));
        if !self.skipped.is_empty() {
            ui::say(&format!("skipped: {}", self.skipped.join(", ")));
        }
        // What is at the end is read first, and where a log was cut it is what is left.
        self.failures.iter().for_each(|failure| ui::say(&format!("failed: {failure}")));
        for Flaky { name, step } in &self.flaky {
            ui::say(&format!("flaky: {name} ({step}.log, and *.alone-*.log of its repeats)"));
        }
        let names: Vec<String> = self.flaky.iter().map(|flaky| flaky.name.clone()).collect();
        let refusal = flaky::refusal(&names, &self.known);
        if let Some(why) = &refusal {
            ui::say(&format!("failed: {why}"));
        }
        if !names.is_empty() {
            ui::say(&format!("{} flaky", names.len()));
        }
        let (counts, line) = closing(self.counts, names.len() as u64, refusal.is_some());
        println!("{line}");
        if counts == Counts::default() {
            bail!("nothing was selected");
        }
        if counts.failed > 0 { Err(SuiteFailed.into()) } else { Ok(()) }
    }
}

/// What takes most of the time, where there is something to gain.
fn longest(mut times: Vec<(Duration, String)>) -> String {
    const SHOWN: usize = 12;
    times.sort();
    let longest = times.iter().rev().take(SHOWN);
    longest.map(|(time, name)| format!("{name} {:.0} s", time.as_secs_f64())).collect::<Vec<_>>().join(", ")
}

/// What is counted in the end, and the last line that says so, which is what programs read. Flaky
/// tests are among those that passed, or if they fail the run, among those that failed; where there
/// are some the line begins with `flaky:`.
fn closing(counts: Counts, flaky: u64, refused: bool) -> (Counts, String) {
    let Counts { mut passed, mut failed } = counts;
    *if refused { &mut failed } else { &mut passed } += flaky;
    let word = if flaky > 0 { "flaky: " } else { "" };
    (Counts { passed, failed }, format!("{word}{passed} passed, {failed} failed"))
}

/// The error of a suite that ran and found failures, all of them reported already.
#[derive(Debug)]
pub struct SuiteFailed;

impl std::fmt::Display for SuiteFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("tests failed")
    }
}

impl std::error::Error for SuiteFailed {}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(name: &str) -> Selection {
        Selection { only: vec![name.into()], ..Selection::default() }
    }

    #[test]
    fn selection_is_by_part_of_the_name() {
        assert!(only("vm-").takes("vm-ping", false) && !only("vm-").takes("fmt", false));
        assert!(Selection::default().takes("fmt", false));
    }

    #[test]
    fn what_takes_long_is_asked_for() {
        assert!(!Selection::default().takes("fuzz", true));
        assert!(!only("fuzz").takes("fuzz", true));
        assert!(Selection { long: true, ..only("fuzz") }.takes("fuzz", true));
        let error = only("tests-long").check().unwrap_err().to_string();
        assert!(error.ends_with("takes long: add --long"), "{error}");
    }

    #[test]
    fn a_name_that_selects_nothing_is_told_those_that_would() {
        let error = only("vm-pign").check().unwrap_err().to_string();
        assert!(error.starts_with("no step or VM test has `vm-pign` in its name"), "{error}");
        assert!(error.contains("    vm-ping\n") && error.contains("    fmt\n"), "{error}");
        assert!(only("vm-ping").check().is_ok());
        assert!(Selection { no_vm: true, ..only("vm-ping") }.check().is_err());
    }

    #[test]
    fn the_longest_come_first() {
        let times = [2, 30, 7].map(|seconds| (Duration::from_secs(seconds), format!("vm-{seconds}")));
        assert_eq!(longest(times.to_vec()), "vm-30 30 s, vm-7 7 s, vm-2 2 s");
    }

    #[test]
    fn flaky_tests_are_counted_in_the_last_line() {
        let line = |flaky, refused| closing(Counts { passed: 7, failed: 0 }, flaky, refused);
        assert_eq!(line(0, false).1, "7 passed, 0 failed");
        assert_eq!(line(1, false), (Counts { passed: 8, failed: 0 }, "flaky: 8 passed, 0 failed".into()));
        assert_eq!(line(2, true), (Counts { passed: 7, failed: 2 }, "flaky: 7 passed, 2 failed".into()));
    }

    #[test]
    fn names_are_given_once() {
        let mut names: Vec<&str> = choices().iter().map(|choice| choice.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(choices().iter().all(|choice| choice.vm == choice.name.starts_with("vm-")));
    }
}
