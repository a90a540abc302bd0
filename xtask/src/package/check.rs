//! Checks of built packages: their files, their control data, and an installation.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use vrdma_lab::proc::{Ephemeral, LONG};
use vrdma_lab::{paths, proc, roots, ui};

use super::build::{Packages, in_root, version};

/// Files that each package has, beside its documentation.
const FILES: &[(&str, &[&str])] = &[
    (
        "vrdma-backend",
        &[
            "usr/sbin/vrdma-backend",
            "usr/lib/systemd/system/vrdma-backend.service",
            "usr/lib/sysusers.d/vrdma-backend.conf",
            "usr/lib/tmpfiles.d/vrdma-backend.conf",
            "usr/share/doc/vrdma-backend/examples/backend.toml",
            "usr/share/doc/vrdma-backend/examples/vrdma-backend-vfio.conf",
            "usr/share/doc/vrdma-backend/examples/vrdma-socket@.socket",
            "usr/share/man/man8/vrdma-backend.8.gz",
        ],
    ),
    (
        "vrdma-ctl",
        &[
            "usr/bin/vrdma-ctl",
            "usr/share/man/man8/vrdma-ctl.8.gz",
            "usr/share/man/man8/vrdma-ctl-drain.8.gz",
            "usr/share/bash-completion/completions/vrdma-ctl",
            "usr/share/zsh/vendor-completions/_vrdma-ctl",
            "usr/share/fish/vendor_completions.d/vrdma-ctl.fish",
        ],
    ),
    (
        "vrdma-exporter",
        &[
            "usr/sbin/vrdma-exporter",
            "usr/lib/systemd/system/vrdma-exporter.service",
            "usr/lib/sysusers.d/vrdma-exporter.conf",
            "usr/share/doc/vrdma-exporter/examples/dashboard.json",
            "usr/share/doc/vrdma-exporter/examples/vrdma.rules.yml",
            "usr/share/man/man8/vrdma-exporter.8.gz",
        ],
    ),
    (
        "vrdma-dkms",
        &[
            "usr/src/vrdma-VERSION/dkms.conf",
            "usr/src/vrdma-VERSION/Kbuild",
            "usr/src/vrdma-VERSION/Makefile",
            "usr/src/vrdma-VERSION/main.c",
            "usr/src/vrdma-VERSION/compat.h",
            "usr/lib/modules-load.d/vrdma.conf",
        ],
    ),
    (
        "vrdma-provider",
        &[
            "usr/lib/x86_64-linux-gnu/libibverbs/libvrdma-rdmavABI.so",
            "etc/libibverbs.d/vrdma.driver",
            "usr/lib/udev/rules.d/75-vrdma-description.rules",
        ],
    ),
];

/// What lintian says that is meant so.
///
/// The packages are not part of Debian, so no bug of its tracker asks for them. Its list of
/// maintainers' addresses does not have ours.
const SUPPRESSED: &str = "initial-upload-closes-no-bugs,bogus-mail-host-in-debian-changelog,bogus-mail-host,\
    maintainer-address-malformed,mail-address-loops-or-bounces";

/// Installs the packages in a root, tries them, and removes them.
const INSTALLED: &str = include_str!("installed.sh");

/// Unpacks each package, and checks its files and its control data.
pub fn contents(packages: &Packages) -> Result<()> {
    let abi = roots::provider_abi_in(&packages.root).map(|abi| abi.to_string()).unwrap_or_default();
    for (package, files) in
        FILES.iter().filter(|(package, _)| packages.provider || *package != "vrdma-provider")
    {
        let file = packages.file(package)?;
        let unpacked = Ephemeral::new(packages.work.join("unpacked"));
        paths::remove(unpacked.path())?;
        deb(&["--raw-extract"], file, Some(unpacked.path()))?;
        for name in *files {
            let name = name.replace("VERSION", env!("CARGO_PKG_VERSION")).replace("ABI", &abi);
            // Debian 12 has units and rules in /lib, which is /usr/lib.
            let places = [name.clone(), name.trim_start_matches("usr/").to_owned()];
            let is_there = |place: &String| unpacked.path().join(place).is_file();
            ensure!(places.iter().any(is_there), "{package} has no {name}");
        }
        ensure!(
            unpacked.path().join(format!("usr/share/doc/{package}/copyright")).is_file(),
            "{package}: copyright"
        );
        ensure!(!unpacked.path().join("usr/local").exists(), "{package} has files in /usr/local");
        let field = |name: &str| -> Result<String> {
            Ok(deb(&["--field"], file, Some(Path::new(name)))?.trim().to_owned())
        };
        ensure!(
            field("Version")? == version(packages.suite),
            "{package} has the version {}",
            field("Version")?
        );
        let script = |name: &str| paths::read(&unpacked.path().join("DEBIAN").join(name)).unwrap_or_default();
        match *package {
            "vrdma-backend" => {
                let depends = field("Depends")?;
                // DPDK loads its drivers by itself, so the program does not name them.
                for library in ["libc6 ", "librte-eal", "librte-mempool-ring", "librte-bus-vdev"] {
                    ensure!(depends.contains(library), "{package} depends on {depends}");
                }
                ensure!(script("postinst").contains("sysusers"), "{package} makes no user");
                ensure!(
                    script("postinst").contains("daemon-reload"),
                    "{package}: systemd keeps the old unit"
                );
                // A restart ends the RDMA of all guests.
                let starts = [
                    "deb-systemd-invoke start",
                    "deb-systemd-invoke restart",
                    "deb-systemd-invoke $_dh_action",
                ];
                ensure!(
                    script("prerm").contains("stop vrdma-backend.service"),
                    "{package} keeps running when it is removed"
                );
                let scripts = script("postinst") + &script("prerm");
                ensure!(starts.iter().all(|words| !scripts.contains(words)), "{package} starts its service");
            }
            "vrdma-provider" => {
                let depends = field("Depends")?;
                ensure!(depends.contains("libibverbs1 (<<"), "{package} depends on {depends}");
                ensure!(
                    script("conffiles").contains("/etc/libibverbs.d/vrdma.driver"),
                    "{package}: conffiles"
                );
            }
            "vrdma-dkms" => ensure!(script("postinst").contains("dkms"), "{package} does not tell DKMS"),
            "vrdma-exporter" => {
                // The unit's user is in a group that has to be there first.
                let postinst = script("postinst");
                let places = ["sysusers", "deb-systemd-invoke"].map(|words| postinst.find(words));
                ensure!(
                    matches!(places, [Some(group), Some(start)] if group < start),
                    "{package} has to make its group, and then start: {postinst}"
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// Runs lintian of the release, whose errors and warnings are ours.
pub fn lint(packages: &Packages) -> Result<()> {
    let name = packages.suite.name();
    let log = paths::log(&format!("package-{name}-lintian"))?;
    ui::step_with_log(&format!("lintian of {name}"), Some(&log), || {
        let script =
            format!("lintian --allow-root --fail-on error,warning --suppress-tags {SUPPRESSED} *.changes");
        proc::run_logged("lintian", in_root(&packages.root, &packages.work, &script)?, &log, LONG)
    })
}

/// Installs the packages over the root, whose files stay as they are, and removes them again.
///
/// DKMS builds the module for the kernel whose headers are in the root.
pub fn installed(packages: &Packages) -> Result<()> {
    let name = packages.suite.name();
    let log = paths::log(&format!("package-{name}-install"))?;
    let kernel = roots::kernel_version_in(&packages.root)?;
    let (provider, library) = if packages.provider {
        let abi = roots::provider_abi_in(&packages.root)?;
        ("vrdma-provider", format!("/usr/lib/x86_64-linux-gnu/libibverbs/libvrdma-rdmav{abi}.so"))
    } else {
        ("", String::new())
    };
    let version = env!("CARGO_PKG_VERSION");
    let script =
        format!("VERSION={version} KERNEL={kernel} PROVIDER={provider} LIBRARY={library}\n{INSTALLED}");
    ui::step_with_log(&format!("installing the packages of {name}"), Some(&log), || {
        let place = Ephemeral::new(packages.work.join("installed"));
        paths::remove(place.path())?;
        let [upper, work, merged] = ["upper", "work", "merged"].map(|name| place.path().join(name));
        for directory in [&upper, &work, &merged] {
            paths::make_dir(directory)?;
        }
        let inner = in_root(&merged, &packages.work, &script)?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--", "sh", "-ec"]).arg(
            "mount -t overlay overlay -o \"lowerdir=$1,upperdir=$2,workdir=$3\" \"$4\"
            shift 4
            exec \"$@\"",
        );
        command.arg("sh").arg(&packages.root).args([&upper, &work, &merged]);
        command.arg(inner.get_program()).args(inner.get_args());
        proc::run_logged("the packages' installation", command, &log, LONG)
    })
}

/// Runs `dpkg-deb OPTIONS FILE ARGUMENT`.
fn deb(options: &[&str], file: &Path, argument: Option<&Path>) -> Result<String> {
    let mut command = Command::new("dpkg-deb");
    command.args(options).arg(file).args(argument);
    proc::output(command).with_context(|| file.display().to_string())
}
