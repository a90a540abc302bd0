//! A process that abuses the device, and must not disturb any other process.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrdma_lab::vm::Pair;
use vrdma_lab::watch::{Holdings, PingPong, counter};
use vrdma_vm_macros::vm_test;

/// Runs a hostile process in VM a for this many seconds, or longer on a slow kernel.
///
/// It writes garbage wherever it can. Its targets are QPs and memory of another process in its VM,
/// and of a process in VM b. These two play a checked ping-pong with each other.
///
/// Shows: hostile-guest.
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
    // Otherwise the hostile process had no effect, or the victims made no progress.
    let after = pair.backend()?.stats()?;
    for name in ["requests", "stray_requests", "invalid_requests", "broken_channels", "cq_overruns"] {
        let grown = counter(&after, "a", name)? - counter(&counters, "a", name)?;
        ensure!(grown > 0, "the hostile process made no {name}:\n{printed}");
    }
    ensure!(turns > 100, "the victims made {turns} turns only");
    before.expect_return(pair.backend()?, patience).context(printed)?;
    no_oops(pair)
}

/// Checks that the kernels found no fault. Messages about what the device reported are fine.
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
