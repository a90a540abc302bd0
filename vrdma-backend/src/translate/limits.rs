//! The limits of a device, as the engine and the driver receive them.

use crate::config;
use vrdma_abi::control::{QueryDeviceExResp, QueryDeviceResp, device_cap};
use vrdma_abi::wqe::unit;
use vrdma_transport::{Limits, MAX_PAGES};
use vrdma_wire::num::{Mac, Mtu};

/// Number of entries of the GID table.
pub const GID_TABLE_LEN: u16 = 128;
/// Largest number of outstanding READs and atomics of one QP, in each direction.
const MAX_RD_ATOMIC: u32 = 128;
/// `IB_ATOMIC_GLOB`: atomics are atomic towards processors too. They are the host's own
/// instructions on the guest's memory.
const ATOMIC_CAP: u32 = 2;
/// Capabilities of the device. A function adds its bit when it is implemented.
const DEVICE_CAP: u64 = device_cap::V1_0
    | device_cap::ATOMIC_WRITE
    | device_cap::FLUSH_GLOBAL
    | device_cap::SRQ
    | device_cap::SRQ_RESIZE
    | device_cap::XRC
    | device_cap::CQ_RESIZE
    | device_cap::CQ_MODERATION
    | device_cap::CQ_IGNORE_OVERRUN
    | device_cap::CQ_TIMESTAMP
    | device_cap::MULTICAST
    | device_cap::MEM_WINDOW
    | device_cap::MEM_WINDOW_TYPE_2B
    | device_cap::MEM_MGT_EXTENSIONS
    | device_cap::REREG_MR
    | device_cap::HW_COUNTERS
    | device_cap::WQE_LIST;
/// Capabilities that an iWARP function lacks.
const NOT_OF_IWARP: u64 = device_cap::RNR_NAK
    | device_cap::BAD_QKEY_COUNTER
    | device_cap::ATOMIC_WRITE
    | device_cap::FLUSH_GLOBAL
    | device_cap::XRC
    | device_cap::MULTICAST;
/// Largest number of multicast groups of a guest, and of members of each group.
///
/// More members only make each datagram more work, for this host and for the guest itself.
const MAX_MCAST: u32 = 1024;
/// Largest number of members of all groups of a guest. It limits their memory in the engine to less
/// than a MiB.
const MAX_MCAST_ATTACHED: u32 = 8192;

/// Largest number of XRC domains of a guest. Each takes some bytes. No field tells drivers this
/// limit.
const MAX_XRCD: u32 = 4096;

/// Returns the limits for the engine, with a port of this path MTU.
pub fn of_engine(limits: &config::GuestLimits, max_mtu: Mtu) -> Limits {
    Limits {
        max_pd: limits.pds,
        max_mr: limits.mrs,
        max_qp: limits.qps,
        max_qp_wr: limits.qp_requests,
        max_srq: limits.srqs,
        max_xrcd: MAX_XRCD,
        max_send_sge: unit::MAX_SGE_V1_1,
        max_recv_sge: unit::MAX_SGE_V1_1,
        max_inline: unit::MAX_INLINE_V1_1,
        max_rd_atomic: MAX_RD_ATOMIC,
        max_dest_rd_atomic: MAX_RD_ATOMIC,
        gid_table_len: GID_TABLE_LEN.into(),
        max_mcast_grp: MAX_MCAST,
        max_mcast_qp_attach: MAX_MCAST,
        max_total_mcast_qp_attach: MAX_MCAST_ATTACHED,
        max_mtu,
        max_request_memory: limits.request_memory,
    }
}

/// Returns the limits for the driver.
pub fn response(
    limits: &config::GuestLimits,
    mac: Mac,
    transport: config::Transport,
    wants_next_hop: bool,
) -> QueryDeviceExResp {
    let next_hop = if wants_next_hop { device_cap::NEXT_HOP } else { 0 };
    let of_iwarp = DEVICE_CAP & !NOT_OF_IWARP | device_cap::CM_TRAFFIC_CLASS | next_hop;
    let has_packets = transport == config::Transport::Roce;
    let of_packets = |value: u32| if has_packets { value } else { 0 };
    QueryDeviceExResp {
        base: base(limits, mac),
        device_cap: (if has_packets { DEVICE_CAP } else { of_iwarp }).into(),
        max_srq: limits.srqs.into(),
        max_mcast_grp: of_packets(MAX_MCAST).into(),
        max_mcast_qp_attach: of_packets(MAX_MCAST).into(),
        max_total_mcast_qp_attach: of_packets(MAX_MCAST_ATTACHED).into(),
        max_fast_reg_pages: MAX_PAGES.into(),
        reserved: [0; 140],
    }
}

fn base(limits: &config::GuestLimits, mac: Mac) -> QueryDeviceResp {
    let version = |part: &str| part.parse::<u64>().unwrap_or(0);
    QueryDeviceResp {
        fw_version: (version(env!("CARGO_PKG_VERSION_MAJOR")) << 32
            | version(env!("CARGO_PKG_VERSION_MINOR")) << 16
            | version(env!("CARGO_PKG_VERSION_PATCH")))
        .into(),
        sys_image_guid: eui64(mac),
        max_mr_size: limits.memory_bytes().into(),
        max_mr_runs: limits.mr_runs.into(),
        max_contexts: limits.contexts.into(),
        max_pd: limits.pds.into(),
        max_cq: limits.cqs.into(),
        max_cqe: limits.cq_entries.into(),
        max_mr: limits.mrs.into(),
        max_qp: limits.qps.into(),
        max_qp_wr: limits.qp_requests.into(),
        max_send_sge: unit::MAX_SGE_V1_1.into(),
        max_recv_sge: unit::MAX_SGE_V1_1.into(),
        max_inline: unit::MAX_INLINE_V1_1.into(),
        max_rd_atomic: MAX_RD_ATOMIC.into(),
        max_dest_rd_atomic: MAX_RD_ATOMIC.into(),
        max_ah: limits.ahs.into(),
        atomic_cap: ATOMIC_CAP.into(),
        reserved: 0.into(),
    }
}

/// Returns the modified EUI-64 of a MAC address (RFC 4291, appendix A).
fn eui64(mac: Mac) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac.0;
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}
