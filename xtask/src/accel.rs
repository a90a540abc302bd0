//! KVM or emulation: `/dev/kvm` may be there and yet not run our kernel, so it is tried.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;

use crate::hash::Inputs;
use crate::image::Image;
use crate::vm::qemu;
use crate::{paths, proc, ui};

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// The CPU.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

/// A kernel that comes up under KVM is in our initramfs well before this.
const PATIENCE: Duration = Duration::from_secs(4);

impl Accel {
    /// Finds out whether KVM works here, by booting as far as the initramfs; remembers the answer
    /// for this machine.
    pub fn choose(image: &Image) -> Result<Self> {
        if !Path::new("/dev/kvm").exists() {
            return Ok(Self::Tcg);
        }
        let machine = Inputs::new("accel 1")
            .path(Path::new("/proc/sys/kernel/osrelease"))?
            .path(Path::new("/etc/machine-id"))?
            .path(Path::new("/proc/sys/kernel/random/boot_id"))?
            .finish();
        let memory = paths::vm().join("accel");
        let remembered = fs::read_to_string(&memory).unwrap_or_default();
        let accel = match remembered.split_once(' ') {
            Some(("kvm", of)) if of == machine => Self::Kvm,
            Some(("tcg", of)) if of == machine => Self::Tcg,
            _ => {
                let accel = ui::step("trying KVM", || probe(image))?;
                paths::write(&memory, format!("{} {machine}", accel.name()))?;
                accel
            }
        };
        Ok(accel)
    }

    /// `kvm` or `tcg`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// How much longer than under KVM things may take.
    pub fn slowness(self) -> u32 {
        match self {
            Self::Kvm => 1,
            Self::Tcg => 5,
        }
    }
}

fn probe(image: &Image) -> Result<Accel> {
    let log = paths::log("kvm-probe")?;
    let file = fs::File::create(&log)?;
    let mut command = qemu::program();
    qemu::machine(&mut command, image, Accel::Kvm, 1, 256);
    command.args(["-serial", "stdio", "-no-reboot", "-append", "console=ttyS0 panic=-1 vrdma.probe"]);
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut proc = proc::Proc::spawn("QEMU", command)?;
    // Not ending in time is an answer too.
    let _ = proc.wait(PATIENCE);
    drop(proc);
    let works = String::from_utf8_lossy(&fs::read(&log)?).contains("vrdma-probe-ok");
    Ok(if works { Accel::Kvm } else { Accel::Tcg })
}
