//! iWARP between two hosts, and with Linux's soft-iWARP at one end. Captures of the wire are
//! checked.

use anyhow::{Result, ensure};
use vrdma_conformance::capture;
use vrdma_conformance::demo::iwarp::{Turn, go_through, refused_crc, refused_operations};
use vrdma_conformance::lineup::{IpFamily, Sizes, iwarp::prepare};
use vrdma_lab::paths;
use vrdma_lab::siw::{self, Variant};
use vrdma_lab::storage::{Load, Protocol, Storage};
use vrdma_lab::vm::Pair;
use vrdma_lab::vm::addresses::IP;
use vrdma_vm_macros::vm_test;

/// Each VM is the server once, and each address family occurs once.
const SHORT: [Turn; 2] = [(0, IpFamily::V4, Sizes::One), (1, IpFamily::V6, Sizes::One)];

/// Runs the programs between two vrdma devices.
///
/// Shows: iwarp-two-hosts.
#[vm_test("vm-iwarp-two-hosts", lab = IwarpTwoHosts, long)]
#[vm_test("vm-iwarp-own-tcp", lab = IwarpOwnTcp)]
fn two_hosts(pair: &mut Pair) -> Result<()> {
    prepare(pair)?;
    captured(pair, "iwarp.pcap", |pair| go_through(pair, &SHORT, &|_| true, &mut |_| {}).map(|_| ()))
}

/// Runs the programs on VMs whose netdev has both an iWARP and a RoCE device.
///
/// Connections of rdma_cm use the first device, iWARP. Programs that connect by themselves use the
/// second one, RoCE.
///
/// Shows: both-transports.
#[vm_test("vm-both", lab = Both, long)]
fn both(pair: &mut Pair) -> Result<()> {
    prepare(pair)?;
    for vm in [&pair.a, &pair.b] {
        let devices = vm.check("ibv_devinfo", pair.patience(5))?;
        for transport in ["iWARP", "InfiniBand"] {
            ensure!(devices.contains(&format!("{transport} (")), "no device of {transport}:\n{devices}");
        }
    }
    captured(pair, "both.pcap", |pair| go_through(pair, &SHORT, &|_| true, &mut |_| {}).map(|_| ()))?;
    for (port, command) in [(18860, "ib_write_bw -s 65536 -n 100"), (18861, "ib_send_lat -n 100")] {
        over_roce(pair, command, port)?;
    }
    for backend in pair.backends() {
        let stats = backend.stats()?;
        let count = |guest: usize, counter: &str| stats["guests"][guest]["transport"][counter].as_u64();
        let counts = [count(0, "sends"), count(0, "fpdus_out"), count(1, "fpdus_out")];
        ensure!(
            counts[0] > Some(0) && counts[1] == Some(0) && counts[2] > Some(0),
            "sends and FPDUs: {counts:?}"
        );
    }
    Ok(())
}

/// Runs a perftest program over the second device, with VM a as server.
fn over_roce(pair: &Pair, command: &str, port: u16) -> Result<()> {
    let gid = "$(cd /sys/class/infiniband/vrdma1/ports/1/gids && grep -l ffff:0a4d * | head -n 1)";
    let line = format!("{command} -F -d vrdma1 -x {gid} -p {port}");
    let (server, patience) = (pair.a.spawn(&line)?, pair.patience(10));
    let listening =
        format!("until grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done");
    pair.a.check(&listening, patience)?;
    let printed = pair.b.check(&format!("{line} {}", IP[0]), patience)?;
    ensure!(
        printed.contains("RoCE") || printed.contains("Ethernet"),
        "`{line}` was not over RoCE:\n{printed}"
    );
    ensure!(server.wait(patience)?.success(), "the server of `{line}` failed");
    Ok(())
}

/// Runs NVMe over Fabrics between two vrdma devices.
///
/// Shows: storage, iwarp-two-hosts.
#[vm_test("vm-iwarp-nvme", lab = IwarpTwoHosts, long)]
#[vm_test("vm-iwarp-nvme-own-tcp", lab = IwarpOwnTcp)]
fn nvme(pair: &mut Pair) -> Result<()> {
    prepare(pair)?;
    Storage::new(Protocol::Nvme, 0).whole(pair, &Load::SMALL)
}

/// Runs the programs with siw at one end, as in Linux and in peer-to-peer mode. Each role occurs
/// once.
///
/// Shows: iwarp-two-hosts.
#[vm_test("vm-siw", lab = Siw, long)]
#[vm_test("vm-siw-own-tcp", lab = SiwOwnTcp)]
fn quick(pair: &mut Pair) -> Result<()> {
    prepare(pair)?;
    captured(pair, "siw.pcap", |pair| {
        siw::load(&pair.b, Variant::Stock, pair.patience(6))?;
        go_through(pair, &SHORT[1..], &|_| true, &mut |_| {})?;
        siw::load(&pair.b, Variant::PeerToPeer, pair.patience(6))?;
        go_through(pair, &SHORT[..1], &|_| true, &mut |_| {}).map(|_| ())
    })
}

/// Checks that connections and operations that siw refuses end, and do not hang.
///
/// Shows: iwarp-two-hosts.
#[vm_test("vm-siw-refused", lab = Siw, long)]
#[vm_test("vm-siw-refused-own-tcp", lab = SiwOwnTcp)]
fn refused(pair: &mut Pair) -> Result<()> {
    prepare(pair)?;
    siw::load(&pair.b, Variant::Stock, pair.patience(6))?;
    refused_operations(pair, &mut |_| {})?;
    refused_crc(pair)
}

fn captured(pair: &mut Pair, file: &str, programs: impl FnOnce(&mut Pair) -> Result<()>) -> Result<()> {
    let capture = pair.wire()?.capture_tcp("a", &pair.directory().join(file))?;
    let result = programs(pair);
    let file = capture.finish()?;
    let checked = capture::iwarp::check(&file);
    result?;
    ensure!(checked?.packets > 500, "hardly an FPDU passed the wire");
    // The file is large. It is kept only if it has a fault.
    paths::remove(&file)
}
