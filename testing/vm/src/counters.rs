//! What programs in the guest see of the device's counters.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use vrdma_lab::driver::wait_for_device;
use vrdma_lab::vm::{Pair, Vm, workers};
use vrdma_vm_macros::vm_test;

use super::port::rping;

/// Rounds of rping. In each the server READs from the client and WRITEs to it; both SEND twice.
const ROUNDS: u64 = 20;
/// Bytes of each READ and WRITE.
const SIZE: u64 = 1000;

/// All counters of a VM, by folder and name.
type Counts = BTreeMap<String, u64>;

/// Counters in sysfs and `rdma statistic` say what rping did, and how often the port went down;
/// ibstat knows the device.
#[vm_test("vm-counters", lab = Usual)]
#[vm_test("vm-counters-two-hosts", lab = TwoHosts)]
fn tell_what_was_done(pair: &mut Pair) -> Result<()> {
    let has_packets = pair.wire().is_ok() || workers() > 1;
    let before = [read(pair, &pair.a)?, read(pair, &pair.b)?];
    let (server, client) = rping(pair, &format!("-C {ROUNDS} -S {SIZE}"))?;
    for job in [client, server] {
        let output = job.wait(pair.patience(5))?;
        ensure!(output.success(), "rping: {:?} {}", output.exit, output.text());
    }
    let after = [read(pair, &pair.a)?, read(pair, &pair.b)?];
    let moved = |vm: usize, name: &str| -> Result<u64> {
        let of = |counts: &Counts| counts.get(name).copied().with_context(|| format!("there is no {name}"));
        Ok(of(&after[vm])? - of(&before[vm])?)
    };

    for (vm, name, least) in [
        (0, "hw_counters/rdma_reads", ROUNDS),
        (0, "hw_counters/rdma_writes", ROUNDS),
        (0, "hw_counters/rdma_sends", 2 * ROUNDS),
        (1, "hw_counters/rdma_recvs", 2 * ROUNDS),
        (0, "hw_counters/sent_bytes", ROUNDS * SIZE),
        (0, "hw_counters/rcvd_bytes", ROUNDS * SIZE),
        (1, "hw_counters/sent_bytes", ROUNDS * SIZE),
        (1, "hw_counters/rcvd_bytes", ROUNDS * SIZE),
        (0, "counters/port_xmit_data", ROUNDS * SIZE / 4),
        (1, "counters/port_rcv_data", ROUNDS * SIZE / 4),
    ] {
        let count = moved(vm, name)?;
        ensure!(count >= least, "VM {vm}: {name} grew by {count}, and not by {least}");
    }
    for name in ["rdma_reads", "rdma_writes"] {
        let name = format!("hw_counters/{name}");
        ensure!(
            moved(0, &name)? == ROUNDS && moved(1, &name)? == 0,
            "{name}: the server's alone, one a round"
        );
    }
    // Between VMs of one worker there are no packets. Else each SEND and each response of a READ is
    // one, at least.
    for name in ["hw_counters/sent_pkts", "counters/port_xmit_packets", "hw_counters/rcvd_pkts"] {
        let packets = moved(1, name)?;
        ensure!(if has_packets { packets >= 3 * ROUNDS } else { packets == 0 }, "{name}: {packets}");
    }
    tools(pair)?;
    link_downed(pair)
}

/// `rdma statistic` and `ibstat` say the same.
fn tools(pair: &Pair) -> Result<()> {
    let patience = pair.patience(3);
    let writes = read(pair, &pair.a)?["hw_counters/rdma_writes"];
    let statistic = pair.a.check("rdma statistic show link vrdma0/1", patience)?;
    ensure!(statistic.contains(&format!("rdma_writes {writes}")), "not {writes} WRITEs: {statistic}");
    let ibstat = pair.a.check("ibstat vrdma0", patience)?;
    ensure!(ibstat.contains("CA type: vrdma") && ibstat.contains("Hardware version: 1"), "{ibstat}");
    Ok(())
}

fn link_downed(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(3);
    let names = ["hw_counters/link_downed", "counters/link_downed"];
    let before = read(pair, &pair.b)?;
    pair.b.check("ip link set dev eth0 down", patience)?;
    let is_down = "until rdma link show vrdma0/1 | grep -q DOWN; do sleep 0.05; done";
    pair.b.check(is_down, patience).context("the port is not down")?;
    pair.b.check("ip link set dev eth0 up", patience)?;
    wait_for_device(pair)?;
    let after = read(pair, &pair.b)?;
    for name in names {
        ensure!(after[name] == before[name] + 1, "{name}: {} and then {}", before[name], after[name]);
    }
    Ok(())
}

fn read(pair: &Pair, vm: &Vm) -> Result<Counts> {
    // What was counted is asked for again only after some milliseconds.
    let command = "sleep 0.05; cd /sys/class/infiniband/vrdma0/ports/1 && grep -s . hw_counters/* counters/*";
    let text = vm.check(command, pair.patience(3))?;
    let counts = text.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    Ok(counts.collect())
}
