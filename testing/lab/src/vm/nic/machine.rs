//! The machines of the two VMs: NICs, IOMMU, and the cable between them.

use std::path::Path;

use crate::accel::Accel;
use crate::vm::{CAPTURE, Net, VmConfig, qmp};

/// The peer's IP address.
const PEER: &str = "10.0.0.2";
const PEER_MAC: &str = "52:54:00:00:00:02";

/// QEMU's ids of the NIC, and of its root port.
pub(super) const ID: &str = "nic";
pub(super) const PORT: &str = "nicport";

/// The NICs that QEMU emulates and DPDK drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Nic {
    /// Intel 82576.
    Igb,
    /// Intel 82574.
    E1000e,
    /// virtio 1.0.
    Virtio,
    /// VMware's NIC.
    Vmxnet3,
}

impl Nic {
    /// All NICs.
    pub const ALL: [Self; 4] = [Self::Igb, Self::E1000e, Self::Virtio, Self::Vmxnet3];

    /// Returns QEMU's name of the device, with properties.
    pub(super) fn device(self) -> &'static str {
        match self {
            Self::Igb => "igb",
            Self::E1000e => "e1000e",
            // The device is behind the platform's IOMMU: DPDK cannot use it by vfio otherwise.
            Self::Virtio => "virtio-net-pci,disable-legacy=on,iommu_platform=on,romfile=",
            Self::Vmxnet3 => "vmxnet3",
        }
    }

    /// Returns the NIC's name.
    pub fn name(self) -> &'static str {
        self.device().split(',').next().unwrap_or_default()
    }
}

/// Returns the configuration of the VM with `rdma_rxe`, whose end of the cable is recorded.
pub fn peer_config(accel: Accel, cable: &Path, share: &Path, directory: &Path) -> VmConfig {
    let capture = directory.join(CAPTURE);
    VmConfig {
        name: "peer".to_owned(),
        cpus: 1,
        memory: 1024,
        mac: PEER_MAC.to_owned(),
        ip: format!("{PEER}/24"),
        net: Some(Net::Listen(cable.to_owned())),
        rdma: Vec::new(),
        share: share.to_owned(),
        kernel_words: String::new(),
        slowness: accel.slowness(),
        extra: vec!["-object".into(), format!("filter-dump,id=dump,netdev=net,file={}", capture.display())],
    }
}

/// Returns the configuration of the VM with the NIC.
pub fn host_config(accel: Accel, nic: Nic, cable: &Path, monitor: &Path, share: &Path) -> VmConfig {
    let netdev =
        format!("stream,id={ID},server=off,addr.type=unix,addr.path={},reconnect-ms=200", cable.display());
    let device = format!("{},id={ID},bus={PORT},netdev={ID}", nic.device());
    let devices = [
        ["-device", "intel-iommu,intremap=on"].map(str::to_owned),
        ["-device".into(), format!("pcie-root-port,id={PORT},chassis=1")],
        ["-netdev".into(), netdev],
        ["-device".into(), device],
        qmp::arguments(monitor),
    ];
    // QEMU remaps the interrupts, so the kernel must not emulate all of the interrupt controllers.
    let irqchip = ["-machine", "kernel-irqchip=split"].map(str::to_owned);
    let irqchip = (accel == Accel::Kvm).then_some(irqchip);
    VmConfig {
        name: "host".to_owned(),
        cpus: 2,
        memory: 1024,
        // No interface of this VM is brought up.
        mac: String::new(),
        ip: String::new(),
        net: None,
        rdma: Vec::new(),
        share: share.to_owned(),
        kernel_words: "intel_iommu=on hugepages=192".to_owned(),
        slowness: accel.slowness(),
        extra: irqchip.into_iter().chain(devices).flatten().collect(),
    }
}
