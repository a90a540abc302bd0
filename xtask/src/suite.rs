//! `cargo xtask test`: every check of the project, one after the other, with counts at the end.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::artefacts::{Part, cargo, provider_cargo};
use crate::image::{self, LONG};
use crate::proc::indent;
use crate::vm::PairConfig;
use crate::vmtest::{self, Outcome};
use crate::{apt, artefacts, capture, paths, proc, ui};

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Without the tests in VMs.
    pub no_vm: bool,
    /// VMs without these parts of our device; tests that need them are skipped.
    pub without: Vec<Part>,
    /// Only steps and VM tests whose name contains one of these.
    pub only: Vec<String>,
}

impl Selection {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }
}

/// How many tests passed and failed; a check without tests of its own counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
}

#[derive(Default)]
struct Suite {
    selection: Selection,
    counts: Counts,
    failures: Vec<String>,
    skipped: Vec<String>,
}

/// Runs the selected steps; an error if one failed.
pub fn run(selection: Selection) -> Result<()> {
    let start = Instant::now();
    let mut suite = Suite { selection, ..Suite::default() };
    suite.prepare()?;
    suite.static_checks();
    suite.guest_checks();
    suite.host_tests();
    suite.vm_tests();
    suite.close(start.elapsed())
}

impl Suite {
    /// Downloads and builds come first, so that a check's time is its own.
    fn prepare(&mut self) -> Result<()> {
        if nix::unistd::geteuid().is_root() {
            apt::install_needed()?;
        }
        let guest =
            ["provider-fmt", "provider-clippy", "provider-tests", "module", "module-sparse", "check-capture"];
        let vm = !self.selection.no_vm && vmtest::all().iter().any(|test| self.selection.wants(test.name));
        if self.selection.no_vm || !(vm || guest.iter().any(|name| self.selection.wants(name))) {
            return Ok(());
        }
        if nix::unistd::geteuid().is_root() {
            return image::ensure().map(|_| ());
        }
        if vm {
            bail!("the VM tests are run as root: use sudo, or `cargo xtask test --no-vm`");
        }
        Ok(())
    }

    fn static_checks(&mut self) {
        self.check("fmt", || {
            let mut command = cargo();
            command.args(["fmt", "--all", "--check"]);
            command
        });
        self.check("clippy", || {
            let mut command = cargo();
            command.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
            command
        });
        self.check("doc", || {
            let mut command = cargo();
            command.args(["doc", "--workspace", "--no-deps", "--document-private-items"]);
            command.env("RUSTDOCFLAGS", "-D warnings");
            command
        });
        self.service();
        if self.selection.wants("deny") {
            match cargo_deny() {
                Ok(program) => {
                    let deny = |what: &[&str]| {
                        let mut command = Command::new(&program);
                        command
                            .current_dir(paths::workspace())
                            .args(["--color", "never", "check"])
                            .args(what);
                        command
                    };
                    self.check("deny", || deny(&["bans", "licenses", "sources"]));
                    self.advisories(deny(&["advisories"]));
                }
                Err(error) => self.record("deny", Duration::ZERO, Err(error)),
            }
        }
    }

    /// The unit file, by systemd itself where it is installed.
    fn service(&mut self) {
        let name = "service";
        if !self.selection.wants(name) {
            return;
        }
        let start = Instant::now();
        match verify_unit() {
            Ok(true) => self.record(name, start.elapsed(), Ok(Counts { passed: 1, failed: 0 })),
            Ok(false) => self.skip(name, "there is no systemd-analyze"),
            Err(error) => self.record(name, start.elapsed(), Err(error)),
        }
    }

    /// Advisories are checked where their database can be had; not having it is no failure of ours.
    fn advisories(&mut self, command: Command) {
        let name = "deny-advisories";
        let start = Instant::now();
        let result = self.logged(name, command).map(|_| ());
        let unreachable = result.as_ref().is_err_and(|error| {
            let text = format!("{error:#}").to_lowercase();
            ["failed to fetch", "failed to clone", "unable to fetch", "unable to clone", "failed to open git"]
                .iter()
                .any(|words| text.contains(words))
        });
        if unreachable {
            self.skip(name, "the advisory database cannot be reached");
        } else {
            self.record(name, start.elapsed(), result.map(|()| Counts { passed: 1, failed: 0 }));
        }
    }

    fn guest_checks(&mut self) {
        let root = paths::guest_root().exists();
        let provider = paths::workspace().join("guest-driver/provider/Cargo.toml").exists();
        let kernel = paths::workspace().join("guest-driver/kernel");
        let module = kernel.join("Kbuild").exists() || kernel.join("Makefile").exists();
        let absent = if root { "no sources yet" } else { "no guest root (`cargo xtask image` makes it)" };

        for (name, subcommand, arguments) in [
            ("provider-fmt", "fmt", &["--check"][..]),
            ("provider-clippy", "clippy", &["--all-targets", "--", "-D", "warnings"][..]),
            ("provider-tests", "test", &["--no-fail-fast"][..]),
        ] {
            if !(provider && root) {
                self.skip(name, absent);
                continue;
            }
            let command = || {
                let mut command = provider_cargo(subcommand);
                command.args(arguments);
                command
            };
            if subcommand == "test" { self.tests(name, command) } else { self.check(name, command) }
        }
        for (name, variables) in [("module", &["W=1"][..]), ("module-sparse", &["C=2", "CHECK=sparse"][..])] {
            if !self.selection.wants(name) {
                continue;
            }
            if !(module && root && nix::unistd::geteuid().is_root()) {
                self.skip(name, absent);
                continue;
            }
            let start = Instant::now();
            let result = ui::unless_quick(name, None, || without_warnings(&kernel, variables, name));
            self.record(name, start.elapsed(), result.map(|()| Counts { passed: 1, failed: 0 }));
        }
        let name = "check-capture";
        if self.selection.wants(name) && root && nix::unistd::geteuid().is_root() {
            let start = Instant::now();
            let result = ui::unless_quick(name, None, capture::self_test);
            self.record(name, start.elapsed(), result.map(|()| Counts { passed: 1, failed: 0 }));
        } else {
            self.skip(name, absent);
        }
    }

    fn host_tests(&mut self) {
        let nextest = Command::new("cargo-nextest").arg("--version").stdout(Stdio::null()).status();
        let nextest = nextest.is_ok_and(|status| status.success());
        self.tests("tests", || {
            let mut command = cargo();
            if nextest {
                command.args(["nextest", "run", "--workspace", "--no-fail-fast", "--no-tests=pass"]);
            } else {
                command.args(["test", "--workspace", "--all-targets", "--no-fail-fast"]);
            }
            command
        });
        // nextest does not run the examples of the documentation.
        self.tests("doc-tests", || {
            let mut command = cargo();
            command.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
            command
        });
    }

    fn vm_tests(&mut self) {
        if self.selection.no_vm {
            return;
        }
        let selection = self.selection.clone();
        vmtest::run(
            &PairConfig { without: selection.without.clone(), ..PairConfig::default() },
            |name| selection.wants(name),
            |name, time, outcome| match outcome {
                Outcome::Passed => self.record(name, time, Ok(Counts { passed: 1, failed: 0 })),
                Outcome::Failed(why) => self.record(name, time, Err(anyhow::Error::msg(why))),
                Outcome::Skipped(why) => self.skip(name, why),
            },
        );
    }

    /// A command that passes or fails as a whole.
    fn check(&mut self, name: &str, command: impl FnOnce() -> Command) {
        if !self.selection.wants(name) {
            return;
        }
        let start = Instant::now();
        let result = self.logged(name, command()).map(|_| Counts { passed: 1, failed: 0 });
        self.record(name, start.elapsed(), result);
    }

    /// A command that reports tests of its own.
    fn tests(&mut self, name: &str, command: impl FnOnce() -> Command) {
        if !self.selection.wants(name) {
            return;
        }
        let start = Instant::now();
        let result = self.logged(name, command());
        let log = paths::log(name).map(|log| std::fs::read(log).unwrap_or_default()).unwrap_or_default();
        let counts = count(&String::from_utf8_lossy(&log));
        match result {
            Ok(_) => self.record(name, start.elapsed(), Ok(counts)),
            Err(error) => {
                self.counts.passed += counts.passed;
                // The failure itself is counted by `record`.
                self.counts.failed += counts.failed.saturating_sub(1);
                self.record(name, start.elapsed(), Err(error));
            }
        }
    }

    fn logged(&self, name: &str, command: Command) -> Result<PathBuf> {
        let log = paths::log(name)?;
        ui::unless_quick(name, Some(&log), || proc::run_logged(name, command, &log, LONG))?;
        Ok(log)
    }

    fn record(&mut self, name: &str, time: Duration, result: Result<Counts>) {
        let seconds = time.as_secs_f64();
        match result {
            Ok(counts) => {
                let tests =
                    if counts.passed > 1 { format!(" ({} tests)", counts.passed) } else { String::new() };
                ui::say(&format!("  ok {seconds:7.1} s  {name}{tests}"));
                self.counts.passed += counts.passed;
                self.counts.failed += counts.failed;
            }
            Err(error) => {
                ui::say(&format!("FAIL {seconds:7.1} s  {name}\n{}", indent(&format!("{error:#}"))));
                self.counts.failed += 1;
                self.failures.push(name.to_owned());
            }
        }
    }

    fn skip(&mut self, name: &str, why: &str) {
        if self.selection.wants(name) {
            ui::say(&format!("skip            {name}: {why}"));
            self.skipped.push(name.to_owned());
        }
    }

    fn close(self, time: Duration) -> Result<()> {
        let Counts { passed, failed } = self.counts;
        ui::say(&format!("\ntook {:.0} s; logs are in {}", time.as_secs_f64(), paths::logs().display()));
        if !self.skipped.is_empty() {
            ui::say(&format!("skipped: {}", self.skipped.join(", ")));
        }
        if !self.failures.is_empty() {
            ui::say(&format!("failed: {}", self.failures.join(", ")));
        }
        println!("{passed} passed, {failed} failed");
        if passed + failed == 0 {
            bail!("nothing was selected");
        }
        if failed > 0 { Err(Failed.into()) } else { Ok(()) }
    }
}

/// The error of a suite that ran and found failures, all of them reported already.
#[derive(Debug)]
pub struct Failed;

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("tests failed")
    }
}

impl std::error::Error for Failed {}

/// Adds up what nextest (`Summary [...] N tests run: N passed, N failed`) and libtest (`test result: ok. N passed;
/// N failed`) report.
fn count(log: &str) -> Counts {
    let mut counts = Counts::default();
    for line in log.lines().filter(|line| line.contains("Summary [") || line.starts_with("test result:")) {
        let words: Vec<&str> = line.split([' ', ',', ';', '.']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let number = pair[0].parse().unwrap_or(0);
            match pair[1] {
                "passed" => counts.passed += number,
                "failed" | "timed" => counts.failed += number,
                _ => {}
            }
        }
    }
    counts
}

/// Builds the module; warnings of compiler, sparse or modpost are failures.
fn without_warnings(kernel: &Path, variables: &[&str], name: &str) -> Result<()> {
    let log = paths::log(name)?;
    {
        let _lock = image::lock()?;
        artefacts::build_module(kernel, variables, &log)?;
    }
    let text = paths::read(&log)?;
    // kbuild says so of modules that are not signed with the kernel; it is no fault of the code.
    let fault = |line: &&str| {
        ["warning:", "error:", "WARNING:"].iter().any(|word| line.contains(word))
            && !line.contains("Skipping BTF generation")
    };
    let faults: Vec<&str> = text.lines().filter(fault).collect();
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{} warnings\n{}\nlog: {}", faults.len(), indent(&faults.join("\n")), log.display())
}

/// Whether systemd could be asked about the unit file; an error if it has something to say of it.
fn verify_unit() -> Result<bool> {
    const PROGRAM: &str = "/usr/local/sbin/vrdma-backend";
    let unit = paths::read(&paths::workspace().join("docs/vrdma-backend.service"))?;
    let copy = paths::logs().join("vrdma-backend.service");
    paths::make_dir(&paths::logs())?;
    // It complains of programs that are not there, and ours is not installed.
    paths::write(&copy, unit.replace(PROGRAM, "/bin/true"))?;
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no"]).arg(&copy).stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).context("systemd-analyze"),
    };
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    // What it says of other units of this machine is not ours to mend.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("vrdma-backend.service")).collect();
    if !ours.is_empty() || !unit.contains(PROGRAM) {
        bail!("systemd-analyze verify:\n{}", indent(&ours.join("\n")));
    }
    Ok(true)
}

/// The `cargo-deny` program: the machine's, or else one that is installed under `target/tools`.
fn cargo_deny() -> Result<PathBuf> {
    let there = |program: &Path| {
        let status =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let ours = paths::workspace().join("target/tools/bin/cargo-deny");
    for program in [PathBuf::from("cargo-deny"), ours.clone()] {
        if there(&program) {
            return Ok(program);
        }
    }
    let log = paths::log("install-cargo-deny")?;
    ui::step_with_log("installing cargo-deny (once)", Some(&log), || {
        let mut command = cargo();
        command.args(["install", "--locked", "cargo-deny", "--root"]);
        command.arg(paths::workspace().join("target/tools"));
        command.env("CARGO_TARGET_DIR", paths::workspace().join("target/tools/build"));
        proc::run_logged("cargo install", command, &log, LONG).context("cargo-deny cannot be installed")
    })?;
    // Its intermediate results are large, and never needed again.
    paths::remove(&paths::workspace().join("target/tools/build"))?;
    Ok(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_runners_are_counted() {
        let nextest = "     Summary [   0.1s] 12 tests run: 10 passed (1 slow), 2 failed, 3 skipped\n";
        assert_eq!(count(nextest), Counts { passed: 10, failed: 2 });
        let libtest = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured\ntest result: FAILED. 1 passed; 2 failed;";
        assert_eq!(count(libtest), Counts { passed: 4, failed: 2 });
    }

    #[test]
    fn selection_is_by_part_of_the_name() {
        let selection = Selection { only: vec!["vm-".into()], ..Selection::default() };
        assert!(selection.wants("vm-ping") && !selection.wants("fmt"));
        assert!(Selection::default().wants("fmt"));
    }
}
