//! Builds the packages of a release, in its root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use vrdma_lab::artefacts::copy_sources;
use vrdma_lab::proc::LONG;
use vrdma_lab::{image, paths, proc, roots, ui};

use crate::bare::Suite;

/// A program that cargo builds, with a package of its own of the same name.
struct Program {
    /// The name of cargo's package, of the program, and of its Debian package.
    name: &'static str,
    /// What it is, in the first line of its man page. `None` if it makes its man pages itself.
    what: Option<&'static str>,
    /// Whether `docs/` has a unit for it.
    has_unit: bool,
}

/// All programs that are packaged. `packaging/README.md` says what else a program needs.
const PROGRAMS: &[Program] = &[
    Program { name: "vrdma-backend", what: Some("RDMA NIC of virtual machines"), has_unit: true },
    Program { name: "vrdma-ctl", what: None, has_unit: false },
    Program {
        name: "vrdma-exporter",
        what: Some("shows the counters of vrdma-backend to Prometheus"),
        has_unit: true,
    },
];

/// Where directories of this machine are in a root.
const SOURCE: &str = "/mnt/source";
const WORK: &str = "/mnt/work";
const RUST: &str = "/mnt/rust";
const REGISTRY: &str = "/root/.cargo/registry";

/// The built packages of a release.
pub struct Packages {
    /// The release.
    pub suite: Suite,
    /// The root of the release.
    pub root: PathBuf,
    /// The directory with the packages, which is `WORK` in the root.
    pub work: PathBuf,
    /// The packages.
    pub files: Vec<PathBuf>,
    /// Whether the provider is among them.
    pub provider: bool,
}

impl Packages {
    /// Builds the packages of a release.
    pub fn build(suite: Suite, quick: bool) -> Result<Self> {
        let _lock = image::lock()?;
        let name = suite.name();
        let root = roots::packaging(name)?;
        let work = paths::vm().join("packages").join(name);
        let stage = work.join("stage");
        paths::remove(&stage)?;
        for old in debs(&work)? {
            paths::remove(&old)?;
        }
        stage_files(&stage, suite)?;
        let log = paths::log(&format!("package-{name}"))?;
        ui::step_with_log(&format!("building the packages of {name}"), Some(&log), || {
            let command = in_root(&root, &work, &script(&root, quick)?)?;
            proc::run_logged("the packages' build", command, &log, LONG * 2)
        })?;
        let files = debs(&work)?;
        let provider = has_rdma_core(&root);
        if !provider {
            ui::say(&format!(
                "note: {name}: no vrdma-provider, as the mirror has no sources of its rdma-core"
            ));
        }
        Ok(Self { suite, root, work, files, provider })
    }

    /// Returns the file of a package.
    pub fn file(&self, package: &str) -> Result<&Path> {
        let start = format!("{package}_");
        let is_it =
            |file: &&PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start));
        self.files.iter().find(is_it).map(PathBuf::as_path).with_context(|| format!("there is no {package}"))
    }
}

/// Whether a root has the private headers of rdma-core, which the provider is built with.
fn has_rdma_core(root: &Path) -> bool {
    root.join("usr/src/rdma-core/include/config.h").is_file()
}

/// Returns a command that runs a script in a root of packages, in the directory of the build.
pub fn in_root(root: &Path, work: &Path, script: &str) -> Result<Command> {
    let mut command = Command::new("rustc");
    command.args(["--print", "sysroot"]).current_dir(paths::workspace());
    let rust = PathBuf::from(proc::output(command)?.trim());
    let registry = cargo_home().join("registry");
    let binds =
        [(paths::workspace(), SOURCE), (work, WORK), (rust.as_path(), RUST), (registry.as_path(), REGISTRY)];
    for (outside, inside) in binds {
        paths::make_dir(outside)?;
        paths::make_dir(&root.join(inside.trim_start_matches('/')))?;
    }
    for name in ["config.toml", "config"] {
        let from = cargo_home().join(name);
        if from.exists() {
            paths::make_dir(&root.join("root/.cargo"))?;
            fs::copy(&from, root.join("root/.cargo").join(name)).context("cannot copy cargo's settings")?;
        }
    }
    Ok(proc::in_root(root, &binds, &format!("cd {WORK}\n{script}")))
}

fn cargo_home() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cargo");
    std::env::var_os("CARGO_HOME").map_or_else(home, PathBuf::from)
}

/// Returns the script that builds programs and provider, and then the packages.
fn script(root: &Path, quick: bool) -> Result<String> {
    let profile = if quick { "quick" } else { "release" };
    let build = format!("cargo build --offline --locked --profile {profile}");
    let mut script =
        format!("export PATH={RUST}/bin:$PATH CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 LC_ALL=C.UTF-8\n");
    let names: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
    let packages: String = names.iter().map(|name| format!(" --package {name} --bin {name}")).collect();
    script += &format!("{build} --manifest-path {SOURCE}/Cargo.toml --target-dir {WORK}/target{packages}\n");
    for name in names {
        script += &format!("cp target/{profile}/{name} stage/\n");
    }
    if has_rdma_core(root) {
        let abi = roots::provider_abi_in(root)?;
        script += &format!(
            "VRDMA_GUEST_ROOT=/ {build} --manifest-path {SOURCE}/guest-driver/provider/Cargo.toml \
                --target-dir {WORK}/target-provider
            cp target-provider/{profile}/libvrdma.so stage/libvrdma-rdmav{abi}.so
            export IBVERBS='{}'\n",
            bounds(&roots::package_version(root, "libibverbs1")?)?
        );
    } else {
        script += "export WITHOUT=-Nvrdma-provider\n";
    }
    script += &format!(
        "cd stage
        export VERSION={} DEB_BUILD_OPTIONS=noautodbgsym
        dpkg-buildpackage -b -us -uc\n",
        env!("CARGO_PKG_VERSION")
    );
    Ok(script)
}

/// Returns the dependency of a provider that was built with this version of libibverbs.
///
/// Its private ABI may change with each version of rdma-core, though its number rarely does.
fn bounds(version: &str) -> Result<String> {
    let major: u32 =
        version.split(['.', '-', '+']).next().unwrap_or_default().parse().with_context(|| {
            format!("libibverbs1 has the version {version}, which does not begin with a number")
        })?;
    Ok(format!("libibverbs1 (>= {major}), libibverbs1 (<< {})", major + 1))
}

/// Lays out what debhelper needs, except what cargo builds.
fn stage_files(stage: &Path, suite: Suite) -> Result<()> {
    let workspace = paths::workspace();
    let packaging = workspace.join("packaging");
    copy_sources(&packaging, stage)?;
    let kernel = stage.join(format!("vrdma-{}", env!("CARGO_PKG_VERSION")));
    copy_sources(&workspace.join("guest-driver/kernel"), &kernel)?;
    // A package has its licence elsewhere, and this is for who changes the driver.
    for name in ["COPYING", "README.md"] {
        paths::remove(&kernel.join(name))?;
    }
    fs::copy(kernel.join("dkms.conf"), stage.join("dkms.conf"))?;
    fs::copy(workspace.join("guest-driver/provider/vrdma.driver"), stage.join("vrdma.driver"))?;
    fs::copy(workspace.join("CHANGELOG.md"), stage.join("CHANGELOG.md"))?;
    let debian = stage.join("debian");
    for program in PROGRAMS.iter().filter(|program| program.has_unit) {
        let file = format!("{}.service", program.name);
        paths::write(&debian.join(&file), unit(&file)?)?;
    }
    copy_sources(&workspace.join("docs/prometheus"), &stage.join("prometheus"))?;
    for example in ["vrdma-backend-vfio.conf", "vrdma-socket@.socket"] {
        fs::copy(workspace.join("docs").join(example), stage.join(example))?;
    }
    paths::make_dir(&stage.join("docs"))?;
    for entry in fs::read_dir(workspace.join("docs"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "md")
            && let Some(name) = path.file_name()
        {
            fs::copy(&path, stage.join("docs").join(name))?;
        }
    }
    paths::write(&debian.join("changelog"), changelog(suite)?)?;
    let page = |program: &Program| program.what.map(|what| format!("{} {what}\n", program.name));
    let pages: String = PROGRAMS.iter().filter_map(page).collect();
    paths::write(&stage.join("man-pages"), pages)
}

/// Returns a unit of `docs/`, as a package has it.
///
/// The comment at the unit's beginning says how it is installed without a package.
fn unit(file: &str) -> Result<String> {
    let text = paths::read(&paths::workspace().join("docs").join(file))?;
    let (_, sections) = text.split_once("[Unit]\n").context("the unit has no [Unit]")?;
    Ok(format!("[Unit]\n{}", sections.replace("/usr/local/sbin/", "/usr/sbin/")))
}

/// Returns the Debian changelog: one entry, with the date of the last commit.
fn changelog(suite: Suite) -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(paths::workspace()).args(["-c", "safe.directory=*", "log", "-1", "--format=%aD"]);
    let mut now = Command::new("date");
    now.arg("-R");
    // An archive of the sources has no history.
    let date = proc::output(git).or_else(|_| proc::output(now))?;
    Ok(format!(
        "vrdma ({}) {}; urgency=medium\n\n  * CHANGELOG.md in vrdma-backend says what changed.\n\n -- The vrdma authors <vrdma@localhost>  {}\n",
        version(suite),
        suite.name(),
        date.trim()
    ))
}

/// Returns the version of a release's packages. Those of a newer release are newer.
pub fn version(suite: Suite) -> String {
    let release = match suite {
        Suite::Bookworm => 12,
        Suite::Trixie => 13,
    };
    format!("{}~deb{release}", env!("CARGO_PKG_VERSION"))
}

/// Returns the packages in a directory.
fn debs(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if directory.exists() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "deb") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_for_one_version_of_rdma_core() {
        assert_eq!(bounds("44.0-2").unwrap(), "libibverbs1 (>= 44), libibverbs1 (<< 45)");
        assert_eq!(bounds("56.1-1").unwrap(), "libibverbs1 (>= 56), libibverbs1 (<< 57)");
        assert!(bounds("unknown").is_err());
    }

    #[test]
    fn the_unit_starts_the_packaged_program() {
        let exporter = unit("vrdma-exporter.service").unwrap();
        assert!(exporter.contains("\nExecStart=/usr/sbin/vrdma-exporter\n"), "{exporter}");
        let unit = unit("vrdma-backend.service").unwrap();
        assert!(unit.starts_with("[Unit]\n"), "{unit}");
        assert!(unit.contains("\nExecStart=/usr/sbin/vrdma-backend "), "{unit}");
        assert!(unit.contains("\nUser=vrdma\n"), "sysusers makes vrdma: {unit}");
    }

    #[test]
    fn all_versions_are_that_of_the_workspace() {
        let read = |name: &str| paths::read(&paths::workspace().join(name)).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        for (file, line) in [
            ("guest-driver/kernel/dkms.conf", format!("PACKAGE_VERSION=\"{version}\"")),
            ("guest-driver/kernel/main.c", format!("MODULE_VERSION(\"{version}\");")),
        ] {
            assert!(read(file).lines().any(|other| other == line), "{file} does not say {line}");
        }
    }

    #[test]
    fn each_program_is_in_the_control_file() {
        let control = paths::read(&paths::workspace().join("packaging/debian/control")).unwrap();
        for Program { name, .. } in PROGRAMS {
            assert!(control.lines().any(|line| line == format!("Package: {name}")), "{name}");
            let install = paths::workspace().join(format!("packaging/debian/{name}.install"));
            assert!(paths::read(&install).unwrap().lines().any(|line| line.starts_with(&format!("{name} "))));
        }
    }
}
