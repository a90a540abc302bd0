//! What the netdev is: in a network namespace, with another MAC address, below a bond or a macvlan.

use anyhow::{Context, Result, ensure};
use vrdma_lab::programs;
use vrdma_lab::vm::addresses::{IP, extra_mac, mac};
use vrdma_lab::vm::{Pair, Vm};
use vrdma_lab::watch::said;
use vrdma_vm_macros::vm_test;

const ACTIVE: &str = "until rdma link show vrdma0/1 | grep -q 'state ACTIVE'; do sleep 0.1; done";
/// Where the netdev is put.
const INSIDE: &str = "ip netns exec c1";

/// VM a's netdev is in a network namespace of its own: addresses, routes and ports of connections
/// of iWARP are those of that namespace, and come back with it.
#[vm_test("vm-linux-netns-iwarp", lab = Iwarp)]
#[vm_test("vm-linux-netns-iwarp-own-tcp", lab = IwarpOwnTcp)]
fn namespace(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(5);
    let ip = IP[0];
    pair.a.check(ACTIVE, patience)?;
    pair.b.check(ACTIVE, patience)?;
    pair.a.check(
        &format!(
            "ip netns add c1 && ip link set eth0 netns c1 && ip -n c1 link set lo up &&
            ip -n c1 addr add {ip}/24 dev eth0 && ip -n c1 link set eth0 up && {ACTIVE}"
        ),
        patience,
    )?;
    rping(pair, (&pair.a, INSIDE, ip), (&pair.b, "", "")).context("a server in the namespace")?;
    rping(pair, (&pair.b, "", IP[1]), (&pair.a, INSIDE, ip)).context("a client in the namespace")?;
    rping(pair, (&pair.a, INSIDE, "0.0.0.0"), (&pair.b, "", "")).context("a server at all its addresses")?;
    // The port is taken there, and free here.
    let server = pair.a.spawn(&format!("exec {INSIDE} rping -s -P -a {ip}"))?;
    pair.a.wait_for_cm_listener(patience).with_context(|| said(&server))?;
    let listen =
        |address: &str| format!("python3 -c 'import socket; socket.create_server((\"{address}\", 7174))'");
    let taken = pair.a.exec(&format!("{INSIDE} {}", listen(ip)), patience)?;
    let why = String::from_utf8_lossy(&taken.stderr);
    ensure!(why.contains("Address already in use"), "TCP may have the port, too: {why}");
    pair.a.check(&listen("0.0.0.0"), patience).context("the port of the other namespace")?;
    server.signal(9)?;
    server.wait(patience)?;
    pair.a.check(
        &format!(
            "ip netns del c1 && until ip link show eth0 2>/dev/null; do sleep 0.1; done &&
            ip addr add {ip}/24 dev eth0 && ip link set eth0 up && {ACTIVE}"
        ),
        patience,
    )?;
    rping(pair, (&pair.a, "", ip), (&pair.b, "", "")).context("after the namespace")?;
    rping(pair, (&pair.b, "", IP[1]), (&pair.a, "", ip)).context("after the namespace")
}

/// VM b's netdev gets the MAC address that the host allows beside its own: Ethernet goes on, RDMA
/// says in the log that it does not, has no GIDs, and binds and listens nowhere. With the first MAC
/// address it is back.
#[vm_test("vm-linux-mac", lab = Usual)]
#[vm_test("vm-linux-mac-two-hosts", lab = TwoHosts)]
#[vm_test("vm-linux-mac-iwarp", lab = IwarpOwnTcp)]
fn other_mac(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(6);
    let (ip, own, other) = (IP[1], mac(1), extra_mac(1));
    for vm in [&pair.a, &pair.b] {
        vm.check(ACTIVE, patience)?;
    }
    pair.b.check("dmesg --clear", patience)?;
    pair.b.check(&set_mac("eth0", &other), patience)?;
    ping(pair, ip)?;
    pair.b.check(NO_GIDS, patience).context("GIDs of a netdev with another MAC address")?;
    let listen = format!("timeout 20 rping -s -a {ip} -C 1; echo \"it ended with $?\"");
    let refused = pair.b.exec(&listen, pair.patience(20))?;
    let said = format!("{}{}", refused.text(), String::from_utf8_lossy(&refused.stderr));
    // 124: it listened until then.
    ensure!(!said.contains("ended with 0") && !said.contains("ended with 124"), "it listens there: {said}");
    if pair.b.exec("ibv_devinfo -d vrdma0 | grep -q iWARP", patience)?.success() {
        ensure!(said.contains("Cannot assign requested address"), "another refusal: {said}");
    }
    told_once(&pair.b, pair, "eth0", &other)?;
    pair.b.check(&set_mac("eth0", &own), patience)?;
    ping(pair, ip)?;
    both_ways(pair).context("with its own MAC address again")
}

/// An upper netdev with a MAC address of its own has no GIDs, and the device's netdev goes on. A
/// bond with that of the device has, and leaves the device its path MTU when it goes.
#[vm_test("vm-linux-upper", lab = Usual)]
#[vm_test("vm-linux-upper-two-hosts", lab = TwoHosts)]
fn upper_netdevs(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(6);
    let (ip, own, other) = (IP[1], mac(1), extra_mac(1));
    let mtu = pair.b.check(MTU, patience)?;
    pair.b.check("dmesg --clear", patience)?;
    let macvlan = format!(
        "ip link add mv0 link eth0 type macvlan mode bridge && ip link set mv0 address {other} &&
        ip addr add 10.77.1.2/24 dev mv0 && ip link set mv0 up"
    );
    pair.b.check(&macvlan, patience)?;
    told_once(&pair.b, pair, "mv0", &other)?;
    ensure!(!has_gid(pair, "0a4d:0102")?, "the address of a macvlan is a GID");
    both_ways(pair).context("beside a macvlan")?;
    pair.b.check("ip link del mv0", patience)?;
    pair.b.check(
        &format!(
            "ip addr flush dev eth0 && ip link add bond0 type bond mode active-backup miimon 100 &&
            ip link set eth0 down && ip link set eth0 master bond0 && ip link set bond0 up && ip addr add {ip}/24 dev bond0"
        ),
        patience,
    )?;
    wait_for_gid(pair).context("a bond with the MAC address of the device")?;
    both_ways(pair).context("with a bond")?;
    pair.b.check(&format!("ip link set bond0 address {other}"), patience)?;
    pair.b.check(NO_GIDS, patience).context("GIDs of a bond with another MAC address")?;
    ping(pair, ip)?;
    pair.b.check(&format!("ip link set bond0 address {own}"), patience)?;
    wait_for_gid(pair).context("a bond with the MAC address of the device again")?;
    ping(pair, ip)?;
    both_ways(pair).context("with a bond again")?;
    pair.b.check(
        &format!(
            "ip link del bond0 && ip link set eth0 address {own} && ip addr replace {ip}/24 dev eth0 && ip link set eth0 up"
        ),
        patience,
    )?;
    both_ways(pair).context("without a bond again")?;
    // The bond had a smaller one.
    let wait = format!("until test \"$({MTU})\" = '{}'; do sleep 0.1; done", mtu.trim_end());
    pair.b.check(&wait, patience).map(|_| ()).context("the port's MTU does not follow its netdev's")
}

/// The port's path MTU.
const MTU: &str = "ibv_devinfo -d vrdma0 | grep active_mtu";

/// Until all GIDs are zero.
const NO_GIDS: &str =
    "while cat /sys/class/infiniband/vrdma0/ports/1/gids/* 2>/dev/null | grep -q '[1-9a-f]' &&
    ! ibv_devinfo -d vrdma0 | grep -q iWARP; do sleep 0.1; done";

fn set_mac(netdev: &str, address: &str) -> String {
    format!("ip link set {netdev} down && ip link set {netdev} address {address} && ip link set {netdev} up")
}

/// VM a finds VM b at the MAC address that it has now.
fn ping(pair: &Pair, ip: &str) -> Result<()> {
    let line = format!("ip neigh flush dev eth0; ping -c 3 -i 0.2 -W 2 {ip}");
    pair.a.check(&line, pair.patience(4)).map(|_| ()).context("Ethernet")
}

/// The log says it of this netdev, with both addresses, and once.
fn told_once(vm: &Vm, pair: &Pair, netdev: &str, other: &str) -> Result<()> {
    let line = format!("no RDMA by addresses of {netdev}: its MAC address is {other}");
    let count =
        format!("until dmesg | grep -q '{line}'; do sleep 0.1; done; dmesg | grep -c '{line}.*extra-mac'");
    let count = vm.check(&count, pair.patience(6)).context("the log does not say it")?;
    ensure!(count.trim() == "1", "the log says it {} times", count.trim());
    Ok(())
}

fn has_gid(pair: &Pair, address: &str) -> Result<bool> {
    let found = format!("grep -qs ffff:{address} /sys/class/infiniband/vrdma0/ports/1/gids/*");
    Ok(pair.b.exec(&found, pair.patience(4))?.success())
}

/// Until VM b has the GID of its address.
fn wait_for_gid(pair: &Pair) -> Result<()> {
    let wait =
        "until grep -qs ffff:0a4d:0002 /sys/class/infiniband/vrdma0/ports/1/gids/*; do sleep 0.1; done";
    pair.b.check(wait, pair.patience(6)).map(|_| ())
}

/// By rdma_cm, and datagrams, from each VM to the other.
fn both_ways(pair: &Pair) -> Result<()> {
    let patience = pair.patience(8);
    let is_iwarp = pair.b.exec("ibv_devinfo -d vrdma0 | grep -q iWARP", patience)?.success();
    pair.b.check(ACTIVE, patience)?;
    if !is_iwarp {
        wait_for_gid(pair)?;
    }
    rping(pair, (&pair.a, "", IP[0]), (&pair.b, "", IP[1]))?;
    rping(pair, (&pair.b, "", IP[1]), (&pair.a, "", IP[0]))?;
    if is_iwarp {
        return Ok(());
    }
    for (server, client, address) in [(&pair.a, &pair.b, IP[0]), (&pair.b, &pair.a, IP[1])] {
        programs::perftest_by_cm(|attempt| {
            let program = format!("ib_send_bw -R -F -c UD -d vrdma0 -p {} -n 200 -s 1024", 18515 + attempt);
            let serving = server.spawn(&format!("exec {program}"))?;
            server.wait_for_cm_listener(patience).with_context(|| said(&serving))?;
            client.check(&format!("{program} {address}"), patience).with_context(|| said(&serving))?;
            let served = serving.wait(patience)?;
            ensure!(served.success(), "datagrams: {:?} {}", served.exit, served.text());
            Ok(())
        })?;
    }
    Ok(())
}

/// A server of rping, and a client that asks for its VM's address; each a VM, what comes before the
/// command, and an address of its own.
fn rping(pair: &Pair, server: (&Vm, &str, &str), client: (&Vm, &str, &str)) -> Result<()> {
    let patience = pair.patience(8);
    let (at, inside, address) = server;
    let serving = at.spawn(&format!("exec {inside} rping -s -a {address} -v -V -C 20"))?;
    at.wait_for_cm_listener(patience).with_context(|| said(&serving))?;
    let from = if client.2.is_empty() { String::new() } else { format!("-I {}", client.2) };
    let line = format!("{} rping -c -a {} {from} -v -V -C 20", client.1, IP[pair.index(at)]);
    let output = client.0.exec(&line, patience)?;
    ensure!(
        output.success(),
        "the client: {:?} {}{}\nthe server: {}",
        output.exit,
        output.text(),
        String::from_utf8_lossy(&output.stderr),
        said(&serving)
    );
    let served = serving.wait(patience)?;
    ensure!(served.success(), "the server: {:?} {}", served.exit, served.text());
    Ok(())
}
