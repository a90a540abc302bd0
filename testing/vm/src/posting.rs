//! How requests get to the device: of many QPs through one channel, without system calls, and when
//! everybody sleeps.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrdma_lab::vm::Pair;
use vrdma_lab::wait::{pause, until};
use vrdma_lab::watch::{counter, processor_time};
use vrdma_vm_macros::vm_test;

/// One process makes 4,000 QPs, connects them among themselves, and uses them in random order.
#[vm_test("vm-4000-qps", lab = Usual)]
fn four_thousand_qps(pair: &mut Pair) -> Result<()> {
    pair.a.check("vr-manyqps -d vrdma0 --local --qps 4000 --ops 20000", pair.patience(15))?;
    Ok(())
}

/// Requests on 1,000 QPs of one process through its one channel, to another VM and back: no
/// completion is lost or out of its QP's order.
#[vm_test("vm-one-channel", lab = Usual)]
fn one_channel(pair: &mut Pair) -> Result<()> {
    let command = "vr-manyqps -d vrdma0 -p 18900 --qps 1000 --ops 20000";
    let patience = pair.patience(15);
    let server = pair.a.spawn(command)?;
    pair.b.check(&format!("{command} 10.77.0.1"), patience)?;
    let output = server.wait(patience)?;
    ensure!(output.success(), "the server: {output:?}");
    Ok(())
}

/// How many system calls a run of `vr-ops` makes, by strace.
fn system_calls(pair: &Pair, arguments: &str) -> Result<i64> {
    let command = format!("strace -f -c -o /tmp/calls vr-ops -d vrdma0 {arguments} >&2; cat /tmp/calls");
    let table = pair.b.check(&command, pair.patience(10))?;
    let total = table.lines().find(|line| line.trim_end().ends_with(" total"));
    // % time, seconds, usecs/call, calls, and errors if there were any.
    let calls = total.and_then(|line| line.split_whitespace().nth(3)).and_then(|calls| calls.parse().ok());
    calls.with_context(|| format!("strace counted nothing:\n{table}"))
}

/// While the device polls, 10,000 operations are posted and polled for without a system call and
/// (almost) without a kick. The device's own kicks are counted in the same run.
#[vm_test("vm-no-system-calls", lab = Polling)]
fn no_system_calls(pair: &mut Pair) -> Result<()> {
    const OPERATIONS: u64 = 10_000;
    let few = system_calls(pair, "--local --count 1000")?;
    let before = pair.backend()?.stats()?;
    let many = system_calls(pair, &format!("--local --count {}", 1000 + OPERATIONS))?;
    let after = pair.backend()?.stats()?;
    ensure!((many - few).abs() <= 20, "1000 WRITEs took {few} system calls, 11000 took {many}");
    few_kicks(&before, &after, "b", OPERATIONS)?;

    // The same to the other VM, without strace.
    let patience = pair.patience(10);
    let server = pair.a.spawn("vr-ops -d vrdma0 -p 18910")?;
    let before = pair.backend()?.stats()?;
    pair.b.check(&format!("vr-ops -d vrdma0 -p 18910 -n {OPERATIONS} 10.77.0.1"), patience)?;
    let after = pair.backend()?.stats()?;
    few_kicks(&before, &after, "b", OPERATIONS)?;
    let output = server.wait(patience)?;
    ensure!(output.success(), "the server: {output:?}");
    Ok(())
}

fn few_kicks(
    before: &serde_json::Value,
    after: &serde_json::Value,
    guest: &str,
    operations: u64,
) -> Result<()> {
    let grown = |name| -> Result<u64> { Ok(counter(after, guest, name)? - counter(before, guest, name)?) };
    let (requests, kicks) = (grown("requests")?, grown("kicks")?);
    ensure!(requests >= operations, "{requests} requests arrived of {operations}");
    ensure!(kicks * 100 < requests, "{kicks} kicks for {requests} requests");
    Ok(())
}

/// With 100 idle QPs between the VMs the backend needs no processor; each of 1,000 single
/// operations after that wakes it.
#[vm_test("vm-sleep", lab = Usual)]
fn sleeping(pair: &mut Pair) -> Result<()> {
    const IDLE: Duration = Duration::from_secs(5);
    const WHY: &str = "processor time is compared: a busy machine gives less of it, not more";
    let patience = pair.patience(5);
    let server = pair.a.spawn("exec vr-idle -d vrdma0 -p 18920")?;
    let mut client =
        pair.b.spawn("exec vr-idle -d vrdma0 -p 18920 --qps 100 --ops 1000 --pause 20 10.77.0.1")?;
    client.wait_for("idle", patience)?;
    let backend = pair.backend()?;
    until("what it took to connect to end", patience, || {
        let before = processor_time(backend)?;
        pause(Duration::from_secs(1), WHY);
        let used = processor_time(backend)? - before;
        Ok(if used.is_zero() { Ok(()) } else { Err(format!("{used:?} of processor time in a second")) })
    })?;
    let before = (processor_time(backend)?, backend.stats()?);
    pause(IDLE, WHY);
    let used = processor_time(backend)? - before.0;
    ensure!(used < IDLE / 100, "asleep with 100 idle QPs, the backend used {used:?} in {IDLE:?}");

    client.write(b"go\n")?;
    // The pauses are 10 ms on average.
    let output = client.wait(Duration::from_secs(10) + pair.patience(10))?;
    ensure!(output.success(), "the client: {output:?}");
    let output = server.wait(patience)?;
    ensure!(output.success(), "the server: {output:?}");
    let after = pair.backend()?.stats()?;
    let kicks = counter(&after, "b", "kicks")? - counter(&before.1, "b", "kicks")?;
    ensure!(kicks >= 500, "only {kicks} kicks: the backend did not sleep between the operations");
    Ok(())
}
