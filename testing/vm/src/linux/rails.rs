//! Two RDMA devices in a VM, each with a netdev of its own.

use anyhow::{Context, Result, ensure};
use vrdma_lab::driver::begin_driver_of;
use vrdma_lab::vm::addresses::IP;
use vrdma_lab::vm::{Pair, Vm};
use vrdma_vm_macros::vm_test;

use super::case::{case, rping};

/// Addresses of the second netdevs.
const SECOND: [&str; 2] = ["10.78.0.1", "10.78.0.2"];

/// Each device belongs to the netdev with its MAC address, whatever order they come in; rdma_cm
/// takes the device of the address; those of one VM reach each other; and UCX shares a message
/// among them.
///
/// ucx#5598, ucx#9724.
#[vm_test("vm-linux-rails", lab = Rails, long)]
fn two_functions(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(6);
    for (index, vm) in [&pair.a, &pair.b].into_iter().enumerate() {
        let address = SECOND[index];
        // All netdevs are on one link, where Linux has each answer for all of its VM's addresses
        // unless told (ip-sysctl, arp_ignore).
        let one_each = "cd /proc/sys/net/ipv4/conf/all && echo 1 >arp_ignore && echo 2 >arp_announce";
        let second = format!("ip link set eth1 up && ip address replace {address}/24 dev eth1");
        vm.check(&format!("{one_each} && {second}"), patience)?;
        expect_pairs(pair, vm)?;
    }
    // Its messages leave the backend with caches as large.
    by_ucx(pair)?;
    case(pair, |pair| {
        let patience = pair.patience(6);
        on_both(pair)?;
        within(pair, &pair.a)?;
        // The devices come in the other order.
        let anew = "rmmod vrdma && echo 0 >/sys/bus/virtio/drivers_autoprobe && insmod /lib/vrdma/vrdma.ko || exit 1
            cd /sys/bus/virtio/devices
            for it in $(grep -l 0x0026 */device | sort -r); do echo ${it%/device} >/sys/bus/virtio/drivers/vrdma/bind; done
            echo 1 >/sys/bus/virtio/drivers_autoprobe";
        let before = pair.b.check("cat /sys/class/infiniband/vrdma0/node_guid", patience)?;
        pair.b.check(anew, patience)?;
        let after = pair.b.check("cat /sys/class/infiniband/vrdma0/node_guid", patience)?;
        ensure!(before != after, "vrdma0 is the same device as before: {after}");
        expect_pairs(pair, &pair.b)?;
        on_both(pair).context("in the other order")?;
        begin_driver_of(pair, &pair.b)?;
        on_both(pair).context("in the first order again")
    })
}

/// rping both ways on both networks.
fn on_both(pair: &Pair) -> Result<()> {
    for addresses in [IP, SECOND] {
        for (server, client, address) in [(&pair.a, &pair.b, addresses[0]), (&pair.b, &pair.a, addresses[1])]
        {
            rping(pair, server, address, client).with_context(|| format!("rping to {address}"))?;
        }
    }
    Ok(())
}

/// The GUID of a node is made of the device's MAC address; its first GID of its netdev's.
fn expect_pairs(pair: &Pair, vm: &Vm) -> Result<()> {
    let check = "for device in vrdma0 vrdma1; do
            cd /sys/class/infiniband/$device || exit 1
            until read -r netdev 2>/dev/null <ports/1/gid_attrs/ndevs/0; do sleep 0.05; done
            IFS=: read -r a b c d e f </sys/class/net/$netdev/address
            guid=$(cat node_guid)
            echo $device $netdev $guid $a:$b:$c:$d:$e:$f
            case $guid in *:*${c}ff:fe${d}:${e}${f}) ;; *) exit 1 ;; esac
        done";
    let said =
        vm.check(check, pair.patience(6)).context("a device belongs to another netdev than its own")?;
    ensure!(said.contains("eth0") && said.contains("eth1"), "two devices have one netdev:\n{said}");
    Ok(())
}

/// A program uses one device of a VM, and its peer in the same VM the other.
fn within(pair: &Pair, vm: &Vm) -> Result<()> {
    let patience = pair.patience(10);
    // Linux takes no answer of itself to a question that it sends by another netdev (ip-sysctl,
    // accept_local).
    for (address, at, from) in [(IP[0], "eth0", "eth1"), (SECOND[0], "eth1", "eth0")] {
        let neighbour = format!("ip neighbour replace {address} dev {from} nud permanent lladdr");
        vm.check(&format!("{neighbour} $(cat /sys/class/net/{at}/address)"), patience)?;
    }
    let index = |device: &str| -> Result<String> {
        let gids = format!("cd /sys/class/infiniband/{device}/ports/1/gids");
        let found = vm.check(&format!("{gids}; until grep -ls ffff:0a4 *; do sleep 0.1; done"), patience);
        let found = found.with_context(|| format!("{device} has no GID of an IPv4 address"))?;
        Ok(found.lines().next().unwrap_or_default().to_owned())
    };
    for (port, devices) in [(18760, ["vrdma0", "vrdma1"]), (18761, ["vrdma1", "vrdma0"])] {
        let line = |device| -> Result<String> {
            Ok(format!("ib_write_bw -F -s 65536 -n 50 -d {device} -x {} -p {port}", index(device)?))
        };
        let server = vm.spawn(&line(devices[0])?)?;
        vm.check(&format!("until ss -ltn | grep -q :{port}; do sleep 0.05; done"), patience)?;
        let client = vm.check(&format!("{} 127.0.0.1", line(devices[1])?), patience);
        client.with_context(|| format!("from {} to {}", devices[1], devices[0]))?;
        ensure!(server.wait(patience)?.success(), "the server on {}", devices[0]);
    }
    for address in [IP[0], SECOND[0]] {
        rping(pair, vm, address, vm).with_context(|| format!("the device of {address} with itself"))?;
    }
    Ok(())
}

/// UCX takes as many devices as it is told to for one large message.
fn by_ucx(pair: &Pair) -> Result<()> {
    let patience = pair.patience(20);
    // UCX 1.18 looks for the kind of a datagram's address where mlx5 alone has it; and it wants a
    // terminal.
    let line = "env UCX_UD_VERBS_ETH_DGID_CHECK=n UCX_NET_DEVICES=vrdma0:1,vrdma1:1 UCX_TLS=rc_verbs,ud_verbs \
        UCX_MAX_RNDV_RAILS=2 </dev/ptmx ucx_perftest -t tag_bw -s 4000000 -n 10 -w 1 -p 18765";
    let before = words(pair)?;
    let server = pair.a.spawn(line)?;
    pair.a.check("until ss -ltn | grep -q :18765; do sleep 0.05; done", patience)?;
    pair.b.check(&format!("{line} {}", IP[0]), patience).context("UCX with two devices")?;
    server.wait(patience)?;
    let grown: Vec<u64> = words(pair)?.iter().zip(&before).map(|(now, before)| now - before).collect();
    // Both shares together are ten messages.
    ensure!(
        grown.iter().all(|words| *words > 1_000_000),
        "words that each device of VM b has sent: {grown:?}"
    );
    Ok(())
}

/// How many words of four bytes the devices of VM b have sent.
fn words(pair: &Pair) -> Result<Vec<u64>> {
    let sent = pair
        .b
        .check("cat /sys/class/infiniband/vrdma[01]/ports/1/counters/port_xmit_data", pair.patience(3))?;
    sent.lines().map(|line| line.trim().parse().context("an odd counter")).collect()
}
