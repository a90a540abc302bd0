//! Where the files of a run are: logs and what the VMs share, and sockets.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::paths;
use crate::proc::Ephemeral;

/// Where a demo puts what passes the wire, in its run's directory.
pub const CAPTURE: &str = "wire.pcap";

/// One of the pairs that a process has at a time: each has its own directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane(pub u8);

impl Lane {
    /// A name that begins so, of this lane.
    fn name(self, begin: &str) -> String {
        if self.0 == 0 { begin.to_owned() } else { format!("{begin}.{}", self.0) }
    }
}

/// The process that a name is of, which begins so.
fn process_of(name: &str, begin: &str) -> Option<u32> {
    name.strip_prefix(begin)?.split('.').next()?.parse().ok()
}

/// A new directory for the logs of a run; old ones but a few are removed.
pub fn run_directory(lane: Lane) -> Result<PathBuf> {
    let directory = current(lane);
    // Whoever says where the logs go keeps them too. One lane is enough for it.
    if lane == Lane::default() && std::env::var_os(paths::LOGS).is_none() {
        remove_old()?;
    }
    // A second pair of the same process starts over.
    paths::remove(&directory)?;
    paths::make_dir(&directory.join("share"))?;
    Ok(directory)
}

/// Where the files of this process's run are.
fn current(lane: Lane) -> PathBuf {
    match std::env::var_os(paths::LOGS) {
        Some(_) => paths::logs().join(lane.name("vms")),
        None => paths::vm().join(lane.name(&format!("run-{}", std::process::id()))),
    }
}

/// Moves the logs of a lane's last run to where no later run removes them; from where to where, if
/// there are some. Its VMs have ended.
pub fn keep_run(lane: Lane, to: &Path) -> Result<Option<(PathBuf, PathBuf)>> {
    let from = current(lane);
    if !from.exists() {
        return Ok(None);
    }
    // What was built is large, and the same for all.
    paths::remove(&from.join("share"))?;
    paths::remove(to)?;
    fs::rename(&from, to).with_context(|| format!("cannot move {}", from.display()))?;
    Ok(Some((from, to.to_owned())))
}

/// Of runs whose processes have ended the last ones stay.
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
    // Captures are large: only the last run's stays.
    for (_, path) in old.iter().rev().skip(1) {
        paths::remove(&path.join(CAPTURE))?;
    }
    Ok(())
}

/// A directory with a short path for sockets. Those of xtasks that were killed are removed.
pub fn socket_directory(lane: Lane) -> Result<Ephemeral> {
    let parent = std::env::temp_dir();
    // Of two lanes that remove the same, one would not find it.
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
