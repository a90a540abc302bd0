//! A process that abuses the device hurts nobody else.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrdma_lab::vm::Pair;
use vrdma_lab::watch::{Holdings, PingPong, counter};
use vrdma_vm_macros::vm_test;

/// For this many seconds, a process of VM a writes garbage wherever it can. On a slow kernel it
/// takes longer. It aims at the QPs and memory of another process in its VM and of VM b, which play
/// a checked ping-pong with each other.
#[vm_test("vm-hostile-process", lab = Usual, args(15))]
#[vm_test("vm-hostile-process-long", lab = Usual, long, args(120))]
fn process(pair: &mut Pair, seconds: u64) -> Result<()> {
    let seconds = seconds * u64::from(pair.kernel().slowness());
    let patience = pair.patience(5);
    let before = Holdings::settled(pair.backend()?, patience)?;
    let victims = PingPong::start(
        pair,
        &pair.a,
        &pair.b,
        18930,
        "--events --announce /share/victim-a",
        "--events --qps 8 --announce /share/victim-b",
    )?;
    let counters = pair.backend()?.stats()?;
    let hostile = format!("vr-hostile -d vrdma0 -s {seconds} --victims /share/victim-a,/share/victim-b");
    let printed = pair.a.check(&hostile, Duration::from_secs(seconds) + pair.patience(5))?;
    let turns = victims.finish(pair.patience(5)).with_context(|| printed.clone())?;
    // It must have been able to do something, and so must the victims.
    let after = pair.backend()?.stats()?;
    for name in ["requests", "stray_requests", "invalid_requests", "broken_channels", "cq_overruns"] {
        let grown = counter(&after, "a", name)? - counter(&counters, "a", name)?;
        ensure!(grown > 0, "the hostile process made no {name}:\n{printed}");
    }
    ensure!(turns > 100, "the victims made {turns} turns only");
    before.expect_return(pair.backend()?, patience).context(printed)?;
    no_oops(pair)
}

/// The kernels have nothing to complain of but what the device told them.
fn no_oops(pair: &Pair) -> Result<()> {
    for vm in [&pair.a, &pair.b] {
        let faults = vm.exec(
            "dmesg | grep -E '\\bBUG\\b|WARNING|Oops|Call Trace|general protection'",
            pair.patience(2),
        )?;
        ensure!(faults.stdout.is_empty(), "VM {}'s kernel: {}", vm.name(), faults.text());
    }
    Ok(())
}
