//! The configuration of a pair of VMs: where they run, and what devices and backends they have.

use std::sync::OnceLock;

use super::directories::Lane;
use crate::artefacts::{Build, Part};
use crate::device::Device;
use crate::kernel::Kernel;

/// Where the two VMs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// On one host, served by one backend.
    OneHost,
    /// On two hosts, which a wire joins. VM a's host has the first of these devices, VM b's the
    /// second.
    Wire([Device; 2]),
}

/// Whose TCP carries the connections of iWARP devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Tcp {
    /// That of their host's kernel. The host has the VM's addresses, too.
    Kernel,
    /// The backend's own, on the wire between two hosts.
    Own,
}

/// The driver of backends' uplinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Uplink {
    /// Packet sockets, by DPDK's driver.
    #[default]
    #[value(name = "net_af_packet")]
    AfPacket,
    /// Packet sockets, by vrdma's own driver, which merges segments of TCP.
    #[value(name = "net_packet")]
    Packet,
}

impl Uplink {
    /// Returns the device on an interface, as an argument of `--uplink`.
    pub fn over(self, interface: &str) -> String {
        match self {
            Self::AfPacket => format!("net_af_packet0,iface={interface}"),
            Self::Packet => format!("net_packet0,iface={interface}"),
        }
    }
}

/// Number of workers of each backend, if the command line sets it.
static WORKERS: OnceLock<u32> = OnceLock::new();

/// Sets the number of workers for the backends of all pairs.
pub fn use_workers(workers: Option<u32>) {
    if let Some(workers) = workers {
        // Each process runs one command, which sets this at most once.
        let _ = WORKERS.set(workers);
    }
}

/// Returns the number of workers: from the command line, or from `VRDMA_TEST_WORKERS`.
///
/// The variable is also that of the tests without VMs. The default is 1.
///
/// # Panics
/// The variable is not a number. Otherwise tests for several workers would pass with one.
pub fn workers() -> u32 {
    let variable = || {
        std::env::var("VRDMA_TEST_WORKERS")
            .ok()
            .map(|text| text.parse().expect("VRDMA_TEST_WORKERS is a number"))
    };
    WORKERS.get().copied().or_else(variable).unwrap_or(1)
}

/// The configuration of a pair of VMs.
#[derive(Clone, Debug)]
pub struct PairConfig {
    /// Parts of the device that are left out. Without the backend the VMs have Ethernet only.
    pub without: Vec<Part>,
    /// The number of this pair among the pairs that run at the same time.
    pub lane: Lane,
    /// How the project's programs are built.
    pub build: Build,
    /// Virtual CPUs of each VM.
    pub cpus: u32,
    /// Memory of each VM in MiB. It is increased if the kernel needs more.
    pub memory: u32,
    /// The kernel that the VMs boot.
    pub kernel: Kernel,
    /// Additional words for the kernels' command lines.
    pub kernel_words: String,
    /// Channels of each VM's device, including the kernel's.
    pub channels: u16,
    /// Additional arguments of each backend.
    pub backend_arguments: Vec<String>,
    /// Where the VMs run.
    pub topology: Topology,
    /// Whether there is a third VM, c, on VM a's host.
    ///
    /// If so, a and b may use VLAN 10, and c and b VLAN 20. Addresses are the same in both VLANs
    /// ([`VLAN_IP`](super::addresses::VLAN_IP)).
    pub third: bool,
    /// Whose TCP carries the connections of the VMs' devices, if these are iWARP devices.
    pub iwarp: Option<Tcp>,
    /// Whether the VMs also have a RoCE device. The iWARP device is the first one.
    pub both: bool,
    /// The driver of the backends' uplinks, on hosts that a wire joins.
    pub uplink: Uplink,
    /// Whether the VMs' RDMA devices are behind PCIe root ports, and memory can be plugged in.
    pub root_ports: bool,
    /// Whether each VM has a second Ethernet device and a second RDMA device.
    ///
    /// They belong to the backend's guests `a2` and `b2`.
    pub rails: bool,
    /// Whether a [`Router`](super::router::Router) is between the hosts, if a wire joins them.
    pub routed: bool,
    /// Whether the VMs have an IOMMU. VM a's kernel translates by it; VM b's lets devices bypass
    /// it.
    pub iommu: bool,
    /// Whether guests may use any address that is no other guest's.
    pub any_gid: bool,
    /// Whether the backends are those of [`crate::older`].
    pub older_backend: bool,
}

impl Default for PairConfig {
    fn default() -> Self {
        // Each VM is on another worker.
        let backend_arguments =
            if workers() > 1 { vec![format!("--workers={}", workers())] } else { Vec::new() };
        Self {
            without: Vec::new(),
            lane: Lane::default(),
            build: Build::default(),
            cpus: 1,
            memory: 1024,
            kernel: Kernel::Usual,
            kernel_words: String::new(),
            channels: 60,
            backend_arguments,
            topology: Topology::OneHost,
            third: false,
            iwarp: None,
            both: false,
            uplink: Uplink::default(),
            root_ports: false,
            rails: false,
            routed: false,
            iommu: false,
            any_gid: false,
            older_backend: false,
        }
    }
}
