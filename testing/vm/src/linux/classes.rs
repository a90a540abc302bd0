//! Traffic classes: each packet of a connection has the class that its program asked rdma_cm for.

use anyhow::{Context, Result, ensure};
use vrdma_conformance::capture;
use vrdma_lab::paths;
use vrdma_lab::programs;
use vrdma_lab::vm::Pair;
use vrdma_lab::vm::addresses::{IP, VLAN_IP};
use vrdma_lab::watch::said;
use vrdma_vm_macros::vm_test;

/// Assured forwarding of class 3 (RFC 2597). Programs take the whole octet.
const CLASS: u8 = 0x68;
/// RoCE packets with data say ECT(0) in the octet's lowest bits: their ends understand marks.
const CAPABLE: u8 = 2;
const VLAN: &str = "10";
/// The VLAN priority to which the VLANs' netdevs map all priorities of Linux.
const PRIORITY: &str = "3";
/// The payload of the capture's last frame, as bytes and as ping's argument.
const LAST: (&[u8], &str) = (b"end of capture", "656e64206f662063617074757265");
/// Each end has to send more packets with the class than this.
const PACKETS: usize = 5;

/// Runs a program that asks for a class, outside VLANs and in a VLAN whose netdev maps priorities.
///
/// perftest makes two connections, and asks for the class on one of them. Its server listens
/// without a class. RoCE's responses have the request's class, and iWARP's the listener's.
#[vm_test("vm-linux-tos-two-hosts", lab = TwoHosts)]
#[vm_test("vm-linux-tos-own-tcp", lab = IwarpOwnTcp)]
fn traffic_class(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(6);
    let map: String = (0..8).map(|from| format!(" {from}:{PRIORITY}")).collect();
    for (vm, address) in [&pair.a, &pair.b].into_iter().zip(VLAN_IP) {
        let line = format!(
            "ip link add link eth0 name tagged type vlan id {VLAN} egress-qos-map{map} &&
            ip addr add {address}/24 dev tagged && ip link set tagged up"
        );
        vm.check(&line, patience)?;
    }
    // Linux answers datagrams of QP 1, which rdma_cm uses to connect, without a class. The WRITEs
    // and their acknowledgements must have it.
    let (program, filter) = match pair.is_iwarp() {
        true => (by_private_data as fn(&Pair, &str) -> Result<()>, "tcp.port == 7190"),
        false => (by_perftest as fn(&Pair, &str) -> Result<()>, "infiniband.bth.opcode in {6..10,17}"),
    };
    let file = pair.directory().join("traffic-class.pcap");
    let capture = pair.wire()?.capture_all("a", &file)?;
    let ran = [IP[0], VLAN_IP[0]].into_iter().try_for_each(|address| program(pair, address));
    let marked = pair.a.check(&format!("ping -c 1 -W 5 -p {} {}", LAST.1, IP[1]), patience);
    let captured = marked.and_then(|_| capture.wait_for(LAST.0));
    let file = capture.finish()?;
    ran?;
    captured?;
    let fields = ["ip.src", "ip.dsfield", "vlan.id", "vlan.priority", "infiniband.bth.opcode"];
    let packets = capture::fields(&file, filter, &fields)?;
    for (address, in_vlan) in IP.into_iter().zip(VLAN_IP) {
        let of_data = if pair.is_iwarp() { CLASS } else { CLASS | CAPABLE };
        expect(&packets, address, of_data, "\t\t\t")?;
        expect(&packets, in_vlan, of_data, &format!("\t{VLAN}\t{PRIORITY}\t"))?;
    }
    for vm in [&pair.a, &pair.b] {
        vm.check("ip link del tagged", patience)?;
    }
    paths::remove(&file)
}

/// Checks that packets from an address have this class, and these fields behind it.
///
/// Acknowledgements (opcode 17) have [`CLASS`]. They may lack it and the fields, because perftest's
/// other connection sends some.
fn expect(packets: &str, address: &str, of_data: u8, behind: &str) -> Result<()> {
    let is_answer = |line: &str| line.ends_with("\t17");
    let is_right = |line: &str| {
        let class = if is_answer(line) { CLASS } else { of_data };
        line.starts_with(&format!("\t0x{class:02x}{behind}"))
    };
    let of_it: Vec<&str> = packets.lines().filter_map(|line| line.strip_prefix(address)).collect();
    let right = of_it.iter().filter(|line| is_right(line)).count();
    let wrong = of_it.iter().find(|line| !is_right(line) && !is_answer(line));
    ensure!(wrong.is_none(), "{address}: a packet is not 0x{of_data:02x}{behind:?}: {wrong:?}");
    ensure!(right > PACKETS, "{address}: only {right} of {} packets have class and fields", of_it.len());
    Ok(())
}

fn by_perftest(pair: &Pair, address: &str) -> Result<()> {
    programs::perftest_by_cm(|attempt| {
        let port = 18600 + attempt;
        let program = format!("ib_write_bw -R -F -T {CLASS} -d vrdma0 -p {port} -n 200 -s 65536");
        between(pair, &program, &format!("{program} {address}"))
    })
}

fn by_private_data(pair: &Pair, address: &str) -> Result<()> {
    let program = |role| format!("vr-private-data {role} {address} {CLASS}");
    between(pair, &program("server"), &program("client"))
}

fn between(pair: &Pair, server: &str, client: &str) -> Result<()> {
    let patience = pair.patience(20);
    let serving = pair.a.spawn(&format!("exec {server}"))?;
    pair.a.wait_for_cm_listener(patience).with_context(|| said(&serving))?;
    let asked = pair.b.exec(client, patience)?;
    let told = || format!("{}{}", asked.text(), String::from_utf8_lossy(&asked.stderr));
    ensure!(asked.success(), "{client}: {:?} {}\nthe server: {}", asked.exit, told(), said(&serving));
    let served = serving.wait(patience)?;
    ensure!(served.success(), "the server: {:?} {}", served.exit, served.text());
    Ok(())
}
