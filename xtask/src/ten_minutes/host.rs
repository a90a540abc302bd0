//! A clean Debian 12 host, whose first process is systemd, in namespaces of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrdma_lab::proc::{Ephemeral, LONG, Proc};
use vrdma_lab::wait::{self, PATIENCE};
use vrdma_lab::{apt, paths, proc, roots, ui};

use super::relay;
use crate::bare::Suite;

const BOOT: &str = include_str!("boot.sh");
const TRACES: &str = include_str!("traces.sh");

/// The directory in which commands are typed. It has the packages.
const HERE: &str = "/root/packages";
/// Where the lab's QEMU is in the host.
const QEMU: &str = "/opt/qemu";

/// Starts the lab's QEMU by its root's own loader.
const QEMU_PROGRAM: &str = r#"#!/bin/sh
export QEMU_MODULE_DIR=/opt/qemu/usr/lib/x86_64-linux-gnu/qemu
exec /opt/qemu/usr/lib64/ld-linux-x86-64.so.2 --library-path /opt/qemu/usr/lib/x86_64-linux-gnu \
    /opt/qemu/usr/bin/qemu-system-x86_64 -L /opt/qemu/usr/share/qemu -L /opt/qemu/usr/share/seabios "$@"
"#;

/// A running host. Dropping it ends all its processes.
pub struct Host {
    name: &'static str,
    /// Its first process, as this machine numbers it.
    init: u32,
    changes: Ephemeral,
    running: Option<Proc>,
}

impl Host {
    /// Boots a clean host. `furnish` adds files to it before, in a directory that is laid over its
    /// root.
    pub fn boot(name: &'static str, furnish: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        let root = roots::clean_host(&format!("127.0.0.1:{}", relay::PORT))?;
        let mirror = apt::mirror(&[Suite::Bookworm.name()])?;
        // This fails while another run has such a host, and then its files stay.
        remove_group(name).context("is there another run?")?;
        let changes = Ephemeral::new(paths::vm().join(name));
        paths::remove(changes.path())?;
        let upper = changes.path().join("upper");
        paths::make_dir(&upper)?;
        furnish(&upper)?;
        let log = paths::log(&format!("{name}-boot"))?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--", "sh", "-ec", BOOT, "sh"]).arg(root).arg(changes.path()).arg(name);
        if paths::qemu_root().exists() {
            command.arg(paths::qemu_root()).arg(QEMU);
        }
        let output = fs::File::create(&log).with_context(|| log.display().to_string())?;
        command.stdout(output.try_clone()?).stderr(output);
        let mut running = Proc::spawn("the host", command)?;
        let init = first_process(&mut running, &log)?;
        let host = Self { name, init, changes, running: Some(running) };
        relay::start(init, &mirror)?;
        let state = || host.run("systemctl is-system-running --wait || true", PATIENCE);
        let up = || state().map(|state| if state.trim() == "running" { Ok(()) } else { Err(state) });
        wait::until("the host's systemd", LONG, up)?;
        Ok(host)
    }

    /// Runs a script as root, in the directory with the packages. Returns what it prints.
    ///
    /// An error has that text, too.
    pub fn run(&self, script: &str, limit: Duration) -> Result<String> {
        let log = self.changes.path().join(format!("said-{:?}", std::thread::current().id()));
        let said = self.run_logged("the host's commands", script, &log, limit);
        let text = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
        said.with_context(|| format!("the host said\n{}", proc::indent(text.trim_end())))?;
        Ok(text)
    }

    /// Runs a script as [`Self::run`] does, with its output in a file.
    pub fn run_logged(&self, what: &str, script: &str, log: &Path, limit: Duration) -> Result<()> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.init)).args(["--all", "--", "env", "-i"]);
        command.args(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]);
        command.args(["HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]);
        command.args(["sh", "-ec", &format!("mkdir -p {HERE}\ncd {HERE}\n{script}")]);
        proc::run_logged(what, command, log, limit)
    }

    /// Returns the host's files, to compare them later.
    pub fn files(&self) -> Result<String> {
        self.run(&list_files(), LONG)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.running.take());
        let gone = || Ok(remove_group(self.name).map_err(|error| format!("{error:#}")));
        if let Err(error) = wait::until("the end of the host's processes", PATIENCE, gone) {
            ui::say(&format!("note: {error:#}"));
        }
    }
}

/// Returns the script that lists files, except where packages put none.
pub fn list_files() -> String {
    TRACES.to_owned()
}

/// Returns the lines that only one of two sorted lists of files has, except those that no package
/// of ours causes.
pub fn traces(before: &str, after: &str) -> Vec<String> {
    // Lists of packages, locks and backups of lists, logs, states of services that are systemd's
    // own, the key of DKMS, and indexes of modules. rdma-core leaves its group.
    const KEPT: [&str; 12] = [
        "/var/cache/",
        "/var/log/",
        "/var/lib/apt/",
        "/var/lib/dpkg/",
        "/var/lib/systemd/",
        "/var/tmp/",
        "/var/lib/dkms/mok.",
        "/var/lib/dkms",
        "/etc/.pwd.lock",
        "/etc/.updated",
        "/var/.updated",
        "group rdma",
    ];
    let is_kept = |file: &str| {
        KEPT.iter().any(|kept| file == *kept || (kept.ends_with(['/', '.']) && file.starts_with(kept)))
            || (file.starts_with("/usr/lib/modules/") && file.contains("/modules."))
            || ["passwd-", "group-", "shadow-", "gshadow-", "subuid-", "subgid-"]
                .iter()
                .any(|name| file == format!("/etc/{name}"))
    };
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    let (before, after) = (lines(before), lines(after));
    before.symmetric_difference(&after).filter(|file| !is_kept(file)).cloned().collect()
}

/// Puts the packages into a host's files.
pub fn with_packages(upper: &Path, packages: &[PathBuf]) -> Result<()> {
    let here = upper.join(HERE.trim_start_matches('/'));
    paths::make_dir(&here)?;
    fs::set_permissions(upper.join("root"), fs::Permissions::from_mode(0o700))?;
    for package in packages {
        let name = package.file_name().context("a package is a file")?;
        fs::copy(package, here.join(name)).with_context(|| package.display().to_string())?;
    }
    Ok(())
}

/// Puts a `qemu-system-x86_64` into a host's files, which is the lab's.
pub fn with_qemu(upper: &Path) -> Result<()> {
    let program = upper.join("usr/local/bin/qemu-system-x86_64");
    paths::make_dir(program.parent().context("it is in a directory")?)?;
    paths::write(&program, QEMU_PROGRAM)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).context("cannot make QEMU a program")
}

/// Waits for the first process of the host's namespaces.
fn first_process(running: &mut Proc, log: &Path) -> Result<u32> {
    let id = running.id();
    let look = || {
        ensure!(running.try_wait()?.is_none(), "the host does not start:\n{}", ui::tail(log, 25));
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let Ok(child) = children.trim().parse::<u32>() else { return Ok(Err("no child".to_owned())) };
        let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        Ok(if name.trim() == "systemd" { Ok(child) } else { Err(name) })
    };
    wait::until("the host's first process", PATIENCE, look)
}

/// Removes the control group of a host that has ended.
fn remove_group(name: &str) -> Result<()> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-ec"]).arg(
        "mount -t cgroup2 cgroup2 /mnt
        [ ! -d \"/mnt/$1\" ] || find \"/mnt/$1\" -depth -type d -exec rmdir {} +",
    );
    command.arg("sh").arg(name);
    proc::output(command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_behind_or_missing_is_a_trace() {
        let before = "/etc\n/etc/hosts\n/var/log/a\n";
        assert_eq!(traces(before, before), [""; 0]);
        assert_eq!(traces(before, "/etc\n/etc/vrdma\n/var/log/b\n"), ["/etc/hosts", "/etc/vrdma"]);
        assert_eq!(traces("", "/etc/passwd-\n/usr/lib/modules/6/modules.dep\n/var/lib/dkms\n"), [""; 0]);
        let ours = "/usr/lib/modules/6/updates\n/var/lib/dkms/vrdma\nuser vrdma\ngroup vrdma\n";
        assert_eq!(traces("", ours).len(), 4);
    }
}
