//! Requests that change what a key names: BIND_MW, LOCAL_INV, SEND_WITH_INV.

use vrdma_verbs::abi::control::{access, device_cap};
use vrdma_verbs::{Bind, Data, Request, Tag};

use crate::batch::begin;
use crate::errno::Errno;
use crate::ffi;
use crate::qp::{Kind, Qp};

/// Rights that a bind may name, but that have no effect. The rights of the owner belong to the
/// region, and those of the optional range are hints.
const IGNORED_RIGHTS: u32 = ffi::IBV_ACCESS_LOCAL_WRITE | ffi::IB_UVERBS_ACCESS_OPTIONAL_RANGE;

/// Functions of a device that concern keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Functions {
    /// Windows of type 1.
    pub type_1: bool,
    /// Windows of type 2B.
    pub type_2: bool,
    /// LOCAL_INV and SEND_WITH_INV.
    pub invalidate: bool,
}

impl Functions {
    /// Returns the functions of a device with `cap` (`VRDMA_CAP_*`).
    pub fn of(cap: u64) -> Self {
        let has = |bits| cap & bits != 0;
        Self {
            type_1: has(device_cap::MEM_WINDOW),
            type_2: has(device_cap::MEM_WINDOW_TYPE_2B),
            invalidate: has(device_cap::MEM_WINDOW_TYPE_2B | device_cap::MEM_MGT_EXTENSIONS),
        }
    }

    /// Whether the device has BIND_MW.
    pub fn bind(self) -> bool {
        self.type_1 || self.type_2
    }

    /// Returns the requests that a QP of this kind supports by function calls, as
    /// `IBV_QP_EX_WITH_*`.
    pub fn operations(self, kind: Kind) -> u32 {
        let flag = |has, flag| if has { flag } else { 0 };
        let own = flag(self.bind(), ffi::IBV_QP_EX_WITH_BIND_MW)
            | flag(self.invalidate, ffi::IBV_QP_EX_WITH_LOCAL_INV);
        match kind {
            Kind::Ud | Kind::XrcRecv => 0,
            Kind::Uc => own,
            Kind::Rc | Kind::XrcSend => own | flag(self.invalidate, ffi::IBV_QP_EX_WITH_SEND_WITH_INV),
        }
    }
}

/// Translates `wr` for the device, if it is a request that changes what a key names.
///
/// Fails with EINVAL for other requests. `data` is the payload, if the request has one.
///
/// # Safety
/// The window of a BIND_MW, and the region if it names one, are alive.
pub unsafe fn translate<'a>(
    wr: &ffi::ibv_send_wr,
    qp: &Qp,
    tag: Tag,
    data: Data<'a>,
) -> Result<Request<'a>, Errno> {
    let invalidate = || Functions::of(qp.context().device_cap).invalidate;
    // SAFETY: any bytes are a valid integer.
    let rkey = unsafe { wr.__bindgen_anon_1.invalidate_rkey };
    match wr.opcode {
        ffi::IBV_WR_SEND_WITH_INV if qp.kind.is_reliable() && invalidate() => {
            Ok(Request::send_inv(tag, rkey, data))
        }
        ffi::IBV_WR_LOCAL_INV if wr.num_sge == 0 && invalidate() => Ok(Request::local_inv(tag, rkey)),
        ffi::IBV_WR_BIND_MW if wr.num_sge == 0 => {
            // SAFETY: by this function's own contract; for this opcode `bind_mw` is the field that
            // counts.
            unsafe { bind(&wr.__bindgen_anon_2.bind_mw) }.map(|bind| Request::bind_mw(tag, &bind))
        }
        _ => Err(libc::EINVAL),
    }
}

/// Translates a BIND_MW.
///
/// The `rkey` of the window does not change. For type 2 the program sets the new one, as with other
/// providers.
///
/// # Safety
/// The window, and the region if there is one, are alive.
unsafe fn bind(wr: &ffi::ibv_send_wr__bindgen_ty_4__bindgen_ty_1) -> Result<Bind, Errno> {
    let info = &wr.bind_info;
    // SAFETY: by this function's own contract.
    let (mw, mr) = unsafe { (wr.mw.as_ref(), info.mr.as_ref()) };
    let mw = mw.ok_or(libc::EINVAL)?;
    let lkey = match mr {
        Some(mr) => mr.lkey,
        None if info.length == 0 => 0,
        None => return Err(libc::EINVAL),
    };
    let rights = info.mw_access_flags & !IGNORED_RIGHTS;
    if rights & !access::WINDOW != 0 {
        return Err(libc::EINVAL);
    }
    Ok(Bind { rkey: mw.rkey, new_rkey: wr.rkey, lkey, access: rights, addr: info.addr, length: info.length })
}

/// Sets the functions of the QP that change keys (see [`crate::batch::set_functions`]).
pub fn set_functions(qp: &mut ffi::ibv_qp_ex) {
    qp.wr_bind_mw = Some(bind_mw);
    qp.wr_local_inv = Some(local_inv);
    qp.wr_send_inv = Some(send_inv);
}

unsafe extern "C" fn bind_mw(
    qp: *mut ffi::ibv_qp_ex,
    mw: *mut ffi::ibv_mw,
    rkey: u32,
    info: *const ffi::ibv_mw_bind_info,
) {
    // SAFETY: as for `begin`; the caller's attributes, window and region.
    unsafe {
        let bind = ffi::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 { mw, rkey, bind_info: *info };
        begin(qp, ffi::IBV_WR_BIND_MW, |wr| wr.__bindgen_anon_2.bind_mw = bind);
    }
}

unsafe extern "C" fn local_inv(qp: *mut ffi::ibv_qp_ex, rkey: u32) {
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_LOCAL_INV, |wr| wr.__bindgen_anon_1.invalidate_rkey = rkey) }
}

unsafe extern "C" fn send_inv(qp: *mut ffi::ibv_qp_ex, rkey: u32) {
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_SEND_WITH_INV, |wr| wr.__bindgen_anon_1.invalidate_rkey = rkey) }
}
