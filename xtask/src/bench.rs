//! `cargo xtask bench`: measures vrdma.
//!
//! `compare OLD NEW` measures the daemons of two revisions alternately. `report` produces all
//! figures of docs/performance/report.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrdma_lab::proc::{self, describe};
use vrdma_lab::{artefacts, needs, paths, ui};

/// Time limit of a build. A build from scratch takes some minutes.
const BUILD: Duration = Duration::from_secs(60 * 60);

/// What to compare.
#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// The two daemons: a git revision, `.` for the working tree, or a program's path.
    pub sides: [String; 2],
    /// Additional options of vrdma-perf.
    pub options: Vec<String>,
}

/// Builds both daemons, and prints vrdma-perf's comparison.
///
/// vrdma-perf itself, which plays the guests, is the working tree's.
///
/// # Errors
///
/// There is no such revision, a revision or vrdma-perf does not build, or vrdma-perf fails.
pub fn compare(plan: &BenchPlan) -> Result<()> {
    needs::ensure()?;
    let [first, second] = &plan.sides;
    let (first, second) = (daemon(first)?, daemon(second)?);
    let perf = artefacts::perf()?;
    let status = Command::new(&perf).arg("compare").arg(first).arg(second).args(&plan.options).status();
    let status = status.with_context(|| format!("cannot start {}", perf.display()))?;
    ensure!(status.success(), "vrdma-perf: {}", describe(status));
    Ok(())
}

/// Writes this machine's figures, plots and cycle account into a folder's report.md.
///
/// The default folder is docs/performance. The additional options of vrdma-perf apply to both of
/// its runs.
///
/// # Errors
///
/// vrdma-perf does not build, or one of its runs fails. The document then has the other run's
/// results.
pub fn report(out: Option<&Path>, options: &[String]) -> Result<()> {
    needs::ensure()?;
    let ours = paths::workspace().join("docs/performance");
    let out = out.unwrap_or(&ours);
    let run = |program: &Path, account: &[&str]| -> Result<()> {
        let status =
            Command::new(program).arg("report").args(account).arg("--out").arg(out).args(options).status();
        let status = status.with_context(|| format!("cannot start {}", program.display()))?;
        ensure!(status.success(), "{} report {}: {}", program.display(), account.concat(), describe(status));
        Ok(())
    };
    // Both programs are built before the first measurement, which needs the machine for itself.
    let programs = (artefacts::perf()?, artefacts::perf_with_account()?);
    let (figures, account) = (run(&programs.0, &[]), run(&programs.1, &["--account"]));
    ui::say(&format!("written: {}", out.join("report.md").display()));
    figures.and(account)
}

/// Returns the path of a side's daemon, and builds it if necessary.
fn daemon(side: &str) -> Result<PathBuf> {
    if side == "." {
        return artefacts::backend_program();
    }
    let program = Path::new(side);
    if program.is_file() {
        return std::path::absolute(program).with_context(|| format!("cannot find {side}"));
    }
    let commit = commit(side)?;
    let built = directory()?.join(&commit[..12]);
    if !built.is_file() {
        build(side, &commit, &built)?;
    }
    ui::say(&format!("{side}: {}", built.display()));
    Ok(built)
}

/// Returns the directory of the built revisions' daemons, which are named by commit.
fn directory() -> Result<PathBuf> {
    let directory = paths::workspace().join("target/bench");
    paths::make_dir(&directory)?;
    Ok(directory)
}

/// Returns the full name of a revision's commit.
fn commit(revision: &str) -> Result<String> {
    let mut command = git();
    command.args(["rev-parse", "--quiet", "--verify", "--end-of-options", &format!("{revision}^{{commit}}")]);
    let name = proc::output(command).ok().map(|name| name.trim().to_owned());
    name.with_context(|| format!("{revision} is neither a program nor a revision of git"))
}

fn git() -> Command {
    let mut command = Command::new("git");
    command.current_dir(paths::workspace());
    command
}

/// Builds the daemon of a commit in a temporary git work tree.
///
/// Revisions share a target directory, so that common dependencies are built once.
fn build(revision: &str, commit: &str, to: &Path) -> Result<()> {
    let directory = directory()?;
    let tree = Tree::add(&directory.join("tree"), commit)?;
    let target = directory.join("target");
    let mut command = artefacts::cargo();
    command.current_dir(&tree.0).env("CARGO_TARGET_DIR", &target);
    command.args(["build", "--release", "--package", "vrdma-backend"]);
    let what = format!("building the backend of {revision}");
    let log = paths::log("build-bench")?;
    ui::step_with_log(&what, Some(&log), || proc::run_logged(&what, command, &log, BUILD))?;
    // An interrupted copy must not be taken for a complete one.
    let part = to.with_extension("part");
    let program = target.join("release/vrdma-backend");
    fs::copy(&program, &part).with_context(|| format!("cannot copy {}", program.display()))?;
    fs::rename(&part, to).with_context(|| format!("cannot rename {}", part.display()))
}

/// A git work tree, which is removed when this value is dropped.
struct Tree(PathBuf);

impl Tree {
    fn add(path: &Path, commit: &str) -> Result<Tree> {
        // An interrupted run may have left its work tree.
        drop(Tree(path.to_owned()));
        let mut command = git();
        command.args(["worktree", "add", "--quiet", "--force", "--detach"]).arg(path).arg(commit);
        proc::output(command)?;
        Ok(Tree(path.to_owned()))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // The work tree may not exist. If it cannot be removed, it does no harm.
        let mut remove = git();
        remove.args(["worktree", "remove", "--force"]).arg(&self.0);
        let _ = remove.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_revision_is_refused_by_its_name() {
        for side in ["no-such-branch", "--help", ""] {
            let error = daemon(side).unwrap_err().to_string();
            assert!(error.contains(side) && error.contains("neither a program nor a revision"), "{error}");
        }
    }

    #[test]
    fn a_program_is_taken_as_it_is() {
        let program = std::env::current_exe().unwrap();
        assert_eq!(daemon(program.to_str().unwrap()).unwrap(), program);
    }
}
