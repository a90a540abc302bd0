//! Queue pairs.

use crate::control::Answer;
use crate::guest::Guest;
use std::sync::Arc;
use vrdma_abi::control::{CreateQpReq, QpAttr, QpState, QpType, access, limit, qp_attr};
use vrdma_verbs::Tag;

/// Capabilities and attributes of a QP, with sensible values for two QPs on one host.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named as in ibv_qp_init_attr and ibv_qp_attr")]
pub struct QpOptions {
    pub qp_type: QpType,
    pub send_wr: u32,
    pub recv_wr: u32,
    pub sges: u32,
    pub inline: u32,
    pub access: u32,
    pub path_mtu: u8,
    pub rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub sq_psn: u32,
    pub qkey: u32,
    /// Number of the shared receive queue, or NONE.
    pub srqn: u32,
    /// Number of the XRC domain of a target; otherwise 0.
    pub xrcdn: u32,
}

impl QpOptions {
    /// Returns the default options for a QP type.
    pub fn of(qp_type: QpType) -> QpOptions {
        QpOptions { qp_type, ..QpOptions::default() }
    }
}

impl Default for QpOptions {
    fn default() -> Self {
        QpOptions {
            qp_type: QpType::RC,
            send_wr: 128,
            recv_wr: 128,
            sges: 8,
            inline: 224,
            access: access::ALL,
            path_mtu: 5,
            rd_atomic: 16,
            min_rnr_timer: 1,
            // 4.096 us * 2^20 are 4.3 s, so 34 s with all retries. That is longer than a busy
            // machine keeps a worker waiting. To give up sooner, a test calls [`Qp::gives_up_soon`]
            // after the last request that has to succeed.
            timeout: 20,
            retry_cnt: 7,
            rnr_retry: 7,
            sq_psn: 0xfffff0,
            qkey: 0x1234_5678,
            srqn: limit::NONE,
            xrcdn: 0,
        }
    }
}

/// A queue pair.
#[derive(Clone, Debug)]
pub struct Qp {
    /// Number of the QP.
    pub number: u32,
    /// The options it was created with.
    pub options: QpOptions,
    guest: Arc<Guest>,
}

impl Qp {
    /// Creates a QP in state RESET.
    ///
    /// # Errors
    /// The device refuses.
    pub fn create(
        guest: &Arc<Guest>,
        context: u32,
        pd: u32,
        send_cq: u32,
        recv_cq: u32,
        options: &QpOptions,
    ) -> Answer<Qp> {
        let number = guest.create_qp(&CreateQpReq {
            context: context.into(),
            pdn: pd.into(),
            qp_type: options.qp_type.0.into(),
            send_cqn: send_cq.into(),
            recv_cqn: recv_cq.into(),
            srqn: options.srqn.into(),
            max_send_wr: options.send_wr.into(),
            max_recv_wr: options.recv_wr.into(),
            max_send_sge: options.sges.into(),
            max_recv_sge: options.sges.into(),
            max_inline: options.inline.into(),
            xrcdn: options.xrcdn.into(),
        })?;
        Ok(Qp { number, options: options.clone(), guest: guest.clone() })
    }

    /// Returns the guest it belongs to.
    pub fn guest(&self) -> &Arc<Guest> {
        &self.guest
    }

    /// Returns the tag of a request to this QP.
    #[inline]
    pub fn tag(&self, wqe_id: u32) -> Tag {
        Tag { qpn: self.number, wqe_id }
    }

    /// Changes the state from RESET to INIT.
    ///
    /// # Errors
    /// The device refuses.
    pub fn to_init(&self) -> Answer<()> {
        let attr = QpAttr {
            state: QpState::INIT.0 as u8,
            port: 1,
            access: (self.options.access & !access::LOCAL_WRITE).into(),
            qkey: self.options.qkey.into(),
            ..QpAttr::default()
        };
        let mask = qp_attr::STATE
            | qp_attr::PKEY_INDEX
            | match self.options.qp_type {
                QpType::GSI => qp_attr::QKEY,
                QpType::UD => qp_attr::PORT | qp_attr::QKEY,
                _ => qp_attr::PORT | qp_attr::ACCESS_FLAGS,
            };
        self.guest.modify_qp(self.number, mask, attr)
    }

    /// Changes the state from INIT to RTR, with QP `peer` of the guest that has `gid`.
    ///
    /// Datagram QPs ignore peer and GID.
    ///
    /// # Errors
    /// The device refuses.
    pub fn to_rtr(&self, gid: [u8; 16], peer: u32, peer_psn: u32) -> Answer<()> {
        // The last byte of most guests' MAC addresses is that of their IP addresses.
        self.to_rtr_by((gid, [0x52, 0x54, 0, 0, 0, gid[15]]), peer, peer_psn)
    }

    fn to_rtr_by(&self, (dgid, dmac): ([u8; 16], [u8; 6]), peer: u32, peer_psn: u32) -> Answer<()> {
        let attr = QpAttr {
            state: QpState::RTR.0 as u8,
            path_mtu: self.options.path_mtu,
            dest_qpn: peer.into(),
            rq_psn: peer_psn.into(),
            max_dest_rd_atomic: self.options.rd_atomic,
            min_rnr_timer: self.options.min_rnr_timer,
            sgid_index: 0,
            dgid,
            dmac,
            hop_limit: 64,
            vlan: self.guest.options.vlan.unwrap_or(0xffff).into(),
            ..QpAttr::default()
        };
        let connected = qp_attr::AV | qp_attr::PATH_MTU | qp_attr::DEST_QPN | qp_attr::RQ_PSN;
        let mask = qp_attr::STATE
            | match self.options.qp_type {
                QpType::RC | QpType::XRC_RECV => {
                    connected | qp_attr::MAX_DEST_RD_ATOMIC | qp_attr::MIN_RNR_TIMER
                }
                QpType::UC | QpType::XRC_SEND => connected,
                _ => 0,
            };
        self.guest.modify_qp(self.number, mask, attr)
    }

    /// Changes the state from RTR to RTS.
    ///
    /// # Errors
    /// The device refuses.
    pub fn to_rts(&self) -> Answer<()> {
        let attr = QpAttr {
            state: QpState::RTS.0 as u8,
            sq_psn: self.options.sq_psn.into(),
            max_rd_atomic: self.options.rd_atomic,
            timeout: self.options.timeout,
            retry_cnt: self.options.retry_cnt,
            rnr_retry: self.options.rnr_retry,
            ..QpAttr::default()
        };
        let retries = qp_attr::MAX_RD_ATOMIC | qp_attr::TIMEOUT | qp_attr::RETRY_CNT | qp_attr::RNR_RETRY;
        let of_type = match self.options.qp_type {
            QpType::RC | QpType::XRC_SEND => retries,
            QpType::XRC_RECV => qp_attr::TIMEOUT,
            _ => 0,
        };
        let mask = qp_attr::STATE | qp_attr::SQ_PSN | of_type;
        self.guest.modify_qp(self.number, mask, attr)
    }

    /// Changes the state of a datagram QP from RESET to RTS, without a peer.
    ///
    /// # Errors
    /// The device refuses.
    pub fn start(&self) -> Answer<()> {
        self.to_init()?;
        self.to_rtr([0; 16], 0, 0)?;
        self.to_rts()
    }

    /// Changes to a state that needs no other attribute: RESET, ERR or SQD, or from SQD to RTS.
    ///
    /// # Errors
    /// The device refuses.
    pub fn to_state(&self, state: QpState) -> Answer<()> {
        let attr = QpAttr { state: state.0 as u8, ..QpAttr::default() };
        self.guest.modify_qp(self.number, qp_attr::STATE, attr)
    }

    /// Lets the QP give up soon, after 134 ms, on a peer that does not answer.
    ///
    /// The QP must have no request in progress. Requests that have to succeed must have completed.
    ///
    /// # Errors
    /// The device refuses.
    pub fn gives_up_soon(&self) -> Answer<()> {
        self.to_state(QpState::SQD)?;
        // 4.096 us * 2^12 are 16.8 ms; all retries take eight times as long.
        let attr = QpAttr { state: QpState::SQD.0 as u8, timeout: 12, ..QpAttr::default() };
        self.guest.modify_qp(self.number, qp_attr::STATE | qp_attr::TIMEOUT, attr)?;
        self.to_state(QpState::RTS)
    }

    /// Returns the state that the device reports.
    pub fn state(&self) -> QpState {
        QpState(self.guest.query_qp(self.number).expect("the QP exists").state.into())
    }

    /// Destroys the QP.
    ///
    /// # Errors
    /// The device refuses.
    pub fn destroy(&self) -> Answer<()> {
        self.guest.destroy_qp(self.number)
    }
}

/// Brings two QPs from RESET to RTS, connected with each other if their type can connect.
pub fn connect(a: &Qp, b: &Qp) {
    for (own, peer) in [(a, b), (b, a)] {
        own.to_init().expect("to INIT");
        let to = (peer.guest.gid(), peer.guest.config.mac);
        own.to_rtr_by(to, peer.number, peer.options.sq_psn).expect("to RTR");
    }
    for qp in [a, b] {
        qp.to_rts().expect("to RTS");
    }
}
