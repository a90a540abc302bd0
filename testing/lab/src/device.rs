//! The RDMA devices of a VM: vrdma, and the kernel's own.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::siw;
use crate::vm::Vm;

/// The device that the programs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Device {
    /// The vrdma device.
    Vrdma,
    /// The kernel's `rdma_rxe` over the VMs' Ethernet link: for comparison, and to try VMs without
    /// the backend.
    Rxe,
    /// Linux's soft-iWARP over the VMs' Ethernet link, as a peer of vrdma.
    #[value(skip)]
    Siw,
}

impl Device {
    /// Returns the device's name in the VMs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vrdma => "vrdma0",
            Self::Rxe => "rxe0",
            Self::Siw => "siw0",
        }
    }

    /// Makes the device appear in a VM, if the kernel does not do so by itself.
    pub fn prepare_in(self, vm: &Vm, patience: Duration) -> Result<()> {
        const RXE: &str = "test -d /sys/class/infiniband/rxe0 || { modprobe rdma_rxe && \
            rdma link add rxe0 type rxe netdev eth0; }";
        match self {
            Self::Rxe => vm.check(RXE, patience).map(|_| ()),
            Self::Siw => siw::load(vm, siw::Variant::Stock, patience),
            Self::Vrdma => Ok(()),
        }
    }

    /// Returns the index of the RoCE v2 GID of this VM's IPv4 address.
    pub fn gid_index(self, vm: &Vm) -> Result<u32> {
        // An IPv4 address in a GID is `::ffff:a.b.c.d`.
        self.gid_index_of(vm, "0000:0000:0000:0000:0000:ffff:*", Duration::from_secs(30))
    }

    /// Waits for the first RoCE v2 GID that matches the shell pattern, and returns its index.
    pub fn gid_index_of(self, vm: &Vm, pattern: &str, patience: Duration) -> Result<u32> {
        // Empty table entries cannot be read. That is no error.
        let script = format!(
            "cd /sys/class/infiniband/{}/ports/1 || exit 1
             while :; do
                 for gid in gids/*; do
                     read -r address <$gid || continue
                     case $address in {pattern}) ;; *) continue ;; esac
                     read -r kind 2>/dev/null <gid_attrs/types/${{gid#gids/}} || continue
                     [ \"$kind\" = 'RoCE v2' ] && echo ${{gid#gids/}} && exit 0
                 done
                 sleep 0.1
             done",
            self.name()
        );
        let found = vm
            .check(&script, patience)
            .with_context(|| format!("{} of VM {} has no RoCE v2 GID {pattern}", self.name(), vm.name()))?;
        let index = found.lines().next().unwrap_or_default();
        index.parse().with_context(|| format!("odd GID index {index:?}"))
    }
}
