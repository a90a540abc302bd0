//! Landlock: which files and ports the daemon may use.
//!
//! It holds where the root directory could not be changed, too.

use super::others::landlock_version;
use super::plan::{Plan, UplinkKind, has_abstract_peers};
use anyhow::{Context, Result, ensure};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope, make_bitflags,
};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The newest rules that are asked for. A kernel that is older applies those that it knows.
const NEWEST: ABI = ABI::V6;

/// Returns files and directories of the system that are needed after the start.
pub fn shown(uplink: UplinkKind) -> Vec<&'static str> {
    let mut all = vec![
        // Front-ends are interrupted by reads of it.
        "/dev/null",
        // C libraries and DPDK ask for processors, caches and NUMA nodes.
        "/sys/devices/system/cpu",
        "/sys/devices/system/node",
    ];
    if uplink == UplinkKind::AfXdp {
        // libxdp loads a program for the interface that came back, and has a directory for locks.
        all.extend(["/usr/lib/x86_64-linux-gnu/bpf", "/usr/lib/aarch64-linux-gnu/bpf", "/usr/lib64/bpf"]);
        all.extend(["/usr/lib/bpf", "/usr/local/lib/bpf", "/run/xdp", "/sys/fs/bpf"]);
    }
    if matches!(uplink, UplinkKind::Pci { .. }) {
        // DPDK looks for the NIC's group when the NIC is unplugged. It releases the NIC only if it
        // finds the kernel's module.
        all.extend(["/sys/bus/pci", "/sys/devices", "/sys/module/vfio_pci"]);
    }
    all
}

/// What kernels lack whose Landlock has a version before these.
const MISSING: [(i64, &str); 4] = [
    (2, "links between directories"),
    (3, "cutting files short"),
    (4, "connections of TCP"),
    (6, "signals and abstract sockets"),
];

/// Fails unless the kernel's Landlock has all rules that are asked for.
///
/// # Errors
/// The error names what this kernel does not restrict.
pub fn ensure_complete() -> Result<()> {
    let version = landlock_version();
    let missing: Vec<_> =
        MISSING.iter().filter(|(since, _)| version < *since).map(|(_, what)| *what).collect();
    ensure!(missing.is_empty(), "version {version} of this kernel does not restrict {}", missing.join(", "));
    Ok(())
}

/// Makes the rules for the files that are needed after the start.
///
/// # Errors
/// The kernel has no Landlock.
pub fn ruleset(plan: &Plan) -> Result<OwnedFd> {
    // Lock files, sockets, and their removal at the end.
    let sockets = make_bitflags!(AccessFs::{
        ReadFile | WriteFile | ReadDir | Truncate | MakeReg | MakeSock | RemoveFile
    });
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let device = make_bitflags!(AccessFs::{ReadFile | WriteFile});
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::Signal)?;
    if !has_abstract_peers(plan) {
        rules = rules.scope(Scope::AbstractUnixSocket)?;
    }
    if !plan.kernel_tcp {
        rules = rules.handle_access(AccessNet::from_all(NEWEST))?;
    }
    let mut rules = rules.create()?;
    for directory in &plan.directories {
        rules = allow(rules, directory, sockets)?;
    }
    if let Some(directory) = &plan.configuration {
        rules = allow(rules, directory, read)?;
    }
    rules = allow(rules, Path::new("/proc/self"), read)?;
    keep_own_process();
    for path in shown(plan.uplink) {
        // A rule for a file must not name rights of directories.
        let access = if path.starts_with("/dev/") { device } else { read };
        rules = allow(rules, Path::new(path), access)?;
    }
    Option::<OwnedFd>::from(rules).context(
        "none here: a filter of the service forbids it, or the kernel lacks CONFIG_SECURITY_LANDLOCK, or `landlock` in lsm=",
    )
}

/// Keeps the file system's object of `/proc/self` alive.
///
/// A rule holds for this object alone. The kernel could forget it, and make another one for the
/// next access.
fn keep_own_process() {
    if let Ok(opened) = PathFd::new("/proc/self") {
        std::mem::forget(opened);
    }
}

/// Allows an access to a file, or to all that is in a directory. A path that is missing stays
/// forbidden.
fn allow(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated> {
    match PathFd::new(path) {
        Ok(opened) => Ok(rules.add_rule(PathBeneath::new(opened, access))?),
        Err(_) => Ok(rules),
    }
}
