//! `cargo xtask repeat N -- WHAT`: repeats a command, to see how often it fails.
//!
//! The logs of each round are kept.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use vrdma_lab::proc::{Proc, describe, indent};
use vrdma_lab::vm::CAPTURE;
use vrdma_lab::{paths, ui};

/// Time limit of a round. A round ends when its command ends.
const FOREVER: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The error for failed rounds, all of which were already reported.
#[derive(Debug)]
pub struct RoundsFailed;

impl std::fmt::Display for RoundsFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("some rounds failed")
    }
}

impl std::error::Error for RoundsFailed {}

/// Runs an xtask command line this many times, also after a failure.
///
/// # Errors
///
/// A round failed.
pub fn run(rounds: u32, command: &[String]) -> Result<()> {
    ensure!(rounds > 0, "no rounds are asked for");
    let directory = new_directory()?;
    ui::say(&format!("logs of each round: {}", directory.display()));
    // This is the running program, even if another build has replaced its file.
    let program = Path::new("/proc/self/exe");
    let failed = go(rounds, &directory, |_, logs| {
        let mut this = Command::new(program);
        this.args(command).env(paths::LOGS, logs);
        this
    })?;
    println!("{} of {rounds} rounds passed: {}", rounds as usize - failed.len(), command.join(" "));
    if failed.is_empty() {
        return Ok(());
    }
    let failed: Vec<String> = failed.iter().map(u32::to_string).collect();
    println!("failed: {}; logs: {}", failed.join(", "), directory.display());
    Err(RoundsFailed.into())
}

/// Returns the rounds that failed. The output of a round goes to `output` in its directory.
fn go(rounds: u32, directory: &Path, command: impl Fn(u32, &Path) -> Command) -> Result<Vec<u32>> {
    let width = rounds.to_string().len();
    let mut failed = Vec::new();
    for round in 1..=rounds {
        let logs = directory.join(format!("round-{round:0width$}"));
        paths::make_dir(&logs)?;
        let output = logs.join("output");
        let file = File::create(&output).with_context(|| format!("cannot create {}", output.display()))?;
        let mut command = command(round, &logs);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let start = Instant::now();
        let mut proc = Proc::spawn("the command", command)?;
        let what = format!("round {round} of {rounds}");
        let status = ui::unless_quick(&what, Some(&output), || proc.wait(FOREVER))?;
        let seconds = start.elapsed().as_secs_f64();
        if status.success() {
            // Copies of what was built, and captures, are large.
            for large in ["share", CAPTURE] {
                paths::remove(&logs.join("vms").join(large))?;
            }
            ui::say(&format!("  ok {seconds:7.1} s  {what}  {}", ui::tail(&output, 1)));
        } else {
            ui::say(&format!("FAIL {seconds:7.1} s  {what}: {}", describe(status)));
            ui::say(&indent(&ui::tail(&output, 12)));
            failed.push(round);
        }
    }
    Ok(failed)
}

/// Creates `target/vm/repeat/SECONDS-PROCESS`. The seconds are the time since 1970.
fn new_directory() -> Result<PathBuf> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let parent = paths::vm().join("repeat");
    paths::make_dir(&parent)?;
    let directory = parent.join(format!("{now}-{}", std::process::id()));
    fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vrdma_lab::proc::Ephemeral;

    #[test]
    fn rounds_that_fail_are_named_and_all_logs_stay() {
        let directory =
            Ephemeral::new(std::env::temp_dir().join(format!("vrdma-repeat-{}", std::process::id())));
        let failed = go(10, directory.path(), |round, logs| {
            let mut command = Command::new("sh");
            command.args([
                "-c",
                &format!("echo round {round}; echo log >{}/log; [ {round} != 7 ]", logs.display()),
            ]);
            command
        });
        assert_eq!(failed.unwrap(), [7]);
        for round in 1..=10 {
            let logs = directory.path().join(format!("round-{round:02}"));
            assert_eq!(fs::read_to_string(logs.join("output")).unwrap(), format!("round {round}\n"));
            assert_eq!(fs::read_to_string(logs.join("log")).unwrap(), "log\n");
        }
    }
}
