//! Forged packets, which must change nothing, and which must be counted.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vrdma_conformance::lineup::{PathMtu, prepare};
use vrdma_lab::vm::addresses::{IP, mac};
use vrdma_lab::vm::wire::Namespace;
use vrdma_lab::vm::{Pair, Vm};
use vrdma_lab::wait::{pause, until};
use vrdma_lab::watch::{PingPong, counter};
use vrdma_lab::{paths, proc};
use vrdma_vm_macros::vm_test;

/// Packets of each kind.
const COUNT: u64 = 200;

/// Forges packets from a third host on the wire, to a QP of VM a that is connected to VM b.
///
/// Shows: forged.
#[vm_test("vm-forged-packets", lab = TwoHosts)]
fn packets(pair: &mut Pair) -> Result<()> {
    prepare(pair, PathMtu::Jumbo)?;
    let stranger = Namespace::new("stranger")?;
    let wire = pair.wire()?;
    wire.plug("stranger", &stranger, "eth0")?;
    // With learning on, the bridge would take this port for the peer, whose MAC address the forged
    // packets have. It would then send the peer's packets here.
    wire.namespace().run("ip link set dev stranger type bridge_slave learning off")?;
    let options = "--qps 1 --timeout 19 --announce /share/forged";
    let mut ping_pong = PingPong::start(pair, &pair.a, &pair.b, 21010, options, "--qps 1 --timeout 19")?;
    // The server's announcement contains a line `qp QPN QPN_OF_THE_PEER 0`.
    let announced = paths::read(&pair.share().join("forged"))?;
    let qpn = announced.lines().find_map(|line| line.strip_prefix("qp ")?.split(' ').next());
    let qpn = qpn.context("no QP was announced")?;

    let before = pair.backends()[0].stats()?;
    let script =
        format!("exec python3 -B /srv/forge.py eth0 {} {} {} {} {qpn} {COUNT}", mac(0), IP[0], mac(1), IP[1]);
    let checks = paths::workspace().join("testing/vm/checks");
    let command = proc::in_root(&paths::guest_root(), &[(&checks, "/srv")], &script);
    proc::run_logged("forge.py", stranger.enter(&command), &paths::log("forge")?, pair.patience(60))?;
    let patience = pair.patience(4);
    for (kind, counters) in [
        ("from a stranger's address", &["drop_source"][..]),
        ("with odd PSNs", &["duplicates", "out_of_sequence"]),
        ("with a wrong ICRC", &["icrc"]),
        ("to no QP", &["drop_no_qp"]),
        ("from the victim's own address", &["drop_spoofed"]),
        ("to an address that the victim has not", &["drop_no_device"]),
    ] {
        until(&format!("packets {kind} to be counted"), patience, || {
            let after = pair.backends()[0].stats()?;
            let grown: u64 = counters.iter().map(|name| sum(&after, name) - sum(&before, name)).sum();
            let few = || format!("{counters:?} grew by {grown} only\n{after:#}");
            Ok(if grown > COUNT / 2 { Ok(()) } else { Err(few()) })
        })?;
    }
    ping_pong.expect_running()?;
    let turns = ping_pong.finish(pair.patience(9)).with_context(|| {
        let stats: Vec<_> = pair.backends().iter().map(|backend| backend.stats()).collect();
        format!("beside forged packets; statistics: {stats:#?}")
    })?;
    ensure!(turns > 50, "the ping-pong made {turns} turns only");
    Ok(())
}

/// Sends frames from a MAC address that is not the guest's own. Nobody gets them.
///
/// Shows: forged.
#[vm_test("vm-spoofed-mac", lab = TwoHosts)]
fn mac_address(pair: &mut Pair) -> Result<()> {
    prepare(pair, PathMtu::Jumbo)?;
    let before = pair.backends()[1].stats()?;
    let patience = pair.patience(4);
    // 200 broadcast Ethernet frames with a local experimental EtherType.
    let script = format!(
        "python3 -c \"import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind((\\\"eth0\\\", 0)); \
         frame = bytes.fromhex(\\\"ffffffffffff\\\" + \\\"{}\\\" + \\\"88b5\\\") + bytes(64); \
         [s.send(frame) for _ in range(200)]\"",
        mac(0).replace(':', "")
    );
    let seen = |vm: &Vm| -> Result<u64> {
        let text = vm.check("cat /sys/class/net/eth0/statistics/rx_packets", patience)?;
        text.trim().parse().context("odd count of packets")
    };
    let received = seen(&pair.a)?;
    pair.b.check(&script, patience)?;
    let grown = until("200 spoofed frames to be counted", patience, || {
        let grown = sum(&pair.backends()[1].stats()?, "tx_spoofed") - sum(&before, "tx_spoofed");
        Ok(if grown >= 200 { Ok(grown) } else { Err(format!("there are {grown}")) })
    })?;
    ensure!(grown == 200, "tx_spoofed grew by {grown}, not 200");
    pause(Duration::from_millis(500), "VM a would get them in it; a busy machine gives it fewer, not more");
    let received = seen(&pair.a)? - received;
    ensure!(received < 100, "VM a got {received} frames");
    Ok(())
}

/// Gives a guest the address of another guest on its host.
///
/// The device refuses the GID, and the other guest is not disturbed.
///
/// Shows: forged.
#[vm_test("vm-spoofed-gid", lab = Usual)]
fn gid(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(4);
    let ping_pong = PingPong::start(pair, &pair.a, &pair.b, 21020, "--timeout 19", "--timeout 19")?;
    // By then the ping-pong's TCP connection has nothing more to send, not even a delayed
    // acknowledgement. VM b, which then has VM a's address, would deliver such a packet to itself.
    // An acknowledgement is delayed by at most a fifth of a second. Nothing reports that it was
    // sent.
    pause(Duration::from_secs(3), "fifteen times what it takes");
    let before = counter(&pair.backend()?.stats()?, "b", "refused_commands")?;
    let address = format!("{}/32 dev eth0", IP[0]);
    pair.b.check(&format!("ip address add {address}"), patience)?;
    until("the device to refuse the GID", patience, || {
        let now = counter(&pair.backend()?.stats()?, "b", "refused_commands")?;
        Ok(if now > before { Ok(()) } else { Err(format!("{now} commands were refused, as before")) })
    })?;
    // As a GID, the address is ::ffff:10.77.0.1.
    let taken = "cat /sys/class/infiniband/vrdma0/ports/1/gids/* 2>/dev/null | grep -c ffff:0a4d:0001";
    let taken = pair.b.exec(taken, patience)?.text();
    ensure!(taken.trim() == "0", "VM b has the GID of VM a");
    pause(Duration::from_secs(1), "the ping-pong would notice in it; a busy machine has it notice less");
    pair.b.check(&format!("ip address del {address}"), patience)?;
    let turns = ping_pong.finish(pair.patience(6)).context("while another had its address")?;
    ensure!(turns > 50, "the ping-pong made {turns} turns only");
    Ok(())
}

/// Returns the sum of all values that the statistics have for a counter's name.
fn sum(stats: &Value, name: &str) -> u64 {
    match stats {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| if key == name { value.as_u64().unwrap_or(0) } else { sum(value, name) })
            .sum(),
        Value::Array(values) => values.iter().map(|value| sum(value, name)).sum(),
        _ => 0,
    }
}
