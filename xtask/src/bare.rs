//! `cargo xtask bare`: does README's "Try it" hold on a machine that has nothing yet?
//!
//! A minimal Debian root, of release 12 or 13 (`--suite trixie`), gets the Rust toolchain, the
//! settings of the package registries, and the working tree; README's commands run in it as they
//! stand. `bare.lock` remembers what the last success depended on, so that continuous integration
//! need not repeat it each time.

mod lock;
mod readme;
mod root;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vrdma_lab::{needs, paths, proc, ui};

use readme::commands;
use root::Root;
pub use root::Suite;

/// What to try.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Plan {
    /// The demo and the tests without VMs alone.
    #[arg(long)]
    pub quick: bool,
    /// The release of Debian that the machine has.
    #[arg(long, value_enum, default_value_t)]
    pub suite: Suite,
    /// Packages that the machine has already, as `libclang-cpp14,dpdk`.
    #[arg(long, value_delimiter = ',', value_name = "PACKAGES")]
    pub have: Vec<String>,
    /// A command to run there after README's, as 'cargo run --release -p vrdma-perf -- report'; may
    /// be given again.
    #[arg(long, value_name = "COMMAND")]
    pub also: Vec<String>,
    /// A command to run there in place of README's; may be given again.
    #[arg(long, value_name = "COMMAND", conflicts_with = "quick")]
    pub instead: Vec<String>,
}

/// Both commands, with every test in VMs, on an empty machine.
const LIMIT: Duration = Duration::from_secs(3 * 60 * 60);
/// The quick half takes less. It was seen to take 27 minutes on a fast machine that did nothing
/// else; slow ones need twice that to build. One that is begun and does not end in time fails the
/// whole run, so it is not begun.
const QUICK_HALF: Duration = Duration::from_secs(60 * 60);

/// Disk that root, builds, and the roots inside it take, in MiB; the quick half was seen to take
/// 7,800.
const SPACE: u64 = 12 * 1024;

/// Goes through the plan. The root is removed after a success, and stays after a failure.
pub fn run(plan: &Plan) -> Result<()> {
    possible()?;
    needs::ensure()?;
    try_it(plan, Instant::now() + LIMIT)
}

/// How continuous integration's look at the bare machine ended, if not by a failure.
pub enum Due {
    /// It succeeded.
    Tried,
    /// It was not tried, and why.
    Skipped(String),
}

/// The quick half, if what it depends on changed since its last success.
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
    try_it(&Plan { quick: true, ..Plan::default() }, until)
        .with_context(|| format!("run `cargo xtask bare --quick` and commit {}", lock::NAME))?;
    Ok(Due::Tried)
}

/// An error if this machine cannot make a bare one.
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

fn try_it(plan: &Plan, until: Instant) -> Result<()> {
    let start = Instant::now();
    // What is tried, not what is there when it ends.
    let hash = lock::hash()?;
    let mut commands = match plan.instead.as_slice() {
        [] => commands(&paths::read(&paths::workspace().join("README.md"))?, plan.quick)?,
        instead => instead.to_vec(),
    };
    commands.extend_from_slice(&plan.also);
    let root = Root::build(plan.suite, &plan.have)?;
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
