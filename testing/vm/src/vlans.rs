//! Two guests with the same address, each in a VLAN of its own.

use anyhow::{Context, Result, ensure};
use vrdma_lab::vm::addresses::VLAN_IP;
use vrdma_lab::vm::{Pair, Vm};
use vrdma_lab::watch::said;
use vrdma_vm_macros::vm_test;

/// The VLANs: of VM a and VM c. VM b is in both, each in a network namespace of its own, again with
/// the same address.
const VLANS: [u16; 2] = [10, 20];

/// Each of two guests reaches its own peer by ping and rping, and not that of the other.
#[vm_test("vm-vlans", lab = Vlans, long)]
#[vm_test("vm-vlans-two-hosts", lab = VlansTwoHosts, long)]
fn same_address(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(4);
    let c = pair.c.as_ref().context("there is no third VM")?;
    let guests = [(&pair.a, VLANS[0]), (c, VLANS[1])];
    for (guest, vlan) in guests {
        let link = format!("ip link add link eth0 name eth0.{vlan} type vlan id {vlan}");
        guest.check(&format!("{link} && ip address add {}/24 dev eth0.{vlan}", VLAN_IP[0]), patience)?;
        guest.check(&format!("ip link set eth0.{vlan} up"), patience)?;
        let inside = format!("ip -n v{vlan}");
        pair.b.check(
            &format!(
                "ip netns add v{vlan} && {link} && ip link set eth0.{vlan} netns v{vlan} && {inside} link set lo up &&
                {inside} address add {}/24 dev eth0.{vlan} && {inside} link set eth0.{vlan} up",
                VLAN_IP[1]
            ),
            patience,
        )?;
        for (vm, address) in [(guest, "0a58:0001"), (&pair.b, "0a58:0002")] {
            has_gid(pair, vm, address, vlan)?;
        }
    }
    for (guest, vlan) in guests {
        ping(pair, guest, true).with_context(|| format!("VLAN {vlan}"))?;
        rping(pair, guest, vlan, true).with_context(|| format!("VLAN {vlan}"))?;
    }
    // Without its own peer a guest reaches none, while the other goes on.
    for ((alone, vlan), (other, others_vlan)) in [(guests[0], guests[1]), (guests[1], guests[0])] {
        // The other's server is there, with the very address that it asks for.
        rping(pair, alone, others_vlan, false).with_context(|| format!("VLAN {vlan}"))?;
        pair.b.check(&format!("ip -n v{vlan} link set eth0.{vlan} down"), patience)?;
        ping(pair, alone, false).with_context(|| format!("VLAN {vlan} is down"))?;
        ping(pair, other, true).with_context(|| format!("VLAN {vlan} is down, {others_vlan} is up"))?;
        rping(pair, other, others_vlan, true).with_context(|| format!("VLAN {vlan} is down"))?;
        pair.b.check(&format!("ip -n v{vlan} link set eth0.{vlan} up"), patience)?;
        has_gid(pair, &pair.b, "0a58:0002", vlan)?;
    }
    Ok(())
}

/// Waits until a VM has the GID of an IPv4 address in a VLAN.
fn has_gid(pair: &Pair, vm: &Vm, address: &str, vlan: u16) -> Result<()> {
    let script = format!(
        "cd /sys/class/infiniband/vrdma0/ports/1
        until for gid in $(grep -ls ffff:{address} gids/*); do
                echo \"$(cat gid_attrs/ndevs/${{gid#gids/}} 2>/dev/null)\"
            done | grep -qx eth0.{vlan}; do sleep 0.1; done"
    );
    vm.check(&script, pair.patience(4))
        .map(|_| ())
        .with_context(|| format!("VM {}: no GID {address} of eth0.{vlan}", vm.name()))
}

fn ping(pair: &Pair, guest: &Vm, answered: bool) -> Result<()> {
    let line = format!("ping -c 3 -i 0.2 -W 20 {}", VLAN_IP[1]);
    let output = guest.exec(&line, pair.patience(4))?;
    ensure!(output.success() == answered, "VM {}: ping: {}", guest.name(), output.text());
    Ok(())
}

/// The server runs in that VLAN of VM b. A client that does not find it is told so.
fn rping(pair: &Pair, guest: &Vm, vlan: u16, found: bool) -> Result<()> {
    let patience = pair.patience(4);
    let inside = format!("ip netns exec v{vlan}");
    let mut server = pair.b.spawn(&format!("exec {inside} rping -s -a {} -v -C 10", VLAN_IP[1]))?;
    pair.b.wait_for_cm_listener(patience).with_context(|| said(&server))?;
    let client =
        guest.exec(&format!("rping -c -a {} -I {} -v -C 10", VLAN_IP[1], VLAN_IP[0]), pair.patience(8))?;
    ensure!(client.success() == found, "VM {}: rping: {:?} {}", guest.name(), client.exit, client.text());
    if found {
        let server = server.wait(patience)?;
        ensure!(server.success(), "the server: {:?} {}", server.exit, server.text());
        return Ok(());
    }
    ensure!(!server.has_ended()?, "the server of the other VLAN was reached: {}", said(&server));
    pair.b.check("pkill rping", patience)?;
    server.wait(patience).map(|_| ())
}
