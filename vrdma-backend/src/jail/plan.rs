//! What the jail has to know of the configuration.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How the daemon is separated from the rest of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Sandbox {
    /// Own namespaces, a root directory with little in it, and Landlock.
    Namespace,
    /// The files and namespaces of whoever started the daemon.
    None,
}

/// What happens to a thread that makes a system call outside its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Seccomp {
    /// The kernel ends the process.
    Kill,
    /// The kernel carries the call out, and writes a line into its audit log.
    Log,
    /// There is no filter.
    None,
}

/// Kinds of uplinks that need different system calls and capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UplinkKind {
    /// No uplink.
    None,
    /// A device of DPDK in this process's memory alone.
    Memory,
    /// This crate's packet socket.
    NetPacket,
    /// DPDK's packet socket.
    AfPacket,
    /// An XDP socket.
    AfXdp,
    /// Shared memory with another process. `abstract_socket`: they meet at an abstract address.
    Memif {
        /// Whether the peer's socket belongs to the network namespace.
        abstract_socket: bool,
    },
    /// A NIC on PCI. `vfio`: it is bound to vfio-pci, and not to a driver of the kernel.
    Pci {
        /// Whether the kernel has no interface for the NIC.
        vfio: bool,
    },
    /// Any other virtual device of DPDK.
    Virtual,
}

/// What the jail has to know of the configuration.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of the user that the daemon becomes. `None`: `vrdma`, if there is such a user.
    pub user: Option<u32>,
    /// The sandbox that was asked for. `None`: as much of it as can be had.
    pub sandbox: Option<Sandbox>,
    /// What was asked of system calls. `None`: as much as can be had.
    pub seccomp: Option<Seccomp>,
    /// The uplink.
    pub uplink: UplinkKind,
    /// Whether guests use the host's TCP.
    pub kernel_tcp: bool,
    /// Whether sockets are given to other users or groups.
    pub gives_sockets: bool,
    /// Absolute paths of the directories of sockets that this process makes.
    pub directories: Vec<PathBuf>,
    /// Absolute path of the directory of the configuration file, if it may be read again.
    pub configuration: Option<PathBuf>,
    /// Whether guests have front-ends that listen.
    pub connects: bool,
    /// Absolute paths of the directories of sockets to which this process connects. One that is
    /// missing may come.
    pub peers: Vec<PathBuf>,
}

/// Whether the daemon talks to others at abstract addresses, which belong to a network namespace.
pub fn has_abstract_peers(plan: &Plan) -> bool {
    let is_abstract = |name: std::ffi::OsString| name.as_encoded_bytes().first() == Some(&b'@');
    matches!(plan.uplink, UplinkKind::Memif { abstract_socket: true } | UplinkKind::Virtual)
        || std::env::var_os("NOTIFY_SOCKET").is_some_and(is_abstract)
}

/// Whether the daemon needs nothing of the network namespace in which it was started.
pub fn may_leave_network(plan: &Plan) -> bool {
    let uplink = matches!(
        plan.uplink,
        UplinkKind::None
            | UplinkKind::Memory
            | UplinkKind::Memif { abstract_socket: false }
            | UplinkKind::Pci { vfio: true }
    );
    uplink && !plan.kernel_tcp && !has_abstract_peers(plan)
}
