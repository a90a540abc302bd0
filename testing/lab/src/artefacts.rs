//! Builds what changes too often to be part of the image.
//!
//! That is the backend, kernel module, provider, agent and test programs. Each is built only if its
//! sources changed. The guest's share is laid out as a second layer, which `vm-init` copies over
//! the image.

mod common;
mod layout;
mod modules;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};

use crate::hash::{Inputs, Stamp};
use crate::kernel::Kernel;
use crate::proc::LONG;
use crate::{image, paths, proc, roots, ui};
use common::{absent, has, quiet_step};
pub use common::{cargo, copy_sources, out};
pub use layout::{lay_out_host, strip_debug};
pub use modules::{build_module_in, kernel_module, said_of_module};
use modules::{faults, module, test_module};

/// Build results. `None` means that the sources are absent, or that the part was left out.
pub struct Artefacts {
    /// The agent that runs commands in a VM.
    pub agent: PathBuf,
    /// The directory of the test programs (`vr-*`).
    pub programs: Option<PathBuf>,
    /// `vrdma.ko`.
    pub module: Option<PathBuf>,
    /// `vrdma_test_ulp.ko`, a user of the verbs inside the kernel.
    pub test_module: Option<PathBuf>,
    /// `vrdma_test_faults.ko`, for the debug kernel, which has to find its faults.
    pub faults: Option<PathBuf>,
    /// The rdma-core provider.
    pub provider: Option<PathBuf>,
    /// The backend daemon.
    pub backend: Option<PathBuf>,
    /// Module data for modprobe if the image is made for another kernel. The directory is copied
    /// over `/usr`.
    pub modprobe: Option<PathBuf>,
}

/// A part of the device that can be left out, e.g. while it does not build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// The test programs (`vr-*`).
    Programs,
    /// `vrdma.ko`.
    Module,
    /// The rdma-core provider.
    Provider,
    /// The backend, and with it the device in the VMs.
    Backend,
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 4] = [Self::Programs, Self::Module, Self::Provider, Self::Backend];
}

/// How the project's own programs are built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Build {
    /// As they are installed: optimized as a whole, which takes minutes.
    #[default]
    Release,
    /// For a demo: each crate is optimized by itself.
    Quick,
    /// As for the tests without VMs: with assertions.
    ///
    /// If those tests have run, there is nothing to build. Programs that run in VMs are optimized,
    /// but not as a whole.
    Tests,
}

/// Builds everything whose sources exist, except the parts in `without`.
///
/// The kernel's image must already exist.
pub fn build(without: &[Part], kernel: Kernel, how: Build) -> Result<Artefacts> {
    let _lock = image::lock()?;
    let part = |part, build: &dyn Fn() -> Result<Option<PathBuf>>| -> Result<Option<PathBuf>> {
        if without.contains(&part) { Ok(None) } else { build() }
    };
    // Cargo's builds run beside those in the guest root: each is at times busy on one processor.
    std::thread::scope(|scope| {
        let of_cargo = scope.spawn(|| -> Result<_> {
            // Cargo locks a target directory. The provider has one of its own.
            let provider = part(Part::Provider, &|| provider(how))?;
            Ok((provider, part(Part::Backend, &|| backend(how))?, agent(how)?))
        });
        let programs = part(Part::Programs, &programs)?;
        let module = part(Part::Module, &|| module(kernel))?;
        let test_module = match kernel.runs_test_module() {
            true => part(Part::Programs, &|| test_module(kernel))?,
            false => None,
        };
        let faults = if kernel == Kernel::Debug { part(Part::Programs, &|| faults(kernel))? } else { None };
        let (provider, backend, agent) = of_cargo.join().expect("a build does not panic")?;
        let modprobe = kernel.modprobe();
        Ok(Artefacts { agent, programs, module, test_module, faults, provider, backend, modprobe })
    })
}

impl Build {
    /// Returns the cargo profile for what runs in VMs.
    fn guest_profile(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Quick | Self::Tests => "quick",
        }
    }
}

/// Tells [`ui`] which of the steps before the first VM have something to build.
///
/// Only missing results count. A step whose result exists may still have something to do, if its
/// sources changed.
pub fn announce(without: &[Part], how: Build) {
    let vm = |name: &str| paths::vm().join(name);
    let profile = how.guest_profile();
    let program = |name: &str| paths::cargo_target().join(profile).join(name);
    let results: [(&str, PathBuf, Option<Part>); 8] = [
        ("the QEMU root", paths::qemu_root(), None),
        ("the guest root", paths::guest_root(), None),
        ("the VMs' image", vm("image"), None),
        ("the guest programs", vm("artefacts/programs"), Some(Part::Programs)),
        ("the kernel module", vm("artefacts/vrdma.ko"), Some(Part::Module)),
        ("the provider", provider_target().join(profile).join("libvrdma.so"), Some(Part::Provider)),
        ("the backend", program("vrdma-backend"), Some(Part::Backend)),
        ("the VM agent", program("vrdma-vm-agent"), None),
    ];
    // The tests' backend is one of the programs of the tests, which another step builds.
    let is_wanted = |part: &Part| !without.contains(part) && (*part != Part::Backend || how != Build::Tests);
    let wanted = results.iter().filter(|(_, _, part)| part.as_ref().is_none_or(is_wanted));
    let missing = wanted.filter(|(_, result, _)| !result.exists());
    ui::expect(missing.map(|(what, _, _)| format!("building {what}")).collect());
}

fn agent(how: Build) -> Result<PathBuf> {
    const NAME: &str = "vrdma-vm-agent";
    let profile = how.guest_profile();
    let log = paths::log(&format!("build-{NAME}"))?;
    let mut command = cargo();
    command.args(["build", "--profile", profile, "--package", NAME, "--bin", NAME]);
    quiet_step("building the VM agent", &log, command)?;
    Ok(paths::cargo_target().join(profile).join(NAME))
}

fn backend(how: Build) -> Result<Option<PathBuf>> {
    if !has("vrdma-backend/src/main.rs") {
        return absent("the backend");
    }
    program("the backend", "vrdma-backend", "vrdma-backend", how).map(Some)
}

/// Builds a program of one of the project's packages.
fn program(what: &str, package: &str, name: &str, how: Build) -> Result<PathBuf> {
    let target = paths::cargo_target();
    match how {
        Build::Release => {
            cargo_build(what, &["--package", package, "--bin", name], name)?;
            Ok(target.join("release").join(name))
        }
        Build::Quick => {
            cargo_build_as("quick", what, &["--package", package, "--bin", name], name)?;
            Ok(target.join("quick").join(name))
        }
        Build::Tests => {
            programs_of_tests()?;
            Ok(target.join("debug").join(name))
        }
    }
}

/// Builds the workspace as cargo does for its tests.
///
/// Any other selection of packages has other features, and would rebuild the dependencies.
fn programs_of_tests() -> Result<()> {
    static BUILT: OnceLock<()> = OnceLock::new();
    if BUILT.get().is_none() {
        let log = paths::log("build-tests")?;
        let mut command = cargo();
        command.args(["test", "--workspace", "--no-run"]);
        quiet_step("building the programs of the tests", &log, command)?;
        let _ = BUILT.set(());
    }
    Ok(())
}

/// Builds release programs that take long and need no root.
///
/// Linking with all optimizations keeps only one processor busy, so it runs well beside other work.
/// Users of a program build it again, which then takes no time and reports errors.
pub fn ahead() -> Result<()> {
    backend(Build::Release)?;
    program_of(&TEST_PEER, Build::Release).map(|_| ())
}

/// Builds what runs in VMs, ahead of its use. The image must already exist.
pub fn guest_ahead(how: Build) -> Result<()> {
    build(&[Part::Backend], Kernel::Usual, how).map(|_| ())
}

/// Builds the backend alone, unless it is left out.
pub fn backend_unless(without: &[Part], how: Build) -> Result<Option<PathBuf>> {
    if without.contains(&Part::Backend) { Ok(None) } else { backend(how) }
}

/// Builds the backend alone, as it is installed.
pub fn backend_program() -> Result<PathBuf> {
    let _lock = image::lock()?;
    backend(Build::Release)?.context("the sources of the backend are not there")
}

/// Builds `vrdma-perf`.
pub fn perf() -> Result<PathBuf> {
    let _lock = image::lock()?;
    cargo_build("vrdma-perf", &["--package", "vrdma-perf"], "perf")?;
    Ok(paths::cargo_target().join("release/vrdma-perf"))
}

/// Builds `vrdma-perf` with a daemon that counts its cycles.
///
/// It has a target directory of its own, so that neither build replaces the other.
pub fn perf_with_account() -> Result<PathBuf> {
    let _lock = image::lock()?;
    let target = paths::workspace().join("target/account");
    let target_option = target.display().to_string();
    let options = ["--package", "vrdma-perf", "--features", "cycles", "--target-dir", &target_option];
    cargo_build("vrdma-perf with its account", &options, "perf-account")?;
    Ok(target.join("release/vrdma-perf"))
}

/// A program of the tests: its name in messages, and its file.
type TestProgram = (&'static str, &'static str);

const TEST_PEER: TestProgram = ("the peer without a VM", "vrdma-test-peer");
const TEST_GUEST: TestProgram = ("the guest without a VM", "vrdma-test-guest");

fn program_of((what, name): &TestProgram, how: Build) -> Result<PathBuf> {
    program(what, "vrdma-tests", name, how)
}

/// Builds `vrdma-test-peer`, a guest without a VM for tests.
pub fn test_peer(how: Build) -> Result<PathBuf> {
    let _lock = image::lock()?;
    program_of(&TEST_PEER, how)
}

/// Builds `vrdma-test-guest`, a guest without a VM for a daemon that runs in a VM.
pub fn test_guest() -> Result<PathBuf> {
    let _lock = image::lock()?;
    program_of(&TEST_GUEST, Build::Release)
}

/// Builds by cargo in release mode. Cargo itself knows whether there is something to do.
fn cargo_build(what: &str, arguments: &[&str], log: &str) -> Result<()> {
    cargo_build_as("release", what, arguments, log)
}

/// [`cargo_build`] with a profile.
fn cargo_build_as(profile: &str, what: &str, arguments: &[&str], log: &str) -> Result<()> {
    let log = paths::log(&format!("build-{log}"))?;
    let mut command = cargo();
    command.args(["build", "--profile", profile]).args(arguments);
    quiet_step(&format!("building {what}"), &log, command)
}

/// Builds the guest programs with the compiler of the guest root.
///
/// Each `vr-*.c` is linked with the object files that all programs share.
fn programs() -> Result<Option<PathBuf>> {
    // The sources include the kernel module's ABI header by this path.
    const SCRIPT: &str = "cd /mnt
        for source in *.c; do
            gcc -O2 -g -Wall -Wextra -Werror -D_GNU_SOURCE -c $source
        done
        for program in vr-*.o; do
            gcc -o ${program%.o} $program common.o memory.o channel.o calls.o calls_qp.o methods.o -Wl,--as-needed -libverbs -lrdmacm
        done
        lib=/usr/lib/$(gcc -print-multiarch)
        mpi() {
            gcc -O2 -g -Wall -Wextra -Werror -isystem /usr/src/mpi/$lib/$1/include -o vr-mpi-$1 mpi/vr-mpi.c -l:$2
        }
        mpi openmpi libmpi.so.40
        mpi mpich libmpich.so.12
        gcc -O2 -g -Wall -Wextra -Werror -D_GNU_SOURCE -shared -fPIC -o vr-plain-sockets.so sockets/*.c";
    let sources = paths::workspace().join("tests/guest-programs");
    let header = paths::workspace().join("guest-driver/kernel/vrdma_abi.h");
    let result = out("programs")?;
    let inputs = Inputs::new(SCRIPT).text(&roots::kernel_version()?).path(&sources)?.path(&header)?;
    let stamp = Stamp::new(&result, inputs.finish());
    if !stamp.is_current() {
        stamp.clear()?;
        let log = paths::log("build-programs")?;
        ui::step_with_log("building the guest programs", Some(&log), || {
            paths::remove(&result)?;
            copy_sources(&sources, &result)?;
            fs::copy(&header, result.join("vrdma_abi.h"))?;
            let command = proc::in_root(&paths::guest_root(), &[(&result, "/mnt")], SCRIPT);
            proc::run_logged("the guest programs' build", command, &log, LONG)?;
            stamp.set()
        })?;
    }
    Ok(Some(result))
}

fn provider(how: Build) -> Result<Option<PathBuf>> {
    if !has("guest-driver/provider/Cargo.toml") {
        return absent("the provider");
    }
    let log = paths::log("build-provider")?;
    let mut command = provider_cargo("build");
    let profile = how.guest_profile();
    command.args(["--profile", profile]);
    quiet_step("building the provider", &log, command)?;
    Ok(Some(provider_target().join(profile).join("libvrdma.so")))
}

/// Returns a cargo command for the provider's own workspace, built against the guest's rdma-core.
pub fn provider_cargo(subcommand: &str) -> Command {
    let mut command = cargo();
    command.arg(subcommand).arg("--manifest-path");
    command.arg(paths::workspace().join("guest-driver/provider/Cargo.toml"));
    command.env("VRDMA_GUEST_ROOT", paths::guest_root()).env("CARGO_TARGET_DIR", provider_target());
    command
}

fn provider_target() -> PathBuf {
    paths::cargo_target().join("provider")
}
