//! Helpers of all builds: the directory for results, cargo, copies of sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::hash::is_output;
use crate::proc::LONG;
use crate::{paths, proc, ui};

/// Returns the path of a build result. Creates its directory.
pub fn out(name: &str) -> Result<PathBuf> {
    let directory = paths::vm().join("artefacts");
    paths::make_dir(&directory)?;
    Ok(directory.join(name))
}

/// Returns a command for the cargo that started this process, in the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(paths::workspace()).env("CARGO_TERM_COLOR", "never");
    // Removes variables that `cargo run` set for xtask alone.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" || name == "CARGO_MANIFEST_PATH" {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a step that prints nothing if it takes less than 2 s, as a step with nothing to do does.
pub(super) fn quiet_step(what: &str, log: &Path, command: Command) -> Result<()> {
    let start = std::time::Instant::now();
    let result = ui::unless_quick(what, Some(log), || proc::run_logged(what, command, log, LONG));
    match (&result, start.elapsed()) {
        (Ok(()), time) if time.as_secs() >= 2 => ui::say_done(what, time.as_secs_f64()),
        (Ok(()), _) => ui::done_unsaid(what),
        (Err(_), _) => {}
    }
    result
}

/// Copies a source tree without build output.
pub fn copy_sources(from: &Path, to: &Path) -> Result<()> {
    paths::make_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            copy_sources(&entry.path(), &to.join(entry.file_name()))?;
        } else if !is_output(&entry.path()) {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Prints that there are no sources to build, and returns `None`.
pub(super) fn absent(what: &str) -> Result<Option<PathBuf>> {
    ui::say(&format!("note: there are no sources of {what}"));
    Ok(None)
}

/// Whether the workspace has this file.
pub(super) fn has(path: &str) -> bool {
    paths::workspace().join(path).exists()
}
