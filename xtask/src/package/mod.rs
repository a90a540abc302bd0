//! `cargo xtask package`: Debian packages of the daemon, the guest's driver, and its provider.
//!
//! debhelper makes them, by the files in `packaging/`. It runs in a root of the release that they
//! are for, because the daemon is linked with that release's DPDK, and the provider with its
//! rdma-core. Cargo runs there too, with this machine's toolchain and its downloads.

mod build;
mod check;

use anyhow::{Result, ensure};
use vrdma_lab::artefacts::cargo;
use vrdma_lab::proc::LONG;
use vrdma_lab::{needs, paths, proc, ui};

use self::build::Packages;
use crate::bare::Suite;

/// What to package.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PackagePlan {
    /// The releases of Debian [default: bookworm and trixie].
    #[arg(long = "suite", value_enum, value_name = "SUITE")]
    pub suites: Vec<Suite>,
    /// Optimize each crate by itself. The packages are for tests.
    #[arg(long)]
    pub quick: bool,
    /// Also install the packages in a copy of the release's root, where DKMS builds the module.
    #[arg(long)]
    pub install: bool,
}

/// Builds and checks the packages of each release, and prints where they are.
pub fn run(plan: &PackagePlan) -> Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "packages are built in roots, which root makes: use sudo");
    let all = [Suite::Bookworm, Suite::Trixie];
    let suites = if plan.suites.is_empty() { &all[..] } else { &plan.suites };
    needs::ensure()?;
    fetch()?;
    for &suite in suites {
        let packages = Packages::build(suite, plan.quick)?;
        check::contents(&packages)?;
        check::lint(&packages)?;
        if plan.install {
            check::installed(&packages)?;
        }
        for file in &packages.files {
            ui::say(&format!("package: {}", file.display()));
        }
    }
    Ok(())
}

/// Downloads what cargo needs, because it runs without a network in the roots.
fn fetch() -> Result<()> {
    let log = paths::log("package-fetch")?;
    for manifest in ["Cargo.toml", "guest-driver/provider/Cargo.toml"] {
        let mut command = cargo();
        command.args(["fetch", "--locked", "--manifest-path"]).arg(paths::workspace().join(manifest));
        proc::run_logged("cargo fetch", command, &log, LONG)?;
    }
    Ok(())
}
