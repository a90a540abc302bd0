//! Changes to the device's PCI function and its driver while programs use the device.

use anyhow::{Context, Result};
use vrdma_lab::driver::wait_for_device;
use vrdma_lab::vm::Pair;
use vrdma_lab::watch::said;
use vrdma_vm_macros::vm_test;

use super::case::case;
use crate::port;

/// Sets `virtio` and `pci` to the virtio device and the PCI function of the VM's RDMA device.
const PLACE: &str = "pci=$(basename $(readlink -f /sys/class/infiniband/vrdma0/device))
    virtio=$(basename $(ls -d /sys/bus/pci/devices/$pci/virtio*))\n";

/// Unbinds the driver from its virtio device under a connected program, and binds it again.
#[vm_test("vm-linux-rebind", lab = Usual, disturbs)]
fn rebound(pair: &mut Pair) -> Result<()> {
    disturbed(pair, "cd /sys/bus/virtio/drivers/vrdma && echo $virtio >unbind && echo $virtio >bind")
}

/// Removes the PCI function under a connected program, and finds it again by a scan of the bus.
#[vm_test("vm-linux-rescan", lab = Usual, disturbs)]
fn removed(pair: &mut Pair) -> Result<()> {
    disturbed(pair, "echo 1 >/sys/bus/pci/devices/$pci/remove && echo 1 >/sys/bus/pci/rescan")
}

/// Resets the PCI function under the driver, which detects that by itself.
///
/// Programs get DEVICE_FATAL. After the driver is bound again, the device works.
/// What a driver should do at a function-level reset is left open (virtio-spec#210).
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
            // Nobody tells the other end, because a device that is reset sends no goodbye.
            server.signal(9)?;
            server.wait(patience).with_context(|| format!("rping's server of round {round}"))?;
            drop(watch);
            wait_for_device(pair)?;
        }
        Ok(())
    })
}

/// Runs a command on VM b's device three times, while rping is connected.
///
/// Each time both ends of rping end, and the device comes back.
fn disturbed(pair: &mut Pair, command: &str) -> Result<()> {
    case(pair, |pair| {
        for round in 0..3 {
            let (server, client) = port::rping(pair, "-C 1000000")?;
            // A device that does not answer is given up after three minutes.
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
