//! Network namespaces, and RDMA devices that belong to one.

use anyhow::{Context, Result, ensure};
use vrdma_lab::vm::Pair;
use vrdma_lab::vm::addresses::IP;
use vrdma_vm_macros::vm_test;

use super::case::{case, rping_in};

/// Moves VM a's netdev into namespace `c1`, with its address.
const MOVE_NETDEV: &str = "ip link set eth0 netns c1 && ip -n c1 link set lo up && ip -n c1 link set eth0 up
    ip -n c1 addr add 10.77.0.1/24 dev eth0";

/// Ends namespace `c1`, and gives VM a's netdev its address again.
const END: &str = "ip netns del c1
    until test -e /sys/class/net/eth0; do sleep 0.05; done
    ip link set eth0 up && ip addr add 10.77.0.1/24 dev eth0
    until rdma link show vrdma0/1 | grep -q ACTIVE; do sleep 0.05; done
    until grep -qs 0000:ffff:0a4d:0001 /sys/class/infiniband/vrdma0/ports/1/gids/*; do sleep 0.05; done";

/// In the usual mode the device is seen everywhere, and a program in the netdev's namespace reaches
/// it.
///
/// The kinds of container plug-ins that move the netdev alone (k8s-rdma-shared-dev-plugin#84).
#[vm_test("vm-linux-netns", lab = Usual)]
fn shared(pair: &mut Pair) -> Result<()> {
    case(pair, |pair| {
        let patience = pair.patience(5);
        pair.a.check(&format!("ip netns add c1 && {MOVE_NETDEV}"), patience)?;
        wait_for_gid(pair, "")?;
        let inside = "ip netns exec c1";
        rping_in(pair, (&pair.a, inside, IP[0]), (&pair.b, "", IP[0])).context("the server inside")?;
        rping_in(pair, (&pair.b, "", IP[1]), (&pair.a, inside, IP[1])).context("the client inside")?;
        pair.a.check(END, patience).map(|_| ())
    })
}

/// In exclusive mode the device is seen in one namespace alone. It comes back when that ends, also
/// with a process in it.
///
/// rdma-system(8), rdma-dev(8); rdma-cni#37, gvisor#13124.
#[vm_test("vm-linux-netns-exclusive", lab = Usual)]
fn exclusive(pair: &mut Pair) -> Result<()> {
    case(pair, |pair| {
        let patience = pair.patience(6);
        let set_up = format!(
            "rdma system set netns exclusive && ip netns add c1 && rdma dev set vrdma0 netns c1 && {MOVE_NETDEV}"
        );
        pair.a.check(&set_up, patience)?;
        wait_for_gid(pair, "ip netns exec c1")?;
        let outside = pair.a.check("ibv_devices", patience)?;
        ensure!(!outside.contains("vrdma0"), "a device of another namespace is seen: {outside}");
        let inside = "ip netns exec c1";
        rping_in(pair, (&pair.a, inside, IP[0]), (&pair.b, "", IP[0])).context("the server inside")?;
        rping_in(pair, (&pair.b, "", IP[1]), (&pair.a, inside, IP[1])).context("the client inside")?;
        // To and fro.
        let moves = "ip netns attach home 1 && for round in $(seq 10); do
            ip netns exec c1 rdma dev set vrdma0 netns home && rdma dev set vrdma0 netns c1 || exit 1
        done && ip netns del home";
        pair.a.check(moves, patience).context("to and fro")?;
        // The namespace ends under a process that has the device open.
        let mut holder = pair.a.spawn("exec ip netns exec c1 ibv_asyncwatch -d vrdma0")?;
        holder.wait_for("vrdma0", patience)?;
        pair.a.check("ip netns del c1", patience)?;
        holder.signal(9)?;
        holder.wait(patience)?;
        pair.a.check("until rdma dev show vrdma0; do sleep 0.05; done 2>/dev/null", patience)?;
        pair.a.check(&END.replace("ip netns del c1", ""), patience)?;
        pair.a.check("rdma system set netns shared", patience).map(|_| ())
    })
}

/// Waits until VM a's address is a GID, as seen in a namespace.
fn wait_for_gid(pair: &Pair, prefix: &str) -> Result<()> {
    let seen = "sh -c 'grep -qs 0000:ffff:0a4d:0001 /sys/class/infiniband/vrdma0/ports/1/gids/*'";
    let command = format!("until {prefix} {seen}; do sleep 0.05; done");
    pair.a.check(&command, pair.patience(4)).context("10.77.0.1 is no GID").map(|_| ())
}
