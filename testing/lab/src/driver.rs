//! Reloads a VM's driver, and waits for its device.

use anyhow::{Context, Result};

use crate::vm::{Pair, Vm};

/// Waits until VM b's device exists and has the GID that programs look for.
pub fn wait_for_device(pair: &Pair) -> Result<()> {
    wait_for_device_of(pair, &pair.b)
}

/// Waits until a VM's device exists, has the GID that programs look for, and its link is active.
pub fn wait_for_device_of(pair: &Pair, vm: &Vm) -> Result<()> {
    let number = pair.index(vm) + 1;
    let gid = format!("grep -qs 0000:ffff:0a4d:000{number} /sys/class/infiniband/vrdma0/ports/1/gids/*");
    let command = format!("until {gid} && rdma link show vrdma0/1 | grep -q ACTIVE; do sleep 0.05; done");
    let found = vm.check(&command, pair.patience(3)).map(|_| ());
    found.with_context(|| format!("VM {}'s device does not come back", vm.name()))
}

/// Reloads VM b's driver: see [`begin_driver_of`].
pub fn begin_driver_anew(pair: &Pair) -> Result<()> {
    begin_driver_of(pair, &pair.b)
}

/// Reloads a VM's driver, and waits for its device.
///
/// The kernel's RDMA core keeps its CQs for users in the kernel as long as the device is
/// registered. A test whose case unregisters the device therefore first reloads the driver. That
/// frees the CQs that earlier tests left.
pub fn begin_driver_of(pair: &Pair, vm: &Vm) -> Result<()> {
    vm.check("rmmod vrdma && insmod /lib/vrdma/vrdma.ko", pair.patience(5))?;
    wait_for_device_of(pair, vm)
}
