//! The demos' programs between two VMs: on one host, on two hosts, and with rdma_rxe at one end.
//! Also what happens if a cable is pulled.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrdma_conformance::capture;
use vrdma_conformance::demo::{self, DemoRound};
use vrdma_conformance::lineup::{IpFamily, PathMtu, Sizes, prepare};
use vrdma_lab::paths;
use vrdma_lab::vm::{Job, Pair};
use vrdma_lab::wait::{pause, until};
use vrdma_lab::watch::{PingPong, said};
use vrdma_vm_macros::vm_test;

/// Rounds that cover each pair of role, path MTU and address family, though not all combinations.
const PAIRINGS: &[DemoRound] = &[
    (PathMtu::Jumbo, 0, IpFamily::V4, Sizes::One),
    (PathMtu::Jumbo, 1, IpFamily::V6, Sizes::One),
    (PathMtu::Usual, 0, IpFamily::V6, Sizes::One),
    (PathMtu::Usual, 1, IpFamily::V4, Sizes::One),
];

/// The shortened demo on one host. Each role, path MTU and address family occurs once.
const ON_ONE_HOST: &[DemoRound] =
    &[(PathMtu::Usual, 0, IpFamily::V6, Sizes::One), (PathMtu::Jumbo, 1, IpFamily::V4, Sizes::One)];

/// The shortened demo between hosts. Each role, path MTU and address family occurs once.
const BETWEEN_HOSTS: &[DemoRound] =
    &[(PathMtu::Jumbo, 0, IpFamily::V4, Sizes::One), (PathMtu::Usual, 1, IpFamily::V6, Sizes::One)];

/// Runs the shortened demo on one host, which needs no packets.
///
/// The short form has one direction, path MTU and address family. The long form has each of them
/// once.
///
/// Shows: programs.
#[vm_test("vm-same-host", lab = Usual, args(&ON_ONE_HOST[..1]))]
#[vm_test("vm-same-host-all", lab = Usual, long, args(ON_ONE_HOST))]
fn same_host(pair: &mut Pair, rounds: &[DemoRound]) -> Result<()> {
    demo::go_through(pair, rounds, &mut |_| {}).map(|_| ())
}

/// Runs the shortened demo between two hosts, and with rdma_rxe at one end or both.
///
/// `vm-rxe` tests the lab itself. The packets on the wire are captured in the file and checked.
///
/// Shows: programs, shared-receives.
#[vm_test("vm-two-hosts", lab = TwoHosts, args(&BETWEEN_HOSTS[..1], "two-hosts.pcap"))]
#[vm_test("vm-two-hosts-all", lab = TwoHosts, long, args(BETWEEN_HOSTS, "two-hosts-all.pcap"))]
#[vm_test("vm-interop", lab = Interop, args(&BETWEEN_HOSTS[1..], "interop.pcap"))]
#[vm_test("vm-interop-all", lab = Interop, long, args(PAIRINGS, "interop-all.pcap"))]
#[vm_test("vm-rxe", lab = Rxe, needs = Vms, long, args(&BETWEEN_HOSTS[..1], "rxe.pcap"))]
fn captured(pair: &mut Pair, rounds: &[DemoRound], file: &str) -> Result<()> {
    let capture = pair.wire()?.capture("a", &pair.directory().join(file))?;
    let result = demo::go_through(pair, rounds, &mut |_| {});
    let file = capture.finish()?;
    let checked = capture::check(&file);
    result?;
    ensure!(checked?.packets > 500, "hardly a packet passed the wire");
    // The file is large. It is kept only if it has a fault.
    paths::remove(&file)
}

/// Takes VM a's host off the wire during a checked ping-pong, and connects it again.
///
/// Nothing is lost, and the guest sees its port go down and up. TCP continues, too.
///
/// Shows: link-loss.
#[vm_test("vm-link-flap", lab = TwoHosts, disturbs)]
fn link_flap(pair: &mut Pair) -> Result<()> {
    prepare(pair, PathMtu::Jumbo)?;
    let patience = pair.patience(6);
    // veth reports this rate.
    let rate = "grep -q '^10 Gb/sec' /sys/class/infiniband/vrdma0/ports/1/rate";
    pair.a.check(rate, patience).context("the port is not as fast as the uplink")?;
    let mut watch = pair.a.spawn("exec ibv_asyncwatch -d vrdma0")?;
    let server = pair.b.spawn("exec iperf3 -s -1 -p 21001")?;
    // The ACK timeout is 4.096 us * 2^19 = 2.1 s, eight times. The cable is out for far less.
    let patient = "--timeout 19 --qps 4 --size 100000 --stall 60";
    let ping_pong = PingPong::start(pair, &pair.a, &pair.b, 21000, patient, patient)?;
    pair.b.check("until ss -ltn | grep -q :21001; do sleep 0.1; done", patience)?;
    // iperf3 runs until the test ends it.
    let mut tcp = pair.a.spawn("exec iperf3 --forceflush -c 10.77.0.2 -p 21001 -t 3600 -i 1")?;
    let seconds_of_tcp = expect_seconds(&mut tcp, 0, 2, patience)?;

    for _ in 0..2 {
        pair.wire()?.set_link("a", false)?;
        port_is(pair, "DOWN")?;
        port_is(pair, "POLLING")?;
        pause(
            Duration::from_secs(1),
            "how long the cable is out, at least; both wait for longer than a busy machine makes of it",
        );
        pair.wire()?.set_link("a", true)?;
        port_is(pair, "ACTIVE")?;
        pause(Duration::from_secs(1), "something passes in it, or later");
    }
    let turns = ping_pong.finish(pair.patience(6)).context("after the cable was back")?;
    ensure!(turns > 50, "the ping-pong made {turns} turns only");
    for event in ["IBV_EVENT_PORT_ERR", "IBV_EVENT_PORT_ACTIVE"] {
        watch.wait_for(event, patience).with_context(|| format!("no event: {}", said(&watch)))?;
    }
    // TCP waits for a while before it retransmits.
    let since = seconds(&tcp).max(seconds_of_tcp);
    expect_seconds(&mut tcp, since, 5, patience).context("TCP after the cable was back")?;
    ensure!(!tcp.has_ended()?, "iperf3 ended: {}", said(&tcp));
    drop((tcp, server));
    Ok(())
}

/// Returns how many of iperf3's lines so far report data.
///
/// A line is `[ 5] 11.00-12.00 sec 1.2 MBytes ...`.
fn seconds(tcp: &Job) -> usize {
    let text = tcp.so_far().text();
    text.lines().filter(|line| line.contains("Bytes") && !line.contains(" 0.00 Bytes ")).count()
}

/// Waits until iperf3 has reported data in `more` seconds after `before`. Returns the new number.
fn expect_seconds(tcp: &mut Job, before: usize, more: usize, patience: Duration) -> Result<usize> {
    until(&format!("{more} seconds in which something passes"), patience, || {
        ensure!(!tcp.has_ended()?, "iperf3 ended: {}", said(tcp));
        let now = seconds(tcp);
        Ok(if now >= before + more { Ok(now) } else { Err(said(tcp)) })
    })
}

/// Takes VM a's host off the wire for longer than a QP retransmits.
///
/// Both ends get errors, and all outstanding requests are flushed in order.
///
/// Shows: link-loss.
#[vm_test("vm-link-loss", lab = TwoHosts, long, disturbs)]
fn link_loss(pair: &mut Pair) -> Result<()> {
    prepare(pair, PathMtu::Jumbo)?;
    let patience = pair.patience(6);
    // The timeout is 4.096 us * 2^18 = 1.1 s, eight times. With the cable connected, even a busy
    // machine answers sooner.
    let command = "exec vr-pingpong -d vrdma0 -p 21002 --timeout 18 --qps 4 --expect-error";
    let mut server = pair.a.spawn(command)?;
    let mut client = pair.b.spawn(&format!("{command} -s 0 10.77.0.1"))?;
    client.wait_for("running", patience)?;
    server.wait_for("running", patience)?;
    pair.wire()?.set_link("a", false)?;
    let ends = [client.wait(patience), server.wait(patience)];
    pair.wire()?.set_link("a", true)?;
    port_is(pair, "ACTIVE")?;
    for (end, who) in ends.into_iter().zip(["client", "server"]) {
        let output = end?;
        let text = [output.stdout.as_slice(), &output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        ensure!(output.success(), "the {who}: {:?} {text}", output.exit);
        ensure!(
            text.contains("retry exceeded") || text.contains("retry counter exceeded"),
            "the {who}: {text}"
        );
    }
    // A new connection works.
    PingPong::start(pair, &pair.a, &pair.b, 21003, "", "")?.finish(patience).map(|_| ())
}

/// Waits until the port of VM a's device is in this state.
fn port_is(pair: &Pair, state: &str) -> Result<()> {
    let command = format!("until rdma link show vrdma0/1 | grep -q 'state {state}'; do sleep 0.1; done");
    pair.a.check(&command, pair.patience(4)).map(|_| ()).with_context(|| format!("the port is not {state}"))
}
