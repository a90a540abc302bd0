//! perftest in both directions, with very many QPs, and by processes that have no channel of their
//! own.

use anyhow::{Context, Result, ensure};
use vrdma_lab::device::Device;
use vrdma_lab::programs::{self, Program};
use vrdma_lab::vm::{Pair, Vm};
use vrdma_lab::watch::Holdings;
use vrdma_vm_macros::vm_test;

/// All of perftest that RC has, and what there is of shared receive queues and of XRC, with options
/// that change what the data path does.
const ALL: [&str; 25] = [
    "ib_write_bw -n 200",
    "ib_write_bw -n 200 -b -l 8",
    "ib_write_bw -n 50 -q 16 -s 1048576 -t 8",
    "ib_write_lat -n 100",
    "ib_write_lat -n 100 -s 64 -I 64",
    "ib_send_bw -n 200 -b",
    "ib_send_bw -n 100 -e",
    "ib_send_lat -n 100",
    "ib_send_lat -n 50 -e",
    "ib_send_bw -n 100 -q 8 --use-srq",
    "ib_send_bw -n 50 -q 8 --use-srq -e",
    // Of one QP, and no more messages than receives: what comes without one is lost.
    "ib_send_bw -n 50 --use-srq -c UC",
    "ib_send_bw -n 50 --use-srq -c UD -s 1024",
    "ib_read_bw -n 100 -b",
    "ib_read_lat -n 100",
    "ib_atomic_bw -n 100 -A FETCH_AND_ADD",
    "ib_atomic_bw -n 100 -A CMP_AND_SWAP",
    "ib_atomic_lat -n 100",
    "ib_send_bw -n 100 -c XRC",
    "ib_send_bw -n 50 -c XRC -q 4 -e",
    "ib_send_lat -n 100 -c XRC",
    "ib_write_bw -n 100 -c XRC -q 4",
    "ib_write_lat -n 100 -c XRC",
    "ib_read_bw -n 100 -c XRC",
    "ib_atomic_bw -n 100 -c XRC -A FETCH_AND_ADD",
];

/// What says most about the way that requests take.
const SOME: [&str; 9] = [
    "ib_write_bw -n 100",
    "ib_write_lat -n 50 -s 64 -I 64",
    "ib_write_bw -n 10 -q 64 -s 4096",
    "ib_send_bw -n 100 -b -l 4",
    "ib_send_lat -n 50 -e",
    "ib_send_bw -n 50 -q 4 --use-srq",
    "ib_read_lat -n 50",
    "ib_atomic_lat -n 50",
    "ib_send_lat -n 50 -c XRC",
];

fn run(pair: &Pair, server: &Vm, client: &Vm, program: &Program, port: u16) -> Result<()> {
    let printed = programs::start_between(pair, server, client, Device::Vrdma, program, port)?.wait()?;
    // The table's head; without a line behind it nothing was measured.
    let rows = printed.client.lines().skip_while(|line| !line.contains("#bytes")).skip(1);
    let measured = rows.filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit())).count();
    ensure!(measured > 0, "`{}` printed no result:\n{}", program.command, printed.client);
    Ok(())
}

/// VM a is the client; the demo has it the other way round.
#[vm_test("vm-perftest", lab = Usual, long)]
fn all(pair: &mut Pair) -> Result<()> {
    for (index, command) in ALL.iter().enumerate() {
        run(pair, &pair.b, &pair.a, &Program::perftest(command), 18800 + index as u16)?;
    }
    for (index, command) in SOME.iter().enumerate() {
        run(pair, &pair.a, &pair.b, &Program::perftest(command), 18850 + index as u16)?;
    }
    Ok(())
}

/// A thousand QPs of one process, to another VM.
#[vm_test("vm-1000-qps", lab = Usual)]
fn thousand_qps(pair: &mut Pair) -> Result<()> {
    let mut program = Program::perftest("ib_write_bw -q 1000 -n 5 -s 4096");
    program.seconds = 20;
    run(pair, &pair.a, &pair.b, &program, 18870)
}

/// Processes that want no channel post through the kernel's.
#[vm_test("vm-no-channel", lab = Usual)]
fn no_channel(pair: &mut Pair) -> Result<()> {
    for (index, command) in SOME.iter().enumerate() {
        let program = Program::perftest(&format!("env VRDMA_NO_CHANNEL=1 {command}"));
        run(pair, &pair.a, &pair.b, &program, 18880 + index as u16)?;
    }
    Ok(())
}

/// Processes that find the pool of channels empty, because another process in each VM has the only
/// one.
#[vm_test("vm-empty-pool", lab = OneChannel, long)]
fn empty_pool(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(5);
    let mut server = pair.a.spawn("exec vr-idle -d vrdma0 -p 18890")?;
    let mut client = pair.b.spawn("exec vr-idle -d vrdma0 -p 18890 --qps 4 --ops 50 10.77.0.1")?;
    client.wait_for("idle", patience)?;
    ensure_channels(pair, "before the programs")?;
    for (index, command) in SOME.iter().enumerate() {
        run(pair, &pair.b, &pair.a, &Program::perftest(command), 18891 + index as u16)?;
    }
    ensure_channels(pair, "after the programs")?;
    // The holders have really been there all the time.
    ensure!(!server.has_ended()? && !client.has_ended()?, "a process that held a channel ended");
    client.write(b"go\n")?;
    for (job, who) in [(client, "client"), (server, "server")] {
        let output = job.wait(patience)?;
        ensure!(output.success(), "the {who} that held a channel: {output:?}");
    }
    Ok(())
}

/// Kernel's and holder's: two in each VM.
fn ensure_channels(pair: &mut Pair, when: &str) -> Result<()> {
    let holdings = Holdings::of(pair.backend()?)?;
    for name in ["a.channels", "b.channels"] {
        let found = holdings.objects.iter().find(|(kind, _)| kind == name).context("no count of channels")?;
        ensure!(found.1 == 2, "{name} is {} {when}, not 2", found.1);
    }
    Ok(())
}
