//! The guest's Linux as people set it up: namespaces, names, addresses, users, other users of verbs
//! in the kernel.
//!
//! Each test stands for a public bug report of another RDMA device. Beside its own question it asks
//! what [`case::case`] asks of each.

mod addresses;
mod case;
mod classes;
mod iommu;
mod many;
mod memory;
mod migration;
mod names;
mod namespaces;
mod netdevs;
mod pci;
mod places;
mod plug;
mod rails;
mod routes;
mod users;
mod verbs;
