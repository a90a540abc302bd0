//! Traffic classes: what a program asks of rdma_cm stands in each packet of its connection.

use anyhow::{Context, Result, ensure};

use super::LISTENS;
use crate::capture;
use crate::paths;
use crate::vm::Pair;
use crate::vmtest::watch::said;

/// Assured forwarding of class 3 (RFC 2597), as perftest is told it: the whole octet.
const CLASS: u8 = 0x68;
const VLAN: &str = "10";
/// What the VLANs' netdevs make of all priorities of Linux.
const PRIORITY: &str = "3";
const PORT: u16 = 18_600;

/// perftest by rdma_cm, with a traffic class at both ends: outside VLANs, and in one whose netdev has a priority for it.
pub fn traffic_class(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(6);
    for (vm, host) in [(&pair.a, 1), (&pair.b, 2)] {
        let map: String = (0..8).map(|from| format!(" {from}:{PRIORITY}")).collect();
        let line = format!(
            "ip link add link eth0 name tagged type vlan id {VLAN} egress-qos-map{map} &&
            ip addr add 10.78.0.{host}/24 dev tagged && ip link set tagged up"
        );
        vm.check(&line, patience)?;
    }
    let is_iwarp = pair.is_iwarp();
    let file = pair.directory().join("traffic-class.pcap");
    let capture = pair.wire()?.capture_all("a", &file)?;
    let ran = ["10.77.0.1", "10.78.0.1"].iter().try_for_each(|address| perftest(pair, address));
    let file = capture.finish()?;
    ran?;
    // Of RoCE also what rdma_cm says by datagrams of QP 1.
    let filter = match is_iwarp {
        true => format!("tcp.port == {PORT}"),
        false => "infiniband".to_owned(),
    };
    let fields = ["ip.src", "ip.dsfield", "vlan.id", "vlan.priority"];
    let packets = capture::fields(&file, &filter, &fields)?;
    for host in [1, 2] {
        let untagged = format!("10.77.0.{host}\t0x{CLASS:02x}\t\t");
        let tagged = format!("10.78.0.{host}\t0x{CLASS:02x}\t{VLAN}\t{PRIORITY}");
        for wanted in [untagged, tagged] {
            let source = wanted.split('\t').next().unwrap_or_default();
            let of_it: Vec<&str> = packets.lines().filter(|line| line.starts_with(source)).collect();
            ensure!(of_it.len() > 10, "only {} packets of {source}", of_it.len());
            let others: Vec<&&str> = of_it.iter().filter(|line| **line != wanted).take(5).collect();
            ensure!(others.is_empty(), "packets that are not {wanted:?}: {others:?}");
        }
    }
    for vm in [&pair.a, &pair.b] {
        vm.check("ip link del tagged", patience)?;
    }
    paths::remove(&file)
}

fn perftest(pair: &Pair, address: &str) -> Result<()> {
    let patience = pair.patience(10);
    let program = format!("ib_write_bw -R -F -T {CLASS} -d vrdma0 -p {PORT} -n 20 -s 65536");
    let serving = pair.a.spawn(&format!("exec {program}"))?;
    pair.a.check(LISTENS, patience).with_context(|| said(&serving))?;
    let client = pair.b.exec(&format!("{program} {address}"), patience)?;
    ensure!(client.success(), "{program} {address}: {}\nthe server: {}", client.text(), said(&serving));
    let served = serving.wait(patience)?;
    ensure!(served.success(), "the server: {:?} {}", served.exit, served.text());
    Ok(())
}
