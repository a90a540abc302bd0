//! How many bits of a field mean something, where the field is wider.
//!
//! Programs leave rubbish in the rest (UCX gives flow label 0xffffffff for "not set"). Hardware and
//! Linux' rdma_rxe cut such a value, so the device does: the low bits count, and QUERY_QP returns
//! what is left. What is out of range without being too wide is refused.
//!
//! | field | means | too much is | rdma_rxe |
//! |---|---|---|---|
//! | `flow_label` of QPs and address handles | 20 bits | cut | ignores it |
//! | `remote_qpn` of a datagram | 24 bits | cut | cuts it |
//! | `dest_qpn` | 24 bits | cut | stores 32 bits, sends 24 |
//! | `rq_psn`, `sq_psn` | 24 bits | cut | cuts them |
//! | `retry_cnt`, `rnr_retry` | 3 bits | cut | stores 8 bits |
//! | `min_rnr_timer` | 5 bits | cut | stores 8 bits, sends 5 |
//! | `sl` of QPs and address handles | 4 bits | cut | ignores it |
//! | `timeout` | 0..31 | refused | refuses it: 32 would be for ever if it were cut |
//! | `max_rd_atomic`, `max_dest_rd_atomic` | up to the device's limit | refused | refuses the first |
//! | `path_mtu` | up to the port's | refused | refuses it |
//! | `pkey_index`, `port`, `sgid_index` | an entry of a table | refused | refuses all but the first |
//! | `access` of a QP | `VRDMA_ACCESS_*` | refused | stores 32 bits |
//! | `hop_limit`, `traffic_class`, `qkey`, `imm`, `udp_sport` | all bits | | |
//!
//! Static rate, path bits and DLID of an address vector mean nothing on Ethernet: drivers drop
//! them, as rdma_rxe does.
//!
//! # Keys
//!
//! Of a key the low 8 bits may be somebody's choice; the others are the device's, and say which
//! region or window it is.
//!
//! | key | bits of the consumer | the others |
//! |---|---|---|
//! | new rkey of BIND_MW | the low 8 | cut: they stay those of the window |
//! | rkey of BIND_MW, the window's before | none | all are compared |
//! | key of REG_MR, by `IB_WR_REG_MR` | the low 8 | the driver puts those of the request's region there |
//! | rkey of LOCAL_INV and SEND_WITH_INV | none | all are compared |
//! | keys of REG_MR and ALLOC_FAST_MR, the commands; of ALLOC_MW; of regions of device memory | none | the device chooses all |
//! | key after REREG_MR | none | the device chooses the low 8, another value for another translation |
//! | keys of an imported region | none | those that the region has |
//! | lkey of an element, rkey of a request to a peer | none | all are compared |
//! | key of DEREG_MR of a region of ALLOC_FAST_MR, and of DEALLOC_MW | none | compared; the low 8 do not count |
//!
//! mlx5 and rdma_rxe cut the new rkey of BIND_MW and the key of REG_MR in the same way.

/// Flow label, of [`crate::control::QpAttr`] and [`crate::ah::AhEntry`].
pub const FLOW_LABEL: u32 = (1 << 20) - 1;
/// `retry_cnt` and `rnr_retry` of [`crate::control::QpAttr`].
pub const RETRIES: u8 = 7;
/// `min_rnr_timer` of [`crate::control::QpAttr`].
pub const RNR_TIMER: u8 = 31;
/// Service level, of [`crate::control::QpAttr`] and [`crate::ah::AhEntry`].
pub const SL: u8 = 15;
