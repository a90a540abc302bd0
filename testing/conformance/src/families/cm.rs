//! Programs that connect by rdma_cm, and libibverbs' ping-pongs.

use super::cases::{Case, Flaw, Way, cm_row};
use crate::lineup::{IpFamily, Ready, Row};

/// Returns the programs of rdma-core's examples, except those with rsockets.
pub fn cases() -> Vec<Case> {
    let mut cases = ping_pongs();
    cases.extend(connected());
    cases.extend(mckey());
    cases
}

/// Returns the programs that no other test runs, a row each.
pub fn some() -> Vec<Case> {
    let mut cases = Case::on(&Way::V4, &cmtime("cmtime -c 20", 20, ""));
    cases.extend(Case::on(&[Way::Within], &mckey_row("239.1.2.3", 20)));
    cases
}

/// Returns libibverbs' ping-pongs, with polling and with events.
fn ping_pongs() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in ["rc", "uc", "ud", "srq", "xsrq"] {
        for events in ["", " -e"] {
            let name = format!("ibv_{kind}_pingpong{events}");
            let line = format!("{name} -d @d -g @g -p @p -n 100 -s 2048");
            // This program does not print the number of iterations.
            let expected = if kind == "xsrq" { "success" } else { "100 iters" };
            let row = Row::new(&name, Ready::Tcp, &line, &format!("{line} @4"), expected);
            cases.push(Case::new(row));
        }
    }
    cases
}

/// Returns librdmacm's programs that connect.
fn connected() -> Vec<Case> {
    let rping = cm_row(
        "rping",
        "rping -s -v -C 100 -a @a -p @p",
        "rping -c -v -C 100 -a @a -I @o -p @p",
        "rdma-ping-99:",
    );
    let persistent = cm_row(
        "rping -P",
        "rping -s -P -a @a -p @p",
        "for i in 1 2 3; do rping -c -v -C 20 -a @a -I @o -p @p || exit 1; done",
        "rdma-ping-19:",
    );
    let ucmatose = |name, more: &str| {
        let server = format!("ucmatose{more} -b @a -p @p");
        cm_row(name, &server, &format!("ucmatose{more} -s @a -b @o -p @p"), "return status 0")
    };
    let udaddy = cm_row("udaddy", "udaddy -b @a", "udaddy -s @a -b @o", "return status 0");
    let server_client =
        cm_row("rdma_server, rdma_client", "rdma_server -p @p", "rdma_client -s @a -p @p", "end 0");
    let xserver_xclient = |name, how: &str| {
        let client = format!("rdma_xclient -s @a -p @p{how}");
        cm_row(name, &format!("rdma_xserver -p @p{how}"), &client, "end 0")
    };
    let mut cases = Vec::new();
    for (name, how) in [("rdma_xserver, rdma_xclient", ""), ("rdma_xserver, rdma_xclient -c x", " -c x")] {
        cases.push(Case::new(xserver_xclient(name, how)));
    }
    for row in [
        rping,
        ucmatose("ucmatose", ""),
        ucmatose("ucmatose -c 50", " -c 50"),
        udaddy,
        persistent.server_stays(),
    ] {
        cases.extend(Case::on(&Way::ALL, &row));
    }
    // These use IPv4 only. `rdma_server` listens on IPv4 addresses unless it is given one. The two
    // sides of `cmtime` coordinate by IPv4.
    cases.extend(Case::on(&Way::V4, &server_client));
    for (name, connections, more) in
        [("cmtime -c 100", 100, ""), ("cmtime -c 100 -n 4", 100, " -n 4"), ("cmtime -c 1000", 1000, "")]
    {
        cases.extend(Case::on(&Way::V4, &cmtime(name, connections, more)));
    }
    cases
}

/// Returns a run of `cmtime`, which makes this number of connections with QPs, and as many without.
fn cmtime(name: &str, connections: u32, more: &str) -> Row {
    // cmtime replies by TCP as soon as it listens by rdma_cm, so its TCP port shows that it is
    // ready. On an emulated machine a timeout of one second would say nothing about the peer, hence
    // `-t`.
    let line = format!("cmtime -c {connections}{more} -t 8000 -p @p");
    // Without QPs both ends make up QP numbers from 1000 on, unless `-q` is given. Within a VM the
    // kernel would take one end's numbers for the other's, and refuse. So the client gets others.
    let client = format!("{line} -q 100000 -s @a");
    Row::new(name, Ready::Tcp, &format!("{line} -b @a"), &client, "disconnect")
        .takes(8 + u64::from(connections) / 10)
}

/// The flaw that Linux's rdma_cm joins only IPv4 groups.
const NO_GROUP: Flaw = Flaw { says: &["failure joining"], why: "rdma_cm joins no IPv6 group over RoCE v2" };

/// Returns runs of `mckey`, which joins a multicast group.
fn mckey() -> Vec<Case> {
    let mut cases = Case::on(&Way::V4, &mckey_row("239.1.2.3", 20));
    let v6 = Case::on(&[Way::Between(IpFamily::V6)], &mckey_row("ff15::7701", 20));
    cases.extend(v6.into_iter().map(|case| case.with(NO_GROUP)));
    cases
}

/// Returns a receiver and a sender of `count` datagrams.
fn mckey_row(group: &str, count: u32) -> Row {
    let line = format!("mckey -m {group} -C {count} -S 900");
    let client = format!("sleep 1; exec {line} -b @o -s");
    Row::new("mckey", Ready::Qp("mckey"), &format!("{line} -b @a"), &client, "return status 0")
}
