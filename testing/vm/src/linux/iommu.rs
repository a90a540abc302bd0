//! A VM with an IOMMU.

use anyhow::{Context, Result, ensure};
use vrdma_lab::driver::wait_for_device;
use vrdma_lab::vm::Pair;
use vrdma_lab::vm::addresses::IP;
use vrdma_vm_macros::vm_test;

use super::case::rping;

/// With an IOMMU whose kernel lets devices pass, the device works. Where the kernel translates, its
/// driver refuses the device in one line, as a device without ACCESS_PLATFORM would use other
/// memory than it is meant to (virtio 1.2, 6).
///
/// cloud-hypervisor#3066.
#[vm_test("vm-linux-iommu", lab = Iommu)]
fn passed_or_refused(pair: &mut Pair) -> Result<()> {
    let patience = pair.patience(4);
    for (vm, domain) in [(&pair.a, "DMA"), (&pair.b, "identity")] {
        let found =
            "cat $(dirname $(grep -l 0x1af4 /sys/bus/pci/devices/*/vendor | head -n 1))/iommu_group/type";
        let found = vm.check(found, patience).context("there is no IOMMU")?;
        ensure!(found.starts_with(domain), "the IOMMU of VM {} is of type {found}", vm.name());
    }
    wait_for_device(pair)?;
    rping(pair, &pair.b, IP[1], &pair.b)?;
    let refused = "dmesg | grep -i vrdma; ! test -e /sys/class/infiniband/vrdma0";
    let said = pair.a.check(refused, patience).context("VM a's driver takes a device behind its IOMMU")?;
    let lines = said.lines().filter(|line| line.contains("without ACCESS_PLATFORM")).count();
    ensure!(lines == 1, "VM a's kernel says of the device:\n{said}");
    pair.a.check("ping -c 1 10.77.0.2", patience).context("its netdev")?;
    for vm in [&pair.a, &pair.b] {
        vm.check("! dmesg | grep -e 'DMAR:.*fault' -e WARNING: -e BUG: -e Oops", patience)?;
    }
    Ok(())
}
