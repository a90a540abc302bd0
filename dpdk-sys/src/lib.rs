//! Raw declarations of the installed libdpdk (Debian 12's 22.11 and 13's 24.11 are known to work):
//! what `vrdma-backend`'s port module calls, and nothing else. Functions that DPDK has only in its
//! headers are in `shim.c`, as `shim_` and DPDK's name without `rte_`. What each does and asks for
//! says DPDK's API documentation; the safe layer is `vrdma_backend::port`.
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
