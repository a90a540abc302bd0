//! Builds the project's kernel modules out of tree, with the guest root's compiler.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::common::{absent, copy_sources, out};
use crate::hash::{Inputs, Stamp};
use crate::kernel::Kernel;
use crate::proc::LONG;
use crate::{image, paths, proc, ui};

/// Make variables that turn on compiler warnings and sparse.
const CHECKS: [&str; 3] = ["W=1", "C=1", "CHECK=sparse"];

pub(super) fn test_module(kernel: Kernel) -> Result<Option<PathBuf>> {
    let sources = paths::workspace().join("tests/guest-module");
    kernel_module("the kernel module of the tests", "vrdma_test_ulp", "vrdma_test_ulp", &sources, &[], kernel)
        .map(Some)
}

pub(super) fn faults(kernel: Kernel) -> Result<Option<PathBuf>> {
    let sources = paths::workspace().join("tests/guest-faults");
    kernel_module(
        "the kernel module with faults",
        "vrdma_test_faults",
        "vrdma_test_faults",
        &sources,
        &[],
        kernel,
    )
    .map(Some)
}

pub(super) fn module(kernel: Kernel) -> Result<Option<PathBuf>> {
    let sources = paths::workspace().join("guest-driver/kernel");
    if !sources.join("Kbuild").exists() && !sources.join("Makefile").exists() {
        return absent("the kernel module");
    }
    kernel_module("the kernel module", "vrdma", "vrdma", &sources, &CHECKS, kernel).map(Some)
}

/// Returns the log of the kernel module's build for a kernel: the output of make, compiler and
/// sparse.
///
/// Builds the module unless it is up to date.
pub fn said_of_module(kernel: Kernel) -> Result<String> {
    let _lock = image::lock()?;
    let module = module(kernel)?.context("there are no sources of the kernel module")?;
    paths::read(&log_of(&module))
}

/// Returns the path of a module's build log, which is kept as long as the module.
fn log_of(module: &Path) -> PathBuf {
    module.with_extension("log")
}

/// Builds `NAME.ko` for a kernel, with these make variables. Stores the result under the name
/// `kept`.
pub fn kernel_module(
    what: &str,
    name: &str,
    kept: &str,
    sources: &Path,
    variables: &[&str],
    kernel: Kernel,
) -> Result<PathBuf> {
    let file = format!("{name}.ko");
    let result = out(&kernel.module_file(kept))?;
    let inputs =
        Inputs::new("module 2").text(&variables.join(" ")).text(&kernel.identity()?).path(sources)?;
    let stamp = Stamp::new(&result, inputs.finish());
    if !stamp.is_current() {
        stamp.clear()?;
        let log = paths::log(&format!("build-{kept}"))?;
        ui::step_with_log(&format!("building {what}"), Some(&log), || {
            let built = build_module(sources, variables, &log, kernel)?.join(&file);
            fs::copy(&built, &result).with_context(|| format!("the build made no {file}"))?;
            fs::copy(&log, log_of(&result)).context("the build has no log")?;
            kernel.check_module(&file, &fs::read(&result)?)?;
            stamp.set()
        })?;
    }
    Ok(result)
}

/// Builds a kernel module out of tree, and returns the directory with the result.
///
/// Copies the sources first, because kbuild writes next to them.
fn build_module(sources: &Path, variables: &[&str], log: &Path, kernel: Kernel) -> Result<PathBuf> {
    let work = out("module-build")?;
    paths::remove(&work)?;
    copy_sources(sources, &work)?;
    build_module_in(&work, variables, log, kernel)?;
    Ok(work)
}

/// Builds a kernel module in the directory of its sources.
///
/// Objects of an earlier build are rebuilt only if their sources changed.
pub fn build_module_in(work: &Path, variables: &[&str], log: &Path, kernel: Kernel) -> Result<()> {
    let (root, directory) = kernel.headers()?;
    let script = format!(
        "make -C {directory} M=/mnt -j$(nproc) {} modules",
        variables.iter().map(|variable| format!("'{variable}'")).collect::<Vec<_>>().join(" ")
    );
    let command = proc::in_root(&root, &[(work, "/mnt")], &script);
    proc::run_logged("the kernel module's build", command, log, LONG).map(|_| ())
}
