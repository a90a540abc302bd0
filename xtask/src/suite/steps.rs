//! The steps of the suite beside the tests in VMs, as a table.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use vrdma_conformance::capture;
use vrdma_lab::artefacts::provider_cargo;
use vrdma_lab::kernel::Kernel;
use vrdma_lab::proc::indent;
use vrdma_lab::{artefacts, paths, ui};

use super::counts::Counts;
use super::runners::{ONE_THREAD, Tests, cargo_with, fresh_seed, libtest, logged, tests};
use super::verdict::Verdict;
use super::{checkpatch, comments, cycles, floors, fuzz, names, sizes, tools, waits};
use crate::package::{self, PackagePlan};
use crate::ten_minutes::{self, TenMinutesPlan};

/// A step: a check that passes or fails as a whole, or tests that are counted.
pub struct Step {
    /// What `--only` selects it by; its log has this name too.
    pub name: &'static str,
    /// Takes too long for every day: runs with `--long`.
    pub long: bool,
    /// Reads headers or runs programs of the guest root.
    pub wants_guest_root: bool,
    /// The step itself, called with its name.
    pub run: fn(&str) -> Verdict,
}

impl Step {
    const fn new(name: &'static str, run: fn(&str) -> Verdict) -> Self {
        Self { name, long: false, wants_guest_root: false, run }
    }

    const fn in_guest_root(self) -> Self {
        Self { wants_guest_root: true, ..self }
    }

    const fn long(self) -> Self {
        Self { long: true, ..self }
    }
}

/// All steps, in the order in which they run.
pub const STEPS: &[Step] = &[
    Step::new("fmt", |name| check(name, cargo_with(&["fmt", "--all", "--check"]))),
    // With the account of cycles, which no other step builds: so that it does not rot.
    Step::new("clippy", |name| {
        let mut command = cargo_with(&["clippy", "--workspace", "--all-targets"]);
        command.args(["--features", "vrdma-perf/cycles", "--", "-D", "warnings"]);
        check(name, command)
    }),
    Step::new("sizes", |_| sizes::check().into()),
    Step::new("comments", |_| comments::check().into()),
    Step::new("cycles", |_| cycles::check().into()),
    Step::new("floors", |_| floors::check().into()),
    Step::new("names", |_| names::check().into()),
    Step::new("waits", |_| waits::check().into()),
    Step::new("doc", |name| {
        let mut command = cargo_with(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        check(name, command)
    }),
    Step::new("service", |_| service()),
    Step::new("deny", |name| deny(name, &["bans", "licenses", "sources"])).long(),
    Step::new("deny-advisories", advisories).long(),
    Step::new("provider-fmt", |name| check(name, provider("fmt", &["--check"]))).in_guest_root(),
    Step::new("provider-clippy", |name| {
        check(name, provider("clippy", &["--all-targets", "--", "-D", "warnings"]))
    })
    .in_guest_root(),
    Step::new("provider-tests", |name| libtest(name, &provider("test", &["--no-fail-fast"]), &[]))
        .in_guest_root(),
    Step::new("module", |_| as_root(|| module_without_warnings(Kernel::Usual))).in_guest_root(),
    Step::new("module-kernels", |_| {
        as_root(|| [Kernel::Oldest, Kernel::Newest].into_iter().try_for_each(module_without_warnings))
    })
    .long()
    .in_guest_root(),
    Step::new("checkpatch", |_| as_root(checkpatch::check)).long(),
    Step::new("packages", |_| as_root(packages)).long(),
    // Both use the packages of the step before.
    Step::new("unit", |_| as_root(|| ten_minutes::unit(false))).long(),
    Step::new("ten-minutes", |_| as_root(|| ten_minutes::run(&TenMinutesPlan::default()))).long(),
    Step::new("check-capture", |name| as_root(|| ui::unless_quick(name, None, capture::self_test)))
        .in_guest_root(),
    Step::new("tests", |name| tests(name, Tests::default())),
    // nextest does not run the examples of the documentation.
    Step::new("doc-tests", |name| {
        libtest(name, &cargo_with(&["test", "--workspace", "--doc", "--no-fail-fast"]), &[])
    }),
    Step::new("tests-long", |name| tests(name, Tests { long: true, ..Tests::default() })).long(),
    Step::new("tests-three-workers", |name| {
        tests(name, Tests { workers: Some(3), files: BETWEEN_WORKERS, ..Tests::default() })
    }),
    Step::new("tests-two-workers-all", |name| tests(name, Tests { workers: Some(2), ..Tests::default() }))
        .long(),
    Step::new("tests-three-workers-all", |name| tests(name, Tests { workers: Some(3), ..Tests::default() }))
        .long(),
    Step::new("tests-other-seeds", |name| {
        tests(name, Tests { seed: Some(fresh_seed(name)), ..Tests::default() })
    })
    .long(),
    Step::new("shim-asan", shim_asan),
    Step::new("miri", miri).long(),
    Step::new("bench-memory-table", |name| check(name, bench("memory_table"))).long(),
    Step::new("bench-fairness", |name| check(name, bench("fairness"))).long(),
    Step::new("fuzz", fuzz::run).long(),
    Step::new("tests-asan", |name| libtest(name, &address_sanitizer(), &["memory::", "queue::", ONE_THREAD]))
        .long(),
];

/// End-to-end tests that are quick, and find most of what goes wrong between workers.
const BETWEEN_WORKERS: &[&str] =
    &["captures::", "datagrams::", "iwarp_own::", "lifecycle::", "unreliable::", "workers::"];

/// Tests of guest memory and queues, where the unsafe code is, under AddressSanitizer: which the
/// compiler has, but only says so on request.
fn address_sanitizer() -> Command {
    let mut command =
        cargo_with(&["test", "-p", "vrdma-backend", "--lib", "--target", "x86_64-unknown-linux-gnu"]);
    command.args(["--target-dir", "target/asan"]);
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    command
}

/// The driver's data path, whose rings and unsafe code need no device, under Miri where it is
/// installed.
fn miri(name: &str) -> Verdict {
    match cargo_with(&["miri", "--version"]).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            libtest(name, &cargo_with(&["miri", "test", "-p", "vrdma-verbs", "--lib"]), &[])
        }
        _ => Verdict::Skipped("there is no Miri (rustup component add miri, of a nightly toolchain)".into()),
    }
}

/// A bench that ends with an error if what it measures is not as it must be.
fn bench(name: &str) -> Command {
    cargo_with(&["bench", "-p", "vrdma-tests", "--bench", name])
}

fn provider(subcommand: &str, arguments: &[&str]) -> Command {
    let mut command = provider_cargo(subcommand);
    command.args(arguments);
    command
}

/// A command that passes or fails as a whole.
fn check(name: &str, command: Command) -> Verdict {
    logged(name, command).into()
}

/// What only root can do.
fn as_root(work: impl FnOnce() -> Result<()>) -> Verdict {
    if nix::unistd::geteuid().is_root() { work().into() } else { Verdict::Skipped("wants root".into()) }
}

/// Calls all of dpdk-sys' shim, built with sanitizers.
fn shim_asan(name: &str) -> Verdict {
    let mut command = Command::new("sh");
    // What EAL keeps until the process ends is no leak.
    command.current_dir(paths::workspace().join("dpdk-sys")).arg("-ec").arg(
        "cc -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -DALLOW_EXPERIMENTAL_API \
         $(pkg-config --cflags libdpdk) -o \"$0\" shim.c tests/shim.c $(pkg-config --libs libdpdk)
         ASAN_OPTIONS=detect_leaks=0 exec \"$0\"",
    );
    command.arg(paths::workspace().join("target/shim-asan"));
    check(name, command)
}

fn deny(name: &str, what: &[&str]) -> Verdict {
    match deny_command(what) {
        Ok(command) => check(name, command),
        Err(error) => Verdict::Failed(Counts::FAILED, error),
    }
}

fn deny_command(what: &[&str]) -> Result<Command> {
    let mut command = Command::new(tools::DENY.find()?);
    command.current_dir(paths::workspace()).args(["--color", "never", "check"]).args(what);
    Ok(command)
}

/// Advisories are checked where their database can be had; not having it is no failure of ours.
fn advisories(name: &str) -> Verdict {
    const UNREACHABLE: [&str; 5] =
        ["failed to fetch", "failed to clone", "unable to fetch", "unable to clone", "failed to open git"];
    let result = deny_command(&["advisories"]).and_then(|command| logged(name, command));
    let text = result.as_ref().err().map(|error| format!("{error:#}").to_lowercase()).unwrap_or_default();
    if UNREACHABLE.iter().any(|words| text.contains(words)) {
        return Verdict::Skipped("the advisory database cannot be reached".into());
    }
    result.into()
}

/// The packages for all releases of Debian: they are built, checked, installed and removed.
fn packages() -> Result<()> {
    package::run(&PackagePlan { quick: true, install: true, ..PackagePlan::default() })
}

/// Builds the module; warnings of compiler, sparse or modpost are failures.
fn module_without_warnings(kernel: Kernel) -> Result<()> {
    let text = artefacts::said_of_module(kernel)?;
    // kbuild says so of modules that are not signed with the kernel; it is no fault of the code.
    let fault = |line: &&str| {
        ["warning:", "error:", "WARNING:"].iter().any(|word| line.contains(word))
            && !line.contains("Skipping BTF generation")
    };
    let faults: Vec<&str> = text.lines().filter(fault).collect();
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{} warnings\n{}", faults.len(), indent(&faults.join("\n")))
}

/// The unit file, by systemd itself where it is installed.
fn service() -> Verdict {
    match verify_unit() {
        Ok(false) => Verdict::Skipped("there is no systemd-analyze (package systemd)".into()),
        Ok(true) => Verdict::Passed(Counts::PASSED),
        Err(error) => Verdict::Failed(Counts::FAILED, error),
    }
}

/// Whether systemd could be asked about the unit file; an error if it has something to say of it.
fn verify_unit() -> Result<bool> {
    const PROGRAM: &str = "/usr/local/sbin/vrdma-backend";
    let unit = paths::read(&paths::workspace().join("docs/vrdma-backend.service"))?;
    let socket = paths::read(&paths::workspace().join("docs/vrdma-socket@.socket"))?;
    let copy = paths::logs().join("vrdma-backend.service");
    let instance = paths::logs().join("vrdma-socket@a-rdma.socket");
    paths::make_dir(&paths::logs())?;
    // It complains of programs that are not there, and ours is not installed.
    paths::write(&copy, unit.replace(PROGRAM, "/bin/true"))?;
    paths::write(&instance, socket)?;
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no"]).args([&copy, &instance]).stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).context("systemd-analyze"),
    };
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    // What it says of other units of this machine is not ours to mend.
    let is_ours = |line: &&str| line.contains("vrdma-backend.service") || line.contains("vrdma-socket");
    let ours: Vec<&str> = said.lines().filter(is_ours).collect();
    if !ours.is_empty() || !unit.contains(PROGRAM) {
        bail!("systemd-analyze verify:\n{}", indent(&ours.join("\n")));
    }
    // A core has guests' memory, and the daemon's end is that of all guests.
    for line in ["LimitCORE=0", "OOMScoreAdjust=-900"] {
        ensure!(unit.lines().any(|ours| ours == line), "the unit does not say {line}");
    }
    check_exposure(&copy)?;
    Ok(true)
}

/// How open a service systemd may call the unit file: less is better.
const MOST_EXPOSED: f32 = 2.0;

/// Whether systemd calls a unit file no more open than [`MOST_EXPOSED`].
fn check_exposure(unit: &Path) -> Result<()> {
    let output =
        Command::new("systemd-analyze").args(["security", "--offline=true", "--no-pager"]).arg(unit).output();
    let output = output.context("systemd-analyze")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let level = said
        .lines()
        .find_map(|line| line.split_once("exposure level for ")?.1.split(' ').nth(1)?.parse().ok());
    let level: f32 = level.with_context(|| format!("systemd-analyze security names no level: {said}"))?;
    ensure!(level <= MOST_EXPOSED, "systemd-analyze security: {level} is more than {MOST_EXPOSED}");
    Ok(())
}
