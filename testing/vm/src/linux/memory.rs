//! Memory that a VMM plugs into a VM that runs.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use vrdma_lab::device::Device;
use vrdma_lab::driver::{begin_driver_anew, wait_for_device};
use vrdma_lab::vm::Pair;
use vrdma_lab::vm::addresses::IP;
use vrdma_lab::vm::pair::SPARE_PORT;
use vrdma_lab::wait::until;
use vrdma_lab::watch::{Holdings, said};
use vrdma_vm_macros::vm_test;

use super::case::{python, rping, rping_both_ways};
use crate::port;

/// Memory is plugged into VM b while it talks. What the VMM shares with the daemon is as good as
/// any; what it does not share cannot be registered, and hurts nobody else.
///
/// vhost-user, "Memory regions description"; spdk#3132, virtme-ng#334.
#[vm_test("vm-linux-memory", lab = Usual, long, disturbs)]
fn plugged_in(pair: &mut Pair) -> Result<()> {
    and_begin_anew(pair, |pair| {
        beside_rping(pair, || {
            plug_memory(pair, "shared", "memory-backend-memfd", 128)?;
            plugged(pair, "shared")
        })?;
        rping_both_ways(pair).context("beside memory that is shared")?;
        // From here on the kernel may take memory for its own queues that the daemon does not see.
        plug_memory(pair, "private", "memory-backend-ram", 256)?;
        plugged(pair, "private")?;
        rping(pair, &pair.a, IP[0], &pair.a).context("the other VM")
    })
}

/// VM b's memory grows and shrinks block by block, three times, while it talks: memory that was
/// registered is given back to the VMM, and is as good as before when it comes again.
///
/// virtio 1.3, 5.15 (memory device).
#[vm_test("vm-linux-memory-resized", lab = Usual, long, disturbs)]
fn resized(pair: &mut Pair) -> Result<()> {
    and_begin_anew(pair, |pair| {
        pair.b.check("modprobe virtio_mem", pair.patience(2))?;
        let mut monitor = pair.b.monitor()?;
        let size = (2 * BLOCKS) << 20;
        let object =
            json!({ "qom-type": "memory-backend-memfd", "id": "blocks", "size": size, "share": true });
        monitor.execute("object-add", object)?;
        let device =
            json!({ "driver": "virtio-mem-pci", "id": "of-b", "memdev": "blocks", "bus": SPARE_PORT });
        monitor.execute("device_add", device)?;
        drop(monitor);
        beside_rping(pair, || {
            (1..=3).try_for_each(|round| come_and_go(pair).with_context(|| format!("round {round}")))
        })
    })
}

/// Memory comes, is registered and used, and goes but for what the kernel has another use for.
fn come_and_go(pair: &Pair) -> Result<()> {
    request(pair, BLOCKS)?;
    wait_for_size(pair, |mebibytes| mebibytes == BLOCKS)?;
    pair.b.check(ONLINE, pair.patience(6))?;
    plugged(pair, "shared")?;
    request(pair, 0)?;
    wait_for_size(pair, |mebibytes| mebibytes < BLOCKS / 2)
}

/// So much of VM b's memory comes and goes, in MiB: what `plugged.py` takes for shared.
const BLOCKS: u64 = 128;

/// Tells VM b how much of the memory that comes and goes it is to have, in MiB.
fn request(pair: &Pair, mebibytes: u64) -> Result<()> {
    let wish = json!({ "path": BLOCKS_OF_B, "property": "requested-size", "value": mebibytes << 20 });
    pair.b.monitor()?.execute("qom-set", wish).map(|_| ())
}

/// Waits until VM b has as much of that memory, in MiB, as is asked for.
fn wait_for_size(pair: &Pair, enough: impl Fn(u64) -> bool) -> Result<()> {
    let mut monitor = pair.b.monitor()?;
    until("VM b's memory to have its size", pair.patience(20), || {
        let size = monitor.execute("qom-get", json!({ "path": BLOCKS_OF_B, "property": "size" }))?;
        let mebibytes = size.as_u64().context("a size is no number")? >> 20;
        Ok(if enough(mebibytes) { Ok(()) } else { Err(format!("it is {mebibytes} MiB")) })
    })
}

const BLOCKS_OF_B: &str = "/machine/peripheral/of-b";

/// Works, and has VM b begin anew afterwards: nobody can take memory away that its kernel has taken
/// for itself.
fn and_begin_anew(pair: &mut Pair, work: impl FnOnce(&Pair) -> Result<()>) -> Result<()> {
    let patience = pair.patience(20);
    begin_driver_anew(pair)?;
    rping_both_ways(pair).context("before the case")?;
    let before = Holdings::settled(pair.backend()?, patience)?.with_new_driver("b");
    work(pair)?;
    pair.b
        .check("! dmesg | grep -A 20 -e WARNING: -e BUG: -e Oops", patience)
        .context("a kernel found a fault")?;
    pair.reboot("b")?;
    wait_for_device(pair)?;
    rping_both_ways(pair).context("after the case")?;
    before.expect_return(pair.backend()?, patience)
}

/// Works while the VMs talk.
fn beside_rping(pair: &Pair, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let (server, mut client) = port::rping(pair, "-C 1000000")?;
    work()?;
    ensure!(!client.has_ended()?, "rping ended meanwhile: {}", said(&client));
    client.signal(2)?;
    for (job, who) in [(client, "client"), (server, "server")] {
        job.wait(pair.patience(20)).with_context(|| format!("rping's {who}"))?;
    }
    Ok(())
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
    let count = before.lines().last().context("no count of memory blocks")?.trim();
    let come = format!(
        "until [ $(ls -d /sys/devices/system/memory/memory* | wc -l) -gt {count} ]; do sleep 0.1; done"
    );
    pair.b
        .check(&format!("{come}; {ONLINE}"), pair.patience(6))
        .with_context(|| format!("memory does not come: {before}"))
        .map(|_| ())
}

/// Has the kernel take what memory there is for everything.
const ONLINE: &str = "for block in $(grep -l offline /sys/devices/system/memory/memory*/state); do
        echo online_kernel >$block || exit 1
    done";
