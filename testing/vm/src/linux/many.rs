//! As many connections by rdma_cm as a program may want.

use anyhow::{Context, Result, ensure};
use vrdma_lab::driver::begin_driver_of;
use vrdma_lab::vm::addresses::IP;
use vrdma_lab::vm::{Job, Output, Pair};
use vrdma_lab::watch::said;
use vrdma_vm_macros::vm_test;

use super::case::{case, rping_both_ways};

/// Eight thousand connections at once, and then a thousand of them ten times: what is left of
/// earlier ones is in nobody's way. Between the rounds a client is killed in the midst of
/// connecting.
///
/// libfabric#12673, librxe-dev#14.
#[vm_test("vm-linux-many-connections", lab = Usual, long)]
fn eight_thousand(pair: &mut Pair) -> Result<()> {
    // The daemon keeps for the next ones what it had to get for so many.
    connections(pair, 8000).context("the first time")?;
    case(pair, |pair| {
        connections(pair, 8000)?;
        killed_while_connecting(pair)?;
        (0..10).try_for_each(|round| connections(pair, 1000).with_context(|| format!("round {round}")))?;
        // A device's tables stay as large as they had to be, until its next driver.
        [&pair.a, &pair.b].into_iter().try_for_each(|vm| begin_driver_of(pair, vm))
    })
}

/// Twice as many connections of iWARP as a guest may have: the programs are told so, and what
/// listens goes on.
#[vm_test("vm-linux-many-connections-iwarp", lab = Iwarp, long)]
#[vm_test("vm-linux-many-connections-own-tcp", lab = IwarpOwnTcp, long)]
fn beyond_the_limit(pair: &mut Pair) -> Result<()> {
    connections_of_iwarp(pair, 400)?;
    let (mut server, client) = cmatose(pair, 2000)?;
    let output = pair.b.exec(&format!("timeout -s KILL 60 {client}"), pair.patience(60))?;
    ensure!(!output.success(), "2000 connections were made: {}", output.text());
    rping_both_ways(pair).context("while ucmatose still listens")?;
    // It waits for those that were refused.
    if !server.has_ended()? {
        server.signal(9)?;
    }
    server.wait(pair.patience(10))?;
    connections_of_iwarp(pair, 400).context("afterwards")
}

/// Starts ucmatose on VM a for so many connections; the command for VM b. (cmtime wants its port of
/// the kernel's TCP too, which with iWARP is one port space.)
fn cmatose(pair: &Pair, count: u32) -> Result<(Job, String)> {
    let line = format!("ucmatose -c {count} -C 1 -S 64 -p 18710");
    let server = pair.a.spawn(&format!("exec {line} -b {}", IP[0]))?;
    pair.a.wait_for_cm_listener(pair.patience(20)).context("ucmatose does not listen")?;
    Ok((server, format!("{line} -s {} -b {}", IP[0], IP[1])))
}

/// ucmatose between the VMs, with this many connections.
fn connections_of_iwarp(pair: &Pair, count: u32) -> Result<()> {
    let patience = pair.patience(10 + u64::from(count) / 10);
    let (server, client) = cmatose(pair, count)?;
    let output = pair.b.exec(&client, patience);
    let output = output.with_context(|| format!("ucmatose's server: {}", said(&server)))?;
    let is_well = |output: &Output| output.success() && output.text().contains("return status 0");
    ensure!(is_well(&output), "{client}: {:?} {}\nthe server: {}", output.exit, output.text(), said(&server));
    let served = server.wait(patience)?;
    ensure!(is_well(&served), "ucmatose's server: {:?} {}", served.exit, served.text());
    Ok(())
}

/// Until cmtime listens: by TCP, where it tells its peer what is next, last.
const LISTENS: &str = "until ss -ltn | grep -q :18710; do sleep 0.1; done";

/// The command of cmtime that listens on VM a, and the one that connects to it so often.
fn cmtime(count: u32) -> (String, String) {
    // On a machine that is emulated its usual time of two seconds says nothing about the peer.
    let line = format!("cmtime -c {count} -t 60000 -p 18710");
    (format!("{line} -b {}", IP[0]), format!("{line} -s {}", IP[0]))
}

/// cmtime between the VMs, with this many connections.
fn connections(pair: &Pair, count: u32) -> Result<()> {
    let patience = pair.patience(10 + u64::from(count) / 10);
    let (server, client) = cmtime(count);
    let mut server = pair.a.spawn(&format!("exec {server}"))?;
    pair.a.check(LISTENS, patience).context("cmtime does not listen")?;
    let output = pair.b.exec(&client, patience);
    let output = output.with_context(|| format!("cmtime's server: {}", said(&server)))?;
    ensure!(
        output.success() && output.text().contains("disconnect"),
        "{client}: {:?} {}\nthe server: {}",
        output.exit,
        output.text(),
        said(&server)
    );
    let _ = server.has_ended()?;
    let served = server.wait(patience)?;
    ensure!(served.success(), "cmtime's server: {:?} {}", served.exit, served.text());
    Ok(())
}

/// Both programs are killed while half of their connections are made.
fn killed_while_connecting(pair: &Pair) -> Result<()> {
    let patience = pair.patience(60);
    let (server, client) = cmtime(4000);
    let mut server = pair.a.spawn(&format!("exec {server}"))?;
    pair.a.check(LISTENS, patience).context("cmtime does not listen")?;
    let mut client = pair.b.spawn(&format!("exec {client}"))?;
    let some = "until [ $(rdma resource show qp | grep -c RTS) -gt 500 ]; do sleep 0.1; done";
    pair.b.check(some, patience).with_context(|| format!("none is connected: {}", said(&client)))?;
    for job in [&mut client, &mut server] {
        job.signal(9)?;
    }
    client.wait(patience)?;
    server.wait(patience).map(|_| ())
}
