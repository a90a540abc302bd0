//! `cargo xtask bench`: `compare OLD NEW`, the daemons of two revisions, measured in turns;
//! `report`, all figures of docs/performance/report.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrdma_lab::proc::{self, describe};
use vrdma_lab::{artefacts, needs, paths, ui};

/// A build from nothing takes some minutes.
const BUILD: Duration = Duration::from_secs(60 * 60);

/// What is compared.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The two daemons: a revision of git, `.` for the working tree, or a program's path.
    pub sides: [String; 2],
    /// What vrdma-perf is told besides.
    pub options: Vec<String>,
}

/// Builds both and prints vrdma-perf's table of one beside the other. vrdma-perf itself, which
/// plays the guests, is the working tree's.
///
/// # Errors
/// There is no such revision, or it does not build; or vrdma-perf's.
pub fn compare(plan: &Plan) -> Result<()> {
    needs::ensure()?;
    let [first, second] = &plan.sides;
    let (first, second) = (daemon(first)?, daemon(second)?);
    let perf = artefacts::perf()?;
    let status = Command::new(&perf).arg("compare").arg(first).arg(second).args(&plan.options).status();
    let status = status.with_context(|| format!("cannot start {}", perf.display()))?;
    ensure!(status.success(), "vrdma-perf: {}", describe(status));
    Ok(())
}

/// Puts figures, plots and cycle account of this machine into docs/performance/report.md, or into
/// report.md of another folder. What vrdma-perf is told besides holds for both.
///
/// # Errors
/// vrdma-perf does not build, or one of its runs fails; what the others gave is in the document.
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
    // Both are built before the first is measured, which wants the machine to itself.
    let programs = (artefacts::perf()?, artefacts::perf_with_account()?);
    let (figures, account) = (run(&programs.0, &[]), run(&programs.1, &["--account"]));
    ui::say(&format!("written: {}", out.join("report.md").display()));
    figures.and(account)
}

/// The daemon that is meant.
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

/// Where daemons of revisions are kept, by commit.
fn directory() -> Result<PathBuf> {
    let directory = paths::workspace().join("target/bench");
    paths::make_dir(&directory)?;
    Ok(directory)
}

/// The full name of a revision's commit.
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

/// Builds the daemon of a commit in a work tree that is there for that long. Revisions share a
/// target directory, and so what they have in common.
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
    // A copy that was cut off is not taken for the whole.
    let part = to.with_extension("part");
    let program = target.join("release/vrdma-backend");
    fs::copy(&program, &part).with_context(|| format!("cannot copy {}", program.display()))?;
    fs::rename(&part, to).with_context(|| format!("cannot rename {}", part.display()))
}

/// A work tree of git, which goes with this.
struct Tree(PathBuf);

impl Tree {
    fn add(path: &Path, commit: &str) -> Result<Tree> {
        // One that was cut off left its own.
        drop(Tree(path.to_owned()));
        let mut command = git();
        command.args(["worktree", "add", "--quiet", "--force", "--detach"]).arg(path).arg(commit);
        proc::output(command)?;
        Ok(Tree(path.to_owned()))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // There may be none, and what is left does no harm.
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
