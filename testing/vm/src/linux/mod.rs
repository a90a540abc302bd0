//! The guest's Linux as people set it up: namespaces, names, addresses, users, other users of verbs
//! in the kernel.
//!
//! Each test stands for a public bug report of another RDMA device. Beside its own question it asks
//! what [`case::case`] asks of each.

mod addresses;
mod case;
pub mod classes;
mod iommu;
pub mod many;
mod memory;
mod migration;
mod names;
mod namespaces;
pub mod netdevs;
mod pci;
mod places;
mod plug;
mod rails;
pub mod routes;
mod users;
pub mod verbs;

use crate::lab::Lab;
use crate::storage;
use crate::test::{Needs, VmTest, on};

/// Those of VMs on one host. Those of a kind of pair stand together.
pub fn on_one_host() -> Vec<VmTest> {
    let test = |lab, name, run| on(lab, name, Needs::Rdma, run);
    vec![
        test(Lab::Usual, "vm-linux-mac", netdevs::other_mac),
        test(Lab::Usual, "vm-linux-upper", netdevs::upper_netdevs),
        test(Lab::Usual, "vm-linux-netns", namespaces::shared),
        test(Lab::Usual, "vm-linux-netns-exclusive", namespaces::exclusive),
        test(Lab::Usual, "vm-linux-renamed", names::renamed),
        test(Lab::Usual, "vm-linux-sysfs", places::in_sysfs),
        test(Lab::Usual, "vm-linux-qemu-migration", migration::over_rdma).long(),
        test(Lab::Usual, "vm-linux-link-local", addresses::link_local),
        test(Lab::Usual, "vm-linux-unprivileged", users::unprivileged),
        test(Lab::Usual, "vm-linux-last-wqe", verbs::last_wqe),
        test(Lab::Usual, "vm-linux-odd-regions", verbs::odd_regions),
        test(Lab::Usual, "vm-linux-private-data", verbs::private_data),
        test(Lab::Usual, "vm-linux-few-ports", verbs::few_ports),
        test(Lab::Usual, "vm-linux-answers", verbs::answers),
        test(Lab::Usual, "vm-linux-destroyed", verbs::destroyed),
        test(Lab::Usual, "vm-linux-many-connections", many::eight_thousand).long(),
        test(Lab::Usual, "vm-linux-srp", storage::srp),
        test(Lab::Usual, "vm-linux-moderation", storage::adaptive_moderation),
        test(Lab::Usual, "vm-linux-smc", users::smc),
        test(Lab::Usual, "vm-linux-fio", users::fio),
        test(Lab::Usual, "vm-linux-rebind", pci::rebound),
        test(Lab::Usual, "vm-linux-rescan", pci::removed),
        test(Lab::Usual, "vm-linux-pci-reset", pci::reset),
        test(Lab::Usual, "vm-linux-plug", plug::device),
        test(Lab::Usual, "vm-linux-memory", memory::plugged_in).long(),
        test(Lab::Usual, "vm-linux-memory-resized", memory::resized).long(),
        test(Lab::Rails, "vm-linux-rails", rails::two_functions).long(),
        test(Lab::Iommu, "vm-linux-iommu", iommu::passed_or_refused),
        test(Lab::OneChannel, "vm-linux-many-addresses", addresses::many),
    ]
}
