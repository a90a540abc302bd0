//! The kernels that VMs boot: Debian's, and a debug kernel that finds faults.
//!
//! The usual one is of Debian 13. The oldest and the newest one that the guest's driver supports
//! are those of Debian 12, and of the backports to Debian 13.
//!
//! Debian has no debug kernel. So it is built, once, from Debian's sources with KASAN, lockdep,
//! kmemleak and similar options. It is small, and everything that the VMs need is built in.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::hash::{Inputs, Stamp};
use crate::image::{self, Image};
use crate::{paths, proc, roots, ui};

const CONFIG: &str = include_str!("../image/kernel-debug.config");
const BUILD: &str = include_str!("../image/kernel-debug.sh");
/// The package that contains the sources.
const SOURCES: &str = "linux-source-6.12";

/// Time limit of the debug kernel's build.
///
/// A busy machine with two processors takes more than an hour. A build that was interrupted
/// continues.
const PATIENCE: Duration = Duration::from_secs(5 * 60 * 60);
/// Disk space, in MiB, for the root, the sources and the objects.
const SPACE: u64 = 4 * 1024;

/// A kernel of VMs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Kernel {
    /// Debian 13's.
    #[default]
    Usual,
    /// The oldest one that the guest's driver supports: Debian 12's.
    Oldest,
    /// The newest one that Debian has for a stable release: that of the backports to Debian 13.
    Newest,
    /// With KASAN, lockdep, kmemleak and more. It is built on first use, which takes an hour.
    Debug,
}

impl Kernel {
    /// How many times longer things may take than with Debian's kernel.
    pub fn slowness(self) -> u32 {
        match self {
            Self::Usual | Self::Oldest | Self::Newest => 1,
            Self::Debug => 5,
        }
    }

    /// The memory that a VM needs at least, in MiB.
    ///
    /// KASAN takes an eighth of all memory, and keeps freed memory for a while.
    pub fn least_memory(self) -> u32 {
        match self {
            Self::Usual | Self::Oldest | Self::Newest => 0,
            Self::Debug => 2048,
        }
    }

    /// Returns additional words for the kernel's command line.
    pub fn words(self) -> &'static str {
        match self {
            Self::Usual | Self::Oldest | Self::Newest => "",
            // Otherwise KASAN would report only the first fault.
            Self::Debug => "kasan_multi_shot",
        }
    }

    /// Returns the image with this kernel. Builds it unless it is up to date.
    pub fn image(self, usual: Image) -> Result<Image> {
        match self {
            Self::Usual => Ok(usual),
            Self::Oldest | Self::Newest => {
                let _lock = image::lock()?;
                self.ensure_root()?;
                let name = if self == Self::Oldest { "image-oldest" } else { "image-newest" };
                image::ensure_other_kernel(name, self.root())
            }
            Self::Debug => debug(usual),
        }
    }

    /// Returns module data for modprobe, if it is not in the image.
    ///
    /// Its `lib/modules/VERSION` lists what is built in.
    pub fn modprobe(self) -> Option<PathBuf> {
        match self {
            Self::Usual | Self::Oldest | Self::Newest => None,
            Self::Debug => Some(directory().join("modules")),
        }
    }

    /// Returns where the kernel's modules are built: a root, and the kernel's build directory in
    /// it.
    pub fn headers(self) -> Result<(PathBuf, String)> {
        self.ensure_root()?;
        let root = self.root();
        let directory = match self {
            Self::Debug => "/usr/src/linux".to_owned(),
            _ => format!("/lib/modules/{}/build", roots::kernel_version_in(&root)?),
        };
        Ok((root, directory))
    }

    /// Returns the root that the kernel comes from, or is built in.
    fn root(self) -> PathBuf {
        match self {
            Self::Usual => paths::guest_root(),
            Self::Oldest => paths::other_kernel_root("oldest"),
            Self::Newest => paths::other_kernel_root("newest"),
            Self::Debug => paths::kernel_root(),
        }
    }

    /// Makes sure that the root of one of Debian's other kernels exists.
    ///
    /// The usual root and the debug kernel's are made with their images.
    fn ensure_root(self) -> Result<()> {
        match self {
            Self::Oldest => roots::other_kernel("oldest", &["bookworm"]),
            Self::Newest => roots::other_kernel("newest", &["trixie", "trixie-backports"]),
            Self::Usual | Self::Debug => Ok(()),
        }
    }

    /// Returns the kernel's version, e.g. `6.1.0-50-amd64`, if it is one of Debian's.
    pub fn version(self) -> Result<String> {
        self.ensure_root()?;
        roots::kernel_version_in(&self.root())
    }

    /// Returns a text that changes if the kernel's modules have to be rebuilt.
    pub fn identity(self) -> Result<String> {
        match self {
            Self::Usual | Self::Oldest | Self::Newest => self.version(),
            Self::Debug => paths::read(&roots::with_ending(&directory(), ".stamp")),
        }
    }

    /// Whether the kernel module of the tests (`vrdma_test_ulp`) is built for this kernel.
    ///
    /// It is written for one version of Linux, and shows how users in the kernel use the device.
    pub fn runs_test_module(self) -> bool {
        matches!(self, Self::Usual | Self::Debug)
    }

    /// Returns the file name of a module for this kernel.
    pub fn module_file(self, name: &str) -> String {
        match self {
            Self::Usual => format!("{name}.ko"),
            Self::Oldest => format!("{name}-oldest.ko"),
            Self::Newest => format!("{name}-newest.ko"),
            Self::Debug => format!("{name}-debug.ko"),
        }
    }

    /// Checks that a module has KASAN's instrumentation exactly if this kernel has KASAN.
    pub fn check_module(self, name: &str, bytes: &[u8]) -> Result<()> {
        const CALL: &[u8] = b"__asan_";
        let watched = bytes.windows(CALL.len()).any(|window| window == CALL);
        ensure!(watched == (self == Self::Debug), "{name} was built for another kernel");
        Ok(())
    }
}

fn directory() -> PathBuf {
    paths::vm().join("kernel-debug")
}

/// Returns the image with the debug kernel.
fn debug(usual: Image) -> Result<Image> {
    let _lock = image::lock()?;
    let directory = directory();
    let free = paths::free_space(&paths::vm())?;
    ensure!(
        directory.exists() || free >= SPACE,
        "{} has {free} MiB free, the kernel that finds faults wants {SPACE}",
        paths::vm().display()
    );
    roots::kernel()?;
    let root_stamp = paths::read(&roots::with_ending(&paths::kernel_root(), ".stamp"))?;
    let version = roots::package_version(&paths::kernel_root(), SOURCES)?;
    let hash = Inputs::new("kernel 1").text(CONFIG).text(BUILD).text(&root_stamp).text(&version);
    let stamp = Stamp::new(&directory, hash.text(image::INITRAMFS_INIT).finish());
    let image =
        Image { kernel: directory.join("vmlinux"), initramfs: directory.join("initramfs"), root: usual.root };
    if stamp.is_current() {
        return Ok(image);
    }
    let log = paths::log("kernel-debug")?;
    ui::step_with_log("building the kernel that finds faults", Some(&log), || {
        let work = roots::with_ending(&directory, ".new");
        paths::remove(&work)?;
        paths::make_dir(&work)?;
        paths::write(&work.join("kernel-debug.config"), CONFIG)?;
        let command = proc::in_root(&paths::kernel_root(), &[(&work, "/mnt")], BUILD);
        proc::run_logged("the kernel's build", command, &log, PATIENCE)?;
        let busybox = fs::read(paths::guest_root().join("usr/bin/busybox"))?;
        image::write_initramfs(&busybox, &[], &work.join("initramfs"))?;
        stamp.clear()?;
        paths::remove(&directory)?;
        fs::rename(&work, &directory)?;
        stamp.set()
    })?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_told_apart_by_what_kasan_calls() {
        assert!(Kernel::Debug.check_module("a", b"..__asan_load8_noabort..").is_ok());
        assert!(Kernel::Debug.check_module("a", b"..").is_err());
        assert!(Kernel::Usual.check_module("a", b"..__asan_load8_noabort..").is_err());
        assert!(Kernel::Usual.check_module("a", b"..").is_ok());
    }
}
