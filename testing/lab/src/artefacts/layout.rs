//! Lays out a VM's share: which build result goes where in the VM's root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Artefacts;
use super::common::copy_sources;
use crate::{paths, proc, roots};

impl Artefacts {
    /// Lays out the guest's files in `share/layer`, which is copied over `/`.
    pub fn lay_out(&self, share: &Path) -> Result<()> {
        let layer = share.join("layer");
        let put = |from: &Path, to: &str, mode: u32| -> Result<()> {
            let to = layer.join(to);
            paths::make_dir(to.parent().context("a file lies in a directory")?)?;
            strip_debug(from, &to)?;
            Ok(fs::set_permissions(&to, fs::Permissions::from_mode(mode))?)
        };
        put(&self.agent, "usr/sbin/vm-agent", 0o755)?;
        if let Some(modprobe) = &self.modprobe {
            copy_sources(modprobe, &layer.join("usr"))?;
        }
        if let Some(programs) = &self.programs {
            for entry in fs::read_dir(programs)? {
                let path = entry?.path();
                let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
                match path.extension().and_then(|ending| ending.to_str()) {
                    None if path.is_file() => put(&path, &format!("usr/bin/{name}"), 0o755)?,
                    Some("so") => put(&path, &format!("usr/lib/vrdma/{name}"), 0o644)?,
                    _ => {}
                }
            }
        }
        if let Some(module) = &self.module {
            put(module, "usr/lib/vrdma/vrdma.ko", 0o644)?;
        }
        if let Some(module) = &self.test_module {
            put(module, "usr/lib/vrdma/vrdma_test_ulp.ko", 0o644)?;
        }
        if let Some(module) = &self.faults {
            put(module, "usr/lib/vrdma/vrdma_test_faults.ko", 0o644)?;
        }
        if let Some(provider) = &self.provider {
            let name =
                format!("usr/lib/x86_64-linux-gnu/libibverbs/libvrdma-rdmav{}.so", roots::provider_abi()?);
            put(provider, &name, 0o755)?;
            paths::make_dir(&layer.join("etc/libibverbs.d"))?;
            paths::write(&layer.join("etc/libibverbs.d/vrdma.driver"), "driver vrdma\n")?;
        }
        Ok(())
    }
}

/// Lays out the share of a VM that acts as a host: the agent, and programs of this machine.
pub fn lay_out_host(share: &Path, agent: &Path, programs: &[&Path]) -> Result<()> {
    let put = |from: &Path, to: PathBuf| -> Result<()> {
        paths::make_dir(to.parent().context("a file lies in a directory")?)?;
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(&to).arg(from);
        proc::output(strip).map(|_| ())
    };
    let layer = share.join("layer/usr");
    put(agent, layer.join("sbin/vm-agent"))?;
    let name = |program: &Path| program.file_name().unwrap_or_default().to_owned();
    programs.iter().try_for_each(|program| put(program, layer.join("bin").join(name(program))))
}

/// Copies a program or module without its debugging information.
///
/// Debugging information is nearly all of a module, and each VM copies the module when it boots.
pub fn strip_debug(from: &Path, to: &Path) -> Result<()> {
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg("-o").arg(to).arg(from);
    proc::output(strip).map(|_| ())
}
