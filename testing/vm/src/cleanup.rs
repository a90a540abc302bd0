//! Whatever ends in the middle of its work gives everything back, its peer is told, and others
//! notice nothing.

use anyhow::{Context, Result, ensure};
use vrdma_lab::driver::{begin_driver_anew, wait_for_device};
use vrdma_lab::third::ThirdGuest;
use vrdma_lab::vm::{Job, Pair};
use vrdma_lab::watch::{Holdings, said};
use vrdma_vm_macros::vm_test;

/// Options of a ping-pong whose end comes early: large messages on several QPs, and QPs that give
/// up soon.
const VICTIM: &str = "--events --qps 8 --size 100000 --timeout 12";
/// Options of its peer.
const PEER: &str = "--events --expect-error --timeout 12";

/// VM b's driver during a disturbance.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Driver {
    GoesOn,
    BeginsAnew,
}

/// Does something to VM b while VM a plays ping-pong with a third guest, and looks whether the
/// backend has as much as before.
fn beside_ping_pong(
    pair: &mut Pair,
    driver: Driver,
    disturb: impl FnOnce(&mut Pair) -> Result<()>,
) -> Result<()> {
    if driver == Driver::BeginsAnew {
        begin_driver_anew(pair)?;
        // As a VM that is reset has it: without the addresses that tests before this one added.
        pair.b.check("ip -6 address flush dev eth0 scope global", pair.patience(2))?;
    }
    // The first use of anything may leave something in caches.
    let (victim, peer) = interruptible(pair, 18940)?;
    let patience = pair.patience(5);
    victim.signal(9)?;
    victim.wait(patience).context("a process that is killed does not end")?;
    expect_error(pair, peer, "in the first round")?;

    let mut before = Holdings::settled(pair.backend()?, patience)?;
    if driver == Driver::BeginsAnew {
        before = before.with_new_driver("b");
    }
    let mut beside = ThirdGuest::start(pair)?;
    disturb(pair)?;
    beside.expect_running().context("the ping-pong beside")?;
    let turns = beside.finish(pair.patience(9));
    let turns = turns.with_context(|| format!("the ping-pong beside: {}", stats(pair)))?;
    ensure!(turns > 20, "the ping-pong beside made {turns} turns only");
    before.expect_return(pair.backend()?, patience)
}

/// The backend's counters, for an error message.
fn stats(pair: &mut Pair) -> String {
    let stats = pair.backend().and_then(|backend| backend.stats());
    stats.map_or_else(|error| format!("{error:#}"), |stats| stats.to_string())
}

/// A ping-pong between VM b (first) and VM a, in full swing.
fn interruptible(pair: &Pair, port: u16) -> Result<(Job, Job)> {
    let mut peer = pair.a.spawn(&format!("exec vr-pingpong -d vrdma0 -p {port} {PEER}"))?;
    let mut victim =
        pair.b.spawn(&format!("exec vr-pingpong -d vrdma0 -p {port} -s 0 {VICTIM} 10.77.0.1"))?;
    victim.wait_for("running", pair.patience(5)).with_context(|| said(&peer))?;
    peer.wait_for("running", pair.patience(2))?;
    Ok((victim, peer))
}

/// The peer of something that has ended got a completion that says so, and all the rest in order.
fn expect_error(pair: &Pair, peer: Job, when: &str) -> Result<()> {
    let output = peer.wait(pair.patience(5)).with_context(|| format!("the peer {when}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.success(), "the peer {when}: {:?} {} {said}", output.exit, output.text());
    Ok(())
}

/// In each round, two processes are killed in the middle of a transfer.
#[vm_test("vm-clean-up-kill-9", lab = Usual, disturbs, args(4))]
#[vm_test("vm-clean-up-kill-9-often", lab = Usual, long, disturbs, args(25))]
fn kill_processes(pair: &mut Pair, rounds: u32) -> Result<()> {
    beside_ping_pong(pair, Driver::GoesOn, |pair| {
        // Two at a time; each loop is one command, as starting one takes its time too.
        let jobs = (0..2).map(|lane| {
            let port = 18942 + lane;
            let peers = format!(
                "for round in $(seq {rounds}); do
                     vr-pingpong -d vrdma0 -p {port} {PEER} || {{ echo in round $round; exit 1; }}
                 done"
            );
            let victims = format!(
                "for round in $(seq {rounds}); do
                     rm -f /tmp/victim{lane}
                     vr-pingpong -d vrdma0 -p {port} -s 0 {VICTIM} 10.77.0.1 >/tmp/victim{lane} &
                     until grep -qs running /tmp/victim{lane}; do
                         kill -0 $! || {{ echo ended by itself in round $round; exit 1; }}
                         sleep 0.02
                     done
                     sleep 0.0$((RANDOM % 10))
                     kill -9 $! && wait $!
                     [ $? = 137 ] || {{ echo not killed in round $round; exit 1; }}
                 done 2>&1"
            );
            Ok((pair.a.spawn(&peers)?, pair.b.spawn(&format!("bash -c '{victims}'"))?))
        });
        for (index, lane) in jobs.collect::<Result<Vec<_>>>()?.into_iter().enumerate() {
            let patience = pair.patience(u64::from(rounds));
            for (job, who) in [(lane.1, "victims"), (lane.0, "peers")] {
                let output = job.wait(patience)?;
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                ensure!(output.success(), "{who} {index}: {:?} {} {said}", output.exit, output.text());
            }
        }
        Ok(())
    })
}

/// In each round, the driver is removed under a process that uses it, and comes back.
#[vm_test("vm-clean-up-rmmod", lab = Usual, disturbs, args(4))]
#[vm_test("vm-clean-up-rmmod-often", lab = Usual, long, disturbs, args(30))]
fn remove_driver(pair: &mut Pair, rounds: u32) -> Result<()> {
    beside_ping_pong(pair, Driver::BeginsAnew, |pair| {
        for round in 0..rounds {
            let (victim, peer) = interruptible(pair, 18950)?;
            pair.b.check("rmmod vrdma", pair.patience(3))?;
            expect_error(pair, peer, &format!("after rmmod {round}"))?;
            // Its device is gone, so it can only be killed.
            drop(victim);
            pair.b.check("insmod /lib/vrdma/vrdma.ko", pair.patience(3))?;
            wait_for_device(pair)?;
        }
        Ok(())
    })
}

/// Three times a VM is reset.
#[vm_test("vm-clean-up-reset", lab = Usual, long, disturbs)]
fn reset_vm(pair: &mut Pair) -> Result<()> {
    beside_ping_pong(pair, Driver::BeginsAnew, |pair| {
        for round in 0..3 {
            let (victim, peer) = interruptible(pair, 18960)?;
            pair.b.reset()?;
            drop(victim);
            expect_error(pair, peer, &format!("after reset {round}"))?;
            wait_for_device(pair)?;
        }
        let (victim, peer) = interruptible(pair, 18961)?;
        drop(victim);
        expect_error(pair, peer, "after all resets")
    })
}

/// A VM's QEMU is killed, and the VM booted again.
#[vm_test("vm-clean-up-qemu", lab = Usual, disturbs)]
fn killed_vm(pair: &mut Pair) -> Result<()> {
    beside_ping_pong(pair, Driver::BeginsAnew, |pair| {
        let (victim, peer) = interruptible(pair, 18970)?;
        pair.b.kill()?;
        drop(victim);
        expect_error(pair, peer, "after QEMU was killed")?;
        let objects = Holdings::of(pair.backend()?)?.objects;
        let left: Vec<_> = objects.iter().filter(|(kind, n)| kind.starts_with("b.") && *n > 0).collect();
        ensure!(left.is_empty(), "of a VM that is gone the backend still has {left:?}");
        pair.reboot("b")?;
        wait_for_device(pair)?;
        let (victim, peer) = interruptible(pair, 18971)?;
        drop(victim);
        expect_error(pair, peer, "after the reboot")
    })
}
