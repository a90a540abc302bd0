//! iWARP where the netdev is in a network namespace.

use anyhow::{Context, Result, ensure};

use crate::vm::pair::IP;
use crate::vm::{Pair, Vm};
use crate::vmtest::watch::said;

const LISTENS: &str = "until rdma resource show cm_id | grep -q LISTEN; do sleep 0.05; done";
const ACTIVE: &str = "until rdma link show vrdma0/1 | grep -q 'state ACTIVE'; do sleep 0.1; done";
/// Where the netdev is put.
const INSIDE: &str = "ip netns exec c1";

/// VM a's netdev is in a network namespace of its own: addresses, routes and ports of connections of iWARP are those of that namespace, and come back with it.
pub fn namespace(pair: &mut Pair) -> Result<()> {
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
    pair.a.check(LISTENS, patience).with_context(|| said(&server))?;
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

/// A server of rping, and a client that asks for its VM's address; each a VM, what comes before the command, and an address of its own.
fn rping(pair: &Pair, server: (&Vm, &str, &str), client: (&Vm, &str, &str)) -> Result<()> {
    let patience = pair.patience(8);
    let (at, inside, address) = server;
    let serving = at.spawn(&format!("exec {inside} rping -s -a {address} -v -V -C 20"))?;
    at.check(LISTENS, patience).with_context(|| said(&serving))?;
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
