//! Paths of the workspace's files, and helpers for files and directories.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns the workspace's root.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("testing/lab/ lies in the workspace")
}

/// Returns `target/vm`, the directory of roots, image and run directories.
pub fn vm() -> PathBuf {
    workspace().join("target/vm")
}

/// The environment variable that moves the logs from `target/vm/logs` elsewhere.
pub const LOGS: &str = "VRDMA_LOGS";

/// Returns the directory of the logs, one file per step: `target/vm/logs`, or the value of
/// [`LOGS`].
pub fn logs() -> PathBuf {
    std::env::var_os(LOGS).map_or_else(|| vm().join("logs"), PathBuf::from)
}

/// Returns the root that holds QEMU.
pub fn qemu_root() -> PathBuf {
    vm().join("qemu-root")
}

/// Returns the root that the VM image is made from, and in which the kernel module is built.
pub fn guest_root() -> PathBuf {
    vm().join("guest-root")
}

/// Returns the root of a VM that acts as a host with a NIC.
pub fn host_root() -> PathBuf {
    vm().join("host-root")
}

/// Returns the root in which the VMs' debug kernel, and the kernel module for it, are built.
pub fn kernel_root() -> PathBuf {
    vm().join("kernel-root")
}

/// Returns the root of one of Debian's other kernels: its modules and its headers.
pub fn other_kernel_root(name: &str) -> PathBuf {
    vm().join(format!("kernel-root-{name}"))
}

/// Returns cargo's target directory of this run.
pub fn cargo_target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// Returns a step's log file in [`logs`]. Creates the directory.
pub fn log(step: &str) -> Result<PathBuf> {
    let name: String =
        step.chars().map(|c| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' }).collect();
    make_dir(&logs())?;
    Ok(logs().join(format!("{name}.log")))
}

/// Creates a directory like `mkdir -p`, with the path in the error.
pub fn make_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
}

/// Returns the free space, in MiB, of the file system that holds the path.
pub fn free_space(path: &Path) -> Result<u64> {
    let stat =
        nix::sys::statvfs::statvfs(path).with_context(|| format!("cannot look at {}", path.display()))?;
    Ok(stat.blocks_available() * stat.fragment_size() / (1024 * 1024))
}

/// Removes a file or a directory tree. Succeeds if nothing exists there.
///
/// Does not leave the file system, because a tree may be a root with something mounted in it.
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
