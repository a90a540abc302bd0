//! Fake libibverbs functions for XRC.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "it stands for C code, with the contracts of libibverbs"
)]

use std::ffi::c_int;

use vrdma_verbs::Cqe;
use vrdma_verbs::abi::cqe::{WcOpcode, flags};
use vrdma_verbs::abi::user::UserCreateSrqResp;

use super::Kernel;
use super::device::Parsed;
use super::libibverbs::{driver_reply, kernel, ordered_error};
use crate::ffi::*;

impl Kernel {
    /// Completes this receive of an XRC shared receive queue.
    ///
    /// The target `qpn` of another process has taken it for a message.
    pub fn receive_xrc(&self, request: &Parsed, qpn: u32) {
        let srqn = request.qpn();
        let mut state = self.state();
        let (cq, clock) = (state.xrc_cqs[&srqn], state.clock);
        let cqe = Cqe {
            wqe_id: request.header.wqe_id,
            qpn: qpn.into(),
            src_qpn: srqn.into(),
            opcode: WcOpcode::RECV.0,
            flags: flags::RECV | flags::XRC,
            ..Cqe::default()
        };
        state.cqs.get_mut(&cq).unwrap().put(cqe, clock);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_open_xrcd(
    context: *mut ibv_context,
    xrcd: *mut verbs_xrcd,
    size: c_int,
    _attr: *mut ibv_xrcd_init_attr,
    _command: *mut ibv_open_xrcd,
    _command_size: usize,
    _reply: *mut ib_uverbs_open_xrcd_resp,
    _reply_size: usize,
) -> c_int {
    unsafe {
        assert_eq!(size as usize, size_of::<verbs_xrcd>());
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        (*xrcd).xrcd.context = context;
        (*xrcd).handle = kernel(context).state().new_handle();
        kernel(context).state().xrcds += 1;
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_close_xrcd(xrcd: *mut verbs_xrcd) -> c_int {
    unsafe {
        let context = (*xrcd).xrcd.context;
        let error = ordered_error(context);
        if error == 0 {
            kernel(context).state().xrcds -= 1;
        }
        error
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_open_qp(
    context: *mut ibv_context,
    qp: *mut verbs_qp,
    size: c_int,
    attr: *mut ibv_qp_open_attr,
    _command: *mut ibv_open_qp,
    _command_size: usize,
    _reply: *mut ib_uverbs_create_qp_resp,
    _reply_size: usize,
) -> c_int {
    unsafe {
        assert_eq!(size as usize, size_of::<verbs_qp>());
        let qp = qp.cast::<ibv_qp>();
        ((*qp).context, (*qp).qp_num) = (context, (*attr).qp_num);
        let error = ordered_error(context);
        if error == 0 {
            kernel(context).state().queues += 1;
        }
        error
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_create_srq_ex(
    context: *mut ibv_context,
    srq: *mut verbs_srq,
    attr: *mut ibv_srq_init_attr_ex,
    _command: *mut ibv_create_xsrq,
    _command_size: usize,
    reply: *mut ib_uverbs_create_srq_resp,
    reply_size: usize,
) -> c_int {
    unsafe {
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        let kernel = kernel(context);
        let mut state = kernel.state();
        let handle = state.new_handle();
        // A number unlike those of QPs.
        let srqn = state.next_srqn.take().unwrap_or(0xcd_0000 + handle);
        state.queues += 1;
        state.srqs.insert(handle, ((*attr).attr.max_wr, 0));
        state.xrc_cqs.insert(srqn, (*(*attr).cq).handle);
        let srq = srq.cast::<ibv_srq>();
        ((*srq).context, (*srq).handle) = (context, handle);
        driver_reply(
            reply.cast(),
            16,
            reply_size,
            UserCreateSrqResp { srqn: srqn.into(), ..Default::default() },
        );
        0
    }
}
