//! `cargo xtask unit`: the daemon's packaged unit on a host with systemd, with guests that are
//! played.

use anyhow::{Result, ensure};
use vrdma_lab::{needs, paths, ui};

use super::host::{self, Host};
use super::{SLOW, packages, printed};
use crate::bare::Suite;

const SCRIPT: &str = include_str!("unit.sh");

/// Installs the packages on a clean Debian 12 host, tries what `docs/systemd.md` promises, and
/// removes them.
///
/// `built` packages are used as they are.
pub fn run(built: bool) -> Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "a host in namespaces is made by root: use sudo");
    needs::ensure()?;
    let packages = packages(&[Suite::Bookworm], built)?;
    let host = Host::boot("unit", |upper| host::with_packages(upper, &packages))?;
    let before = host.files()?;
    let log = paths::log("unit")?;
    ui::step_with_log("the unit under systemd", Some(&log), || {
        host.run_logged("the unit's test", SCRIPT, &log, SLOW)
    })?;
    let left = host::traces(&before, &host.files()?);
    ensure!(left.is_empty(), "the packages leave on the host:\n{}", left.join("\n"));
    let said = printed(&log)?;
    println!("unit: {} checks passed", said.lines().filter(|line| line.starts_with("ok: ")).count());
    Ok(())
}
