//! Programs of cargo's that the steps use: the machine's, or else one that is installed under
//! `target/tools`, once.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use vrdma_lab::artefacts::cargo;
use vrdma_lab::proc::LONG;
use vrdma_lab::{paths, proc, ui};

/// A program, and how cargo installs it.
pub struct Tool {
    name: &'static str,
    features: &'static [&'static str],
}

/// Licences, sources and advisories of the dependencies.
pub const DENY: Tool = Tool { name: "cargo-deny", features: &[] };

/// Runs each test in a process of its own, several at once. Without what fetches newer versions of
/// itself.
pub const NEXTEST: Tool =
    Tool { name: "cargo-nextest", features: &["--no-default-features", "--features=default-no-update"] };

impl Tool {
    /// Where the program is; installs it if it is nowhere.
    pub fn find(&self) -> Result<PathBuf> {
        let tools = paths::workspace().join("target/tools");
        let ours = tools.join("bin").join(self.name);
        for program in [PathBuf::from(self.name), ours.clone()] {
            if answers(&program) {
                return Ok(program);
            }
        }
        let log = paths::log(&format!("install-{}", self.name))?;
        ui::step_with_log(&format!("installing {} (once)", self.name), Some(&log), || {
            let mut command = cargo();
            // Optimized it would take longer to build than it ever runs.
            command.args(["install", "--locked", "--debug", self.name]).args(self.features);
            command.arg("--root").arg(&tools).env("CARGO_TARGET_DIR", tools.join("build"));
            command.env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_INCREMENTAL", "0");
            proc::run_logged("cargo install", command, &log, LONG)
                .with_context(|| format!("{} cannot be installed", self.name))
        })?;
        // Its intermediate results are large, and never needed again.
        paths::remove(&tools.join("build"))?;
        Ok(ours)
    }

    /// Where cargo is to look for programs, so that it finds this one.
    pub fn search_path(&self) -> Result<OsString> {
        let program = self.find()?;
        let own = program.parent().filter(|directory| !directory.as_os_str().is_empty());
        let path = std::env::var_os("PATH").unwrap_or_default();
        Ok(std::env::join_paths(own.map(Path::to_owned).into_iter().chain(std::env::split_paths(&path)))?)
    }
}

/// Whether a program is there and says its version.
fn answers(program: &Path) -> bool {
    let mut command = Command::new(program);
    let status = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
