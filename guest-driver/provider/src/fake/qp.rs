//! Fake libibverbs functions for queue pairs, address handles and multicast groups.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "it stands for C code, with the contracts of libibverbs"
)]

use std::ffi::c_int;

use vrdma_verbs::abi::user::{UserCreateAhResp, UserCreateQpResp};

use super::libibverbs::{destroyed, driver_reply, kernel, ordered_error};
use crate::ffi::*;

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_create_qp_ex(
    context: *mut ibv_context,
    qp: *mut verbs_qp,
    attr: *mut ibv_qp_init_attr_ex,
    _command: *mut ibv_create_qp,
    _command_size: usize,
    reply: *mut ib_uverbs_create_qp_resp,
    reply_size: usize,
) -> c_int {
    unsafe {
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        // libibverbs also refuses unknown bits.
        let known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        if (*attr).comp_mask & !known != 0 {
            return libc::EINVAL;
        }
        let kernel = kernel(context);
        let mut state = kernel.state();
        let qpn = state.next_qpn;
        state.next_qpn += 1;
        state.queues += 1;
        let handle = |cq: *mut ibv_cq| cq.as_ref().map_or(0, |cq| cq.handle);
        state.qp_cqs.insert(qpn, (handle((*attr).send_cq), handle((*attr).recv_cq)));
        (*qp).comp_mask = 0;
        let qp = qp.cast::<ibv_qp>();
        (*qp).context = context;
        ((*qp).send_cq, (*qp).recv_cq) = ((*attr).send_cq, (*attr).recv_cq);
        (*qp).qp_num = qpn;
        // The kernel owns targets: its driver does not see the process.
        let qpn = if (*attr).qp_type == IBV_QPT_XRC_RECV { 0 } else { qpn };
        driver_reply(
            reply.cast(),
            32,
            reply_size,
            UserCreateQpResp { qpn: qpn.into(), ..Default::default() },
        );
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_modify_qp(
    qp: *mut ibv_qp,
    _attr: *mut ibv_qp_attr,
    _mask: c_int,
    _command: *mut ibv_modify_qp,
    _size: usize,
) -> c_int {
    unsafe { ordered_error((*qp).context) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    _init_attr: *mut ibv_qp_init_attr,
    _command: *mut ibv_query_qp,
    _size: usize,
) -> c_int {
    let during = unsafe { kernel((*qp).context).state().during_query.take() };
    if let Some(during) = during {
        unsafe { (*attr).qp_state = during(qp) };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_destroy_qp(qp: *mut ibv_qp) -> c_int {
    unsafe {
        let context = (*qp).context;
        let error = ordered_error(context);
        if error == 0 {
            destroyed(context);
        }
        error
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_create_ah(
    pd: *mut ibv_pd,
    ah: *mut ibv_ah,
    _attr: *mut ibv_ah_attr,
    reply: *mut ib_uverbs_create_ah_resp,
    reply_size: usize,
) -> c_int {
    unsafe {
        (*ah).pd = pd;
        (*ah).context = (*pd).context;
        let kernel = kernel((*pd).context);
        let mut state = kernel.state();
        // A number unlike all others in a request.
        let ah = 0xa4 + state.ahs;
        state.ahs += 1;
        driver_reply(reply.cast(), 4, reply_size, UserCreateAhResp { ah: ah.into(), ..Default::default() });
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_cmd_destroy_ah(_ah: *mut ibv_ah) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    unsafe {
        let error = ordered_error((*qp).context);
        if error == 0 {
            kernel((*qp).context).state().groups.push(((*qp).qp_num, (*gid).raw, lid));
        }
        error
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    unsafe {
        let left = ((*qp).qp_num, (*gid).raw, lid);
        kernel((*qp).context).state().groups.retain(|member| *member != left);
        ordered_error((*qp).context)
    }
}
