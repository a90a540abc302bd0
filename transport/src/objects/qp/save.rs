//! Queue pairs in the record.

use super::entry::QpEntry;
use super::{Qp, state};
use crate::base::gid::GidEntry;
use crate::base::id::{CqId, OwnerId, PdId, SrqId, XrcdId};
use crate::base::memory::Access;
use crate::base::qp_ref::QpRef;
use crate::base::time::NEVER;
use crate::base::transport_kind::TransportKind;
use crate::collections::flush::Flush;
use crate::collections::pool::List;
use crate::objects::outstanding::Requests;
use crate::objects::qp::requester::{Requester, Wait};
use crate::objects::qp::responder::Responder;
use crate::objects::service::Service;
use crate::objects::srq::life::SrqRef;
use crate::save::{Violation, deadline, record, same_names, to_deadline, to_qpn};
use crate::verbs::attr::{AttrMask, QpAttr, QpInit, QpState, QpType, Receives};
use crate::verbs::limits::Limits;
use vrdma_wire::num::{Gid, Mac, Qkey};

same_names!(QpType { Rc, Uc, Ud, Gsi, XrcSend, XrcRecv });
same_names!(QpState { Reset, Init, Rtr, Rts, Sqd, Sqe, Err });
same_names!(TransportKind { Local, Roce, Tcp });

impl QpEntry {
    /// Returns the record of a QP, with its requests. `queue` is its shared queue.
    pub(crate) fn save(&self, queue: Option<SrqId>, requests: &Requests) -> record::Qp {
        let QpEntry { qp, service } = self;
        let Qp {
            qpn,
            state,
            transport,
            ref requester,
            ref responder,
            timer,
            timer_is_idle,
            held,
            question,
            served,
            ref flush,
            // Follows from the windows that it bound.
            life: _,
            // Follow from the attributes.
            path_mtu: _,
            access: _,
            max_rd_atomic: _,
            max_dest_rd_atomic: _,
            dest_qpn: _,
            dgid: _,
            // Follow from the attributes and the GID table.
            vlan: _,
            sgid: _,
            attr: _,
            // Follow from the parameters with which it was made.
            pd: _,
            owner: _,
            send_cq: _,
            recv_cq: _,
            caps: _,
            made_with_cq: _,
            xrcd: _,
            // The first two follow from the turns. `route` is a hint.
            turn_due: _,
            answer_due: _,
            route: _,
            // The first two follow from the shared queue. `marker` is equal in all QPs.
            shared_pd: _,
            srq: _,
            marker: _,
        } = *qp;
        let mut requester = requester.save((question, served.get()), requests);
        let mut responder = responder.save(queue, requests);
        if let Some(flush) = flush {
            save_flush(flush, state, (&mut requester, &mut responder), requests);
        }
        if qp.service() == QpType::XrcRecv && queue.is_none() {
            // Receives of a shared queue that was destroyed are gone.
            responder.queue.clear();
        }
        record::Qp {
            qpn: qpn.number(),
            init: save_init(&qp.init()),
            state: state.into(),
            attr: save_attr(&qp.all_attrs()),
            requester,
            responder,
            carrier: transport.into(),
            roce: service.save(qp, requests),
            tcp: service.save_tcp(qp, requests),
            timer: deadline(timer),
            timer_is_idle,
            held,
        }
    }

    /// Restores a QP from a record, and adds its requests to `requests`.
    ///
    /// `init` is from the record, and was checked. `shared` is the QP's shared queue, with its PD
    /// and CQ. The QP is in no schedule yet.
    pub(crate) fn restore(
        record: &record::Qp,
        (init, shared): (QpInit, Option<(SrqRef, PdId, CqId)>),
        (limits, gids): (&Limits, &[GidEntry]),
        requests: &mut Requests,
    ) -> Result<QpEntry, Violation> {
        let qpn = to_qpn(record.qpn)?;
        let mut qp = Qp::new(qpn, init, None);
        match (init.receives, shared) {
            (Receives::Xrc(_), Some((srq, pd, cq))) => qp.have_queue(srq, pd, cq),
            (_, shared) => qp = Qp::new(qpn, init, shared.map(|(srq, pd, _)| (srq, pd))),
        }
        qp.state = record.state.into();
        let attr = to_attr(&record.attr)?;
        check_attr(&qp, &attr, limits, record.tcp.is_some())?;
        qp.set(&attr);
        if record.attr.av.is_some() {
            let source = gids.get(usize::from(attr.sgid_index)).copied();
            qp.set_source(source.ok_or(Violation::Attributes)?);
        }
        qp.transport = record.carrier.into();
        qp.question = record.requester.question;
        qp.timer = to_deadline(record.timer)?;
        qp.timer_is_idle = record.timer_is_idle;
        if qp.timer_is_idle && qp.timer == NEVER {
            return Err(Violation::Time);
        }
        qp.held = record.held;
        let (retry_cnt, rnr_retry) = (qp.requester.retry_cnt, qp.requester.rnr_retry);
        qp.requester = Requester::restore(&record.requester, &qp, requests)?;
        (qp.requester.retry_cnt, qp.requester.rnr_retry) = (retry_cnt, rnr_retry);
        qp.served = to_served(&record.requester, &qp, requests)?.into();
        qp.responder = Responder::restore(&record.responder, &qp, requests)?;
        check_queues(&qp)?;
        restore_flush(&mut qp, record, requests)?;
        if qp.requester.wait != Wait::No && qp.requester.queue.is_empty() {
            return Err(Violation::Progress);
        }
        let service = Service::restore(record, &qp, requests)?;
        Ok(QpEntry { qp, service })
    }
}

/// Saves requests that are still to be flushed in the queues of the record.
fn save_flush(
    flush: &Flush,
    state: QpState,
    (requester, responder): (&mut record::Requester, &mut record::Responder),
    requests: &Requests,
) {
    let Flush { sends, receives, broken } = flush;
    requester.queue = requests.save_sends(sends);
    if state == QpState::Err {
        responder.queue = save_flushed(receives, *broken, requests);
    }
}

/// Restores how far a datagram to a multicast group was delivered. No other datagram can be in
/// progress.
fn to_served(record: &record::Requester, qp: &Qp, requests: &Requests) -> Result<Option<QpRef>, Violation> {
    let to = requests.front_to(&qp.requester.queue);
    let goes_on = record.started && to.is_some_and(|to| to.dgid.is_multicast());
    let started = record.started && qp.service().is_datagram();
    if started != record.served.is_some() || started && !goes_on {
        return Err(Violation::Progress);
    }
    let place = |place: record::Place| Ok(QpRef { device: place.device, qpn: to_qpn(place.qpn)? });
    record.served.map(place).transpose()
}

/// Checks that attributes are in range, and that a connection has its peer's address or a stream.
fn check_attr(qp: &Qp, attr: &QpAttr, limits: &Limits, has_stream: bool) -> Result<(), Violation> {
    let datagrams = qp.service().is_datagram();
    if qp.service().is_reliable() && qp.state == QpState::Sqe {
        return Err(Violation::State);
    }
    let has_av = !attr.dgid.is_zero();
    if !has_av && !datagrams && !has_stream && qp.is_receiving() {
        return Err(Violation::Attributes);
    }
    let unset = if has_av { AttrMask::NONE } else { AttrMask::AV };
    let unset = if attr.port == 0 { unset | AttrMask::PORT } else { unset };
    state::check_values(AttrMask(!unset.0), attr, limits).map_err(|_| Violation::Attributes)
}

/// Checks that requests are pending only in states that allow posts, or where they are flushed.
fn check_queues(qp: &Qp) -> Result<(), Violation> {
    let sends = !matches!(qp.state, QpState::Reset | QpState::Init | QpState::Rtr);
    let receives = qp.state != QpState::Reset;
    let (sending, receiving) = (&qp.requester.queue, &qp.responder.queue);
    if !sends && !sending.is_empty() || !receives && !receiving.is_empty() {
        return Err(Violation::Queue);
    }
    Ok(())
}

/// Moves requests that are still to be flushed out of the queues.
///
/// These are all requests of a QP in ERR, and the sends of a QP in SQE.
fn restore_flush(qp: &mut Qp, record: &record::Qp, requests: &mut Requests) -> Result<(), Violation> {
    let mut flush = Flush::default();
    if matches!(qp.state, QpState::Err | QpState::Sqe) {
        requests.append_sends(&mut flush.sends, &mut qp.requester.queue);
    }
    if qp.state == QpState::Err {
        requests.append_receives(&mut flush.receives, &mut qp.responder.queue);
    }
    let mut broken = (0..).zip(&record.responder.queue).filter(|(_, receive)| receive.not_understood);
    let first = broken.next();
    flush.broken = first.map(|(before, receive)| (receive.id, before));
    // Its elements are not needed any more.
    let possible = |receive: &record::Receive| qp.state == QpState::Err && receive.sges.is_empty();
    if first.is_some_and(|(_, receive)| !possible(receive)) || broken.next().is_some() {
        return Err(Violation::Request);
    }
    if !flush.is_over() {
        qp.flush = Some(Box::new(flush));
    }
    Ok(())
}

/// Returns the records of receives that are still to be flushed.
///
/// `broken` is the receive that could not be parsed: its id, and how many receives are before it.
fn save_flushed(receives: &List, broken: Option<(u32, u32)>, requests: &Requests) -> Vec<record::Receive> {
    let mut queue = requests.save_receives(receives);
    if let Some((id, before)) = broken {
        queue.insert(before as usize, record::Receive { id, sges: Vec::new(), not_understood: true });
    }
    queue
}

/// Returns the record of the parameters with which a QP was made.
fn save_init(init: &QpInit) -> record::QpInit {
    let QpInit {
        owner,
        pd,
        qp_type,
        send_cq,
        recv_cq,
        receives,
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline,
    } = *init;
    let (srq, xrcd) = match receives {
        Receives::Own => (None, None),
        Receives::Shared(srq) => (Some(srq.0), None),
        Receives::Xrc(xrcd) => (None, Some(xrcd.0)),
    };
    record::QpInit {
        owner: owner.0,
        pd: pd.map(|pd| pd.0),
        qp_type: qp_type.into(),
        send_cq: send_cq.0,
        recv_cq: recv_cq.0,
        srq,
        xrcd,
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline,
    }
}

/// Restores the parameters with which a QP was made.
pub(crate) fn to_init(init: &record::QpInit) -> Result<QpInit, Violation> {
    let record::QpInit {
        owner,
        pd,
        qp_type,
        send_cq,
        recv_cq,
        srq,
        xrcd,
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline,
    } = *init;
    let receives = match (srq, xrcd) {
        (None, None) => Receives::Own,
        (Some(srq), None) => Receives::Shared(SrqId(srq)),
        (None, Some(xrcd)) => Receives::Xrc(XrcdId(xrcd)),
        (Some(_), Some(_)) => return Err(Violation::Xrc),
    };
    Ok(QpInit {
        owner: OwnerId(owner),
        pd: pd.map(PdId),
        qp_type: qp_type.into(),
        send_cq: CqId(send_cq),
        recv_cq: CqId(recv_cq),
        receives,
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline,
    })
}

fn save_attr(attr: &QpAttr) -> record::QpAttr {
    let QpAttr {
        en_sqd_async_notify,
        access,
        pkey_index,
        port,
        path_mtu,
        qkey,
        dest_qpn,
        max_rd_atomic,
        max_dest_rd_atomic,
        min_rnr_timer,
        timeout,
        retry_cnt,
        rnr_retry,
        sl,
        sgid_index,
        dgid,
        dmac,
        hop_limit,
        traffic_class,
        flow_label,
        udp_sport,
        vlan,
        // These are stored elsewhere in the record of the QP.
        state: _,
        cur_state: _,
        sq_draining: _,
        rq_psn: _,
        sq_psn: _,
    } = *attr;
    let (gid, dmac) = (dgid.0, dmac.0);
    let av = record::AddressVector {
        sl,
        sgid_index,
        dgid: gid,
        dmac,
        hop_limit,
        traffic_class,
        flow_label,
        udp_sport,
        vlan,
    };
    record::QpAttr {
        en_sqd_async_notify,
        access: access.0,
        pkey_index,
        port,
        path_mtu: path_mtu.into(),
        qkey: qkey.0,
        dest_qpn: dest_qpn.number(),
        max_rd_atomic,
        max_dest_rd_atomic,
        min_rnr_timer,
        timeout,
        retry_cnt,
        rnr_retry,
        // No peer has the address 0.
        av: (!dgid.is_zero()).then_some(av),
    }
}

fn to_attr(attr: &record::QpAttr) -> Result<QpAttr, Violation> {
    let common = QpAttr {
        en_sqd_async_notify: attr.en_sqd_async_notify,
        access: Access(attr.access),
        pkey_index: attr.pkey_index,
        port: attr.port,
        path_mtu: attr.path_mtu.into(),
        qkey: Qkey(attr.qkey),
        dest_qpn: to_qpn(attr.dest_qpn)?,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        ..QpAttr::default()
    };
    let Some(av) = &attr.av else { return Ok(common) };
    let record::AddressVector { sl, sgid_index, dgid, dmac, hop_limit, .. } = *av;
    let record::AddressVector { traffic_class, flow_label, udp_sport, vlan, .. } = *av;
    if Gid(dgid).is_zero() {
        return Err(Violation::Attributes);
    }
    Ok(QpAttr {
        sl,
        sgid_index,
        dgid: Gid(dgid),
        dmac: Mac(dmac),
        hop_limit,
        traffic_class,
        flow_label,
        udp_sport,
        vlan,
        ..common
    })
}
