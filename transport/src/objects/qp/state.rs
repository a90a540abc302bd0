//! The allowed changes of a QP's state, and the attributes that go with them, as data (IBTA
//! 11.2.5.2 and ibv_modify_qp(3)).

use crate::base::error::Error;
use crate::base::memory::Access;
use crate::verbs::attr::{AttrMask, QpAttr, QpState, QpType};
use crate::verbs::limits::Limits;

/// One change of state.
struct Transition {
    from: QpState,
    to: QpState,
    /// Attributes that must be given.
    required: AttrMask,
    /// Attributes that may be given.
    optional: AttrMask,
}

const fn transition(from: QpState, to: QpState, required: AttrMask, optional: AttrMask) -> Transition {
    Transition { from, to, required, optional }
}

use AttrMask as M;
use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

const IDENTITY: AttrMask = M::PKEY_INDEX.with(M::PORT).with(M::ACCESS_FLAGS);
const CONNECT: AttrMask = M::AV.with(M::PATH_MTU).with(M::DEST_QPN).with(M::RQ_PSN);
const RESPOND: AttrMask = M::MAX_DEST_RD_ATOMIC.with(M::MIN_RNR_TIMER);
const RETRY: AttrMask = M::TIMEOUT.with(M::RETRY_CNT).with(M::RNR_RETRY).with(M::MAX_RD_ATOMIC);
const PATHS: AttrMask = M::ALT_PATH.with(M::PATH_MIG_STATE);
const ANY_TIME: AttrMask = M::ACCESS_FLAGS.with(M::MIN_RNR_TIMER).with(PATHS);
const RUNNING: AttrMask = ANY_TIME.with(M::CUR_STATE);

/// State changes of reliable connections.
///
/// All states can also change to RESET and ERR, without other attributes.
const RC: [Transition; 10] = [
    transition(Reset, Init, IDENTITY, M::NONE),
    transition(Init, Init, M::NONE, IDENTITY),
    transition(Init, Rtr, CONNECT.with(RESPOND), M::ACCESS_FLAGS.with(M::PKEY_INDEX).with(M::ALT_PATH)),
    transition(Rtr, Rts, RETRY.with(M::SQ_PSN), RUNNING),
    transition(Rts, Rts, M::NONE, RUNNING),
    transition(Rts, Sqd, M::NONE, M::EN_SQD_ASYNC_NOTIFY),
    transition(Sqd, Rts, M::NONE, RUNNING),
    transition(
        Sqd,
        Sqd,
        M::NONE,
        RETRY.with(IDENTITY).with(ANY_TIME).with(M::AV).with(M::MAX_DEST_RD_ATOMIC),
    ),
    transition(Sqe, Rts, M::NONE, RUNNING),
    transition(Sqe, Sqe, M::NONE, M::CUR_STATE),
];

const UC_ANY_TIME: AttrMask = M::ACCESS_FLAGS.with(PATHS);
const UC_RUNNING: AttrMask = UC_ANY_TIME.with(M::CUR_STATE);

/// State changes of unreliable connections.
const UC: [Transition; 10] = [
    transition(Reset, Init, IDENTITY, M::NONE),
    transition(Init, Init, M::NONE, IDENTITY),
    transition(Init, Rtr, CONNECT, M::ACCESS_FLAGS.with(M::PKEY_INDEX).with(M::ALT_PATH)),
    transition(Rtr, Rts, M::SQ_PSN, UC_RUNNING),
    transition(Rts, Rts, M::NONE, UC_RUNNING),
    transition(Rts, Sqd, M::NONE, M::EN_SQD_ASYNC_NOTIFY),
    transition(Sqd, Rts, M::NONE, UC_RUNNING),
    transition(Sqd, Sqd, M::NONE, UC_ANY_TIME.with(M::AV).with(M::PKEY_INDEX)),
    transition(Sqe, Rts, M::NONE, M::ACCESS_FLAGS.with(M::CUR_STATE)),
    transition(Sqe, Sqe, M::NONE, M::CUR_STATE),
];

/// Returns the state changes of datagram QPs. `identity` are the attributes that their INIT needs.
const fn datagrams(identity: AttrMask) -> [Transition; 10] {
    let keys = M::PKEY_INDEX.with(M::QKEY);
    let running = M::CUR_STATE.with(M::QKEY);
    [
        transition(Reset, Init, identity, M::NONE),
        transition(Init, Init, M::NONE, identity),
        transition(Init, Rtr, M::NONE, keys),
        transition(Rtr, Rts, M::SQ_PSN, running),
        transition(Rts, Rts, M::NONE, running),
        transition(Rts, Sqd, M::NONE, M::EN_SQD_ASYNC_NOTIFY),
        transition(Sqd, Rts, M::NONE, running),
        transition(Sqd, Sqd, M::NONE, keys),
        transition(Sqe, Rts, M::NONE, running),
        transition(Sqe, Sqe, M::NONE, M::CUR_STATE),
    ]
}

const UD: [Transition; 10] = datagrams(M::PKEY_INDEX.with(M::PORT).with(M::QKEY));
/// QP1 always has its port.
const GSI: [Transition; 10] = datagrams(M::PKEY_INDEX.with(M::QKEY));

/// State changes of XRC initiators. Attributes of responders have no meaning for them.
const XRC_SEND: [Transition; 10] = xrc(
    transition(Init, Rtr, CONNECT, RESPOND.with(CONNECTING)),
    transition(Rtr, Rts, RETRY.with(M::SQ_PSN), RUNNING),
    RETRY.with(IDENTITY).with(ANY_TIME).with(M::AV),
);

/// State changes of XRC targets. Attributes of requesters have no meaning for them.
const XRC_RECV: [Transition; 10] = xrc(
    transition(Init, Rtr, CONNECT.with(RESPOND), CONNECTING),
    transition(Rtr, Rts, M::TIMEOUT.with(M::SQ_PSN), RETRY.with(RUNNING)),
    RETRY.with(IDENTITY).with(ANY_TIME).with(M::AV).with(M::MAX_DEST_RD_ATOMIC),
);

const CONNECTING: AttrMask = M::ACCESS_FLAGS.with(M::PKEY_INDEX).with(M::ALT_PATH);

/// Returns the state changes of one half of an XRC connection.
///
/// `to_rtr` and `to_rts` lead to RTR and RTS. `drained` may change in SQD.
const fn xrc(to_rtr: Transition, to_rts: Transition, drained: AttrMask) -> [Transition; 10] {
    [
        transition(Reset, Init, IDENTITY, M::NONE),
        transition(Init, Init, M::NONE, IDENTITY),
        to_rtr,
        to_rts,
        transition(Rts, Rts, M::NONE, RUNNING),
        transition(Rts, Sqd, M::NONE, M::EN_SQD_ASYNC_NOTIFY),
        transition(Sqd, Rts, M::NONE, RUNNING),
        transition(Sqd, Sqd, M::NONE, drained),
        transition(Sqe, Rts, M::NONE, RUNNING),
        transition(Sqe, Sqe, M::NONE, M::CUR_STATE),
    ]
}

const fn transitions(qp_type: QpType) -> &'static [Transition; 10] {
    match qp_type {
        QpType::Rc => &RC,
        QpType::Uc => &UC,
        QpType::Ud => &UD,
        QpType::Gsi => &GSI,
        QpType::XrcSend => &XRC_SEND,
        QpType::XrcRecv => &XRC_RECV,
    }
}

/// Attributes that the engine does not support and refuses.
const REFUSED: AttrMask = M::ALT_PATH.with(M::CAP);

/// Checks whether a QP in `current` allows a change of the attributes in `mask`, and returns its
/// new state.
pub(crate) fn check(
    qp_type: QpType,
    current: QpState,
    mask: AttrMask,
    attr: &QpAttr,
) -> Result<QpState, Error> {
    let to = if mask.contains(M::STATE) { attr.state } else { current };
    if mask.contains(M::CUR_STATE) && attr.cur_state != current {
        return Result::Err(Error::Invalid);
    }
    let (required, optional) = match to {
        Reset | Err if mask.contains(M::STATE) => (M::NONE, M::NONE),
        _ => {
            let found = transitions(qp_type).iter().find(|t| t.from == current && t.to == to);
            let found = found.ok_or(Error::Invalid)?;
            (found.required, found.optional)
        }
    };
    let allowed = required | optional | M::STATE;
    if !mask.contains(required) || !allowed.contains(mask) {
        return Result::Err(Error::Invalid);
    }
    if mask.0 & REFUSED.0 != 0 {
        return Result::Err(Error::Unsupported);
    }
    Ok(to)
}

/// Checks whether the values of the attributes in `mask` are possible.
pub(crate) fn check_values(mask: AttrMask, attr: &QpAttr, limits: &Limits) -> Result<(), Error> {
    let wrong = [
        (M::ACCESS_FLAGS, !Access::QP.contains(attr.access)),
        (M::PKEY_INDEX, attr.pkey_index != 0),
        (M::PORT, attr.port != 1),
        (M::PATH_MTU, attr.path_mtu > limits.max_mtu),
        (M::AV, u32::from(attr.sgid_index) >= limits.gid_table_len),
        (M::AV, attr.dgid.is_zero() || attr.dgid.is_multicast()),
        (M::AV, attr.flow_label >= 1 << 20 || attr.vlan.is_some_and(|vlan| !(1..4095).contains(&vlan))),
        (M::TIMEOUT, attr.timeout > 31),
        (M::RETRY_CNT, attr.retry_cnt > 7),
        (M::RNR_RETRY, attr.rnr_retry > 7),
        (M::MIN_RNR_TIMER, attr.min_rnr_timer > 31),
        (M::MAX_RD_ATOMIC, u32::from(attr.max_rd_atomic) > limits.max_rd_atomic),
        (M::MAX_DEST_RD_ATOMIC, u32::from(attr.max_dest_rd_atomic) > limits.max_dest_rd_atomic),
    ];
    let refused = wrong.iter().any(|&(attribute, wrong)| wrong && mask.contains(attribute));
    if refused { Result::Err(Error::Invalid) } else { Ok(()) }
}

/// Copies the attributes in `mask`, except states, which the caller handles.
pub(crate) fn apply(target: &mut QpAttr, mask: AttrMask, attr: &QpAttr) {
    macro_rules! copy {
        ($($bit:ident => $($field:ident),+;)*) => {
            $(if mask.contains(M::$bit) { $(target.$field = attr.$field;)+ })*
        };
    }
    copy! {
        EN_SQD_ASYNC_NOTIFY => en_sqd_async_notify;
        ACCESS_FLAGS => access;
        PKEY_INDEX => pkey_index;
        PORT => port;
        QKEY => qkey;
        AV => sl, sgid_index, dgid, dmac, hop_limit, traffic_class, flow_label, udp_sport, vlan;
        PATH_MTU => path_mtu;
        TIMEOUT => timeout;
        RETRY_CNT => retry_cnt;
        RNR_RETRY => rnr_retry;
        RQ_PSN => rq_psn;
        MAX_RD_ATOMIC => max_rd_atomic;
        MIN_RNR_TIMER => min_rnr_timer;
        SQ_PSN => sq_psn;
        MAX_DEST_RD_ATOMIC => max_dest_rd_atomic;
        DEST_QPN => dest_qpn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vrdma_wire::num::Gid;

    const TYPES: [QpType; 6] =
        [QpType::Rc, QpType::Uc, QpType::Ud, QpType::Gsi, QpType::XrcSend, QpType::XrcRecv];
    const STATES: [QpState; 7] = [Reset, Init, Rtr, Rts, Sqd, Sqe, Err];

    fn to(state: QpState) -> QpAttr {
        QpAttr { state, ..QpAttr::default() }
    }

    #[test]
    fn only_the_changes_of_the_specification_are_possible() {
        for qp_type in TYPES {
            only_these_changes_are_possible(qp_type);
        }
    }

    fn only_these_changes_are_possible(qp_type: QpType) {
        let mut possible = Vec::new();
        for from in STATES {
            for target in STATES {
                let every_mask = transitions(qp_type).iter().map(|t| t.required | M::STATE);
                if every_mask.into_iter().any(|mask| check(qp_type, from, mask, &to(target)).is_ok()) {
                    possible.push((from, target));
                }
            }
        }
        possible.retain(|change| !matches!(change.1, Reset | Err));
        let expected = [
            (Reset, Init),
            (Init, Init),
            (Init, Rtr),
            (Rtr, Rts),
            (Rts, Rts),
            (Rts, Sqd),
            (Sqd, Rts),
            (Sqd, Sqd),
            (Sqe, Rts),
            (Sqe, Sqe),
        ];
        assert_eq!(possible, expected);
        for from in STATES {
            assert_eq!(check(qp_type, from, M::STATE, &to(Reset)), Ok(Reset));
            assert_eq!(check(qp_type, from, M::STATE, &to(Err)), Ok(Err));
        }
    }

    #[test]
    fn every_required_attribute_is_required_and_no_other_is_taken() {
        for (qp_type, t) in TYPES.iter().flat_map(|&it| transitions(it).iter().map(move |t| (it, t))) {
            let attr = QpAttr { cur_state: t.from, ..to(t.to) };
            let complete = t.required | M::STATE;
            assert_eq!(check(qp_type, t.from, complete, &attr), Ok(t.to));
            for bit in (0..32).map(|b| AttrMask(1 << b)) {
                let with = check(qp_type, t.from, complete | bit, &attr);
                if REFUSED.contains(bit) {
                    assert!(with.is_err());
                } else if (complete | t.optional).contains(bit) {
                    assert_eq!(with, Ok(t.to));
                } else {
                    assert_eq!(with, Result::Err(Error::Invalid), "{:?} {:?} {bit:?}", t.from, t.to);
                }
                if t.required.contains(bit) {
                    assert!(check(qp_type, t.from, AttrMask(complete.0 & !bit.0), &attr).is_err());
                }
            }
        }
    }

    /// Tests the attributes that the kernel sets for QP1 (drivers/infiniband/core/mad.c), and those
    /// that ibv_modify_qp(3) names for other services.
    #[test]
    fn the_usual_masks_take_each_service_to_rts() {
        let ud_init = M::PKEY_INDEX.with(M::PORT).with(M::QKEY);
        let ways = [
            (QpType::Gsi, M::PKEY_INDEX.with(M::QKEY), M::NONE),
            (QpType::Ud, ud_init, M::NONE),
            (QpType::Uc, IDENTITY, CONNECT),
        ];
        // Attributes that Linux requires for XRC (drivers/infiniband/core/verbs.c).
        let ways = ways.map(|(qp_type, init, rtr)| (qp_type, init, rtr, M::SQ_PSN)).into_iter().chain([
            (QpType::XrcSend, IDENTITY, CONNECT, RETRY | M::SQ_PSN),
            (QpType::XrcRecv, IDENTITY, CONNECT | RESPOND, M::TIMEOUT | M::SQ_PSN),
        ]);
        for (qp_type, init, rtr, rts) in ways {
            for (from, target, mask) in [(Reset, Init, init), (Init, Rtr, rtr), (Rtr, Rts, rts)] {
                assert_eq!(check(qp_type, from, mask | M::STATE, &to(target)), Ok(target), "{qp_type:?}");
            }
        }
        assert!(check(QpType::Ud, Init, M::STATE | CONNECT, &to(Rtr)).is_err());
        assert!(check(QpType::Uc, Init, M::STATE | CONNECT | RESPOND, &to(Rtr)).is_err());
    }

    #[test]
    fn without_a_state_the_qp_stays_where_it_is() {
        let check = |from, mask, attr: &_| check(QpType::Rc, from, mask, attr);
        assert_eq!(check(Rts, M::MIN_RNR_TIMER, &to(Reset)), Ok(Rts));
        assert_eq!(check(Rtr, M::MIN_RNR_TIMER, &to(Reset)), Result::Err(Error::Invalid));
        let believed = QpAttr { cur_state: Sqd, ..to(Rts) };
        assert_eq!(check(Rts, M::CUR_STATE, &believed), Result::Err(Error::Invalid));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let limits = Limits::default();
        let good = QpAttr { port: 1, dgid: Gid([1; 16]), access: Access::QP, ..QpAttr::default() };
        let all = AttrMask((1 << 21) - 1);
        assert_eq!(check_values(all, &good, &limits), Ok(()));
        let broken: [fn(&mut QpAttr); 13] = [
            |a| a.access = Access(16),
            |a| a.pkey_index = 1,
            |a| a.port = 2,
            |a| a.sgid_index = 16,
            |a| a.dgid = Gid::ZERO,
            |a| a.flow_label = 1 << 20,
            |a| a.vlan = Some(4095),
            |a| a.timeout = 32,
            |a| a.retry_cnt = 8,
            |a| a.rnr_retry = 8,
            |a| a.min_rnr_timer = 32,
            |a| a.max_rd_atomic = 17,
            |a| a.max_dest_rd_atomic = 17,
        ];
        for (which, spoil) in broken.iter().enumerate() {
            let mut attr = good;
            spoil(&mut attr);
            assert_eq!(check_values(all, &attr, &limits), Result::Err(Error::Invalid), "{which}");
            assert_eq!(check_values(M::STATE, &attr, &limits), Ok(()), "{which}");
        }
    }
}
