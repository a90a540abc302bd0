//! What the guest's driver makes of its netdev, and of rdma_cm's hold on the device.

use anyhow::{Context, Result, ensure};
use vrdma_lab::driver::{begin_driver_anew, wait_for_device};
use vrdma_lab::vm::addresses::IP;
use vrdma_lab::vm::{Job, Pair};
use vrdma_lab::watch::{Holdings, said};
use vrdma_vm_macros::vm_test;

/// The port follows its netdev up and down, its GIDs the netdev's addresses, and programs are told.
#[vm_test("vm-port", lab = Usual)]
fn follows_netdev(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(3);
    let mut watch = pair.b.spawn("exec ibv_asyncwatch -d vrdma0")?;
    watch.wait_for("vrdma0", patience).with_context(|| said(&watch))?;
    let state =
        |state: &str| format!("until rdma link show vrdma0/1 | grep -q \"{state}\"; do sleep 0.05; done");
    pair.b.check("ip link set dev eth0 down", patience)?;
    watch.wait_for("IBV_EVENT_PORT_ERR", patience).with_context(|| said(&watch))?;
    pair.b.check(&state("DOWN"), patience).context("the port is not down")?;
    pair.b
        .check(&state("physical_state DISABLED"), patience)
        .context("a port that is down looks for a link")?;
    pair.b.check("ip link set dev eth0 up", patience)?;
    watch.wait_for("IBV_EVENT_PORT_ACTIVE", patience).with_context(|| said(&watch))?;
    wait_for_device(pair)?;

    for (address, gid) in [
        ("10.77.1.9/24", "0000:0000:0000:0000:0000:ffff:0a4d:0109"),
        ("fd77::9/64", "fd77:0000:0000:0000:0000:0000:0000:0009"),
    ] {
        let has = format!("grep -qs {gid} /sys/class/infiniband/vrdma0/ports/1/gids/*");
        pair.b.check(&format!("ip addr add {address} dev eth0"), patience)?;
        let appears = format!("until {has}; do sleep 0.05; done");
        pair.b.check(&appears, patience).with_context(|| format!("no GID of {address}"))?;
        pair.b.check(&format!("ip addr del {address} dev eth0"), patience)?;
        let goes = format!("while {has}; do sleep 0.05; done");
        pair.b.check(&goes, patience).with_context(|| format!("the GID of {address} stays"))?;
    }
    let (server, client) = rping(pair, "-C 5")?;
    for job in [client, server] {
        let output = job.wait(pair.patience(5))?;
        ensure!(output.success(), "rping: {:?} {}", output.exit, output.text());
    }
    Ok(())
}

/// The driver is removed under a program that is connected by rdma_cm: both ends of the connection
/// end, and all is given back.
#[vm_test("vm-clean-up-rdma-cm", lab = Usual, disturbs)]
fn removed_while_connected(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(5);
    begin_driver_anew(pair)?;
    let before = Holdings::settled(pair.backend()?, patience)?.with_new_driver("b");
    for round in 0..3 {
        let (server, client) = rping(pair, "-C 1000000")?;
        pair.b.check("rmmod vrdma", pair.patience(5)).with_context(|| format!("round {round}"))?;
        for (job, who) in [(client, "client"), (server, "server")] {
            job.wait(pair.patience(10)).with_context(|| format!("the {who} of round {round}"))?;
        }
        pair.b.check("insmod /lib/vrdma/vrdma.ko", pair.patience(3))?;
        wait_for_device(pair)?;
    }
    before.expect_return(pair.backend()?, patience)
}

/// rping's server in VM a, and in VM b its client, that has connected.
pub fn rping(pair: &Pair, options: &str) -> Result<(Job, Job)> {
    let patience = pair.patience(3);
    let mut server = pair.a.spawn(&format!("exec rping -s -a {} -v {options}", IP[0]))?;
    pair.a.wait_for_cm_listener(patience).context("rping does not listen")?;
    let client = pair.b.spawn(&format!("exec rping -c -a {} {options}", IP[0]))?;
    server.wait_for("rdma-ping-2", pair.patience(5)).with_context(|| said(&server))?;
    Ok((server, client))
}
