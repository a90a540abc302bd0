//! An older version of the device, from the repository's history.
//!
//! Its driver has to work with the current daemon, and the current driver with its daemon.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::artefacts::{self, cargo};
use crate::hash::{Inputs, Stamp};
use crate::kernel::Kernel;
use crate::proc::LONG;
use crate::{image, paths, proc, ui};

/// The oldest commit that is compatible with the current version: minor version 2 of the ABI.
pub const COMMIT: &str = "96bdb4c3";

/// Whether the repository contains the commit. An archive has no history, a shallow clone only a
/// part.
pub fn is_there() -> bool {
    let output = git(&["cat-file", "-e", &format!("{COMMIT}^{{commit}}")]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Builds the older driver for the kernel that the VMs boot.
pub fn module() -> Result<PathBuf> {
    let _lock = image::lock()?;
    let sources = sources()?.join("guest-driver/kernel");
    artefacts::kernel_module("the older kernel module", "vrdma", "vrdma-older", &sources, &[], Kernel::Usual)
}

/// Builds the older provider in its own workspace, against the rdma-core of the guest root.
pub fn provider() -> Result<PathBuf> {
    let sources = sources()?;
    let log = paths::log("build-older-provider")?;
    let target = artefacts::out("older-target")?.join("provider");
    ui::unless_quick("building the older provider", Some(&log), || {
        let mut command = cargo();
        command.args(["build", "--release", "--locked", "--manifest-path"]);
        command.arg(sources.join("guest-driver/provider/Cargo.toml")).arg("--target-dir").arg(&target);
        command.env("VRDMA_GUEST_ROOT", paths::guest_root());
        proc::run_logged("the older provider's build", command, &log, LONG)
    })?;
    Ok(target.join("release/libvrdma.so"))
}

/// Builds the older daemon in its own workspace.
pub fn backend() -> Result<PathBuf> {
    let sources = sources()?;
    let log = paths::log("build-older-backend")?;
    let target = artefacts::out("older-target")?;
    ui::unless_quick("building the older backend", Some(&log), || {
        let mut command = cargo();
        command.current_dir(&sources).args(["build", "--release", "--locked", "--package", "vrdma-backend"]);
        command.arg("--target-dir").arg(&target);
        proc::run_logged("the older backend's build", command, &log, LONG)
    })?;
    Ok(target.join("release/vrdma-backend"))
}

/// Returns the directory of the older version's files. Unpacks them if necessary.
fn sources() -> Result<PathBuf> {
    let result = artefacts::out("older-sources")?;
    let stamp = Stamp::new(&result, Inputs::new("older 1").text(COMMIT).finish());
    if stamp.is_current() {
        return Ok(result);
    }
    stamp.clear()?;
    paths::remove(&result)?;
    paths::make_dir(&result)?;
    let archive = result.with_extension("tar");
    let mut command = git(&["archive", "--format=tar", "--output"]);
    command.arg(&archive).arg(COMMIT);
    proc::output(command).with_context(|| format!("the files of {COMMIT}"))?;
    let mut unpack = Command::new("tar");
    unpack.arg("-xf").arg(&archive).arg("-C").arg(&result);
    proc::output(unpack)?;
    paths::remove(&archive)?;
    stamp.set()?;
    Ok(result)
}

/// Returns a git command in the workspace, which another user may own.
fn git(arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.current_dir(paths::workspace()).args(["-c", "safe.directory=*"]).args(arguments);
    command
}
