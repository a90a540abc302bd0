//! The kernels that VMs boot: Debian's, and one that finds faults. Debian has none such, so it is
//! built from Debian's sources with KASAN, lockdep, kmemleak and their like: small, with all that
//! VMs want built in, once.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::hash::{Inputs, Stamp};
use crate::image::{self, Image};
use crate::{paths, proc, roots, ui};

const CONFIG: &str = include_str!("../image/kernel-debug.config");
const BUILD: &str = include_str!("../image/kernel-debug.sh");
/// The package that has the sources.
const SOURCES: &str = "linux-source-6.12";

/// A busy machine of two processors takes more than an hour. What an interrupted build has done
/// stays.
const PATIENCE: Duration = Duration::from_secs(5 * 60 * 60);
/// Disk space that root, sources and objects want, in MiB.
const SPACE: u64 = 4 * 1024;

/// A kernel of VMs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Kernel {
    /// Debian's.
    #[default]
    Usual,
    /// With KASAN, lockdep, kmemleak and more. It is built when it is wanted for the first time,
    /// which takes an hour.
    Debug,
}

impl Kernel {
    /// How much longer than with the usual one things may take.
    pub fn slowness(self) -> u32 {
        match self {
            Self::Usual => 1,
            Self::Debug => 5,
        }
    }

    /// Memory that a VM needs at least, in MiB. KASAN takes an eighth of all, and what is freed is
    /// kept for a while.
    pub fn least_memory(self) -> u32 {
        match self {
            Self::Usual => 0,
            Self::Debug => 2048,
        }
    }

    /// More words for its command line.
    pub fn words(self) -> &'static str {
        match self {
            Self::Usual => "",
            // KASAN would else report the first fault alone.
            Self::Debug => "kasan_multi_shot",
        }
    }

    /// The image with this kernel, which is built if it is not there.
    pub fn image(self, usual: Image) -> Result<Image> {
        match self {
            Self::Usual => Ok(usual),
            Self::Debug => debug(usual),
        }
    }

    /// What modprobe is to know of it, if that is not in the image: `lib/modules/VERSION`, which
    /// says what is built in.
    pub fn modprobe(self) -> Option<PathBuf> {
        match self {
            Self::Usual => None,
            Self::Debug => Some(directory().join("modules")),
        }
    }

    /// Where its modules are built: a root, and in it the kernel's build directory.
    pub fn headers(self) -> Result<(PathBuf, String)> {
        Ok(match self {
            Self::Usual => (paths::guest_root(), format!("/lib/modules/{}/build", roots::kernel_version()?)),
            Self::Debug => (paths::kernel_root(), "/usr/src/linux".to_owned()),
        })
    }

    /// What its modules depend on.
    pub fn identity(self) -> Result<String> {
        match self {
            Self::Usual => roots::kernel_version(),
            Self::Debug => paths::read(&roots::with_ending(&directory(), ".stamp")),
        }
    }

    /// The file that holds a module for it.
    pub fn module_file(self, name: &str) -> String {
        match self {
            Self::Usual => format!("{name}.ko"),
            Self::Debug => format!("{name}-debug.ko"),
        }
    }

    /// An error if a module does not have what this kernel finds faults by.
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

/// The image with the kernel that finds faults.
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
