//! A router between two hosts, and networks that change what they may change in packets.

use anyhow::{Context, Result, ensure};
use vrdma_conformance::demo;
use vrdma_conformance::lineup::{self, IpFamily, PathMtu, Round, Sizes, prepare, rows};
use vrdma_lab::driver::wait_for_device_of;
use vrdma_lab::storage::{Load, Protocol, Storage};
use vrdma_lab::vm::Pair;
use vrdma_lab::vm::addresses::{IP, IP6};
use vrdma_lab::vm::router::GATEWAY;
use vrdma_vm_macros::vm_test;

/// A program for each transport service, and for each way to connect.
const SHORT: [&str; 8] = [
    "ping with the largest packets",
    "RC ping-pong",
    "UC ping-pong",
    "UD ping-pong",
    "RC read",
    "RC write, connected by rdma_cm",
    "rping",
    "udaddy",
];

/// Runs programs over routed RoCE v2: RC, UC and UD, with and without rdma_cm, and NVMe.
///
/// The ICRC excludes the fields that routers change: TTL, DSCP and ECN, and the corresponding
/// fields of IPv6 (IBTA A17.3.3; rdma-core#1637, libfabric#12346).
#[vm_test("vm-linux-routed", lab = Routed)]
fn roce(pair: &mut Pair) -> Result<()> {
    prepare(pair, PathMtu::Usual)?;
    by_router(pair)?;
    let mut port = 20_000;
    for (server, family) in [(&pair.a, IpFamily::V4), (&pair.b, IpFamily::V6)] {
        let round = Round::new(pair, server, family)?;
        for row in
            rows(family, PathMtu::Usual, Sizes::One).iter().filter(|row| SHORT.contains(&row.what.as_str()))
        {
            port += 1;
            round.run(row, port).with_context(|| format!("{}: {}", round.name(), row.what))?;
        }
    }
    Storage::new(Protocol::Nvme, 0).whole(pair, &Load::SMALL).context("NVMe over Fabrics")?;
    expect_changed(pair)
}

/// Runs iWARP over the daemon's own TCP on a path with a smaller MTU than its ends (RFC 1191, RFC
/// 8201).
#[vm_test("vm-linux-routed-iwarp", lab = RoutedIwarp)]
fn iwarp(pair: &mut Pair) -> Result<()> {
    lineup::iwarp::prepare(pair)?;
    by_router(pair)?;
    let turns = [(0, IpFamily::V4, Sizes::One), (1, IpFamily::V6, Sizes::One)];
    demo::iwarp::go_through(pair, &turns[..1], &|_| true, &mut |_| {})?;
    pair.router()?.limit(1400)?;
    demo::iwarp::go_through(pair, &turns, &|_| true, &mut |_| {}).context("by a path of 1400 bytes")?;
    expect_changed(pair)
}

/// Gives each VM a host route only, so that it reaches the other one by the router.
fn by_router(pair: &Pair) -> Result<()> {
    let patience = pair.patience(4);
    for (index, vm) in [&pair.a, &pair.b].into_iter().enumerate() {
        let [gateway, gateway6] = GATEWAY;
        let own = (IP[index], IP6[index]);
        let command = format!(
            "ip address flush dev eth0 scope global
            ip address add {}/32 dev eth0 && ip address add {}/128 dev eth0 nodad &&
            ip route add {gateway} dev eth0 src {} && ip route add default via {gateway} src {} &&
            ip route add {gateway6} dev eth0 && ip route add default via {gateway6}",
            own.0, own.1, own.0, own.0
        );
        vm.check(&command, patience)?;
        if !pair.is_iwarp() {
            wait_for_device_of(pair, vm)?;
        }
    }
    for (command, to) in [("ping", IP[1]), ("ping -6", IP6[1])] {
        let reached = format!("until {command} -c 1 -W 1 {to}; do sleep 0.1; done");
        pair.a.check(&reached, patience).with_context(|| format!("the router does not forward to {to}"))?;
    }
    Ok(())
}

/// Checks that the router changed the class of packets.
fn expect_changed(pair: &mut Pair) -> Result<()> {
    let hundreds = pair.router()?.remarked()?;
    ensure!(hundreds > 20, "{hundreds} hundred packets got another class: they went another way");
    Ok(())
}
