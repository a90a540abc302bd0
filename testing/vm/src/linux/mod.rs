//! The guest's Linux as people set it up: namespaces, names, addresses, users, and other users of
//! verbs in the kernel.
//!
//! Each test stands for a public bug report about another RDMA device. Besides its own question,
//! each test checks what [`case::case`] checks. Tests of other kernels and of udev's rules are here
//! too.

mod addresses;
mod case;
mod classes;
mod iommu;
mod kernels;
mod many;
mod memory;
mod migration;
mod names;
mod namespaces;
mod netdevs;
mod pci;
mod plug;
mod rails;
mod routes;
mod users;
mod verbs;
