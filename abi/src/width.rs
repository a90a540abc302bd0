//! Fields that are wider than the values they carry.
//!
//! Programs leave arbitrary bits in the unused part: UCX writes flow label 0xffffffff for "not
//! set". Hardware and Linux' rdma_rxe cut such a value, and so does the device. The low bits count,
//! and QUERY_QP returns the value after the cut. Other values out of range are refused.
//!
//! * *bits*: the meaningful bits or values of the field.
//! * *excess*: what the device does with a value beyond them.
//! * *rdma_rxe*: what rdma_rxe does with such a value.
//!
//! | field | bits | excess | rdma_rxe |
//! |---|---|---|---|
//! | `flow_label` of QPs and address handles | 20 bits | cut | ignores it |
//! | `remote_qpn` of a datagram | 24 bits | cut | cuts it |
//! | `dest_qpn` | 24 bits | cut | stores 32 bits, sends 24 |
//! | `rq_psn`, `sq_psn` | 24 bits | cut | cuts them |
//! | `retry_cnt`, `rnr_retry` | 3 bits | cut | stores 8 bits |
//! | `min_rnr_timer` | 5 bits | cut | stores 8 bits, sends 5 |
//! | `sl` of QPs and address handles | 4 bits | cut | ignores it |
//! | `timeout` | 0..31 | refused | refuses it; cut, a value of 32 would mean "no timeout" |
//! | `max_rd_atomic`, `max_dest_rd_atomic` | up to the device's limit | refused | refuses the first |
//! | `path_mtu` | up to the port's | refused | refuses it |
//! | `pkey_index`, `port`, `sgid_index` | an entry of a table | refused | refuses all but the first |
//! | `access` of a QP | `VRDMA_ACCESS_*` | refused | stores 32 bits |
//! | `hop_limit`, `traffic_class`, `qkey`, `imm`, `udp_sport` | all bits | | |
//!
//! The static rate, path bits and DLID of an address vector have no meaning on Ethernet. Drivers
//! drop them, as rdma_rxe does.
//!
//! # Keys
//!
//! The consumer may choose the low 8 bits of some keys. The device chooses the other bits, and they
//! identify the region or window.
//!
//! | key | bits that the consumer chooses | the other bits |
//! |---|---|---|
//! | new rkey of BIND_MW | the low 8 | cut: they stay those of the window |
//! | old rkey of the window, in BIND_MW | none | all are compared |
//! | key of REG_MR, by `IB_WR_REG_MR` | the low 8 | the driver copies them from the request's region |
//! | rkey of LOCAL_INV and SEND_WITH_INV | none | all are compared |
//! | keys of the commands REG_MR and ALLOC_FAST_MR; of ALLOC_MW; of regions of device memory | none | the device chooses all |
//! | key after REREG_MR | none | the device chooses the low 8: a new value for each new translation |
//! | keys of an imported region | none | the keys that the region already has |
//! | lkey of an element, rkey of a request to a peer | none | all are compared |
//! | key of DEREG_MR of a region of ALLOC_FAST_MR, and of DEALLOC_MW | none | compared, without the low 8 |
//! | lkey of an element, rkey of a request to a peer | none | all are compared |
//! | key of DEREG_MR of a region of ALLOC_FAST_MR, and of DEALLOC_MW | none | compared; the low 8 do not count |
//!
//! mlx5 and rdma_rxe cut the new rkey of BIND_MW and the key of REG_MR in the same way.

/// Mask of the meaningful bits of the flow label in [`crate::control::QpAttr`] and
/// [`crate::ah::AhEntry`].
pub const FLOW_LABEL: u32 = (1 << 20) - 1;
/// Mask of the meaningful bits of `retry_cnt` and `rnr_retry` in [`crate::control::QpAttr`].
pub const RETRIES: u8 = 7;
/// Mask of the meaningful bits of `min_rnr_timer` in [`crate::control::QpAttr`].
pub const RNR_TIMER: u8 = 31;
/// Mask of the meaningful bits of the service level in [`crate::control::QpAttr`] and
/// [`crate::ah::AhEntry`].
pub const SL: u8 = 15;
