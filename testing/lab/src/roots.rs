//! The Debian roots.
//!
//! One has QEMU. From another the VM image is made, and the kernel module is built in it. In a
//! third one the debug kernel is built. A fourth is for VMs that act as hosts.
//!
//! apt runs only *inside* a root (`proc::in_root`). If it ran outside with its settings pointed to
//! a root, it would call the machine's own dpkg.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::hash::{Inputs, Stamp};
use crate::proc::LONG;
use crate::{apt, paths, proc, ui};

const SUITE: &str = "trixie";
const BACKPORTS: &str = "trixie-backports";
const GUEST_PACKAGES: &str = include_str!("../image/guest.packages");
const KERNEL_PACKAGES: &str = include_str!("../image/kernel.packages");
const HOST_PACKAGES: &str = include_str!("../image/host.packages");
const OTHER_KERNEL_PACKAGES: &str = include_str!("../image/other-kernel.packages");
const BUILD_PACKAGES: &str = include_str!("../image/build.packages");
const CHECKPATCH: &str = include_str!("../image/checkpatch.sh");
const QEMU_PACKAGE: &str = "qemu-system-x86";

/// Finishes the guest root: takes the headers of the MPI packages, and no more of them.
///
/// The packages depend on Fortran compilers. [`RDMA_CORE_HEADERS`] follows.
const MPI_HEADERS: &str = r#"
    mkdir -p /usr/src/dl /usr/src/rdma-core /usr/src/mpi
    cd /usr/src/dl
    apt-get download libopenmpi-dev libmpich-dev
    for package in *.deb; do
        dpkg-deb --fsys-tarfile $package | tar x -C /usr/src/mpi --wildcards '*/include/*'
    done
"#;
/// Collects rdma-core's private headers in one directory of a root.
///
/// It configures the source as far as the headers need it. The source archives are unpacked by
/// hand, because not every mirror has the `.dsc`. apt has checked the archives' hashes.
const RDMA_CORE_HEADERS: &str = r#"apt-get source --download-only rdma-core || ls rdma-core_*.orig.tar.*
    tar xf rdma-core_*.orig.tar.* --strip-components=1 -C ../rdma-core
    tar xf rdma-core_*.debian.tar.* -C ../rdma-core
    cd ../rdma-core
    cmake -B build -DNO_MAN_PAGES=1 -DNO_PYVERBS=1
    make -C build kern-abi
    cp -rL build/include include
    rm -rf build /usr/src/dl /var/lib/apt/lists
"#;

/// Makes sure that QEMU's root exists.
pub fn qemu() -> Result<()> {
    let install = format!("apt-get -y install -t {BACKPORTS} {QEMU_PACKAGE}; rm -rf /var/lib/apt/lists");
    build(&paths::qemu_root(), "the QEMU root", &[], &[SUITE, BACKPORTS], &install)
}

/// Makes sure that the guest and toolchain root exists.
pub fn guest() -> Result<()> {
    let packages: Vec<&str> = lines(GUEST_PACKAGES).collect();
    let finish = format!("{MPI_HEADERS}    {RDMA_CORE_HEADERS}");
    build(&paths::guest_root(), "the guest root", &packages, &[SUITE], &finish)
}

/// Makes sure that the root for building the debug kernel exists.
pub fn kernel() -> Result<()> {
    let packages: Vec<&str> = lines(KERNEL_PACKAGES).collect();
    build(&paths::kernel_root(), "the kernel's root", &packages, &[SUITE], "rm -rf /var/lib/apt/lists")
}

/// Makes sure that the root of one of Debian's other kernels exists.
///
/// `suites` are the kernel's release and, if the kernel is from there, its backports.
pub fn other_kernel(name: &str, suites: &[&str]) -> Result<()> {
    let packages: Vec<&str> = lines(OTHER_KERNEL_PACKAGES).collect();
    let from = suites.last().context("a kernel is of a release")?;
    let finish = format!(
        "apt-get -y install -t {from} linux-image-amd64 linux-headers-amd64
        {CHECKPATCH}
        rm -rf /var/lib/apt/lists"
    );
    build(
        &paths::other_kernel_root(name),
        &format!("the root of the {name} kernel"),
        &packages,
        suites,
        &finish,
    )
}

/// Makes sure that the root exists in which packages for a release are built. Returns its path.
pub fn packaging(suite: &str) -> Result<PathBuf> {
    let root = paths::vm().join(format!("package-root-{suite}"));
    let packages: Vec<&str> = lines(BUILD_PACKAGES).collect();
    let finish = format!("mkdir -p /usr/src/dl /usr/src/rdma-core\ncd /usr/src/dl\n{RDMA_CORE_HEADERS}");
    build(&root, &format!("the root for packages of {suite}"), &packages, &[suite], &finish)?;
    Ok(root)
}

/// Makes sure that the root of a VM that acts as a host exists.
///
/// It has the machine's own release, because it runs programs that are built here.
pub fn host() -> Result<()> {
    let suite = apt::codename()?;
    let packages = host_packages()?;
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    build(
        &paths::host_root(),
        "the root of a host with a NIC",
        &packages,
        &[&suite],
        "rm -rf /var/lib/apt/lists",
    )
}

/// Returns the host root's packages, with patterns replaced by the machine's matching packages.
///
/// Patterns are needed because the names of DPDK's packages contain its version.
fn host_packages() -> Result<Vec<String>> {
    let (patterns, mut packages): (Vec<&str>, Vec<&str>) =
        lines(HOST_PACKAGES).partition(|line| line.contains('*'));
    let mut command = Command::new("dpkg-query");
    command.args(["--show", "--showformat", "${Package}\n"]).args(patterns);
    let installed = proc::output(command).context("this wants DPDK as Debian packages")?;
    packages.extend(installed.lines());
    Ok(packages.into_iter().map(str::to_owned).collect())
}

/// Returns the version of a package in a root.
pub fn package_version(root: &Path, package: &str) -> Result<String> {
    let status = paths::read(&root.join("var/lib/dpkg/status"))?;
    version_in(&status, package).with_context(|| format!("{} has no {package}", root.display()))
}

/// Returns the version of a package in dpkg's status file.
fn version_in(status: &str, package: &str) -> Option<String> {
    let name = format!("Package: {package}");
    let paragraph = status.split("\n\n").find(|paragraph| paragraph.lines().any(|line| line == name))?;
    paragraph.lines().find_map(|line| line.strip_prefix("Version: ")).map(str::to_owned)
}

/// Returns the kernel version of the guest root.
pub fn kernel_version() -> Result<String> {
    kernel_version_in(&paths::guest_root())
}

/// Returns the highest kernel version in a root.
pub fn kernel_version_in(root: &Path) -> Result<String> {
    let modules = root.join("usr/lib/modules");
    let mut versions: Vec<String> = fs::read_dir(&modules)
        .with_context(|| format!("cannot read {}", modules.display()))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    versions.sort();
    versions.pop().with_context(|| format!("{} has no kernel", root.display()))
}

/// Returns the number in the names of the root's rdma-core providers: 34 for `librxe-rdmav34.so`.
pub fn provider_abi() -> Result<u32> {
    provider_abi_in(&paths::guest_root())
}

/// Returns [`provider_abi`] of another root.
///
/// If no provider is installed there, the private headers tell it.
pub fn provider_abi_in(root: &Path) -> Result<u32> {
    let config = root.join("usr/src/rdma-core/include/config.h");
    if let Ok(text) = fs::read_to_string(config)
        && let Some(number) = text
            .lines()
            .find_map(|line| line.strip_prefix("#define IBVERBS_PABI_VERSION ")?.trim().parse().ok())
    {
        return Ok(number);
    }
    let directory = root.join("usr/lib/x86_64-linux-gnu/libibverbs");
    let names = fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    names
        .flatten()
        .find_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.split_once("-rdmav")?.1.strip_suffix(".so")?.parse().ok()
        })
        .context("the root has no rdma-core provider to learn the ABI's number from")
}

/// Returns a list's lines without comments and empty lines.
pub fn lines(list: &str) -> impl Iterator<Item = &str> {
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn build(root: &Path, what: &str, packages: &[&str], suites: &[&str], finish: &str) -> Result<()> {
    let hash = Inputs::new("root 1").text(&packages.join(" ")).text(&suites.join(" ")).text(finish).finish();
    let stamp = Stamp::new(root, hash);
    if stamp.is_current() {
        return Ok(());
    }
    let log = paths::log(&format!("root-{}", root.file_name().unwrap_or_default().to_string_lossy()))?;
    let work = with_ending(root, ".new");
    ui::step_with_log(&format!("building {what}"), Some(&log), || {
        let mirror = apt::mirror(suites)?;
        paths::remove(&work)?;
        // unshare puts mmdebstrap, its children and its mounts into namespaces that end with this
        // process.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "mmdebstrap"]);
        command.args(["--mode=root", "--variant=minbase", "--format=directory", "--skip=cleanup/apt"]);
        command.arg(format!("--keyring={}", mirror.keyring.display()));
        for option in apt::options()? {
            command.arg(format!("--aptopt={option}"));
        }
        for skipped in ["man", "doc", "locale", "info"] {
            command.arg(format!("--dpkgopt=path-exclude=/usr/share/{skipped}/*"));
        }
        command.arg("--dpkgopt=force-unsafe-io");
        if !packages.is_empty() {
            command.arg(format!("--include={}", packages.join(",")));
        }
        command.arg(suites[0]).arg(&work);
        for suite in suites {
            command.args([mirror.line("deb", suite), mirror.line("deb-src", suite)]);
        }
        proc::run_logged("mmdebstrap", command, &log, LONG)?;
        let log =
            paths::log(&format!("root-{}-finish", root.file_name().unwrap_or_default().to_string_lossy()))?;
        let resolver = work.join("etc/resolv.conf");
        paths::remove(&resolver)?;
        fs::copy("/etc/resolv.conf", &resolver).context("cannot copy /etc/resolv.conf")?;
        let command = proc::in_root(&work, &[], &format!("apt-get update\n{finish}"));
        proc::run_logged("finishing the root", command, &log, LONG)?;
        stamp.clear()?;
        replace(root, &work)?;
        stamp.set()
    })
}

/// Replaces `old` by `new`.
fn replace(old: &Path, new: &Path) -> Result<()> {
    let gone = with_ending(old, ".old");
    paths::remove(&gone)?;
    if old.exists() {
        fs::rename(old, &gone)?;
    }
    fs::rename(new, old).with_context(|| format!("cannot make {}", old.display()))?;
    paths::remove(&gone)
}

/// Appends an ending to the last part of a path.
pub fn with_ending(path: &Path, ending: impl AsRef<OsStr>) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_has_its_own_version() {
        let status = "Package: linux\nVersion: 1\n\nPackage: linux-source\nStatus: ok\nVersion: 6.12-2\n";
        assert_eq!(version_in(status, "linux-source").as_deref(), Some("6.12-2"));
        assert_eq!(version_in(status, "linux-sour"), None);
    }
}
