//! A program between two VMs: its command lines, and how to see that it went well.

use vrdma_lab::vm::addresses::{IP, IP6};
use vrdma_lab::vm::reach::cm_listens;

/// Which kind of addresses the programs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4, or GIDs that are such addresses.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    pub(super) fn address(self, index: usize) -> &'static str {
        match self {
            Self::V4 => IP[index],
            Self::V6 => IP6[index],
        }
    }

    /// A shell pattern of the GIDs of such an address.
    pub(super) fn gid_pattern(self) -> &'static str {
        match self {
            Self::V4 => "0000:0000:0000:0000:0000:ffff:*",
            Self::V6 => "fd77:*",
        }
    }
}

/// How one sees that a server waits for its client.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    /// It listens on its TCP port.
    Tcp,
    /// It is bound to its UDP port.
    Udp,
    /// It listens for rdma_cm's connections.
    Cm,
    /// It has a QP, as rdma resource shows it with this program's name.
    Qp(&'static str),
    /// There is no server.
    NoServer,
}

impl Ready {
    /// A shell command that succeeds then.
    pub(super) fn condition(self, port: u16) -> Option<String> {
        // The states of /proc/net: 0A is LISTEN, 07 is what a socket of UDP has as long as it is
        // not connected.
        let bound = |protocol: &str, state: &str| {
            format!("grep -q ':{port:04X} .* {state} ' /proc/net/{protocol} /proc/net/{protocol}6")
        };
        Some(match self {
            Self::Tcp => bound("tcp", "0A"),
            Self::Udp => bound("udp", "07"),
            Self::Cm => cm_listens(""),
            Self::Qp(program) => format!("rdma resource show qp | grep -q {program}"),
            Self::NoServer => return None,
        })
    }
}

/// A program that runs between two VMs, or within one.
///
/// In command lines `@d` is the RDMA device, `@g` the index of its GID, `@p` a port, `@a` the
/// server's address, `@o` the client's, and `@4` the server's IPv4 address, for what programs say
/// to each other over TCP; `@5` is the client's.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it shows.
    pub what: String,
    pub(super) server: String,
    /// The client's command line, with the words above in it.
    pub client: String,
    pub(super) ready: Ready,
    /// Whether the server goes on after its client, until it is killed.
    pub(super) server_stays: bool,
    /// What the client prints if all is well.
    pub(super) expected: String,
    /// What succeeds afterwards in the server's VM if all is well.
    pub(super) check: Option<String>,
    /// Seconds that it may take under KVM.
    pub(super) seconds: u64,
}

impl Row {
    /// A program whose server and client have these command lines; `expected` is what the client
    /// prints if all is well.
    pub fn new(what: &str, ready: Ready, server: &str, client: &str, expected: &str) -> Self {
        Self {
            what: what.to_owned(),
            server: server.to_owned(),
            client: client.to_owned(),
            ready,
            server_stays: false,
            expected: expected.to_owned(),
            check: None,
            seconds: 8,
        }
    }

    /// The same, with a server that goes on after its client.
    pub fn server_stays(self) -> Self {
        Self { server_stays: true, ..self }
    }

    /// Whether its server is known by its listening for rdma_cm's connections: two such servers at
    /// a time are not told apart.
    pub fn uses_cm(&self) -> bool {
        matches!(self.ready, Ready::Cm)
    }

    /// The same, and afterwards this command has to succeed in the server's VM.
    pub fn then(self, check: &str) -> Self {
        Self { check: Some(check.to_owned()), ..self }
    }

    /// The same, and it may take so many seconds under KVM.
    pub fn takes(self, seconds: u64) -> Self {
        Self { seconds, ..self }
    }

    /// A program whose client is its server's command line and the server's address.
    pub(super) fn pair(what: &str, command: &str, expected: &str) -> Self {
        Self::new(what, Ready::Tcp, command, &format!("{command} @4"), expected)
    }

    /// One of perftest's, whose last line is that of this size.
    pub fn perftest(what: &str, command: &str, last: u32) -> Self {
        // -F: do not mind a CPU clock that cannot be read.
        Self::pair(what, &format!("{command} -F -d @d -x @g -p @p"), &format!(" {last} "))
    }
}
