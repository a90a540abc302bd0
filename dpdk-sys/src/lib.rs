//! Raw declarations of the installed libdpdk.
//!
//! Debian 12's 22.11 and Debian 13's 24.11 are known to work. The crate declares only what the port
//! module of `vrdma-backend` calls. Functions that DPDK has only in its headers are in `shim.c`:
//! their names are DPDK's with `shim_` instead of `rte_`. DPDK's API documentation describes each
//! function and its conditions. The safe layer is `vrdma_backend::port`.
#![allow(unsafe_code, reason = "declarations of a C library")]
#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    missing_docs,
    reason = "C's names, and its documentation"
)]
#![allow(
    unsafe_op_in_unsafe_fn,
    unnecessary_transmutes,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::allow_attributes_without_reason,
    reason = "written by bindgen"
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
