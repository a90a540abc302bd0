//! Python packages from PyPI that run in the VMs, installed as their users do.
//!
//! They are wheels, which pip fetches once. Each is pinned by its hash.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::hash::{Inputs, Stamp};
use crate::proc::LONG;
use crate::{image, needs, paths, proc, ui};

/// The requirements file for pip.
const LIST: &str = include_str!("../image/guest.wheels");
/// pip's options: Python and C library of the guest root, and how to install.
///
/// `any` and `none` stand for wheels without machine code.
const TARGET: [&str; 16] = [
    "--python-version=3.13",
    "--implementation=cp",
    "--abi=cp313",
    "--abi=abi3",
    "--abi=none",
    "--platform=manylinux_2_28_x86_64",
    "--platform=any",
    "--only-binary=:all:",
    "--require-hashes",
    "--no-deps",
    "--no-compile",
    "--no-input",
    "--no-cache-dir",
    "--disable-pip-version-check",
    "--root-user-action=ignore",
    "--quiet",
];

/// Makes sure that the wheels are there.
pub fn ensure() -> Result<()> {
    let _lock = image::lock()?;
    needs::ensure()?;
    let directory = paths::vm().join("wheels");
    let hash = Inputs::new("wheels 1").text(LIST).text(&TARGET.join(" ")).finish();
    let stamp = Stamp::new(&directory, hash);
    if stamp.is_current() {
        return Ok(());
    }
    let log = paths::log("wheels")?;
    ui::step_with_log("fetching programs of PyPI", Some(&log), || {
        stamp.clear()?;
        paths::remove(&directory)?;
        let mut command = Command::new("pip3");
        command.arg("install").args(TARGET).arg("--target").arg(&directory);
        command.arg("--requirement").arg(paths::workspace().join("testing/lab/image/guest.wheels"));
        proc::run_logged("pip3", command, &log, LONG)?;
        stamp.set()
    })
}

/// Copies the wheels by hard links to `/share/wheels`, where both VMs see them.
pub fn lay_out(share: &Path) -> Result<()> {
    ensure()?;
    let to = share.join("wheels");
    if to.exists() {
        return Ok(());
    }
    fs::create_dir(&to).with_context(|| format!("cannot make {}", to.display()))?;
    image::link_tree(&paths::vm().join("wheels"), &to, "", &[])
}
