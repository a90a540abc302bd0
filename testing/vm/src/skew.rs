//! A driver and a daemon of different versions: hosts and guests are not upgraded at the same time.

use anyhow::{Context, Result, ensure};
use vrdma_conformance::demo::{self, Round};
use vrdma_conformance::lineup::{Family, PathMtu, Sizes};
use vrdma_lab::driver::{begin_driver_of, wait_for_device_of};
use vrdma_lab::vm::{Pair, Vm};
use vrdma_lab::{older, paths};
use vrdma_vm_macros::vm_test;

/// Stock programs, rdma_cm, and each service, with VM a as server.
const ROUNDS: &[Round] = &[(PathMtu::Jumbo, 0, Family::V4, Sizes::One)];

/// Both VMs have the older driver; the daemon is today's. The provider in the VMs is today's too.
#[vm_test("vm-older-driver", lab = Usual, needs = Older, long, disturbs)]
fn older_driver(pair: &mut Pair) -> Result<()> {
    let file = pair.share().join("vrdma-older.ko");
    std::fs::copy(older::module()?, &file).context("the older driver")?;
    for vm in [&pair.a, &pair.b] {
        let before = version(pair, vm)?;
        vm.check("rmmod vrdma && insmod /share/vrdma-older.ko", pair.patience(5))?;
        wait_for_device_of(pair, vm)?;
        ensure!(before != version(pair, vm)?, "VM {} has the driver of before", vm.name());
    }
    demo::go_through(pair, ROUNDS, &mut |_| {}).context("with the older driver")?;
    for vm in [&pair.a, &pair.b] {
        begin_driver_of(pair, vm)?;
    }
    paths::remove(&file)
}

/// The daemon is the older one, and the drivers are today's.
#[vm_test("vm-older-daemon", lab = OlderBackend, needs = Older, long)]
fn older_daemon(pair: &mut Pair) -> Result<()> {
    let program = std::fs::read_link(format!("/proc/{}/exe", pair.backend()?.pid()))?;
    ensure!(program == older::backend()?, "the daemon is {}", program.display());
    demo::go_through(pair, ROUNDS, &mut |_| {}).context("with the older daemon")?;
    // And the drivers begin anew with it.
    for vm in [&pair.a, &pair.b] {
        begin_driver_of(pair, vm)?;
    }
    Ok(())
}

/// What distinguishes the driver from one of other sources.
fn version(pair: &Pair, vm: &Vm) -> Result<String> {
    vm.check("md5sum /sys/module/vrdma/notes/.note.gnu.build-id", pair.patience(2))
}
