//! What a pair of VMs looks like: where they are, and what devices and backends they have.

use std::sync::OnceLock;

use super::directories::Lane;
use super::uplink::Uplink;
use crate::artefacts::{Build, Part};
use crate::device::Device;
use crate::kernel::Kernel;

/// Where the two VMs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// On one host, served by one backend.
    OneHost,
    /// Each on a host of its own, which has this device; a wire joins the hosts.
    Wire([Device; 2]),
}

/// Whose TCP devices of iWARP go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Tcp {
    /// That of their host's kernel: the host has the VM's addresses, too.
    Kernel,
    /// The backend's own, on the wire between two hosts.
    Own,
}

/// Workers of each backend, where the command line says how many.
static WORKERS: OnceLock<u32> = OnceLock::new();

/// Backends of all pairs have so many workers.
pub fn use_workers(workers: Option<u32>) {
    if let Some(workers) = workers {
        // A process runs one command, which says it once.
        let _ = WORKERS.set(workers);
    }
}

/// How many: as the command line says, or, as for the tests without VMs, `VRDMA_TEST_WORKERS`.
///
/// # Panics
/// That is no number: tests that were to have several workers would pass with one.
pub fn workers() -> u32 {
    let variable = || {
        std::env::var("VRDMA_TEST_WORKERS")
            .ok()
            .map(|text| text.parse().expect("VRDMA_TEST_WORKERS is a number"))
    };
    WORKERS.get().copied().or_else(variable).unwrap_or(1)
}

/// What a pair looks like.
#[derive(Clone, Debug)]
pub struct PairConfig {
    /// Parts of our device that are left out. Without the backend the VMs have Ethernet only.
    pub without: Vec<Part>,
    /// Which of the pairs that are up at a time it is.
    pub lane: Lane,
    /// How our programs are built.
    pub build: Build,
    /// Virtual CPUs of each VM.
    pub cpus: u32,
    /// Memory of each VM in MiB; more if the kernel needs more.
    pub memory: u32,
    /// What the VMs boot.
    pub kernel: Kernel,
    /// More words for the kernels' command lines.
    pub kernel_words: String,
    /// Channels of each VM's device, the kernel's included.
    pub channels: u16,
    /// Arguments for the backend.
    pub backend_arguments: Vec<String>,
    /// Where the VMs are.
    pub topology: Topology,
    /// Whether there is a third VM, c, on VM a's host. Then a and b may use VLAN 10, and c and b
    /// VLAN 20, with the same addresses ([`VLAN_IP`](super::addresses::VLAN_IP)).
    pub third: bool,
    /// Whose TCP the VMs' devices go over, if they are of iWARP.
    pub iwarp: Option<Tcp>,
    /// They have a device of RoCE beside that of iWARP, which is the first.
    pub both: bool,
    /// What backends' uplinks are, on hosts that a wire joins.
    pub uplink: Uplink,
    /// The VMs' RDMA devices are behind PCIe root ports, and memory can be plugged in.
    pub root_ports: bool,
    /// Each VM has a second Ethernet device and a second RDMA device, of the backend's guests `a2`
    /// and `b2`.
    pub rails: bool,
    /// Between the hosts there is a [`Router`](super::router::Router), where a wire joins them.
    pub routed: bool,
    /// The VMs have an IOMMU: VM a's kernel translates by it, and VM b's lets devices pass it.
    pub iommu: bool,
    /// Guests may use any address that is no other guest's.
    pub any_gid: bool,
    /// The backends are those of [`crate::older`].
    pub older_backend: bool,
}

impl Default for PairConfig {
    fn default() -> Self {
        // Each VM on another worker.
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
