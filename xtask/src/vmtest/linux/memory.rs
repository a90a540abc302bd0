//! Memory that a VMM plugs into a VM that runs.

use anyhow::{Context, Result};
use serde_json::json;

use super::{python, rping, rping_both_ways};
use crate::programs::Device;
use crate::vm::Pair;
use crate::vm::pair::IP;
use crate::vmtest::cleanup::{begin_driver_anew, wait_for_device};
use crate::vmtest::port;
use crate::vmtest::watch::Holdings;

/// Memory is plugged into VM b while it talks. What the VMM shares with the daemon is as good as any; what it does not
/// share cannot be registered, and hurts nobody else.
///
/// vhost-user, "Memory regions description"; spdk#3132, virtme-ng#334.
pub fn plugged_in(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(20);
    begin_driver_anew(pair)?;
    rping_both_ways(pair).context("before the case")?;
    let before = Holdings::settled(pair.backend()?, patience)?.with_new_driver("b");
    let (server, client) = port::rping(pair, "-C 1000000")?;
    plug_memory(pair, "shared", "memory-backend-memfd", 128)?;
    plugged(pair, "shared")?;
    client.signal(2)?;
    for (job, who) in [(client, "client"), (server, "server")] {
        job.wait(patience).with_context(|| format!("rping's {who}"))?;
    }
    rping_both_ways(pair).context("beside memory that is shared")?;
    // From here on the kernel may take memory for its own queues that the daemon does not see.
    plug_memory(pair, "private", "memory-backend-ram", 256)?;
    plugged(pair, "private")?;
    pair.b
        .check("! dmesg | grep -A 20 -e WARNING: -e BUG: -e Oops", patience)
        .context("a kernel found a fault")?;
    rping(pair, &pair.a, IP[0], &pair.a).context("the other VM")?;
    // Nobody can take memory away that the kernel has taken for itself.
    pair.reboot("b")?;
    wait_for_device(pair)?;
    rping_both_ways(pair).context("after the case")?;
    before.expect_return(pair.backend()?, patience)
}

/// Pages of memory that was plugged in are registered and used, or refused.
fn plugged(pair: &Pair, kind: &str) -> Result<()> {
    let index = Device::Vrdma.gid_index(&pair.b)?;
    let run = python(pair, "plugged.py")?;
    let said = pair.b.check(&format!("{run} {kind} {index}"), pair.patience(20));
    said.map(|_| ()).with_context(|| format!("memory that is {kind}"))
}

/// Plugs so many MiB into VM b; its kernel takes them for everything.
fn plug_memory(pair: &Pair, name: &str, kind: &str, mebibytes: u64) -> Result<()> {
    let before =
        "cat /sys/devices/system/memory/auto_online_blocks; ls -d /sys/devices/system/memory/memory* | wc -l";
    let before = pair.b.check(before, pair.patience(2))?;
    let mut monitor = pair.b.monitor()?;
    let share = name == "shared";
    let object = json!({ "qom-type": kind, "id": name, "size": mebibytes << 20, "share": share });
    monitor.execute("object-add", object)?;
    let device = format!("dimm-{name}");
    monitor.execute("device_add", json!({ "driver": "pc-dimm", "id": device, "memdev": name }))?;
    let online = "cd /sys/devices/system/memory
        until [ $(grep -l -e offline -e online memory*/state | wc -l) -gt COUNT ]; do sleep 0.1; done
        for block in $(grep -l offline memory*/state); do echo online_kernel >$block || exit 1; done";
    let count = before.lines().last().context("no count of memory blocks")?.trim();
    let online = online.replace("COUNT", count);
    pair.b
        .check(&online, pair.patience(6))
        .with_context(|| format!("memory does not come: {before}"))
        .map(|_| ())
}
