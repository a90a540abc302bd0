//! A VM's driver: it begins anew, and its device is there again.

use anyhow::{Context, Result};

use crate::vm::{Pair, Vm};

/// The device of VM b is there and has the address that programs look for.
pub fn wait_for_device(pair: &Pair) -> Result<()> {
    wait_for_device_of(pair, &pair.b)
}

/// The device of a VM is there and has the address that programs look for.
pub fn wait_for_device_of(pair: &Pair, vm: &Vm) -> Result<()> {
    let number = pair.index(vm) + 1;
    let gid = format!("grep -qs 0000:ffff:0a4d:000{number} /sys/class/infiniband/vrdma0/ports/1/gids/*");
    let command = format!("until {gid} && rdma link show vrdma0/1 | grep -q ACTIVE; do sleep 0.05; done");
    let found = vm.check(&command, pair.patience(3)).map(|_| ());
    found.with_context(|| format!("VM {}'s device does not come back", vm.name()))
}

/// VM b's driver begins anew: see [`begin_driver_of`].
pub fn begin_driver_anew(pair: &Pair) -> Result<()> {
    begin_driver_of(pair, &pair.b)
}

/// A VM's driver begins anew. The core keeps CQs for users in the kernel for as long as it has the
/// device. So a test whose case makes it give the device up first gives up those of the tests
/// before.
pub fn begin_driver_of(pair: &Pair, vm: &Vm) -> Result<()> {
    vm.check("rmmod vrdma && insmod /lib/vrdma/vrdma.ko", pair.patience(5))?;
    wait_for_device_of(pair, vm)
}
