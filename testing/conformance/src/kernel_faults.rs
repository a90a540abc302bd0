//! `cargo xtask kernel-faults`: the kernel module on a kernel with KASAN, lockdep and kmemleak.
//!
//! First it runs tests of VMs, and short forms of conformance's families. Then processes make
//! random verbs calls for a while and are killed (`vr-random`). Meanwhile other people's programs
//! run and are killed, and the driver is removed and loaded again. After each test and each round
//! the kernels must have nothing to report.
//!
//! At the end each kernel gets deliberate faults (`tests/guest-faults`), which it has to report.

mod detectors;
mod tally;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vrdma_lab::kernel::Kernel;
use vrdma_lab::ui;
use vrdma_lab::vm::{Job, Pair, PairConfig, Vm};

use self::detectors::{check_detectors, check_kernel, commit_faults};
use self::tally::Tally;
use crate::lineup::{IpFamily, PathMtu, Round, Row, Running, Sizes, prepare, rows};
use crate::soak::{Disturbance, end_all, resources};

/// What to run.
#[derive(Clone, Debug)]
pub struct FaultsPlan {
    /// Only tests whose names contain one of these texts. If the list is empty, all tests run.
    pub only: Vec<String>,
    /// Duration of the random calls after the tests.
    pub time: Duration,
    /// The seed of the random rounds. A new seed is chosen if there is none.
    pub seed: Option<u64>,
}

/// A test of VMs: its name, and its function, which takes a pair.
pub type Test = (&'static str, fn(&mut Pair) -> Result<()>);

/// Tests of VMs that reach most of the module, including short forms of conformance's families.
///
/// Of the storage protocols only NVMe runs: the others need much more in the kernel.
pub const TESTS: [&str; 17] = [
    "vm-devinfo",
    "vm-programs",
    "vm-perftest",
    "vm-xrc",
    "vm-multicast",
    "vm-nvme",
    "vm-cm",
    "vm-sockets",
    "vm-mpi",
    "vm-rdma-core",
    "vm-pyverbs",
    "vm-verbs",
    "vm-device-memory",
    "vm-stopped-backend",
    "vm-hostile-process",
    "vm-clean-up-kill-9",
    "vm-clean-up-rmmod",
];

/// Returns the configuration of VMs with the debug kernel. With two processors, calls run
/// concurrently.
pub fn config(usual: PairConfig) -> PairConfig {
    PairConfig { kernel: Kernel::Debug, cpus: 2, ..usual }
}

/// Boots a pair and runs the plan, with those of [`TESTS`] that it names.
///
/// # Errors
/// A kernel reported a fault, or a test failed.
pub fn run(plan: &FaultsPlan, tests: &[Test]) -> Result<()> {
    let mut pair = Pair::boot(&config(PairConfig::default()))?;
    let result = on(&mut pair, plan, tests);
    println!("{}", result.with_context(|| pair.post_mortem())?);
    Ok(())
}

/// Runs all tests, and a few minutes of random calls, for `cargo xtask test --long`.
pub fn short(pair: &mut Pair, tests: &[Test]) -> Result<()> {
    let plan = FaultsPlan { only: Vec::new(), time: Duration::from_secs(4 * 60), seed: Some(1) };
    on(pair, &plan, tests).map(|_| ())
}

/// Runs the plan in a pair with the debug kernel.
///
/// Afterwards the kernels cannot be used any more: lockdep stops after its first fault.
fn on(pair: &mut Pair, plan: &FaultsPlan, tests: &[Test]) -> Result<String> {
    let seed = plan.seed.unwrap_or_else(|| fastrand::u64(1..1 << 32));
    for vm in pair.vms() {
        check_detectors(vm, pair.patience(3))?;
    }
    let wanted =
        |name| plan.only.is_empty() || plan.only.iter().any(|part| str::contains(name, part.as_str()));
    for (name, run) in tests.iter().filter(|(name, _)| TESTS.contains(name) && wanted(name)) {
        ui::step(name, || run(pair).and_then(|()| check(pair)))
            .with_context(|| format!("{name}, on a kernel that finds faults"))?;
    }
    let tally = random(pair, plan.time, seed).with_context(|| format!("seed {seed}"))?;
    for vm in pair.vms() {
        commit_faults(vm, pair.patience(10)).with_context(|| format!("VM {}'s kernel", vm.name()))?;
    }
    Ok(tally.to_string())
}

/// Checks that the kernels have nothing to report, and that their detectors are on.
fn check(pair: &Pair) -> Result<()> {
    pair.vms().try_for_each(|vm| check_kernel(vm, pair.patience(10)))
}

/// Makes random calls, in rounds until the time is up.
fn random(pair: &mut Pair, time: Duration, seed: u64) -> Result<Tally> {
    ui::say(&format!("seed {seed}"));
    prepare(pair, PathMtu::Jumbo)?;
    let patience = pair.patience(10);
    let before: Vec<String> = pair.vms().map(|vm| resources(vm, patience)).collect::<Result<_>>()?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let rows = rows(IpFamily::V4, PathMtu::Jumbo, Sizes::One);
    let mut tally = Tally::default();
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        let round = choose(&mut rng, &rows);
        let what = format!("round {} ({} s left): {}", tally.rounds() + 1, left.as_secs(), round.name());
        ui::say(&what);
        run_round(pair, &round, &mut tally).with_context(|| what.clone())?;
        check(pair).and_then(|()| returned(pair, &before)).with_context(|| format!("after {what}"))?;
    }
    tally.check()?;
    Ok(tally)
}

/// A round. It is chosen before it runs, so that a seed determines it on machines of any speed.
struct RandomRound<'a> {
    /// Duration of the calls.
    time: Duration,
    /// The seed of each VM's calls.
    seeds: [u64; 2],
    /// Another program, and whether its server is in VM a.
    program: Option<(&'a Row, bool)>,
    /// Disturbances, each after a pause. The number divides the round's time to give the pause.
    events: Vec<(u32, Disturbance)>,
    port: u16,
}

impl RandomRound<'_> {
    fn name(&self) -> String {
        let events: Vec<String> = self.events.iter().map(|(_, event)| event.to_string()).collect();
        let program = self.program.map_or("no program", |(row, _)| row.what.as_str());
        format!("calls for {} s, {program}; {}", self.time.as_secs(), events.join(", "))
    }
}

fn choose<'a>(rng: &mut fastrand::Rng, rows: &'a [Row]) -> RandomRound<'a> {
    /// A pause lasts a twentieth to a quarter of the time.
    const PARTS: std::ops::Range<u32> = 4..20;
    RandomRound {
        time: Duration::from_secs(rng.u64(15..45)),
        seeds: [rng.u64(1..1 << 32), rng.u64(1..1 << 32)],
        program: rng.bool().then(|| (&rows[rng.usize(..rows.len())], rng.bool())),
        events: (0..rng.usize(..4)).map(|_| (rng.u32(PARTS), Disturbance::in_guests(rng))).collect(),
        port: rng.u16(20_000..29_000),
    }
}

fn run_round(pair: &mut Pair, round: &RandomRound<'_>, tally: &mut Tally) -> Result<()> {
    let seconds = round.time.as_secs();
    let calls: Vec<Job> = [&pair.a, &pair.b]
        .into_iter()
        .zip(round.seeds)
        .map(|(vm, seed)| vm.spawn(&format!("vr-random -d vrdma0 -s {seconds} --seed {seed}")))
        .collect::<Result<_>>()?;
    let programs = start_program(pair, round);
    for (part, event) in &round.events {
        std::thread::sleep(round.time / *part);
        event.happen(pair, &programs).with_context(|| event.to_string())?;
    }
    for calls in calls {
        let output = calls.wait(round.time + pair.patience(10)).context("a process that cannot be killed")?;
        ensure!(
            output.success(),
            "vr-random: {:?}\n{}",
            output.exit,
            String::from_utf8_lossy(&output.stderr)
        );
        tally.add(&output.text())?;
    }
    end_all(pair, programs)?;
    tally.end_round(round.events.len());
    Ok(())
}

/// Starts the round's other program. It may fail, because the calls may leave it no resources.
fn start_program(pair: &Pair, round: &RandomRound<'_>) -> Vec<Running> {
    let Some((row, server_in_a)) = round.program else { return Vec::new() };
    let server = if server_in_a { &pair.a } else { &pair.b };
    let started = Round::new(pair, server, IpFamily::V4).and_then(|way| way.start(row, round.port));
    started.into_iter().collect()
}

/// Checks that all objects were returned.
fn returned(pair: &Pair, before: &[String]) -> Result<()> {
    let patience = pair.patience(10);
    pair.vms().zip(before).try_for_each(|(vm, before)| objects_return(vm, before, patience))
}

fn objects_return(vm: &Vm, before: &str, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        let now = resources(vm, patience)?;
        if now == before {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "VM {}: {before} before, {now} now", vm.name());
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_tells_the_rounds() {
        let rows = rows(IpFamily::V4, PathMtu::Jumbo, Sizes::One);
        let names = |seed| {
            let mut rng = fastrand::Rng::with_seed(seed);
            (0..20).map(|_| choose(&mut rng, &rows).name()).collect::<Vec<_>>()
        };
        assert_eq!(names(7), names(7));
        assert_ne!(names(7), names(8));
        // Each event occurs within the 40 rounds.
        let all = names(7).join(" ") + &names(8).join(" ");
        for event in ["kill -9 of the clients", "rmmod and insmod", "link down"] {
            assert!(all.contains(event), "{event}");
        }
    }
}
