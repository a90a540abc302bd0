//! Where things are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The workspace's root.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("testing/lab/ lies in the workspace")
}

/// `target/vm`: roots, image, run directories.
pub fn vm() -> PathBuf {
    workspace().join("target/vm")
}

/// Where the logs go, if not to `target/vm/logs`.
pub const LOGS: &str = "VRDMA_LOGS";

/// `target/vm/logs`, or what [`LOGS`] names: one file per step.
pub fn logs() -> PathBuf {
    std::env::var_os(LOGS).map_or_else(|| vm().join("logs"), PathBuf::from)
}

/// The root that holds QEMU.
pub fn qemu_root() -> PathBuf {
    vm().join("qemu-root")
}

/// The root that the VMs' image is made from, and in which the kernel module is built.
pub fn guest_root() -> PathBuf {
    vm().join("guest-root")
}

/// The root of a VM that plays a host with a NIC.
pub fn host_root() -> PathBuf {
    vm().join("host-root")
}

/// The root in which the VMs' kernel that finds faults is built, and the kernel module for it.
pub fn kernel_root() -> PathBuf {
    vm().join("kernel-root")
}

/// Cargo's target directory of this run.
pub fn cargo_target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// A file name under [`logs`] for a step, the directory made.
pub fn log(step: &str) -> Result<PathBuf> {
    let name: String =
        step.chars().map(|c| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' }).collect();
    make_dir(&logs())?;
    Ok(logs().join(format!("{name}.log")))
}

/// `mkdir -p` with the path in the error.
pub fn make_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
}

/// Free space of the file system that holds the path, in MiB.
pub fn free_space(path: &Path) -> Result<u64> {
    let stat =
        nix::sys::statvfs::statvfs(path).with_context(|| format!("cannot look at {}", path.display()))?;
    Ok(stat.blocks_available() * stat.fragment_size() / (1024 * 1024))
}

/// Removes a file or a directory tree; nothing there is fine. Does not leave the file system, for a
/// tree may be a root with something mounted in it.
pub fn remove(path: &Path) -> Result<()> {
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(()) };
    if !meta.is_dir() {
        return fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()));
    }
    let status =
        std::process::Command::new("rm").args(["-rf", "--one-file-system", "--"]).arg(path).status()?;
    anyhow::ensure!(status.success(), "cannot remove {}", path.display());
    Ok(())
}

/// Reads a text file, with the path in the error.
pub fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes a file, with the path in the error.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}
