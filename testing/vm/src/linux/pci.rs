//! What people do to the device's PCI function and its driver while programs use it.

use anyhow::{Context, Result};
use vrdma_lab::driver::wait_for_device;
use vrdma_lab::vm::Pair;
use vrdma_lab::watch::said;
use vrdma_vm_macros::vm_test;

use super::case::case;
use crate::port;

/// Finds the PCI function and the virtio device of VM b's RDMA device.
const PLACE: &str = "virtio=$(basename $(readlink -f /sys/class/infiniband/vrdma0/device))
    pci=$(basename $(readlink -f /sys/bus/virtio/devices/$virtio/..))
    case $pci in virtio*) pci=$(basename $(readlink -f /sys/bus/virtio/devices/$virtio/../..)) ;; esac\n";

/// The driver is unbound from its virtio device under a connected program, and bound again.
#[vm_test("vm-linux-rebind", lab = Usual, disturbs)]
fn rebound(pair: &mut Pair) -> Result<()> {
    disturbed(pair, "cd /sys/bus/virtio/drivers/vrdma && echo $virtio >unbind && echo $virtio >bind")
}

/// The PCI function is removed under a connected program, and found by a scan of the bus.
#[vm_test("vm-linux-rescan", lab = Usual, disturbs)]
fn removed(pair: &mut Pair) -> Result<()> {
    disturbed(pair, "echo 1 >/sys/bus/pci/devices/$pci/remove && echo 1 >/sys/bus/pci/rescan")
}

/// The PCI function is reset under the driver, which notices it by itself: programs get
/// DEVICE_FATAL. Bound anew it works again.
///
/// virtio-spec#210: what a driver does at a function-level reset is left open.
#[vm_test("vm-linux-pci-reset", lab = Usual, disturbs)]
fn reset(pair: &mut Pair) -> Result<()> {
    case(pair, |pair| {
        let patience = pair.patience(10);
        for round in 0..2 {
            let mut watch = pair.b.spawn("exec ibv_asyncwatch -d vrdma0")?;
            watch.wait_for("vrdma0", patience)?;
            let (server, client) = port::rping(pair, "-C 1000000")?;
            let reset = format!(
                "{PLACE}test -e /sys/bus/pci/devices/$pci/reset || {{ echo no reset; exit 1; }}
                dmesg -C; echo 1 >/sys/bus/pci/devices/$pci/reset"
            );
            pair.b.check(&reset, patience).with_context(|| format!("round {round}"))?;
            watch.wait_for("IBV_EVENT_DEVICE_FATAL", patience).with_context(|| said(&watch))?;
            pair.b.check("dmesg | grep 'reset by somebody else'", patience)?;
            let bind = "cd /sys/bus/virtio/drivers/vrdma && echo $virtio >unbind && echo $virtio >bind";
            pair.b.check(&format!("{PLACE}{bind}"), patience).context("the driver is bound anew")?;
            client.wait(patience).with_context(|| format!("rping's client of round {round}"))?;
            // Nobody tells the other end: a device that is reset says no goodbye.
            server.signal(9)?;
            server.wait(patience).with_context(|| format!("rping's server of round {round}"))?;
            drop(watch);
            wait_for_device(pair)?;
        }
        Ok(())
    })
}

/// Three times something is done to the device of VM b while rping is connected: both ends end, and
/// the device is there again.
fn disturbed(pair: &mut Pair, command: &str) -> Result<()> {
    case(pair, |pair| {
        for round in 0..3 {
            let (server, client) = port::rping(pair, "-C 1000000")?;
            // A device that stands still is given up after three minutes.
            let patience = pair.patience(30);
            pair.b.check(&format!("{PLACE}{command}"), patience).with_context(|| format!("round {round}"))?;
            for (job, who) in [(client, "client"), (server, "server")] {
                job.wait(patience).with_context(|| format!("rping's {who} of round {round}"))?;
            }
            wait_for_device(pair)?;
        }
        Ok(())
    })
}
