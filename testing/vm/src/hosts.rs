//! The programs of the demos between two VMs: on one host, on two hosts, and with rdma_rxe at one
//! end. And a cable that is pulled.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrdma_conformance::capture;
use vrdma_conformance::demo::{self, Round};
use vrdma_conformance::lineup::{Family, PathMtu, Sizes, prepare};
use vrdma_lab::paths;
use vrdma_lab::vm::{Job, Pair};
use vrdma_lab::wait::{pause, until};
use vrdma_lab::watch::{PingPong, said};
use vrdma_vm_macros::vm_test;

/// Each pairing of role, path MTU and kind of address.
const PAIRINGS: &[Round] = &[
    (PathMtu::Jumbo, 0, Family::V4, Sizes::One),
    (PathMtu::Jumbo, 1, Family::V6, Sizes::One),
    (PathMtu::Usual, 0, Family::V6, Sizes::One),
    (PathMtu::Usual, 1, Family::V4, Sizes::One),
];

/// The shortened demo on one host: each role, path MTU and kind of address occurs once.
const ON_ONE_HOST: &[Round] =
    &[(PathMtu::Usual, 0, Family::V6, Sizes::One), (PathMtu::Jumbo, 1, Family::V4, Sizes::One)];

/// The shortened demo between hosts: each role, path MTU and kind of address occurs once.
const BETWEEN_HOSTS: &[Round] =
    &[(PathMtu::Jumbo, 0, Family::V4, Sizes::One), (PathMtu::Usual, 1, Family::V6, Sizes::One)];

/// The shortened demo on one host, where no packet is needed. The short one has one direction, path
/// MTU and kind of address; the long one has each role, path MTU and kind of address once.
#[vm_test("vm-same-host", lab = Usual, args(&ON_ONE_HOST[..1]))]
#[vm_test("vm-same-host-all", lab = Usual, long, args(ON_ONE_HOST))]
fn same_host(pair: &mut Pair, rounds: &[Round]) -> Result<()> {
    demo::go_through(pair, rounds, &mut |_| {}).map(|_| ())
}

/// The shortened demo between two hosts, and with rdma_rxe at one end or both. `vm-rxe` tests the
/// lab itself. All that passes the wire meanwhile, which is kept in the file, is sound.
#[vm_test("vm-two-hosts", lab = TwoHosts, args(&BETWEEN_HOSTS[..1], "two-hosts.pcap"))]
#[vm_test("vm-two-hosts-all", lab = TwoHosts, long, args(BETWEEN_HOSTS, "two-hosts-all.pcap"))]
#[vm_test("vm-interop", lab = Interop, args(&BETWEEN_HOSTS[1..], "interop.pcap"))]
#[vm_test("vm-interop-all", lab = Interop, long, args(PAIRINGS, "interop-all.pcap"))]
#[vm_test("vm-rxe", lab = Rxe, needs = Vms, long, args(&BETWEEN_HOSTS[..1], "rxe.pcap"))]
fn captured(pair: &mut Pair, rounds: &[Round], file: &str) -> Result<()> {
    let capture = pair.wire()?.capture("a", &pair.directory().join(file))?;
    let result = demo::go_through(pair, rounds, &mut |_| {});
    let file = capture.finish()?;
    let checked = capture::check(&file);
    result?;
    ensure!(checked?.packets > 500, "hardly a packet passed the wire");
    // It is large; one with a fault stays to be looked at.
    paths::remove(&file)
}

/// VM a's host loses its cable during a checked ping-pong and gets it back: nothing is lost, and
/// the guest sees its port go and come. TCP goes on too.
#[vm_test("vm-link-flap", lab = TwoHosts, disturbs)]
fn link_flap(pair: &mut Pair) -> Result<()> {
    prepare(pair, PathMtu::Jumbo)?;
    let patience = pair.patience(6);
    // That is what veth says of itself.
    let rate = "grep -q '^10 Gb/sec' /sys/class/infiniband/vrdma0/ports/1/rate";
    pair.a.check(rate, patience).context("the port is not as fast as the uplink")?;
    let mut watch = pair.a.spawn("exec ibv_asyncwatch -d vrdma0")?;
    let server = pair.b.spawn("exec iperf3 -s -1 -p 21001")?;
    // An ACK timeout of 4.096 us * 2^19, 2.1 s, eight times: far longer than the cable is out.
    let patient = "--timeout 19 --qps 4 --size 100000 --stall 60";
    let ping_pong = PingPong::start(pair, &pair.a, &pair.b, 21000, patient, patient)?;
    pair.b.check("until ss -ltn | grep -q :21001; do sleep 0.1; done", patience)?;
    // Until it is ended.
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
    // TCP waits a while before it tries again.
    let since = seconds(&tcp).max(seconds_of_tcp);
    expect_seconds(&mut tcp, since, 5, patience).context("TCP after the cable was back")?;
    ensure!(!tcp.has_ended()?, "iperf3 ended: {}", said(&tcp));
    drop((tcp, server));
    Ok(())
}

/// Of the lines `[ 5] 11.00-12.00 sec 1.2 MBytes ...` of iperf3 so far how many say that something
/// passed.
fn seconds(tcp: &Job) -> usize {
    let text = tcp.so_far().text();
    text.lines().filter(|line| line.contains("Bytes") && !line.contains(" 0.00 Bytes ")).count()
}

/// Waits until something passed in so many seconds more than in `before`; in how many it did.
fn expect_seconds(tcp: &mut Job, before: usize, more: usize, patience: Duration) -> Result<usize> {
    until(&format!("{more} seconds in which something passes"), patience, || {
        ensure!(!tcp.has_ended()?, "iperf3 ended: {}", said(tcp));
        let now = seconds(tcp);
        Ok(if now >= before + more { Ok(now) } else { Err(said(tcp)) })
    })
}

/// The cable stays out for longer than a QP waits: both ends are told, all that was outstanding is
/// flushed in order.
#[vm_test("vm-link-loss", lab = TwoHosts, long, disturbs)]
fn link_loss(pair: &mut Pair) -> Result<()> {
    prepare(pair, PathMtu::Jumbo)?;
    let patience = pair.patience(6);
    // 4.096 us * 2^18, 1.1 s, eight times: more than a busy machine keeps either waiting while the
    // cable is there.
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
