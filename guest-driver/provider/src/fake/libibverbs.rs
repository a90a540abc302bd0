//! What the provider calls of libibverbs, as far as it matters.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "it stands for C code, with the contracts of libibverbs"
)]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use vrdma_verbs::abi::user::{
    AllocContextReq, AllocPdResp, UserCreateAhResp, UserCreateCqReq, UserCreateCqResp, UserCreateQpResp,
    UserCreateSrqResp, UserResizeCqReq,
};
use vrdma_verbs::abi::zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::device::FakeCq;
use super::{Kernel, Moment, Rereg};
use crate::ffi::*;

/// Drivers registered.
pub static REGISTERED: AtomicUsize = AtomicUsize::new(0);

/// The operations given for a context; in rdma-core they are in its private part.
struct Private(verbs_context_ops);

/// Operations of a context.
pub unsafe fn ops<'a>(context: *mut verbs_context) -> &'a verbs_context_ops {
    unsafe { &(*(*context).priv_.cast::<Private>()).0 }
}

pub unsafe fn kernel(context: *mut ibv_context) -> std::sync::Arc<Kernel> {
    Kernel::of(unsafe { (*context).cmd_fd })
}

/// An error that a test has ordered.
pub unsafe fn ordered_error(context: *mut ibv_context) -> c_int {
    std::mem::take(&mut unsafe { kernel(context) }.state().command_error)
}

unsafe fn driver_request<T: FromBytes>(command: *const u8, core: usize, size: usize) -> T {
    assert_eq!(size, core + size_of::<T>());
    T::read_from_bytes(unsafe { std::slice::from_raw_parts(command.add(core), size_of::<T>()) }).unwrap()
}

pub(super) unsafe fn driver_reply<T: IntoBytes + Immutable>(
    reply: *mut u8,
    core: usize,
    size: usize,
    value: T,
) {
    assert_eq!(size, core + size_of::<T>());
    let bytes = value.as_bytes();
    unsafe { reply.add(core).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

#[unsafe(no_mangle)]
extern "C" fn verbs_register_driver_34(_ops: *const verbs_device_ops) {
    REGISTERED.fetch_add(1, Ordering::Relaxed);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _verbs_init_and_alloc_context(
    device: *mut ibv_device,
    cmd_fd: c_int,
    size: usize,
    offset: *mut verbs_context,
    driver_id: u32,
) -> *mut c_void {
    assert_eq!(driver_id, 0);
    unsafe {
        let memory = libc::calloc(1, size);
        let verbs = memory.byte_add(offset.addr()).cast::<verbs_context>();
        (*verbs).context.device = device;
        (*verbs).context.cmd_fd = cmd_fd;
        (*verbs).priv_ = Box::into_raw(Box::new(Private(std::mem::zeroed()))).cast();
        Kernel::of(cmd_fd).state().contexts += 1;
        memory
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn verbs_uninit_context(context: *mut verbs_context) {
    unsafe {
        drop(Box::from_raw((*context).priv_.cast::<Private>()));
        kernel(&raw mut (*context).context).state().contexts -= 1;
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn verbs_set_ops(context: *mut verbs_context, ops: *const verbs_context_ops) {
    unsafe { (*(*context).priv_.cast::<Private>()).0 = ops.read() }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_get_context(
    context: *mut verbs_context,
    command: *mut ibv_get_context,
    command_size: usize,
    reply: *mut ib_uverbs_get_context_resp,
    reply_size: usize,
) -> c_int {
    unsafe {
        let context = &raw mut (*context).context;
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        let kernel = kernel(context);
        let request: AllocContextReq = driver_request(command.cast(), 16, command_size);
        kernel.state().context_flags = request.flags.get();
        // As much as there is room for.
        let written = kernel.reply_len.min(reply_size - 8);
        let bytes = &kernel.reply.as_bytes()[..written];
        reply.cast::<u8>().add(8).copy_from_nonoverlapping(bytes.as_ptr(), written);
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_query_device_any(
    _context: *mut ibv_context,
    _input: *const ibv_query_device_ex_input,
    _attr: *mut ibv_device_attr_ex,
    _attr_size: usize,
    reply: *mut ib_uverbs_ex_query_device_resp,
    _reply_size: *mut usize,
) -> c_int {
    unsafe { (*reply).base.fw_ver = 1 << 32 | 2 << 16 | 3 };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_cmd_query_port(
    _context: *mut ibv_context,
    _port: u8,
    _attr: *mut ibv_port_attr,
    _command: *mut ibv_query_port,
    _size: usize,
) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_alloc_pd(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    _command: *mut ibv_alloc_pd,
    _size: usize,
    reply: *mut ib_uverbs_alloc_pd_resp,
    reply_size: usize,
) -> c_int {
    unsafe {
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        driver_reply(reply.cast(), 4, reply_size, AllocPdResp::new_zeroed());
        let kernel = kernel(context);
        let mut state = kernel.state();
        (*pd).context = context;
        (*pd).handle = state.new_handle();
        state.pds.insert((*pd).handle);
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    unsafe {
        match ordered_error((*pd).context) {
            0 => {}
            error => return error,
        }
        assert!(kernel((*pd).context).state().pds.remove(&(*pd).handle));
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    _hca_va: u64,
    _access: c_int,
    mr: *mut verbs_mr,
    _command: *mut ibv_reg_mr,
    _command_size: usize,
    _reply: *mut ib_uverbs_reg_mr_resp,
    _reply_size: usize,
) -> c_int {
    unsafe {
        match ordered_error((*pd).context) {
            0 => {}
            error => return error,
        }
        let kernel = kernel((*pd).context);
        let mut state = kernel.state();
        let handle = state.new_handle();
        state.mrs.insert(handle, length);
        (*mr).ibv_mr = ibv_mr { context: (*pd).context, pd, addr, length, handle, lkey: 7, rkey: 8 };
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_dereg_mr(mr: *mut verbs_mr) -> c_int {
    unsafe {
        let ibv_mr { context, handle, .. } = (*mr).ibv_mr;
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        assert!(kernel(context).state().mrs.remove(&handle).is_some());
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_rereg_mr(
    mr: *mut verbs_mr,
    flags: u32,
    addr: *mut c_void,
    length: usize,
    hca_va: u64,
    access: c_int,
    _pd: *mut ibv_pd,
    _command: *mut ibv_rereg_mr,
    _command_size: usize,
    _reply: *mut ib_uverbs_rereg_mr_resp,
    _reply_size: usize,
) -> c_int {
    unsafe {
        let mr = &mut (*mr).ibv_mr;
        match ordered_error(mr.context) {
            0 => {}
            error => return error,
        }
        let asked = Rereg { flags, addr: addr.addr() as u64, length, iova: hca_va, access };
        kernel(mr.context).state().rereg = Some(asked);
        (mr.lkey, mr.rkey) = (mr.lkey + 0x100, mr.rkey + 0x100);
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_alloc_mw(
    pd: *mut ibv_pd,
    mw_type: ibv_mw_type,
    mw: *mut ibv_mw,
    _command: *mut ibv_alloc_mw,
    _command_size: usize,
    _reply: *mut ib_uverbs_alloc_mw_resp,
    _reply_size: usize,
) -> c_int {
    unsafe {
        let context = (*pd).context;
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        kernel(context).state().mws += 1;
        // The low bits are the last ones before they begin anew.
        *mw = ibv_mw { context, pd, rkey: 0x55ff, handle: 1, type_: mw_type };
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_dealloc_mw(mw: *mut ibv_mw) -> c_int {
    unsafe {
        match ordered_error((*mw).context) {
            0 => {}
            error => return error,
        }
        kernel((*mw).context).state().mws -= 1;
        0
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
        // As no other number that a request holds.
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
unsafe extern "C" fn ibv_cmd_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    _channel: *mut ibv_comp_channel,
    _vector: c_int,
    cq: *mut ibv_cq,
    command: *mut ibv_create_cq,
    command_size: usize,
    reply: *mut ib_uverbs_create_cq_resp,
    reply_size: usize,
) -> c_int {
    unsafe {
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        let request: UserCreateCqReq = driver_request(command.cast(), 40, command_size);
        driver_reply(reply.cast(), 8, reply_size, UserCreateCqResp::new_zeroed());
        add_cq(context, cq, &request, cqe, false);
        0
    }
}

unsafe fn add_cq(
    context: *mut ibv_context,
    cq: *mut ibv_cq,
    request: &UserCreateCqReq,
    cqe: c_int,
    is_timed: bool,
) {
    unsafe {
        let kernel = kernel(context);
        let mut state = kernel.state();
        let handle = state.new_handle();
        state.cqs.insert(handle, FakeCq::new(request.buf.get(), request.entries.get(), is_timed));
        (*cq).context = context;
        (*cq).handle = handle;
        (*cq).cqe = cqe;
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_create_cq_ex(
    context: *mut ibv_context,
    attr: *const ibv_cq_init_attr_ex,
    cq: *mut verbs_cq,
    command: *mut ibv_create_cq_ex,
    command_size: usize,
    reply: *mut ib_uverbs_ex_create_cq_resp,
    reply_size: usize,
    command_flags: u32,
) -> c_int {
    unsafe {
        assert_eq!(command_flags, 0);
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        let request: UserCreateCqReq =
            driver_request(command.cast(), size_of::<ibv_create_cq_ex>(), command_size);
        let core = size_of::<ib_uverbs_ex_create_cq_resp>();
        driver_reply(reply.cast(), core, reply_size, UserCreateCqResp::new_zeroed());
        // As ibv_cmd_create_cq_ex tells the kernel.
        let timestamps = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
        let is_timed = (*attr).wc_flags & u64::from(timestamps) != 0;
        add_cq(context, cq.cast(), &request, (*attr).cqe as c_int, is_timed);
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_resize_cq(
    cq: *mut ibv_cq,
    cqe: c_int,
    command: *mut ibv_resize_cq,
    command_size: usize,
    _reply: *mut ib_uverbs_resize_cq_resp,
    reply_size: usize,
) -> c_int {
    unsafe {
        assert_eq!(reply_size, 8);
        let request: UserResizeCqReq = driver_request(command.cast(), 24, command_size);
        assert!(request.entries.get() as c_int >= cqe);
        let context = (*cq).context;
        let kernel = kernel(context);
        let during = kernel.state().during_resize.take();
        if let Some(during) = during {
            during(&kernel, Moment::Before);
        }
        let ordered = ordered_error(context);
        // Whether an EIO was carried out is not known to anybody; here it was.
        if ordered != 0 && ordered != libc::EIO {
            return ordered;
        }
        {
            let mut state = kernel.state();
            let device = state.cqs.get_mut(&(*cq).handle).unwrap();
            if !device.resize(request.buf.get(), request.entries.get(), request.held.get()) {
                return libc::EINVAL;
            }
        }
        if let Some(during) = during {
            during(&kernel, Moment::After);
        }
        if ordered == 0 {
            (*cq).cqe = request.entries.get() as c_int;
        }
        ordered
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_modify_cq(
    cq: *mut ibv_cq,
    attr: *mut ibv_modify_cq_attr,
    _command: *mut ibv_modify_cq,
    command_size: usize,
) -> c_int {
    unsafe {
        assert_eq!(command_size, size_of::<ibv_modify_cq>());
        let context = (*cq).context;
        let moderation = ((*attr).moderate.cq_count, (*attr).moderate.cq_period);
        kernel(context).state().moderation = Some(moderation);
        ordered_error(context)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_destroy_cq(cq: *mut ibv_cq) -> c_int {
    unsafe {
        kernel((*cq).context).state().cqs.remove(&(*cq).handle);
    }
    0
}

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
        // As libibverbs does with what it does not know.
        let known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        if (*attr).comp_mask & !known != 0 {
            return libc::EINVAL;
        }
        let kernel = kernel(context);
        let mut state = kernel.state();
        let qpn = state.next_qpn;
        state.next_qpn += 1;
        let handle = |cq: *mut ibv_cq| cq.as_ref().map_or(0, |cq| cq.handle);
        state.qp_cqs.insert(qpn, (handle((*attr).send_cq), handle((*attr).recv_cq)));
        (*qp).comp_mask = 0;
        let qp = qp.cast::<ibv_qp>();
        (*qp).context = context;
        ((*qp).send_cq, (*qp).recv_cq) = ((*attr).send_cq, (*attr).recv_cq);
        (*qp).qp_num = qpn;
        // Targets are the kernel's: its driver is not told of the process.
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
extern "C" fn ibv_cmd_query_qp(
    _qp: *mut ibv_qp,
    _attr: *mut ibv_qp_attr,
    _mask: c_int,
    _init_attr: *mut ibv_qp_init_attr,
    _command: *mut ibv_query_qp,
    _size: usize,
) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_destroy_qp(qp: *mut ibv_qp) -> c_int {
    unsafe { ordered_error((*qp).context) }
}

/// Most receives of a shared queue.
const MAX_SRQ_WR: u32 = 32768;

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_create_srq(
    pd: *mut ibv_pd,
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_init_attr,
    _command: *mut ibv_create_srq,
    _command_size: usize,
    reply: *mut ib_uverbs_create_srq_resp,
    reply_size: usize,
) -> c_int {
    unsafe {
        let context = (*pd).context;
        match ordered_error(context) {
            0 => {}
            error => return error,
        }
        if !(1..=MAX_SRQ_WR).contains(&(*attr).attr.max_wr) {
            return libc::EINVAL;
        }
        let kernel = kernel(context);
        let mut state = kernel.state();
        let handle = state.new_handle();
        state.srqs.insert(handle, ((*attr).attr.max_wr, 0));
        (*srq).context = context;
        (*srq).handle = handle;
        // As no QP's.
        let srqn = 0xab_0000 + handle;
        driver_reply(
            reply.cast(),
            16,
            reply_size,
            UserCreateSrqResp { srqn: srqn.into(), ..Default::default() },
        );
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
    _command: *mut ibv_modify_srq,
    _size: usize,
) -> c_int {
    unsafe {
        match ordered_error((*srq).context) {
            0 => {}
            error => return error,
        }
        let kernel = kernel((*srq).context);
        let mut state = kernel.state();
        let (max_wr, limit) = state.srqs.get_mut(&(*srq).handle).unwrap();
        if mask as u32 & IBV_SRQ_MAX_WR != 0 {
            if !(1..=MAX_SRQ_WR).contains(&(*attr).max_wr) {
                return libc::EINVAL;
            }
            *max_wr = (*attr).max_wr;
        }
        if mask as u32 & IBV_SRQ_LIMIT != 0 {
            *limit = (*attr).srq_limit;
        }
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_query_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    _command: *mut ibv_query_srq,
    _size: usize,
) -> c_int {
    unsafe {
        let kernel = kernel((*srq).context);
        let (max_wr, srq_limit) = kernel.state().srqs[&(*srq).handle];
        *attr = ibv_srq_attr { max_wr, max_sge: 1, srq_limit };
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_destroy_srq(srq: *mut ibv_srq) -> c_int {
    unsafe {
        match ordered_error((*srq).context) {
            0 => {}
            error => return error,
        }
        kernel((*srq).context).state().srqs.remove(&(*srq).handle);
        0
    }
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
