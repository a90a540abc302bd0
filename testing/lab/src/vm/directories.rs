//! The directories of a run: logs and the VMs' share, and sockets.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::paths;
use crate::proc::Ephemeral;

/// Name of the capture of a demo's wire, in the run's directory.
pub const CAPTURE: &str = "wire.pcap";

/// The number of one of the pairs that a process runs at the same time.
///
/// Each pair has its own directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane(pub u8);

impl Lane {
    /// Returns a file name of this pair that begins with `begin`.
    fn name(self, begin: &str) -> String {
        if self.0 == 0 { begin.to_owned() } else { format!("{begin}.{}", self.0) }
    }
}

/// Returns the process id in a name that begins with `begin`.
fn process_of(name: &str, begin: &str) -> Option<u32> {
    name.strip_prefix(begin)?.split('.').next()?.parse().ok()
}

/// Makes a new directory for the logs of a run, and removes most of the old ones.
pub fn run_directory(lane: Lane) -> Result<PathBuf> {
    let directory = current(lane);
    // If the user names the directory of the logs, nothing is removed. One pair of a process is
    // enough to remove old ones.
    if lane == Lane::default() && std::env::var_os(paths::LOGS).is_none() {
        remove_old()?;
    }
    // The next pair of this process replaces the directory.
    paths::remove(&directory)?;
    paths::make_dir(&directory.join("share"))?;
    Ok(directory)
}

/// Returns the directory of this process's run.
fn current(lane: Lane) -> PathBuf {
    match std::env::var_os(paths::LOGS) {
        Some(_) => paths::logs().join(lane.name("vms")),
        None => paths::vm().join(lane.name(&format!("run-{}", std::process::id()))),
    }
}

/// Moves the logs of the last run to `to`, where no later run removes them.
///
/// Returns both directories, or `None` if there are no logs. The VMs must have ended.
pub fn keep_run(lane: Lane, to: &Path) -> Result<Option<(PathBuf, PathBuf)>> {
    let from = current(lane);
    if !from.exists() {
        return Ok(None);
    }
    // The share contains the build results. It is large, and the same for all runs.
    paths::remove(&from.join("share"))?;
    paths::remove(to)?;
    fs::rename(&from, to).with_context(|| format!("cannot move {}", from.display()))?;
    Ok(Some((from, to.to_owned())))
}

/// Removes directories of runs whose processes have ended, except the last ones.
fn remove_old() -> Result<()> {
    const KEPT: usize = 8;
    let vm = paths::vm();
    let mut old: Vec<(std::time::SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(&vm)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = process_of(&name, "run-");
        if pid.is_some_and(|pid| !is_alive(pid)) {
            old.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    old.sort();
    for (_, path) in old.iter().rev().skip(KEPT) {
        paths::remove(path)?;
    }
    // Captures are large: only that of the last run stays.
    for (_, path) in old.iter().rev().skip(1) {
        paths::remove(&path.join(CAPTURE))?;
    }
    Ok(())
}

/// Makes a directory with a short path for sockets. Removes those of killed xtasks.
pub fn socket_directory(lane: Lane) -> Result<Ephemeral> {
    let parent = std::env::temp_dir();
    // Two pairs must not remove the same directory: one would not find it.
    let old = if lane == Lane::default() { Some(fs::read_dir(&parent)?) } else { None };
    for entry in old.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = process_of(&name, "vrdma-vm-");
        if pid.is_some_and(|pid| !is_alive(pid)) {
            paths::remove(&entry.path())?;
        }
    }
    let directory = parent.join(lane.name(&format!("vrdma-vm-{}", std::process::id())));
    paths::make_dir(&directory)?;
    Ok(Ephemeral::new(directory))
}

fn is_alive(pid: u32) -> bool {
    pid == std::process::id() || Path::new(&format!("/proc/{pid}")).exists()
}
