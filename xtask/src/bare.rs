//! `cargo xtask bare`: checks README's "Try it" on a machine on which nothing is installed.
//!
//! The machine is a minimal Debian root, of release 12 or 13 (`--suite trixie`). It gets the Rust
//! toolchain, the settings of the package registries, and the working tree. README's commands run
//! in it unchanged. `bare.lock` contains a hash of what the last success depended on, so that
//! continuous integration does not repeat it each time.

mod lock;
mod readme;
mod root;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vrdma_lab::{needs, paths, proc, ui};

use readme::{commands, unprivileged};
use root::Root;
pub use root::Suite;

/// What to try on a bare machine.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct BarePlan {
    /// Run only the demo and the tests without VMs.
    #[arg(long)]
    pub quick: bool,
    /// The release of Debian on the machine.
    #[arg(long, value_enum, default_value_t)]
    pub suite: Suite,
    /// Packages that the machine already has, e.g. `libclang-cpp14,dpdk`.
    #[arg(long, value_delimiter = ',', value_name = "PACKAGES")]
    pub have: Vec<String>,
    /// A command to run there after README's, e.g. 'cargo run --release -p vrdma-perf -- report'
    /// (may be repeated).
    #[arg(long, value_name = "COMMAND")]
    pub also: Vec<String>,
    /// A command to run there instead of README's (may be repeated).
    #[arg(long, value_name = "COMMAND", conflicts_with = "quick")]
    pub instead: Vec<String>,
}

/// Time limit of both commands, with every test in VMs, on an empty machine.
const LIMIT: Duration = Duration::from_secs(3 * 60 * 60);
/// Time that must be left to start the quick half.
///
/// It took 27 minutes on a fast machine that did nothing else. Slow machines need twice that to
/// build. If it does not end in time, the whole run fails. So it does not start without this time.
const QUICK_HALF: Duration = Duration::from_secs(60 * 60);

/// Disk space in MiB for the root, the builds, and the roots inside it. The quick half took 7,800.
const SPACE: u64 = 12 * 1024;

/// Runs the plan. The root is removed after a success, and kept after a failure.
pub fn run(plan: &BarePlan) -> Result<()> {
    possible()?;
    needs::ensure()?;
    try_it(plan, Instant::now() + LIMIT)
}

/// The outcome of the bare machine in continuous integration, unless it failed.
pub enum Due {
    /// It succeeded.
    Tried,
    /// It was not tried, for this reason.
    Skipped(String),
}

/// Runs the quick half if its inputs changed since its last success.
pub fn in_ci(until: Instant) -> Result<Due> {
    if lock::is_current()? {
        return Ok(Due::Skipped(format!("{} is of this state", lock::NAME)));
    }
    if let Err(why) = possible() {
        return Ok(Due::Skipped(format!("{why:#}")));
    }
    let left = until.saturating_duration_since(Instant::now());
    if left < QUICK_HALF {
        return Ok(Due::Skipped(format!("{} s are left of the time, too little", left.as_secs())));
    }
    ui::say(&format!("{} is of another state: trying README's commands on a bare machine", lock::NAME));
    try_it(&BarePlan { quick: true, ..BarePlan::default() }, until)
        .with_context(|| format!("run `cargo xtask bare --quick` and commit {}", lock::NAME))?;
    Ok(Due::Tried)
}

/// Fails if this machine cannot create a bare root.
fn possible() -> Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "a bare root is made as root: run this with sudo");
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "true"]);
    proc::output(command).context("no namespaces here")?;
    paths::make_dir(&paths::vm())?;
    Root::remove_last()?;
    let free = paths::free_space(&paths::vm())?;
    ensure!(free >= SPACE, "{} has {free} MiB free, {SPACE} are wanted", paths::vm().display());
    Ok(())
}

fn try_it(plan: &BarePlan, until: Instant) -> Result<()> {
    let start = Instant::now();
    // The hash is of what is tried, not of the files at the end.
    let hash = lock::hash()?;
    let readme = paths::read(&paths::workspace().join("README.md"))?;
    let mut commands = match plan.instead.as_slice() {
        [] => commands(&readme, plan.quick)?,
        instead => instead.to_vec(),
    };
    commands.extend_from_slice(&plan.also);
    let root = Root::build(plan.suite, &plan.have)?;
    if plan.instead.is_empty() {
        // First, because the other commands install DPDK.
        root.run_unprivileged(&unprivileged(&readme)?, until.saturating_duration_since(Instant::now()))?;
    }
    for (index, command) in commands.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        root.run(command, index + 1, left)?;
    }
    root.remove()?;
    println!(
        "bare {}: {} succeeded in {:.0} s",
        plan.suite.name(),
        commands.join(", "),
        start.elapsed().as_secs_f64()
    );
    if plan.suite == Suite::default() && plan.have.is_empty() && plan.instead.is_empty() {
        lock::write(&hash)?;
    }
    Ok(())
}
