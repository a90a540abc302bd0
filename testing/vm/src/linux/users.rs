//! Users without privileges, and other users of verbs in the kernel.

use anyhow::{Context, Result, ensure};
use vrdma_lab::driver::wait_for_device;
use vrdma_lab::vm::Pair;
use vrdma_lab::vm::addresses::IP;
use vrdma_vm_macros::vm_test;

use super::case::{case, python};

/// A user with the usual limit of locked memory runs programs, and gets back what was counted.
///
/// setrlimit(2): what is pinned counts; beyond it ENOMEM (ucx#8229, ompi#6468).
#[vm_test("vm-linux-unprivileged", lab = Usual)]
fn unprivileged(pair: &mut Pair) -> Result<()> {
    case(pair, |pair| {
        let patience = pair.patience(10);
        let user = "setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs sh -c";
        for vm in [&pair.a, &pair.b] {
            vm.check("chmod 666 /dev/infiniband/uverbs* /dev/infiniband/rdma_cm", patience)?;
        }
        let line = "ibv_rc_pingpong -d vrdma0 -g 1 -s 4096 -r 16 -n 100 -p 18610";
        let mut server = pair.a.spawn(&format!("exec {user} 'ulimit -l 256; exec {line}'"))?;
        pair.a.check("until ss -ltn | grep -q :18610; do sleep 0.1; done", patience)?;
        pair.b.check(&format!("{user} 'ulimit -l 256; exec {line} {}'", IP[0]), patience)?;
        let _ = server.has_ended()?;
        let output = server.wait(patience)?;
        ensure!(output.success(), "the server: {:?} {}", output.exit, output.text());
        let run = python(pair, "memlock.py")?;
        pair.b.check(&format!("{user} 'ulimit -l 256; exec env {run}'"), patience).context("memlock.py")?;
        Ok(())
    })
}

/// Sockets of SMC-R (smc(7), RFC 7609) carry data by RDMA or fall back to TCP, and do not keep the
/// driver from going.
#[vm_test("vm-linux-smc", lab = Usual)]
fn smc(pair: &mut Pair) -> Result<()> {
    case(pair, |pair| {
        let patience = pair.patience(15);
        let run = python(pair, "smc.py")?;
        for vm in [&pair.a, &pair.b] {
            vm.check("modprobe smc", patience)?;
        }
        let mut server = pair.a.spawn(&format!("exec env {run} serve {}", IP[0]))?;
        server.wait_for("listening", patience)?;
        pair.b.check(&format!("{run} connect {}", IP[0]), patience).context("transfers")?;
        // Connections that stay open while the driver goes and comes back.
        let mut holder = pair.b.spawn(&format!("exec env {run} hold {}", IP[0]))?;
        holder.wait_for("holding", patience)?;
        pair.b
            .check("rmmod vrdma && insmod /lib/vrdma/vrdma.ko", patience)
            .context("rmmod beside sockets")?;
        wait_for_device(pair)?;
        holder.signal(9)?;
        holder.wait(patience)?;
        server.signal(15)?;
        server.wait(patience)?;
        for vm in [&pair.a, &pair.b] {
            vm.check("rmmod smc", patience).context("rmmod smc")?;
        }
        Ok(())
    })
}

/// fio's engine for RDMA (fio(1), ioengine=rdma; fio#2080). Its verb `send` is left out: it asks
/// for no retry after RNR and waits for no receive, so a sender that is faster than its receiver
/// fails on every device.
#[vm_test("vm-linux-fio", lab = Usual)]
fn fio(pair: &mut Pair) -> Result<()> {
    case(pair, |pair| {
        let patience = pair.patience(15);
        for (verb, size) in [("write", "64k"), ("read", "64k"), ("write", "1m")] {
            let common = format!("--name=r --ioengine=rdma --port=9999 --bs={size} --size=16m");
            let mut server = pair.a.spawn(&format!("exec fio {common} --rw=read --iodepth=16"))?;
            pair.a.wait_for_cm_listener(patience).context("fio does not listen")?;
            let client = format!("fio {common} --rw=write --hostname={} --verb={verb} --iodepth=8", IP[0]);
            let output = pair.b.exec(&client, patience)?;
            ensure!(
                output.success() && output.text().contains("err= 0"),
                "fio, verb {verb}: {:?} {}",
                output.exit,
                output.text()
            );
            let _ = server.has_ended()?;
            let output = server.wait(patience)?;
            ensure!(output.success(), "fio's server, verb {verb}: {:?} {}", output.exit, output.text());
        }
        Ok(())
    })
}
