//! Where the files of a run are: logs and what the VMs share, and sockets.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::pair::CAPTURE;
use crate::paths;
use crate::proc::Ephemeral;

/// A new directory for the logs of a run; old ones but a few are removed.
pub fn run_directory() -> Result<PathBuf> {
    const KEPT: usize = 8;
    if std::env::var_os(paths::LOGS).is_some() {
        // Whoever says where the logs go keeps them too.
        let directory = paths::logs().join("vms");
        paths::remove(&directory)?;
        paths::make_dir(&directory.join("share"))?;
        return Ok(directory);
    }
    let vm = paths::vm();
    let mut old: Vec<(std::time::SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(&vm)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("run-").and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !is_alive(pid)) {
            old.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    old.sort();
    for (_, path) in old.iter().rev().skip(KEPT) {
        paths::remove(path)?;
    }
    // Captures are large: only the last run's stays.
    for (_, path) in old.iter().rev().skip(1) {
        paths::remove(&path.join(CAPTURE))?;
    }
    let directory = vm.join(format!("run-{}", std::process::id()));
    // A second pair of the same process starts over.
    paths::remove(&directory)?;
    paths::make_dir(&directory.join("share"))?;
    Ok(directory)
}

/// A directory with a short path for sockets. Those of xtasks that were killed are removed.
pub fn socket_directory() -> Result<Ephemeral> {
    let parent = std::env::temp_dir();
    for entry in fs::read_dir(&parent)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("vrdma-vm-").and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !is_alive(pid)) {
            paths::remove(&entry.path())?;
        }
    }
    let directory = parent.join(format!("vrdma-vm-{}", std::process::id()));
    paths::make_dir(&directory)?;
    Ok(Ephemeral::new(directory))
}

fn is_alive(pid: u32) -> bool {
    pid == std::process::id() || Path::new(&format!("/proc/{pid}")).exists()
}
