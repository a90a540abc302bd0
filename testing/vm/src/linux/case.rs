//! Checks that each case of the guest's Linux makes, besides its own.

use anyhow::{Context, Result, ensure};
use vrdma_lab::driver::begin_driver_of;
use vrdma_lab::paths;
use vrdma_lab::vm::addresses::IP;
use vrdma_lab::vm::{Pair, Vm};
use vrdma_lab::watch::{Holdings, said};

/// Runs a case.
///
/// Afterwards rping has to work in both directions, and no kernel may have found a fault. The
/// backend has to hold as many objects as before.
pub fn case(pair: &mut Pair, work: impl FnOnce(&mut Pair) -> Result<()>) -> Result<()> {
    for vm in [&pair.a, &pair.b] {
        // A netdev that changes its namespace loses the addresses that earlier tests gave it.
        vm.check("ip -6 addr flush dev eth0 scope global", pair.patience(2))?;
        begin_driver_of(pair, vm)?;
    }
    // The first use of an object may fill caches.
    rping_both_ways(pair).context("before the case")?;
    let patience = pair.patience(5);
    let before = Holdings::settled(pair.backend()?, patience)?;
    let before = ["a", "b", "a2", "b2"].into_iter().fold(before, Holdings::with_new_driver);
    work(pair)?;
    rping_both_ways(pair).context("after the case")?;
    for vm in [&pair.a, &pair.b] {
        let faults = ["WARNING:", "BUG:", "Oops", "blocked for more than", "refcount_t"];
        let words = faults.map(|word| format!("-e '{word}'")).join(" ");
        vm.check(&format!("! dmesg | grep -A 20 {words}"), patience).context("a kernel found a fault")?;
    }
    before.expect_return(pair.backend()?, patience)
}

/// Runs rping, which compares what comes back, with VM a and then VM b as server.
pub fn rping_both_ways(pair: &Pair) -> Result<()> {
    rping(pair, &pair.a, IP[0], &pair.b)?;
    rping(pair, &pair.b, IP[1], &pair.a)
}

/// Runs rping between a server at an address and a client.
pub fn rping(pair: &Pair, server: &Vm, address: &str, client: &Vm) -> Result<()> {
    rping_in(pair, (server, "", address), (client, "", address))
}

/// Runs rping between two VMs.
///
/// Each side is a VM, a prefix of its command, e.g. `ip netns exec NAME`, and the server's address
/// in that VM's notation.
pub fn rping_in(pair: &Pair, server: (&Vm, &str, &str), client: (&Vm, &str, &str)) -> Result<()> {
    let (at, prefix, address) = server;
    let mut serving = at.spawn(&format!("exec {prefix} rping -s -a {address} -v -V -C 20"))?;
    at.wait_for_cm_listener_in(prefix, pair.patience(4))
        .with_context(|| format!("rping does not listen: {}", said(&serving)))?;
    let (at, prefix, address) = client;
    let output = at.exec(&format!("{prefix} rping -c -a {address} -v -V -C 20"), pair.patience(6));
    let output = output.with_context(|| format!("the server: {}", said(&serving)))?;
    ensure!(
        output.success() && output.text().contains("ping data"),
        "rping's client: {:?} {}",
        output.exit,
        output.text()
    );
    let _ = serving.has_ended()?;
    let served = serving.wait(pair.patience(4))?;
    ensure!(served.success(), "rping's server: {:?} {}", served.exit, served.text());
    Ok(())
}

/// Copies a script into the VMs' shared directory, and returns the command that runs it.
pub fn python(pair: &Pair, name: &str) -> Result<String> {
    let script = paths::workspace().join("testing/vm/checks").join(name);
    paths::write(&pair.share().join(name), paths::read(&script)?)?;
    Ok(format!("PYTHONUNBUFFERED=1 python3 -B /share/{name}"))
}
