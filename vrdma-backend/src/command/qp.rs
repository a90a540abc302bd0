//! Queue pairs: CREATE_QP, MODIFY_QP, QUERY_QP and DESTROY_QP.

use super::base::{Command, Nothing, StatusResult, nothing, object, qpn};
use super::caller::Caller;
use crate::config::Transport;
use crate::device;
use crate::memory::Extent;
use crate::worker::{Order, Worker};
use vrdma_abi::control::{
    self, CreateQpReq, CreateQpResp, ModifyQpReq, ObjectReq, Opcode, Status, limit, qp_attr,
};
use vrdma_abi::width;
use vrdma_transport::{
    Access, AttrMask, CqId, DeviceId, Error, OwnerId, PdId, QpAttr, QpInit, QpState, QpType, Receives, SrqId,
    XrcdId,
};
use vrdma_wire::num::{Gid, Mac, Mtu, Psn, Qkey, Qpn};

// Both use the bits of `enum ibv_qp_attr_mask`.
const _: () = assert!(
    qp_attr::STATE == AttrMask::STATE.0
        && qp_attr::AV == AttrMask::AV.0
        && qp_attr::PATH_MIG_STATE == AttrMask::PATH_MIG_STATE.0
        && qp_attr::DEST_QPN == AttrMask::DEST_QPN.0
);

/// CREATE_QP.
#[derive(Debug)]
pub struct CreateQp {
    /// The QP to create.
    pub init: QpInit,
}

impl Command for CreateQp {
    const OPCODE: Opcode = Opcode::CREATE_QP;
    type Request = CreateQpReq;
    type Reply = CreateQpResp;

    fn parse(request: &CreateQpReq, _: &[Extent], caller: &Caller<'_>) -> StatusResult<Self> {
        let init = init(request)?;
        if caller.guest.transport == Transport::Iwarp && init.qp_type != QpType::Rc {
            return Err(Status::UNSUPPORTED);
        }
        Ok(Self { init })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<CreateQpResp> {
        if worker.is_draining {
            return Err(Error::NoResources);
        }
        let Worker { engine, outputs, .. } = worker;
        let qpn = outputs.device(id).create_qp(engine, self.init)?;
        Ok(CreateQpResp { qpn: qpn.number().into(), reserved: 0.into() })
    }
}

/// MODIFY_QP.
#[derive(Debug)]
pub struct ModifyQp {
    /// The QP.
    pub qpn: Qpn,
    /// The attributes to change.
    pub mask: AttrMask,
    /// The new values of these attributes.
    pub attr: QpAttr,
}

impl Command for ModifyQp {
    const OPCODE: Opcode = Opcode::MODIFY_QP;
    type Request = ModifyQpReq;
    type Reply = Nothing;

    fn parse(request: &ModifyQpReq, _: &[Extent], caller: &Caller<'_>) -> StatusResult<Self> {
        let (mask, attr) = attributes(request)?;
        // An iWARP QP enters the remaining states by being connected, not by MODIFY_QP.
        let may_be = matches!(attr.state, QpState::Reset | QpState::Init | QpState::Err);
        if caller.guest.transport == Transport::Iwarp && mask.contains(AttrMask::STATE) && !may_be {
            return Err(Status::INVALID);
        }
        Ok(Self { qpn: qpn(request.qpn.get())?, mask, attr })
    }

    fn order(&self) -> Order {
        Order::Qp(self.qpn)
    }

    fn revokes_pins(&self) -> bool {
        let may_begin = matches!(self.attr.state, QpState::Init | QpState::Rtr | QpState::Rts);
        let begins = self.mask.contains(AttrMask::STATE) && may_begin;
        // A connection that goes to RTS has pinned no memory yet, unless its rights change.
        !begins || self.attr.state == QpState::Rts && self.mask.contains(AttrMask::ACCESS_FLAGS)
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        let now = worker.now();
        let Worker { engine, outputs, .. } = worker;
        engine.modify_qp(now, id, self.qpn, self.mask, &self.attr, outputs).map(nothing)
    }
}

/// QUERY_QP.
#[derive(Debug)]
pub struct QueryQp {
    /// The QP.
    pub qpn: Qpn,
}

impl Command for QueryQp {
    const OPCODE: Opcode = Opcode::QUERY_QP;
    type Request = ObjectReq;
    type Reply = control::QpAttr;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { qpn: qpn(object(request)?)? })
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<control::QpAttr> {
        worker.engine.query_qp(id, self.qpn).map(|attr| response(&attr))
    }
}

/// DESTROY_QP.
#[derive(Debug)]
pub struct DestroyQp {
    /// The QP to destroy.
    pub qpn: Qpn,
}

impl Command for DestroyQp {
    const OPCODE: Opcode = Opcode::DESTROY_QP;
    type Request = ObjectReq;
    type Reply = Nothing;

    fn parse(request: &ObjectReq, _: &[Extent], _: &Caller<'_>) -> StatusResult<Self> {
        Ok(Self { qpn: qpn(object(request)?)? })
    }

    fn order(&self) -> Order {
        Order::Qp(self.qpn)
    }

    fn revokes_pins(&self) -> bool {
        true
    }

    fn run(self, worker: &mut Worker, id: DeviceId) -> device::Result<Nothing> {
        let Worker { engine, outputs, .. } = worker;
        outputs.device(id).destroy_qp(engine, self.qpn).map(nothing)
    }
}

/// Parses the properties of a new QP.
///
/// # Errors
/// `INVALID`: the type is unknown, or the request names an object that QPs of this type do not
/// have.
fn init(req: &CreateQpReq) -> StatusResult<QpInit> {
    let qp_type = match control::QpType(req.qp_type.get()) {
        control::QpType::RC => QpType::Rc,
        control::QpType::UC => QpType::Uc,
        control::QpType::UD => QpType::Ud,
        control::QpType::GSI => QpType::Gsi,
        control::QpType::XRC_SEND => QpType::XrcSend,
        control::QpType::XRC_RECV => QpType::XrcRecv,
        _ => return Err(Status::INVALID),
    };
    let named = |number: u32| (number != limit::NONE).then_some(number);
    let (pd, send_cq) = (named(req.pdn.get()), named(req.send_cqn.get()));
    let (recv_cq, srq, xrcdn) = (named(req.recv_cqn.get()), named(req.srqn.get()), req.xrcdn.get());
    let receives = match (qp_type, srq) {
        (QpType::XrcRecv, None) if (pd, send_cq, recv_cq) == (None, None, None) => {
            Receives::Xrc(XrcdId(xrcdn))
        }
        (QpType::XrcSend, None) if recv_cq.is_none() && xrcdn == 0 => Receives::Own,
        (QpType::XrcRecv | QpType::XrcSend, _) => return Err(Status::INVALID),
        _ if xrcdn != 0 => return Err(Status::INVALID),
        (_, None) => Receives::Own,
        (_, Some(srq)) => Receives::Shared(SrqId(srq)),
    };
    Ok(QpInit {
        owner: OwnerId(req.context.get()),
        pd: (qp_type != QpType::XrcRecv).then_some(PdId(req.pdn.get())),
        qp_type,
        send_cq: CqId(req.send_cqn.get()),
        recv_cq: CqId(req.recv_cqn.get()),
        receives,
        max_send_wr: req.max_send_wr.get(),
        max_recv_wr: req.max_recv_wr.get(),
        max_send_sge: req.max_send_sge.get(),
        max_recv_sge: req.max_recv_sge.get(),
        max_inline: req.max_inline.get(),
    })
}

/// Parses which attributes of a QP change, and their new values.
///
/// # Errors
/// `UNSUPPORTED`: attributes that the device lacks. `INVALID`: an unknown attribute, state or path
/// MTU.
fn attributes(req: &ModifyQpReq) -> StatusResult<(AttrMask, QpAttr)> {
    let (mask, attr) = (req.mask.get(), &req.attr);
    let known = qp_attr::DEST_QPN * 2 - 1;
    if mask & !known != 0 {
        return Err(Status::INVALID);
    }
    if mask & (qp_attr::ALT_PATH | qp_attr::CAP) != 0 {
        return Err(Status::UNSUPPORTED);
    }
    // A field that the mask leaves out may hold anything. If a field is wider than its meaning,
    // only the low bits count: see `vrdma_abi::width`.
    let state_if = |bit: u32, code: u8| if mask & bit != 0 { state(code) } else { Ok(QpState::Reset) };
    let path_mtu = match Mtu::from_code(attr.path_mtu) {
        None if mask & qp_attr::PATH_MTU != 0 => return Err(Status::INVALID),
        mtu => mtu.unwrap_or_default(),
    };
    let vlan = attr.vlan.get();
    let attr = QpAttr {
        state: state_if(qp_attr::STATE, attr.state)?,
        cur_state: state_if(qp_attr::CUR_STATE, attr.cur_state)?,
        en_sqd_async_notify: attr.en_sqd_async_notify != 0,
        sq_draining: false,
        access: Access(attr.access.get()),
        pkey_index: attr.pkey_index.get(),
        port: attr.port,
        path_mtu,
        qkey: Qkey(attr.qkey.get()),
        rq_psn: Psn::truncate(attr.rq_psn.get()),
        sq_psn: Psn::truncate(attr.sq_psn.get()),
        dest_qpn: Qpn::truncate(attr.dest_qpn.get()),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer & width::RNR_TIMER,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt & width::RETRIES,
        rnr_retry: attr.rnr_retry & width::RETRIES,
        sl: attr.sl & width::SL,
        sgid_index: attr.sgid_index,
        dgid: Gid(attr.dgid),
        dmac: Mac(attr.dmac),
        hop_limit: attr.hop_limit,
        traffic_class: attr.traffic_class,
        flow_label: attr.flow_label.get() & width::FLOW_LABEL,
        udp_sport: attr.udp_sport.get(),
        vlan: (1..=4094).contains(&vlan).then_some(vlan),
    };
    Ok((AttrMask(mask & !qp_attr::PATH_MIG_STATE), attr))
}

fn state(code: u8) -> StatusResult<QpState> {
    Ok(match control::QpState(code.into()) {
        control::QpState::RESET => QpState::Reset,
        control::QpState::INIT => QpState::Init,
        control::QpState::RTR => QpState::Rtr,
        control::QpState::RTS => QpState::Rts,
        control::QpState::SQD => QpState::Sqd,
        control::QpState::SQE => QpState::Sqe,
        control::QpState::ERR => QpState::Err,
        _ => return Err(Status::INVALID),
    })
}

/// Lays out the attributes of a QP for the driver.
fn response(attr: &QpAttr) -> control::QpAttr {
    control::QpAttr {
        state: state_code(attr.state),
        cur_state: state_code(attr.cur_state),
        en_sqd_async_notify: attr.en_sqd_async_notify.into(),
        sq_draining: attr.sq_draining.into(),
        access: attr.access.0.into(),
        pkey_index: attr.pkey_index.into(),
        port: attr.port,
        path_mtu: attr.path_mtu.code(),
        qkey: attr.qkey.0.into(),
        rq_psn: attr.rq_psn.number().into(),
        sq_psn: attr.sq_psn.number().into(),
        dest_qpn: attr.dest_qpn.number().into(),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        sl: attr.sl,
        sgid_index: attr.sgid_index,
        dgid: attr.dgid.0,
        dmac: attr.dmac.0,
        hop_limit: attr.hop_limit,
        traffic_class: attr.traffic_class,
        flow_label: attr.flow_label.into(),
        udp_sport: attr.udp_sport.into(),
        vlan: attr.vlan.unwrap_or(0xffff).into(),
    }
}

fn state_code(state: QpState) -> u8 {
    let state = match state {
        QpState::Reset => control::QpState::RESET,
        QpState::Init => control::QpState::INIT,
        QpState::Rtr => control::QpState::RTR,
        QpState::Rts => control::QpState::RTS,
        QpState::Sqd => control::QpState::SQD,
        QpState::Sqe => control::QpState::SQE,
        QpState::Err => control::QpState::ERR,
    };
    state.0 as u8
}
