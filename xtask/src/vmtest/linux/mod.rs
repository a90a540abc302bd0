//! The guest's Linux as people set it up: namespaces, names, addresses, users, other users of verbs
//! in the kernel.
//!
//! Each test stands for a public bug report of another RDMA device. Beside its own question it asks
//! what [`case`] asks of each.

mod addresses;
pub mod classes;
mod iommu;
pub mod many;
mod memory;
mod migration;
mod names;
mod namespaces;
pub mod netdevs;
mod pci;
mod places;
mod plug;
mod rails;
pub mod routes;
mod users;
pub mod verbs;

use anyhow::{Context, Result, ensure};

use super::cleanup::{begin_driver_of, wait_for_device};
use super::watch::{Holdings, said};
use super::{Lab, Needs, VmTest, on, storage};
use crate::vm::pair::IP;
use crate::vm::{Pair, Vm};

/// Those of VMs on one host. Those of a kind of pair stand together.
pub fn on_one_host() -> Vec<VmTest> {
    let test = |lab, name, run| on(lab, name, Needs::Rdma, run);
    vec![
        test(Lab::Usual, "vm-linux-mac", netdevs::other_mac),
        test(Lab::Usual, "vm-linux-upper", netdevs::upper_netdevs),
        test(Lab::Usual, "vm-linux-netns", namespaces::shared),
        test(Lab::Usual, "vm-linux-netns-exclusive", namespaces::exclusive),
        test(Lab::Usual, "vm-linux-renamed", names::renamed),
        test(Lab::Usual, "vm-linux-sysfs", places::in_sysfs),
        test(Lab::Usual, "vm-linux-qemu-migration", migration::over_rdma).long(),
        test(Lab::Usual, "vm-linux-link-local", addresses::link_local),
        test(Lab::Usual, "vm-linux-unprivileged", users::unprivileged),
        test(Lab::Usual, "vm-linux-last-wqe", verbs::last_wqe),
        test(Lab::Usual, "vm-linux-odd-regions", verbs::odd_regions),
        test(Lab::Usual, "vm-linux-private-data", verbs::private_data),
        test(Lab::Usual, "vm-linux-few-ports", verbs::few_ports),
        test(Lab::Usual, "vm-linux-answers", verbs::answers),
        test(Lab::Usual, "vm-linux-destroyed", verbs::destroyed),
        test(Lab::Usual, "vm-linux-many-connections", many::eight_thousand).long(),
        test(Lab::Usual, "vm-linux-srp", storage::srp),
        test(Lab::Usual, "vm-linux-moderation", storage::adaptive_moderation),
        test(Lab::Usual, "vm-linux-smc", users::smc),
        test(Lab::Usual, "vm-linux-fio", users::fio),
        test(Lab::Usual, "vm-linux-rebind", pci::rebound),
        test(Lab::Usual, "vm-linux-rescan", pci::removed),
        test(Lab::Usual, "vm-linux-pci-reset", pci::reset),
        test(Lab::Usual, "vm-linux-plug", plug::device),
        test(Lab::Usual, "vm-linux-memory", memory::plugged_in).long(),
        test(Lab::Usual, "vm-linux-memory-resized", memory::resized).long(),
        test(Lab::Rails, "vm-linux-rails", rails::two_functions).long(),
        test(Lab::Iommu, "vm-linux-iommu", iommu::passed_or_refused),
        test(Lab::OneChannel, "vm-linux-many-addresses", addresses::many),
    ]
}

/// Runs a case. Afterwards rping has to work both ways, no kernel may have found a fault, and the
/// backend has to hold as many objects as before.
fn case(pair: &mut Pair, work: impl FnOnce(&mut Pair) -> Result<()>) -> Result<()> {
    for vm in [&pair.a, &pair.b] {
        // A netdev that changes its namespace loses those that tests before gave it.
        vm.check("ip -6 addr flush dev eth0 scope global", pair.patience(2))?;
        begin_driver_of(pair, vm)?;
    }
    // The first use of anything may leave something in caches.
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

/// rping, which compares what comes back, with VM a and then VM b as server.
fn rping_both_ways(pair: &Pair) -> Result<()> {
    rping(pair, &pair.a, IP[0], &pair.b)?;
    rping(pair, &pair.b, IP[1], &pair.a)
}

/// rping between a server at an address and a client.
fn rping(pair: &Pair, server: &Vm, address: &str, client: &Vm) -> Result<()> {
    rping_in(pair, (server, "", address), (client, "", address))
}

/// rping between two VMs, where each command has words before it, as `ip netns exec NAME`, and each
/// VM has its own way to write the server's address.
fn rping_in(pair: &Pair, server: (&Vm, &str, &str), client: (&Vm, &str, &str)) -> Result<()> {
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

/// Writes a script into the directory that the VMs share with the host; the command that runs it.
fn python(pair: &Pair, name: &str) -> Result<String> {
    use crate::paths;
    let script = paths::workspace().join("xtask/checks").join(name);
    paths::write(&pair.share().join(name), paths::read(&script)?)?;
    Ok(format!("PYTHONUNBUFFERED=1 python3 -B /share/{name}"))
}
