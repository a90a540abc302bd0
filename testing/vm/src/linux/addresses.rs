//! Addresses: many, and link-local ones.

use anyhow::{Context, Result, ensure};
use vrdma_lab::vm::{Pair, Vm};
use vrdma_vm_macros::vm_test;

use super::case::{case, rping_in};

/// rdma_cm by link-local IPv6 addresses, whose scope each end names for itself.
///
/// RFC 4007; nccl#769.
#[vm_test("vm-linux-link-local", lab = Usual)]
fn link_local(pair: &mut Pair) -> Result<()> {
    case(pair, |pair| {
        let own = |vm: &Vm| -> Result<String> {
            let command = "ip -6 -br addr show dev eth0 scope link | grep -o 'fe80[^/]*'";
            Ok(vm.check(command, pair.patience(2))?.trim().to_owned())
        };
        for (server, client) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            let address = format!("{}%eth0", own(server)?);
            rping_in(pair, (server, "", &address), (client, "", &address))
                .with_context(|| format!("by {address}"))?;
            rping_in(pair, (server, "", "::"), (client, "", &address)).context("to a server at ::")?;
        }
        Ok(())
    })
}

/// The size of the GID table.
const TABLE: u32 = 128;
/// The part of an address in the tests' network that stands in a GID.
const NETWORK: &str = "0000:ffff:0a63:";

/// More addresses than the GID table has entries: it is full then, those in it work, and it is
/// whole when they are gone.
///
/// network-operator#580.
#[vm_test("vm-linux-many-addresses", lab = OneChannel)]
fn many(pair: &mut Pair) -> Result<()> {
    case(pair, |pair| {
        let patience = pair.patience(20);
        let gids = "/sys/class/infiniband/vrdma0/ports/1/gids";
        let zero = "0000:0000:0000:0000:0000:0000:0000:0000";
        let count = format!("cat {gids}/* 2>/dev/null | grep -cvx {zero}");
        let before = pair.b.check(&count, patience)?;
        pair.b
            .check("for i in $(seq 200); do ip addr add 10.99.0.$i/16 dev eth0 || exit 1; done", patience)?;
        let full = format!("until test $({count}) = {TABLE}; do sleep 0.1; done");
        pair.b.check(&full, patience).context("200 addresses do not fill the table")?;
        // Programs take the last entry as any other.
        pair.a.check("ip addr add 10.99.1.1/16 dev eth0", patience)?;
        wait_for_gid(pair, &pair.a, "0101")?;
        let index = TABLE - 1;
        pair.b.check(&format!("! grep -qx {zero} {gids}/{index}"), patience)?;
        let by_last = |port| -> Result<()> {
            let other = pair.a.check(&format!("grep -l {NETWORK}0101 {gids}/* 2>/dev/null"), patience)?;
            let other = other.trim().rsplit('/').next().unwrap_or_default().to_owned();
            let line = format!("ibv_rc_pingpong -d vrdma0 -p {port} -n 50");
            let mut server = pair.a.spawn(&format!("exec {line} -g {other}"))?;
            pair.a.check(&format!("until ss -ltn | grep -q :{port}; do sleep 0.1; done"), patience)?;
            pair.b.check(&format!("{line} -g {index} 10.77.0.1"), patience).context("by the last GID")?;
            let _ = server.has_ended()?;
            let output = server.wait(patience)?;
            ensure!(output.success(), "ibv_rc_pingpong's server: {:?} {}", output.exit, output.text());
            Ok(())
        };
        by_last(18620)?;
        for vm in [&pair.a, &pair.b] {
            vm.check("ip addr flush dev eth0 to 10.99.0.0/16", patience)?;
        }
        let same = format!("until test $({count}) = {}; do sleep 0.1; done", before.trim());
        pair.b.check(&same, patience).context("GIDs of addresses that are gone stay")?;
        // As an address comes and goes, entries are used again.
        for address in ["0201", "0202", "0203"] {
            let decimal = u32::from_str_radix(&address[2..], 16)?;
            pair.b.check(&format!("ip addr add 10.99.2.{decimal}/16 dev eth0"), patience)?;
            wait_for_gid(pair, &pair.b, address)?;
            pair.b.check("ip addr flush dev eth0 to 10.99.0.0/16", patience)?;
        }
        pair.b.check(&same, patience).context("GIDs of addresses that came later stay").map(|_| ())
    })
}

/// Waits until an address of the tests' network, by its last half in hexadecimal, is a GID.
fn wait_for_gid(pair: &Pair, vm: &Vm, half: &str) -> Result<()> {
    let seen = format!("grep -qs {NETWORK}{half} /sys/class/infiniband/vrdma0/ports/1/gids/*");
    vm.check(&format!("until {seen}; do sleep 0.05; done"), pair.patience(4))
        .with_context(|| format!("no GID of {NETWORK}{half}"))
        .map(|_| ())
}
