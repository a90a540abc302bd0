//! Announces what has to be built before VMs boot.

use std::path::PathBuf;

use super::{Build, Part, provider_target};
use crate::{paths, ui};

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
