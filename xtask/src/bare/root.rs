//! The bare machine's minimal Debian root, and how commands run in it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use vrdma_lab::proc::LONG;
use vrdma_lab::{apt, paths, proc, ui};

/// What README requires: Rust's linker with the C library, and certificates for downloads.
pub const PACKAGES: [&str; 3] = ["gcc", "libc6-dev", "ca-certificates"];

/// The working tree's path in the root.
const TREE: &str = "/root/vrdma";
/// The Rust toolchain's path in the root.
const RUST: &str = "/opt/rust";

/// Settings of the machine that are copied: sources of packages, and trusted certificates.
///
/// They contain no passwords, because a root may be kept.
const SETTINGS: [&str; 11] = [
    "/etc/apt/apt.conf",
    "/etc/apt/apt.conf.d",
    "/etc/apt/keyrings",
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d",
    "/etc/apt/trusted.gpg.d",
    "/etc/hosts",
    "/etc/pip.conf",
    "/etc/resolv.conf",
    "/etc/ssl/certs/ca-certificates.crt",
    "/usr/local/share/ca-certificates",
];

/// Beginnings of the names of environment variables that are passed on, in upper or lower case.
///
/// They say how to reach registries, and whether cargo keeps incremental build data.
const VARIABLES: [&str; 15] = [
    "CARGO_HTTP_",
    "CARGO_INCREMENTAL",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_REGISTRY_",
    "CARGO_SOURCE_",
    "CURL_CA_BUNDLE",
    "PIP_",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_",
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "FTP_PROXY",
    "NO_PROXY",
];

/// Makes $1 the root directory of a new mount namespace, and runs the script $2 in it.
///
/// It uses pivot_root and not chroot, because user namespaces cannot be created in a chroot. The
/// next three arguments are a bind mount: $3 outside is $4 inside, read-only if $5 is `ro`. More
/// such triples may follow.
const ENTER: &str = r#"set -e
    root=$1; script=$2; shift 2
    mount --bind "$root" "$root"
    while [ $# -gt 0 ]; do
        mount --bind "$1" "$root$2"
        [ "$3" = rw ] || mount -o "remount,bind,$3" "$root$2"
        shift 3
    done
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    mkdir "$root/dev/net" "$root/dev/pts" "$root/dev/shm" "$root/dev/hugepages"
    for device in null zero full random urandom tty kvm net/tun; do
        [ -e "/dev/$device" ] || continue
        : >"$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$root/dev/pts"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    for number in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${number%:*}" "$root/dev/${number#*:}"; done
    [ "$(cat /proc/sys/vm/nr_hugepages)" = 0 ] || mount -t hugetlbfs hugetlbfs "$root/dev/hugepages"
    cd "$root"
    pivot_root . .
    umount -l .
    cd /
    exec sh -ec "$script""#;

/// A release of Debian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Suite {
    /// Debian 12, which continuous integration uses.
    #[default]
    Bookworm,
    /// Debian 13.
    Trixie,
}

impl Suite {
    /// Returns its code name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }
}

/// A bare machine's root.
pub struct Root {
    path: PathBuf,
    /// Bind mounts: path outside, path inside, and mount option.
    binds: Vec<(PathBuf, String, &'static str)>,
}

fn place() -> PathBuf {
    paths::vm().join("bare")
}

impl Root {
    /// Removes what a failed run left.
    pub fn remove_last() -> Result<()> {
        paths::remove(&place())
    }

    /// Creates the root with these packages beside the minimum, and copies the working tree into
    /// it.
    pub fn build(suite: Suite, have: &[String]) -> Result<Self> {
        let path = place();
        let suite = suite.name();
        let log = paths::log("bare-root")?;
        let mirror = apt::mirror(&[suite])?;
        ui::step_with_log("making a bare Debian root", Some(&log), || {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "mmdebstrap"]);
            command.args(["--mode=root", "--variant=minbase", "--format=directory"]);
            command.arg(format!("--keyring={}", mirror.keyring.display()));
            for option in apt::options()? {
                command.arg(format!("--aptopt={option}"));
            }
            let packages: Vec<&str> = PACKAGES.into_iter().chain(have.iter().map(String::as_str)).collect();
            command.arg(format!("--include={}", packages.join(",")));
            command.arg(suite).arg(&path).arg(mirror.line("deb", suite));
            proc::run_logged("mmdebstrap", command, &log, LONG)
        })?;
        let mut root = Self { path, binds: Vec::new() };
        root.take_settings(suite)?;
        root.bind_rust()?;
        root.clone_tree()?;
        Ok(root)
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    fn take_settings(&self, suite: &str) -> Result<()> {
        // mmdebstrap's download options are replaced by the machine's own settings.
        paths::remove(&self.inside("/etc/apt/apt.conf.d/99mmdebstrap"))?;
        // A root of another release cannot use these sources.
        let ours = apt::codename()? == suite;
        let sources = |name: &str| name.starts_with("/etc/apt/sources");
        for name in SETTINGS.iter().filter(|name| Path::new(name).exists() && (ours || !sources(name))) {
            let to = self.inside(name);
            if sources(name) || !Path::new(name).is_dir() {
                paths::remove(&to)?;
            }
            copy(Path::new(name), &to).with_context(|| format!("cannot copy {name}"))?;
        }
        if ours && !Path::new("/etc/apt/sources.list").exists() {
            paths::remove(&self.inside("/etc/apt/sources.list"))?;
        }
        Ok(())
    }

    /// Mounts the toolchain that builds this program, and cargo's settings and downloads.
    fn bind_rust(&mut self) -> Result<()> {
        let mut command = Command::new("rustc");
        command.args(["--print", "sysroot"]).current_dir(paths::workspace());
        let sysroot = proc::output(command)?;
        self.bind(Path::new(sysroot.trim()), RUST, "ro")?;
        let home = std::env::var_os("HOME").unwrap_or_else(|| "/root".into());
        let cargo =
            std::env::var_os("CARGO_HOME").map_or_else(|| Path::new(&home).join(".cargo"), PathBuf::from);
        for name in ["config.toml", "config"] {
            if cargo.join(name).exists() {
                let to = self.inside("/root/.cargo");
                paths::make_dir(&to)?;
                fs::copy(cargo.join(name), to.join(name))?;
            }
        }
        for name in [".config/pip", ".pip"] {
            let from = Path::new(&home).join(name);
            if from.exists() {
                copy(&from, &self.inside("/root").join(name))?;
            }
        }
        let registry = cargo.join("registry");
        paths::make_dir(&registry)?;
        self.bind(&registry, "/root/.cargo/registry", "rw")
    }

    fn bind(&mut self, outside: &Path, inside: &str, how: &'static str) -> Result<()> {
        paths::make_dir(&self.inside(inside))?;
        self.binds.push((outside.to_owned(), inside.to_owned(), how));
        Ok(())
    }

    /// Copies the files that git tracks, with the working tree's content.
    fn clone_tree(&self) -> Result<()> {
        let workspace = paths::workspace();
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command.current_dir(workspace).args(arguments);
            proc::output(command)
        };
        let commit = git(&["log", "-1", "--format=%h %s"])?;
        let changed = git(&["status", "--porcelain", "--untracked-files=normal"])?;
        let (untracked, changed): (Vec<&str>, Vec<&str>) =
            changed.lines().partition(|line| line.starts_with("??"));
        let names =
            |lines: &[&str]| lines.iter().map(|line| line[3..].to_owned()).collect::<Vec<_>>().join(" ");
        ui::say(&format!("trying {}", commit.trim()));
        if !changed.is_empty() {
            ui::say(&format!("with uncommitted changes of: {}", names(&changed)));
        }
        if !untracked.is_empty() {
            ui::say(&format!("without what git does not track: {}", names(&untracked)));
        }
        for name in git(&["ls-files", "-z"])?.split('\0').filter(|name| !name.is_empty()) {
            let (from, to) = (workspace.join(name), self.inside(TREE).join(name));
            // A file that was removed without a commit is still tracked.
            if from.symlink_metadata().is_ok() {
                paths::make_dir(to.parent().context("a file lies in a directory")?)?;
                copy(&from, &to)?;
            }
        }
        Ok(())
    }

    /// Runs a command line in the tree. Its output goes to a log.
    pub fn run(&self, line: &str, number: usize, limit: Duration) -> Result<()> {
        ensure!(!limit.is_zero(), "no time is left for `{line}`");
        let log = paths::log(&format!("bare-{number}"))?;
        ui::say(&format!("bare machine: {line} (log: {})", log.display()));
        let ran = ui::step_with_log(line, Some(&log), || {
            proc::run_logged(line, self.command(&format!("cd {TREE}\n{line}")), &log, limit)
        });
        ran.with_context(|| format!("the bare machine's root is kept in {}", self.path.display()))
    }

    /// Runs a command line in the tree as a user without rights, who can write only below `/tmp`.
    pub fn run_unprivileged(&self, line: &str, limit: Duration) -> Result<()> {
        ensure!(!limit.is_zero(), "no time is left for `{line}`");
        let log = paths::log("bare-unprivileged")?;
        ui::say(&format!("bare machine, without rights: {line} (log: {})", log.display()));
        let script = format!(
            "chmod o+x /root
             chmod -R o+rX {TREE}
             mkdir -p /tmp/user/.cargo
             for name in config config.toml; do
                 [ ! -e /root/.cargo/$name ] || cp /root/.cargo/$name /tmp/user/.cargo
                 [ ! -e /root/.cargo/$name ] || chmod o+r /root/.cargo/$name
             done
             chown -R nobody:nogroup /tmp/user
             cd {TREE}
             exec setpriv --reuid=nobody --regid=nogroup --clear-groups --bounding-set=-all --no-new-privs \\
                 env HOME=/tmp/user CARGO_TARGET_DIR=/tmp/user/target {line} --locked"
        );
        let ran = ui::step_with_log(line, Some(&log), || {
            proc::run_logged(line, self.command(&script), &log, limit)
        });
        ran.with_context(|| format!("the bare machine's root is kept in {}", self.path.display()))?;
        paths::remove(&self.inside("/tmp/user"))
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--ipc", "--fork", "--kill-child", "--", "sh", "-c", ENTER, "sh"]);
        command.arg(&self.path).arg(script);
        for (outside, inside, how) in &self.binds {
            command.arg(outside).arg(inside).arg(how);
        }
        command.env_clear();
        let path = format!("{RUST}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("PATH", path).env("HOME", "/root").env("LC_ALL", "C.UTF-8");
        for (name, value) in std::env::vars_os() {
            let upper = name.to_string_lossy().to_uppercase();
            if VARIABLES.iter().any(|start| upper.starts_with(start)) {
                command.env(name, value);
            }
        }
        command
    }

    /// Removes the root with everything that was built in it.
    pub fn remove(self) -> Result<()> {
        ui::step("removing the bare root", || paths::remove(&self.path))
    }
}

/// Copies a file, a symbolic link or a directory's content.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let kind = fs::symlink_metadata(from)?.file_type();
    if kind.is_dir() {
        paths::make_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else if kind.is_symlink() && !from.exists() {
        bail!("{} leads nowhere", from.display());
    } else if kind.is_symlink() && from.starts_with(paths::workspace()) {
        symlink(fs::read_link(from)?, to)?;
    } else {
        // A link of the settings may point to a file that the root lacks.
        fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}
