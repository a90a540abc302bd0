//! The attributes of a queue pair that messages rarely need.

use crate::base::memory::Access;
use crate::verbs::attr::QpAttr;
use vrdma_wire::num::{Mac, Psn, Qkey};

/// The attributes without a copy in the QP's first cache lines, as in [`QpAttr`].
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
            // Attributes that are stored elsewhere in the QP.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{CqId, OwnerId, PdId};
    use crate::objects::qp::Qp;
    use crate::verbs::attr::{QpInit, QpType, Receives};
    use vrdma_wire::num::{Gid, Mtu, Qpn};

    #[test]
    fn what_is_set_is_told() {
        let init = QpInit {
            owner: OwnerId(1),
            pd: Some(PdId(2)),
            qp_type: QpType::Rc,
            send_cq: CqId(3),
            recv_cq: CqId(4),
            receives: Receives::Own,
            max_send_wr: 5,
            max_recv_wr: 6,
            max_send_sge: 7,
            max_recv_sge: 8,
            max_inline: 9,
        };
        let mut qp = Qp::new(Qpn::truncate(10), init, None);
        assert_eq!(qp.init(), init);
        // Each field has another value, which a new QP does not have.
        let attr = QpAttr {
            en_sqd_async_notify: true,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ,
            pkey_index: 11,
            port: 12,
            path_mtu: Mtu::M2048,
            qkey: Qkey(13),
            rq_psn: Psn::truncate(14),
            sq_psn: Psn::truncate(15),
            dest_qpn: Qpn::truncate(16),
            max_rd_atomic: 17,
            max_dest_rd_atomic: 18,
            min_rnr_timer: 19,
            timeout: 20,
            retry_cnt: 5,
            rnr_retry: 6,
            sl: 3,
            sgid_index: 21,
            dgid: Gid([22; 16]),
            dmac: Mac([23; 6]),
            hop_limit: 24,
            traffic_class: 25,
            flow_label: 26,
            udp_sport: 27,
            vlan: Some(28),
            ..QpAttr::default()
        };
        qp.set(&attr);
        assert_eq!(qp.all_attrs(), attr);
    }
}
