//! The oldest and the newest kernel that the guest's driver supports.

use anyhow::{Context, Result, ensure};
use vrdma_conformance::demo::{self, DemoRound};
use vrdma_conformance::lineup::{IpFamily, PathMtu, Sizes};
use vrdma_lab::driver::begin_driver_of;
use vrdma_lab::vm::Pair;
use vrdma_vm_macros::vm_test;

use super::case::rping_both_ways;
use super::names::{expect_place_in_sysfs, renamed};

/// Stock programs and rdma_cm, with each VM as the server.
const ROUNDS: &[DemoRound] =
    &[(PathMtu::Jumbo, 0, IpFamily::V4, Sizes::One), (PathMtu::Jumbo, 1, IpFamily::V6, Sizes::One)];

/// Boots one of Debian's other kernels, and runs what shows each part of the driver's work once.
///
/// These are stock programs, the device's place in sysfs, another name of the device, and a new
/// driver. The kernels report no fault.
///
/// Shows: kernels.
#[vm_test("vm-kernel-oldest", lab = OldestKernel, long)]
#[vm_test("vm-kernel-newest", lab = NewestKernel, long)]
fn works(pair: &mut Pair) -> Result<()> {
    let version = pair.kernel().version()?;
    for vm in [&pair.a, &pair.b] {
        let runs = vm.check("uname -r", pair.patience(2))?;
        ensure!(runs.trim() == version, "VM {} runs {}, not {version}", vm.name(), runs.trim());
        expect_place_in_sysfs(pair, vm)?;
    }
    demo::go_through(pair, ROUNDS, &mut |_| {})?;
    renamed(pair).context("under another name")?;
    for vm in [&pair.a, &pair.b] {
        begin_driver_of(pair, vm)?;
    }
    rping_both_ways(pair).context("with new drivers")
}
