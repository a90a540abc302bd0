//! Chooses KVM or emulation. `/dev/kvm` may exist without running our kernel, so it is tried.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;

use super::qemu;
use crate::accel::Accel;
use crate::hash::Inputs;
use crate::image::Image;
use crate::{paths, proc, ui};

/// Time limit of the probe. Under KVM a kernel reaches the initramfs well before this.
const PATIENCE: Duration = Duration::from_secs(4);

/// Finds out whether KVM works here, by a boot up to the initramfs.
///
/// The answer is kept for this machine until its next boot.
pub fn choose(image: &Image) -> Result<Accel> {
    if !Path::new("/dev/kvm").exists() {
        return Ok(Accel::Tcg);
    }
    let machine = Inputs::new("accel 1")
        .path(Path::new("/proc/sys/kernel/osrelease"))?
        .path(Path::new("/etc/machine-id"))?
        .path(Path::new("/proc/sys/kernel/random/boot_id"))?
        .finish();
    let memory = paths::vm().join("accel");
    let remembered = fs::read_to_string(&memory).unwrap_or_default();
    let accel = match remembered.split_once(' ') {
        Some(("kvm", of)) if of == machine => Accel::Kvm,
        Some(("tcg", of)) if of == machine => Accel::Tcg,
        _ => {
            let accel = ui::step("trying KVM", || probe(image))?;
            paths::write(&memory, format!("{} {machine}", accel.name()))?;
            accel
        }
    };
    Ok(accel)
}

fn probe(image: &Image) -> Result<Accel> {
    let log = paths::log("kvm-probe")?;
    let file = fs::File::create(&log)?;
    let mut command = qemu::program();
    qemu::machine(&mut command, image, Accel::Kvm, 1, 256);
    command.args(["-serial", "stdio", "-no-reboot", "-append", "console=ttyS0 panic=-1 vrdma.probe"]);
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut proc = proc::Proc::spawn("QEMU", command)?;
    // A time-out is an answer, too.
    let _ = proc.wait(PATIENCE);
    drop(proc);
    let works = String::from_utf8_lossy(&fs::read(&log)?).contains("vrdma-probe-ok");
    Ok(if works { Accel::Kvm } else { Accel::Tcg })
}
