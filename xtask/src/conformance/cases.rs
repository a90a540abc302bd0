//! Programs between two VMs, beside perftest: those that connect by rdma_cm, and libibverbs' ping-pongs.

use anyhow::Result;

use super::perftest::refusal;
use crate::lineup::{Ready, Row};
use crate::vm::Pair;

/// A program and what it takes to run it.
pub struct Case {
    /// What the page calls it.
    pub name: String,
    /// How it runs.
    pub row: Row,
    /// A command line that shows whether the program itself refuses its options.
    pub probe: Option<String>,
}

impl Case {
    /// Why the program does not accept its options, if it does not.
    pub fn refusal(&self, pair: &Pair) -> Result<Option<String>> {
        let Some(probe) = &self.probe else { return Ok(None) };
        let output = pair.b.exec(probe, pair.patience(5))?;
        let said = [output.stdout, output.stderr].concat();
        Ok(refusal(&String::from_utf8_lossy(&said)))
    }

    fn new(name: &str, row: Row) -> Self {
        Self { name: name.to_owned(), row, probe: None }
    }

    /// Connected by rdma_cm.
    fn cm(name: &str, server: &str, client: &str, expected: &str) -> Self {
        Self::new(name, Row::new(name, Ready::Cm, server, client, expected))
    }

    /// The same, with a server that goes on.
    fn with_daemon(name: &str, server: &str, client: &str, expected: &str) -> Self {
        Self::new(name, Row::new(name, Ready::Cm, server, client, expected).server_stays())
    }
}

/// Programs of rdma-core's examples.
pub fn cm() -> Vec<Case> {
    let mut cases = ping_pongs();
    cases.extend(connected());
    cases.extend(sockets());
    cases
}

/// libibverbs' own, polling and with events.
fn ping_pongs() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in ["rc", "uc", "ud", "srq", "xsrq"] {
        for events in ["", " -e"] {
            let name = format!("ibv_{kind}_pingpong{events}");
            let line = format!("{name} -d @d -g @g -p @p -n 100 -s 2048");
            // This one does not say how many it made.
            let expected = if kind == "xsrq" { "success" } else { "100 iters" };
            let row = Row::new(&name, Ready::Tcp, &line, &format!("{line} @4"), expected);
            cases.push(Case::new(&name, row));
        }
    }
    cases
}

/// librdmacm's, which connect or join.
fn connected() -> Vec<Case> {
    vec![
        Case::cm(
            "rping",
            "rping -s -v -C 100 -a @a -p @p",
            "rping -c -v -C 100 -a @a -I @o -p @p",
            "rdma-ping-99:",
        ),
        Case::with_daemon(
            "rping -P",
            "rping -s -P -a @a -p @p",
            "for i in 1 2 3; do rping -c -v -C 20 -a @a -I @o -p @p || exit 1; done",
            "rdma-ping-19:",
        ),
        Case::cm("ucmatose", "ucmatose -b @a -p @p", "ucmatose -s @a -b @o -p @p", "return status 0"),
        Case::cm(
            "ucmatose -c 50",
            "ucmatose -c 50 -b @a -p @p",
            "ucmatose -c 50 -s @a -b @o -p @p",
            "return status 0",
        ),
        Case::cm("udaddy", "udaddy -b @a", "udaddy -s @a -b @o", "return status 0"),
        Case::cm(
            "mckey",
            "mckey -m 239.1.2.3 -b @a",
            "sleep 1; mckey -m 239.1.2.3 -b @o -s",
            "return status 0",
        ),
        Case::cm("rdma_server, rdma_client", "rdma_server -p @p", "rdma_client -s @a -p @p", "end 0"),
        Case::cm(
            "rdma_xserver, rdma_xclient",
            "rdma_xserver -p @p -c x",
            "rdma_xclient -s @a -p @p -c x",
            "end 0",
        ),
        Case::cm("cmtime -c 1000", "cmtime -b @a -p @p -c 1000", "cmtime -s @a -p @p -c 1000", "disconnect"),
    ]
}

/// rsockets: their examples.
fn sockets() -> Vec<Case> {
    vec![
        Case::cm(
            "rstream",
            "rstream -b @a -p @p -S 65536 -I 50",
            "rstream -s @a -p @p -S 65536 -I 50",
            "64k",
        ),
        Case::cm(
            "riostream",
            "riostream -b @a -p @p -S 65536 -I 50",
            "riostream -s @a -p @p -S 65536 -I 50",
            "64k",
        ),
        Case::with_daemon("udpong", "udpong -b @a -p @p", "udpong -s @a -p @p", "udpong"),
        Case::with_daemon(
            "rcopy",
            "rcopy -p @p",
            "cp /bin/bash /tmp/sent && rcopy -p @p /tmp/sent @a:/tmp/received",
            "",
        ),
    ]
}
