//! The long suite's fuzzing: each target of `testing/fuzz/` for half a minute, from its corpus.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use vrdma_lab::artefacts::cargo;
use vrdma_lab::proc::Ephemeral;
use vrdma_lab::proc::LONG;
use vrdma_lab::{paths, proc, ui};

use super::counts::Counts;
use super::verdict::Verdict;

/// Seconds for each target.
const SECONDS: u64 = 30;

/// Coverage counters for libFuzzer, as testing/fuzz/README.md has them.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// With flags there has to be a target, or else they are build scripts' too.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs all targets, also after one found something; each counts as a test.
pub fn run(name: &str) -> Verdict {
    let compiler = Command::new("c++").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !compiler.is_ok_and(|status| status.success()) {
        return Verdict::Skipped("libFuzzer is C++, and there is no compiler: apt-get install g++".into());
    }
    let targets = match build(name).and_then(|()| targets()) {
        Ok(targets) => targets,
        Err(error) => return Verdict::Failed(Counts::FAILED, error),
    };
    let failures: Vec<String> = targets
        .iter()
        .filter_map(|target| fuzz(name, target).err().map(|error| format!("{target}: {error:#}")))
        .collect();
    let failed = failures.len() as u64;
    let counts = Counts { passed: targets.len() as u64 - failed, failed };
    if failed == 0 {
        return Verdict::Passed(counts);
    }
    Verdict::Failed(counts, anyhow::Error::msg(failures.join("\n")))
}

fn targets() -> Result<Vec<String>> {
    let directory = paths::workspace().join("testing/fuzz/fuzz_targets");
    let mut targets: Vec<String> = fs::read_dir(&directory)
        .with_context(|| format!("cannot read {}", directory.display()))?
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
        .collect();
    targets.sort();
    Ok(targets)
}

fn build(name: &str) -> Result<()> {
    let log = paths::log(&format!("{name}-build"))?;
    let mut command = cargo();
    command.args(["build", "--release", "--bins", "--target", TARGET, "--manifest-path"]);
    command.arg(paths::workspace().join("testing/fuzz/Cargo.toml"));
    command.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", paths::cargo_target().join("fuzz"));
    ui::unless_quick("building the fuzz targets", Some(&log), || {
        proc::run_logged("the fuzz targets' build", command, &log, LONG)
    })
}

/// What it finds lies beside its log.
fn fuzz(name: &str, target: &str) -> Result<()> {
    let log = paths::log(&format!("{name}-{target}"))?;
    let found = Ephemeral::new(std::env::temp_dir().join(format!("vrdma-fuzz-{}", std::process::id())));
    paths::make_dir(found.path())?;
    let program = paths::cargo_target().join("fuzz").join(TARGET).join("release").join(target);
    let mut command = Command::new(program);
    command.arg(found.path());
    let corpus = paths::workspace().join("testing/fuzz/corpus").join(target);
    if Path::exists(&corpus) {
        command.arg(corpus);
    }
    command.args([format!("-max_total_time={SECONDS}"), "-timeout=20".to_owned()]);
    command.args(["-max_len=4096", "-rss_limit_mb=2048"]);
    command.arg(format!("-artifact_prefix={}/{name}-{target}-", paths::logs().display()));
    let what = format!("{name}: {target}");
    let limit = Duration::from_secs(SECONDS) + LONG;
    ui::step_with_log(&what, Some(&log), || proc::run_logged(&what, command, &log, limit))
}
