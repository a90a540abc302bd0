//! A row of the test matrix: a program between two VMs, its command lines, and how to see success.

use vrdma_lab::vm::addresses::{IP, IP6};
use vrdma_lab::vm::reach::cm_listens;

/// The address family that the programs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpFamily {
    /// IPv4, or GIDs that are IPv4 addresses.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
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

    /// Returns a shell pattern of the GIDs of this family's addresses.
    pub(super) fn gid_pattern(self) -> &'static str {
        match self {
            Self::V4 => "0000:0000:0000:0000:0000:ffff:*",
            Self::V6 => "fd77:*",
        }
    }
}

/// How to see that a server waits for its client.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    /// It listens on its TCP port.
    Tcp,
    /// It is bound to its UDP port.
    Udp,
    /// It listens for connections by rdma_cm.
    Cm,
    /// It has a QP, which `rdma resource` shows with this program name.
    Qp(&'static str),
    /// There is no server.
    NoServer,
}

impl Ready {
    /// Returns a shell command that succeeds when the server waits.
    pub(super) fn condition(self, port: u16) -> Option<String> {
        // States in `/proc/net`: 0A is LISTEN, 07 is a UDP socket that is not connected.
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
/// Command lines contain placeholders. `@d` is the RDMA device, `@g` its GID index, and `@p` a
/// port. `@a` is the server's address, and `@o` the client's. `@4` is the server's IPv4 address and
/// `@5` the client's, for the programs' own TCP connections.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name, which says what it shows.
    pub what: String,
    pub(super) server: String,
    /// The client's command line, with placeholders.
    pub client: String,
    pub(super) ready: Ready,
    /// Whether the server runs on after its client has ended, until it is killed.
    pub(super) server_stays: bool,
    /// Text that the client prints on success.
    pub(super) expected: String,
    /// A command that then has to succeed in the server's VM.
    pub(super) check: Option<String>,
    /// Seconds that it may take under KVM.
    pub(super) seconds: u64,
}

impl Row {
    /// Returns a program with these command lines. `expected` is what the client prints on success.
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

    /// Makes the server one that runs on after its client has ended.
    pub fn server_stays(self) -> Self {
        Self { server_stays: true, ..self }
    }

    /// Whether its server is recognized by listening for rdma_cm connections.
    ///
    /// Two such servers at a time cannot be told apart.
    pub fn uses_cm(&self) -> bool {
        matches!(self.ready, Ready::Cm)
    }

    /// Adds a command that has to succeed in the server's VM afterwards.
    pub fn then(self, check: &str) -> Self {
        Self { check: Some(check.to_owned()), ..self }
    }

    /// Sets the seconds that it may take under KVM.
    pub fn takes(self, seconds: u64) -> Self {
        Self { seconds, ..self }
    }

    /// Returns a program whose client has the server's command line, followed by the server's
    /// address.
    pub(super) fn pair(what: &str, command: &str, expected: &str) -> Self {
        Self::new(what, Ready::Tcp, command, &format!("{command} @4"), expected)
    }

    /// Returns one of perftest's programs. The last line of its table is that of size `last`.
    pub fn perftest(what: &str, command: &str, last: u32) -> Self {
        // `-F`: ignore a CPU frequency that cannot be read.
        Self::pair(what, &format!("{command} -F -d @d -x @g -p @p"), &format!(" {last} "))
    }
}
