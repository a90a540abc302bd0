//! Runs the tests in VMs: pairs are booted as the tests want them, two at a time, and what fails is
//! repeated alone.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use vrdma_lab::artefacts::Part;
use vrdma_lab::proc::indent;
use vrdma_lab::repeats::{self, REPEATS};
use vrdma_lab::vm::{Lane, Pair, PairConfig, keep_run};
use vrdma_lab::{older, paths, ui};

use crate::lab::Lab;
use crate::test::{Needs, Run, VmTest, all};

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

/// Memory that two pairs of VMs take, with some to spare, in KiB.
const ENOUGH: u64 = 8 << 20;

/// So many pairs in a row that do not come up, and the next is not tried.
const BOOTS: u32 = 2;

/// Of the lock of what is left to do.
const NOBODY_PANICS: &str = "nobody panics with it";

/// A test that has run, how long, and how it went.
type Ran = (VmTest, Duration, Outcome);

/// Runs the tests that `wanted` picks in pairs of this kind, reporting each. Two pairs are up at a
/// time where the machine allows it, since a VM mostly waits for another. What fails is repeated in
/// the end, alone.
pub fn run(
    config: &PairConfig,
    wanted: impl Fn(&VmTest) -> bool,
    mut report: impl FnMut(&str, Duration, Outcome),
) {
    let wanted = all().into_iter().filter(|test| wanted(test));
    let (in_pairs, alone): (Vec<VmTest>, Vec<VmTest>) =
        wanted.partition(|test| matches!(test.run, Run::InPair(_)));
    let groups = groups(in_pairs);
    let lanes = if groups.len() > 1 && is_large() { 2 } else { 1 };
    let groups = Mutex::new(groups);
    let mut failed = Vec::new();
    let (done, ran) = channel();
    thread::scope(|scope| {
        for lane in 0..lanes {
            let (groups, done) = (&groups, done.clone());
            scope.spawn(move || Runner::new(config, Lane(lane)).work(groups, &done));
        }
        drop(done);
        for (test, time, outcome) in ran {
            take(test, time, outcome, &mut report, &mut failed);
        }
    });
    // What no lane could have a pair for.
    for test in groups.into_inner().expect(NOBODY_PANICS).into_iter().flatten() {
        take(test, Duration::ZERO, no_pair(), &mut report, &mut failed);
    }
    let mut runner = Runner::new(config, Lane::default());
    for test in alone {
        let (time, outcome) = runner.first(&test);
        take(test, time, outcome, &mut report, &mut failed);
    }
    runner.shared = None;
    runner.repeat(failed, report);
}

/// Reports how a test went, or keeps it for a repeat.
fn take(
    test: VmTest,
    time: Duration,
    outcome: Outcome,
    report: &mut impl FnMut(&str, Duration, Outcome),
    failed: &mut Vec<(VmTest, Duration, String)>,
) {
    match outcome {
        Outcome::Failed(why) => {
            let seconds = time.as_secs_f64();
            ui::say(&format!("  !! {seconds:7.1} s  {}, to be repeated alone:\n{}", test.name, indent(&why)));
            failed.push((test, time, why));
        }
        outcome => report(test.name, time, outcome),
    }
}

fn no_pair() -> Outcome {
    Outcome::Failed("no pair of VMs: see above".into())
}

/// Tests of one kind of pair that stand together; those with the most first, so that the last lane
/// to end ends soon after the other.
fn groups(tests: Vec<VmTest>) -> VecDeque<Vec<VmTest>> {
    let mut groups: VecDeque<Vec<VmTest>> = VecDeque::new();
    for test in tests {
        match groups.back_mut() {
            Some(group) if group.last().is_some_and(|last| last.lab == test.lab) => group.push(test),
            _ => groups.push_back(vec![test]),
        }
    }
    groups.make_contiguous().sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

/// Whether the machine has processors and memory for two pairs of VMs.
fn is_large() -> bool {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    processors >= 2 && kib.is_some_and(|kib| kib >= ENOUGH)
}

struct Runner {
    config: PairConfig,
    /// The pair that is up.
    shared: Option<(Lab, Pair)>,
    /// Pairs in a row that did not come up. After [`BOOTS`] of them none is tried again for each
    /// test.
    failed_boots: u32,
}

impl Runner {
    fn new(config: &PairConfig, lane: Lane) -> Self {
        Self { config: PairConfig { lane, ..config.clone() }, shared: None, failed_boots: 0 }
    }

    fn is_hopeless(&self) -> bool {
        self.failed_boots >= BOOTS
    }

    /// Runs groups until there are none, or no pair comes up: another lane may have more luck with
    /// those that are left.
    fn work(mut self, groups: &Mutex<VecDeque<Vec<VmTest>>>, done: &Sender<Ran>) {
        let next = || groups.lock().expect(NOBODY_PANICS).pop_front();
        while !self.is_hopeless()
            && let Some(group) = next()
        {
            for test in group {
                let (time, outcome) = self.first(&test);
                // Who runs the tests waits for all lanes.
                let _ = done.send((test, time, outcome));
            }
        }
    }

    /// A test's first run; the logs of one that fails are kept.
    fn first(&mut self, test: &VmTest) -> (Duration, Outcome) {
        if self.is_hopeless() {
            return (Duration::ZERO, no_pair());
        }
        let (time, outcome) = self.once(test);
        let Outcome::Failed(why) = outcome else { return (time, outcome) };
        (time, Outcome::Failed(self.put_away(test.name, why)))
    }

    /// Repeats tests that failed, each alone, and reports them.
    fn repeat(
        &mut self,
        failed: Vec<(VmTest, Duration, String)>,
        mut report: impl FnMut(&str, Duration, Outcome),
    ) {
        let names: Vec<String> = failed.iter().map(|(test, ..)| test.name.to_owned()).collect();
        let mut times = BTreeMap::new();
        let sorted = repeats::repeat(&names, |name, round| {
            let (test, ..) = failed.iter().find(|(test, ..)| test.name == name).expect("it is of the list");
            let start = Instant::now();
            // Not in the pair of the repeat before: a driver says some things once.
            self.shared = None;
            let result = self.again(test, name, round);
            *times.entry(name.to_owned()).or_insert(Duration::ZERO) += start.elapsed();
            result
        });
        for (test, time, why) in failed {
            let time = time + times.get(test.name).copied().unwrap_or_default();
            let is_flaky = sorted.flaky.iter().any(|name| name == test.name);
            report(test.name, time, if is_flaky { Outcome::Flaky(why) } else { Outcome::Failed(why) });
        }
    }

    /// Ends the pair of a test that failed, so that nothing of it is there when the test is
    /// repeated; its logs are kept. The error tells where.
    fn put_away(&mut self, name: &str, why: String) -> String {
        self.shared = None;
        let kept = paths::log(name).and_then(|log| keep_run(self.config.lane, &log.with_extension("vms")));
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
        let log = repeats::log("vms", name, round)?;
        paths::write(&log, format!("{how}\n"))?;
        result
    }

    /// Runs a test, in the pair that is up if it is one of its kind, and says how long it took
    /// beside the boot.
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
        let booted = reusable.map_or_else(|| Pair::boot(&test.lab.config(&self.config)), Ok);
        self.failed_boots = if booted.is_ok() { 0 } else { self.failed_boots + 1 };
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
