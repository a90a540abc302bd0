//! What a queue pair holds of its attributes beside those that each message looks at.

use crate::memory::Access;
use crate::qp::attr::QpAttr;
use vrdma_wire::num::{Mac, Psn, Qkey};

/// The attributes of which there is no copy in the QP's first cache lines, as in [`QpAttr`].
#[derive(Debug)]
pub(crate) struct RestOfAttr {
    pub(crate) access: Access,
    pub(crate) qkey: Qkey,
    pub(crate) rq_psn: Psn,
    pub(crate) sq_psn: Psn,
    pub(crate) flow_label: u32,
    pub(crate) vlan: Option<u16>,
    pub(crate) pkey_index: u16,
    pub(crate) udp_sport: u16,
    pub(crate) dmac: Mac,
    pub(crate) port: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) timeout: u8,
    pub(crate) sl: u8,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) en_sqd_async_notify: bool,
}

impl RestOfAttr {
    pub(crate) fn new(attr: &QpAttr) -> RestOfAttr {
        let QpAttr {
            en_sqd_async_notify,
            access,
            pkey_index,
            port,
            qkey,
            rq_psn,
            sq_psn,
            min_rnr_timer,
            timeout,
            sl,
            sgid_index,
            dmac,
            hop_limit,
            traffic_class,
            flow_label,
            udp_sport,
            vlan,
            // What is elsewhere in the QP.
            state: _,
            cur_state: _,
            sq_draining: _,
            path_mtu: _,
            dest_qpn: _,
            max_rd_atomic: _,
            max_dest_rd_atomic: _,
            retry_cnt: _,
            rnr_retry: _,
            dgid: _,
        } = *attr;
        RestOfAttr {
            access,
            qkey,
            rq_psn,
            sq_psn,
            flow_label,
            vlan,
            pkey_index,
            udp_sport,
            dmac,
            port,
            min_rnr_timer,
            timeout,
            sl,
            sgid_index,
            hop_limit,
            traffic_class,
            en_sqd_async_notify,
        }
    }
}
