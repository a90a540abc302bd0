//! Short forms of commands of `cargo xtask`: `conformance`, `demo pci-nic` and `kernel-faults`.

use anyhow::Result;
use vrdma_conformance::demo::pci_nic;
use vrdma_conformance::families::{Family, quick};
use vrdma_conformance::kernel_faults;
use vrdma_lab::vm::Pair;
use vrdma_lab::vm::nic::Nic;
use vrdma_vm_macros::vm_test;

use crate::test::{Run, all};

/// A family of programs: those that connect by rdma_cm, those of rsockets, those of UCX, libfabric
/// and MPI, and what machine learning has of RDMA.
#[vm_test("vm-cm", lab = Usual, args(Family::Cm))]
#[vm_test("vm-sockets", lab = Usual, long, args(Family::Sockets))]
#[vm_test("vm-sockets-two-hosts", lab = TwoHosts, long, args(Family::Sockets))]
#[vm_test("vm-mpi", lab = Usual, long, args(Family::Mpi))]
#[vm_test("vm-mpi-two-hosts", lab = TwoHosts, long, args(Family::Mpi))]
#[vm_test("vm-ai", lab = Usual, long, args(Family::Ai))]
#[vm_test("vm-ai-two-hosts", lab = TwoHosts, long, args(Family::Ai))]
fn conformance(pair: &mut Pair, family: Family) -> Result<()> {
    quick(pair, family)
}

/// The daemon on a NIC on PCI.
#[vm_test("vm-pci-nic-igb", alone, long, args(Nic::Igb))]
#[vm_test("vm-pci-nic-e1000e", alone, long, args(Nic::E1000e))]
#[vm_test("vm-pci-nic-virtio", alone, long, args(Nic::Virtio))]
#[vm_test("vm-pci-nic-vmxnet3", alone, long, args(Nic::Vmxnet3))]
fn pci_nic(nic: Nic) -> Result<()> {
    pci_nic::run(&[nic])
}

/// Random calls of verbs on a kernel that finds faults.
#[vm_test("vm-kernel-faults", lab = KernelFaults, long)]
fn kernel_faults(pair: &mut Pair) -> Result<()> {
    kernel_faults::short(pair, &of_kernel_faults())
}

/// The tests that `cargo xtask kernel-faults` runs in a pair of its own, in the order of its list.
pub fn of_kernel_faults() -> Vec<kernel_faults::Test> {
    let tests = all();
    let of = |name| match tests.iter().find(|test| test.name == name)?.run {
        Run::InPair(run) => Some((name, run)),
        Run::Alone(_) => None,
    };
    kernel_faults::TESTS.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_are_there() {
        assert_eq!(of_kernel_faults().len(), kernel_faults::TESTS.len());
    }
}
