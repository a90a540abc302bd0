//! Sockets over RDMA: rsockets' examples, and programs without RDMA support, with librspreload.

use super::cases::{Case, Flaw, Way, cm_row};
use crate::lineup::{Ready, Row};

/// The prefix of a command line that uses librspreload.
const PRELOAD: &str = "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";
/// The prefix for Python, whose sockets librspreload does not recognize.
const PRELOAD_PYTHON: &str =
    "LD_PRELOAD=/usr/lib/vrdma/vr-plain-sockets.so:/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";
/// Limit of TCP segments, which a program stays below if its data goes over RDMA.
///
/// The few segments belong to connections that librspreload makes by TCP, for fork.
const FEW: u32 = 200;
/// The file that an HTTP server offers: a program that both VMs have.
const FILE: &str = "/usr/bin/python3.13";

/// rsockets make their first address handle for datagrams without a GRH, which RoCE devices refuse.
///
/// The printed error is that of the clean-up.
const NO_GRH: Flaw = Flaw {
    says: &["rconnect: No such file or directory"],
    why: "librdmacm makes an address handle without a GRH, which RoCE refuses",
};
/// The server closes the connection when it has sent everything. Exit status 16 is `POLLHUP`.
const HANG_UP: Flaw = Flaw {
    says: &["Code(16)"],
    why: "rstream takes POLLHUP for a failure, also where it comes together with the last data",
};

/// iperf3 hangs in librdmacm when its time is over.
///
/// Since 3.16 it has threads, which it cancels at its end, and uses select(2) with a timeout. After
/// that librdmacm's rpoll waits for itself. The first line of iperf3's figures shows that data
/// flows. Without that line the failure is another one.
const CANCELLED: Flaw = Flaw {
    says: &["still runs after", "   0.00-", " MBytes "],
    why: "data flow until iperf3 cancels threads that wait in librdmacm and hold its locks",
};

/// Returns all cases.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for row in streams() {
        cases.extend(Case::on(&Way::ALL, &row));
    }
    cases.extend(Case::on(&Way::ALL, &stream("rstream", " -T a")).into_iter().map(|case| case.with(HANG_UP)));
    for row in ["", " -T e", " -T n", " -T a"].map(udpong) {
        cases.extend(Case::on(&Way::ALL, &row).into_iter().map(|case| case.with(NO_GRH)));
    }
    // rcopy takes the text before the first colon for the host, so there are no IPv6 addresses.
    cases.extend(Case::on(&Way::V4, &rcopy()));
    for row in iperf3() {
        cases.extend(Case::on(&Way::ALL, &row).into_iter().map(|case| case.with(CANCELLED)));
    }
    for row in [http(), http_after_fork(), rstream_after_fork()] {
        cases.extend(Case::on(&Way::V4, &row));
    }
    cases
}

/// Returns the most significant cases, a row each.
pub fn some() -> Vec<Case> {
    let rows = [stream("rstream", " -T v"), stream("riostream", " -T v"), rcopy()];
    let preloaded = [http(), http_after_fork(), rstream_after_fork()];
    rows.into_iter().chain(preloaded).map(Case::new).collect()
}

/// Returns rsockets' examples that send streams.
fn streams() -> Vec<Row> {
    let mut rows = Vec::new();
    for program in ["rstream", "riostream"] {
        for how in ["", " -T v", " -T b", " -T n"] {
            rows.push(stream(program, how));
        }
    }
    let more = [("rstream", " -T r"), ("rstream", " -i 0"), ("rstream", " -B 4096"), ("riostream", " -T a")];
    rows.extend(more.map(|(program, how)| stream(program, how)));
    rows
}

/// Returns a stream of messages of 64 KiB each.
///
/// There are few messages: in VMs with one processor, a thousand take long if both ends poll.
fn stream(program: &str, how: &str) -> Row {
    let line = format!("{program} -p @p -S 65536 -I 20 -C 5{how}");
    cm_row(&format!("{program}{how}"), &format!("{line} -b @a"), &format!("{line} -s @a"), "custom    64k")
        .takes(12)
}

fn udpong(how: &str) -> Row {
    let line = format!("udpong -p @p -S 1000 -C 100{how}");
    let client = format!("{line} -s @a");
    Row::new(&format!("udpong{how}"), Ready::Udp, &format!("{line} -b @a"), &client, "custom    1000")
        .server_stays()
}

fn rcopy() -> Row {
    let client = format!("rcopy {FILE} @a:/tmp/received-@p -p @p");
    cm_row("rcopy", "rcopy -p @p", &client, "")
        .server_stays()
        .then(&format!("cmp {FILE} /tmp/received-@p && rm /tmp/received-@p"))
}

fn iperf3() -> Vec<Row> {
    ["", " -R", " -P 4"].map(|how| iperf3_row(&format!("iperf3{how}, librspreload"), how)).into()
}

fn iperf3_row(name: &str, how: &str) -> Row {
    let client = format!("iperf3 -c @a -p @p -t 2 --forceflush{how}");
    let server = format!("{PRELOAD} iperf3 -s -1 -B @a -p @p");
    cm_row(name, &server, &few_by_tcp(PRELOAD, &client), "receiver").takes(4)
}

/// Returns Python's HTTP server, and a client that fetches the file from it.
fn http() -> Row {
    let server = format!("{PRELOAD_PYTHON} python3 -B -m http.server -b @a -d $(dirname {FILE}) @p");
    fetch("HTTP, librspreload", Ready::Cm, &server, PRELOAD_PYTHON)
}

/// Returns an HTTP server that forks for each connection.
fn http_after_fork() -> Row {
    let preload = format!("RDMAV_FORK_SAFE=1 {PRELOAD_PYTHON}");
    let server =
        format!("cd $(dirname {FILE}) && exec env {preload} python3 -B /share/forking_http.py @a @p");
    fetch("HTTP, librspreload, fork", Ready::Tcp, &server, &preload)
}

fn fetch(name: &str, ready: Ready, server: &str, preload: &str) -> Row {
    let file = FILE.rsplit('/').next().unwrap_or_default();
    let client = format!("python3 -B /share/fetch.py http://@a:@p/{file} {FILE}");
    Row::new(name, ready, server, &few_by_tcp(preload, &client), "the hashes are equal")
        .server_stays()
        .takes(15)
}

/// Returns rstream with the sockets of librspreload.
fn rstream_after_fork() -> Row {
    let preload = format!("RDMAV_FORK_SAFE=1 {PRELOAD}");
    let line = "rstream -T s -p @p -S 65536 -I 20 -C 5";
    let client = few_by_tcp(&preload, &format!("{line} -s @a"));
    let server = format!("{preload} {line} -T f -b @a");
    Row::new("rstream -T s -T f, librspreload, fork", Ready::Tcp, &server, &client, "custom    64k").takes(12)
}

fn few_by_tcp(preload: &str, line: &str) -> String {
    format!("python3 -B /share/few_by_tcp.py {FEW} env {preload} {line}")
}
