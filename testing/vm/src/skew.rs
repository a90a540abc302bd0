//! A driver and a daemon of different versions, because hosts and guests are not upgraded together.

use anyhow::{Context, Result, ensure};
use vrdma_conformance::demo::{self, DemoRound};
use vrdma_conformance::lineup::{IpFamily, PathMtu, Sizes};
use vrdma_lab::driver::{begin_driver_of, wait_for_device_of};
use vrdma_lab::vm::{Pair, Vm};
use vrdma_lab::{older, paths, roots};
use vrdma_vm_macros::vm_test;

/// Stock programs, rdma_cm, and each service. VM a is the server.
const ROUNDS: &[DemoRound] = &[(PathMtu::Jumbo, 0, IpFamily::V4, Sizes::One)];

/// Runs the programs with the older driver in both VMs. Daemon and provider are the current ones.
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

/// Runs the programs with the older provider in VM b. Driver and daemon are the current ones.
///
/// The older provider knows the device by the name that the driver gives it, and not by its parent.
/// So it does not find a device that was renamed (docs/sysfs.md).
#[vm_test("vm-older-provider", lab = Usual, needs = Older, long)]
fn older_provider(pair: &mut Pair) -> Result<()> {
    let file = pair.share().join("libvrdma-older.so");
    std::fs::copy(older::provider()?, &file).context("the older provider")?;
    let patience = pair.patience(5);
    let place = format!("/usr/lib/x86_64-linux-gnu/libibverbs/libvrdma-rdmav{}.so", roots::provider_abi()?);
    pair.b.check(&format!("cp {place} /tmp/current.so && cp /share/libvrdma-older.so {place}"), patience)?;
    demo::go_through(pair, ROUNDS, &mut |_| {}).context("with the older provider")?;
    let found = |name: &str| format!("ibv_devinfo -d {name} | grep -q PORT_ACTIVE");
    pair.b.check("rdma dev set vrdma0 name rocep0s4", patience)?;
    pair.b.check(&format!("! {}", found("rocep0s4")), patience).context("the older provider finds it")?;
    pair.b.check(&format!("cp /tmp/current.so {place} && {}", found("rocep0s4")), patience)?;
    pair.b.check(&format!("rdma dev set rocep0s4 name vrdma0 && {}", found("vrdma0")), patience)?;
    paths::remove(&file)
}

/// Runs the programs with the older daemon and the current drivers.
#[vm_test("vm-older-daemon", lab = OlderBackend, needs = Older, long)]
fn older_daemon(pair: &mut Pair) -> Result<()> {
    let program = std::fs::read_link(format!("/proc/{}/exe", pair.backend()?.pid()))?;
    ensure!(program == older::backend()?, "the daemon is {}", program.display());
    demo::go_through(pair, ROUNDS, &mut |_| {}).context("with the older daemon")?;
    // The drivers can also be reloaded with it.
    for vm in [&pair.a, &pair.b] {
        begin_driver_of(pair, vm)?;
    }
    Ok(())
}

/// Returns what identifies the driver's build.
fn version(pair: &Pair, vm: &Vm) -> Result<String> {
    vm.check("md5sum /sys/module/vrdma/notes/.note.gnu.build-id", pair.patience(2))
}
