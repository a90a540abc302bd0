//! What has to be made before VMs boot, as a person who waits for it is told.

use std::path::PathBuf;

use super::{Build, provider_target};
use crate::{paths, ui};

/// Tells [`ui`] which of the steps before the first VM will have something to make. A step whose result is there may
/// have something to do all the same, if its sources changed.
pub fn announce(how: Build) {
    let vm = |name: &str| paths::vm().join(name);
    let profile = how.guest_profile();
    let program = |name: &str| paths::cargo_target().join(profile).join(name);
    let results: [(&str, PathBuf); 8] = [
        ("the QEMU root", paths::qemu_root()),
        ("the guest root", paths::guest_root()),
        ("the VMs' image", vm("image")),
        ("the guest programs", vm("artefacts/programs")),
        ("the kernel module", vm("artefacts/vrdma.ko")),
        ("the provider", provider_target().join(profile).join("libvrdma.so")),
        ("the backend", program("vrdma-backend")),
        ("the VM agent", program("vrdma-vm-agent")),
    ];
    let missing = results.iter().filter(|(_, result)| !result.exists());
    ui::expect(missing.map(|(what, _)| format!("building {what}")).collect());
}
