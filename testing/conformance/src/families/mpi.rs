//! Communication of parallel programs: UCX, libfabric, and the MPI libraries over them.

use super::cases::{Case, Way};
use crate::lineup::{Ready, Row};

/// UCX's transports: datagrams, which UCX makes reliable, and connections.
///
/// Connections also use datagrams, by which UCX exchanges who connects.
const DATAGRAMS: &str = "ud_verbs";
const CONNECTIONS: &str = "rc_verbs,ud_verbs";

/// The UCX setting that turns off a check of a datagram's destination.
///
/// UCX 1.18 (Debian 13's) misreads the service level in a datagram's completion. It takes it for
/// what mlx5 writes there: whether the packet had an IPv4 header. UCX then drops datagrams that it
/// thinks are for another host. With other devices, including `rdma_rxe`, these are all datagrams
/// between IPv4 addresses. UCX 1.19 and later examine the packet.
const NO_CHECK: &str = "UCX_UD_VERBS_ETH_DGID_CHECK";

/// UCX's message sizes in bytes: one packet, several packets, and fetched by the receiver.
const SIZES: [u32; 3] = [8, 10_000, 262_144];

/// Returns all cases.
pub fn cases() -> Vec<Case> {
    let mut cases = ucx();
    cases.extend(fi_pingpong("all").iter().flat_map(|row| Case::on(&Way::V4, row)));
    for ranks in [2, 4] {
        cases.extend(mpi(ranks, 32_768).into_iter().map(Case::new));
    }
    cases
}

/// Returns the most significant cases, a row each.
pub fn some() -> Vec<Case> {
    let ucx = [
        ucx_row(DATAGRAMS, "tag_lat", 10_000),
        ucx_row(CONNECTIONS, "ucp_put_bw", 10_000),
        ucx_row(CONNECTIONS, "tag_bw", 262_144),
        ucx_row(CONNECTIONS, "ucp_fadd", 8),
    ];
    let [over_ucx, _, over_libfabric, mpich, _] = mpi(2, 512);
    let rows = ucx.into_iter().chain(fi_pingpong("4096")).chain([over_ucx, over_libfabric, mpich]);
    rows.map(Case::new).collect()
}

/// Returns each kind of operation over each transport.
fn ucx() -> Vec<Case> {
    const ATOMIC: [&str; 4] = ["ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"];
    const OTHERS: [&str; 11] = [
        "tag_lat",
        "tag_bw",
        "tag_sync_lat",
        "tag_sync_bw",
        "ucp_put_lat",
        "ucp_put_bw",
        "ucp_get",
        "stream_bw",
        "stream_lat",
        "ucp_am_lat",
        "ucp_am_bw",
    ];
    let mut rows = Vec::new();
    for transports in [DATAGRAMS, CONNECTIONS] {
        rows.extend(ATOMIC.map(|test| ucx_row(transports, test, 8)));
        for size in SIZES {
            rows.extend(OTHERS.map(|test| ucx_row(transports, test, size)));
        }
    }
    let mut cases: Vec<Case> = rows.into_iter().map(Case::new).collect();
    let within = [ucx_row(DATAGRAMS, "tag_lat", 10_000), ucx_row(CONNECTIONS, "tag_lat", 10_000)];
    cases.extend(within.iter().flat_map(|row| Case::on(&[Way::Within], row)));
    cases
}

/// Returns a row of `ucx_perftest`.
///
/// It prints `Final` before its result, and needs a terminal as standard input.
fn ucx_row(transports: &str, test: &str, size: u32) -> Row {
    let name = format!("ucx_perftest -t {test} -s {size}, {transports}");
    let line = format!(
        "{NO_CHECK}=n UCX_TLS={transports} UCX_NET_DEVICES=@d:1 ucx_perftest -t {test} -s {size} -n 50 -w 5 -p @p"
    );
    let client = format!("{line} @4 </dev/ptmx");
    Row::new(&name, Ready::Tcp, &format!("{line} </dev/ptmx"), &client, "Final:").takes(12)
}

/// Returns libfabric's own ping-pong, which checks its data, with each kind of endpoint.
fn fi_pingpong(size: &str) -> Vec<Row> {
    let row = |provider: &str, endpoint: &str, domain: &str| {
        let line = format!(
            "FI_VERBS_GID_IDX=@g fi_pingpong -d {domain} -p '{provider}' -e {endpoint} -I 4 -c -S {size}"
        );
        let name = format!("fi_pingpong -p {provider} -e {endpoint}");
        let client = format!("{line} -P @p @4");
        Row::new(&name, Ready::Tcp, &format!("{line} -B @p"), &client, "4       =4").takes(15)
    };
    vec![
        row("verbs", "msg", "@d"),
        row("verbs;ofi_rxm", "rdm", "@d"),
        // libfabric gives the device another name for datagrams.
        row("verbs", "dgram", "@d-dgram"),
    ]
}

/// Returns each MPI library over each lower layer.
///
/// Messages have up to `largest` numbers of 8 bytes.
fn mpi(ranks: u32, largest: u32) -> [Row; 5] {
    [
        open_mpi(ranks, largest, "UCX, rc_verbs", &over_ucx(CONNECTIONS)),
        open_mpi(ranks, largest, "UCX, ud_verbs", &over_ucx(DATAGRAMS)),
        open_mpi(
            ranks,
            largest,
            "libfabric",
            "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm' --mca btl self",
        ),
        mpich(ranks, largest, "UCX, rc_verbs", CONNECTIONS),
        mpich(ranks, largest, "UCX, ud_verbs", DATAGRAMS),
    ]
}

fn over_ucx(transports: &str) -> String {
    format!(
        "--mca pml ucx --mca osc ucx --mca btl self --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any \
         -x UCX_TLS={transports},self -x UCX_NET_DEVICES=@d:1 -x {NO_CHECK}=n"
    )
}

/// Returns a row of Open MPI, which starts its processes by an rsh-like program.
///
/// The options name what Debian's settings exclude.
fn open_mpi(ranks: u32, largest: u32, over: &str, options: &str) -> Row {
    // Open MPI's one-sided operations need UCX or TCP.
    let program = if over == "libfabric" { "vr-mpi-openmpi -c" } else { "vr-mpi-openmpi" };
    let client = format!(
        "mpirun.openmpi --allow-run-as-root --host @5,@4 --map-by node:oversubscribe -np {ranks} \
         --prtemca plm_ssh_agent 'python3 -B /share/remote_shell.py' --mca mpi_yield_when_idle 1 {options} \
         {program} {largest}"
    );
    mpi_row(&format!("Open MPI over {over}, {ranks} ranks"), ranks, &client)
}

fn mpich(ranks: u32, largest: u32, over: &str, transports: &str) -> Row {
    let each = ranks / 2;
    let client = format!(
        "HYDRA_LAUNCHER_EXTRA_ARGS='-B /share/remote_shell.py' mpiexec.hydra -launcher rsh \
         -launcher-exec /usr/bin/python3 -iface eth0 -hosts @5:{each},@4:{each} -np {ranks} \
         -genv UCX_TLS {transports},self -genv UCX_NET_DEVICES @d:1 -genv {NO_CHECK} n -genv MPIR_CVAR_NOLOCAL 1 \
         vr-mpi-mpich {largest}"
    );
    mpi_row(&format!("MPICH over {over}, {ranks} ranks"), ranks, &client)
}

fn mpi_row(name: &str, ranks: u32, client: &str) -> Row {
    let server = "python3 -B /share/remote_shell.py --serve @p";
    let client = format!("REMOTE_SHELL_PORT=@p {client}");
    let expected = format!("{ranks} ranks on 2 hosts: all numbers are right");
    Row::new(name, Ready::Tcp, server, &client, &expected).server_stays().takes(30)
}
