//! A device that a VMM takes from a VM that runs, and gives back.

use anyhow::{Context, Result};
use serde_json::json;
use vrdma_lab::driver::{begin_driver_of, wait_for_device};
use vrdma_lab::storage::{Disk, Load, Protocol, Storage};
use vrdma_lab::vm::Pair;
use vrdma_lab::wait::until;
use vrdma_lab::watch::said;
use vrdma_vm_macros::vm_test;

use super::case::case;
use crate::port;

/// The VMM takes the device of VM b away under rping and under an initiator of NVMe over Fabrics,
/// and gives it back: programs are told, and all end.
///
/// IBV_EVENT_DEVICE_FATAL, RDMA_CM_EVENT_DEVICE_REMOVAL; spdk#1184.
#[vm_test("vm-linux-plug", lab = Usual, disturbs)]
fn device(pair: &mut Pair) -> Result<()> {
    case(pair, |pair| {
        let patience = pair.patience(20);
        let storage = Storage::new(Protocol::Nvme, 0);
        for (with_nvme, connection) in [(true, Connection::New), (false, Connection::Kept)] {
            let round = format!("round {connection:?}");
            let mut watch = pair.b.spawn("exec ibv_asyncwatch -d vrdma0")?;
            watch.wait_for("vrdma0", patience)?;
            let (server, client) = port::rping(pair, "-C 1000000")?;
            let mut load = None;
            if with_nvme {
                storage.serve(pair, Disk::Ram)?;
                let file = storage.connect(pair)?;
                load = Some(storage.start_load(pair, &file, &ENDLESS)?);
                load.as_mut().context("it was started")?.wait_for("%]", patience)?;
            }
            unplug(pair).with_context(|| round.clone())?;
            watch.wait_for("IBV_EVENT_DEVICE_FATAL", patience).with_context(|| said(&watch))?;
            for (job, who) in [(client, "client"), (server, "server")] {
                job.wait(patience).with_context(|| format!("rping's {who}, {round}"))?;
            }
            drop(watch);
            plug(pair, connection).with_context(|| round.clone())?;
            wait_for_device(pair)?;
            if let Some(load) = load {
                // Its controller goes with the device, and the disk's user gets errors.
                load.wait(patience).context("fio on a disk whose device is gone")?;
                storage.disconnect(pair)?;
                storage.stop(pair)?;
            }
        }
        // The core keeps the target's CQs for as long as it has the device.
        begin_driver_of(pair, &pair.a)
    })
}

/// What goes on until its disk is gone.
const ENDLESS: Load = Load {
    size: "16m",
    options: "--ioengine=libaio --direct=1 --loops=1000 --eta=always --eta-newline=500ms",
};

/// Takes VM b's device away, and waits until it is gone from the VM.
fn unplug(pair: &Pair) -> Result<()> {
    pair.b.monitor()?.execute("device_del", json!({ "id": "rdma0" }))?;
    let gone = "while [ -e /sys/class/infiniband/vrdma0 ]; do sleep 0.1; done";
    pair.b.check(gone, pair.patience(30)).context("the driver does not let the device go").map(|_| ())
}

/// What a device that is plugged in speaks to the backend over.
#[derive(Clone, Copy, Debug)]
enum Connection {
    /// A connection of its own.
    New,
    /// That of the device before, which QEMU leaves open.
    Kept,
}

/// Gives the device back, as soon as QEMU has let the old one go.
fn plug(pair: &Pair, connection: Connection) -> Result<()> {
    let device = pair.b.config().rdma.first().context("VM b has no RDMA device")?;
    let mut monitor = pair.b.monitor()?;
    let patience = pair.patience(10);
    if let Connection::New = connection {
        until("QEMU to let the old device's connection go", patience, || {
            let gone = monitor.execute("chardev-remove", json!({ "id": "rdma0" }));
            Ok(gone.map_err(|error| format!("{error:#}")))
        })?;
        let address = json!({ "type": "unix", "data": { "path": device.socket } });
        let backend = json!({ "type": "socket", "data": { "addr": address, "server": false } });
        monitor.execute("chardev-add", json!({ "id": "rdma0", "backend": backend }))?;
    }
    until("QEMU to let the old device go", patience, || {
        let added = monitor.execute("device_add", device.properties(0));
        Ok(added.map(|_| ()).map_err(|error| format!("{error:#}")))
    })
}
