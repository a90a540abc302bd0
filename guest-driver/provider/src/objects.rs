//! PDs, MRs, AHs, queries of device and port: what the kernel does.

use std::ffi::{c_int, c_void};
use std::fmt::Write;

use vrdma_verbs::abi::user::{AllocPdResp, UserCreateAhResp};
use vrdma_verbs::abi::zerocopy::FromZeros;

use crate::errno::{Errno, boxed, check, code, object};
use crate::ffi;

/// A C structure of which all bytes may be zero.
macro_rules! zeroed {
    () => {
        // SAFETY: used for integers, pointers, options of function pointers and pthread objects that are not in use yet.
        unsafe { std::mem::zeroed() }
    };
}
pub(crate) use zeroed;

/// Reply of ibv_cmd_alloc_pd with driver data.
#[repr(C)]
struct PdReply {
    ibv: ffi::ib_uverbs_alloc_pd_resp,
    driver: AllocPdResp,
}

/// Reply of ibv_cmd_create_ah with driver data.
#[repr(C)]
struct AhReply {
    ibv: ffi::ib_uverbs_create_ah_resp,
    driver: UserCreateAhResp,
}

/// An address handle.
#[repr(C)]
pub struct Ah {
    verbs: ffi::ibv_ah,
    /// Index in the AH table.
    pub index: u32,
}

impl Ah {
    /// Index of the address handle that libibverbs calls `ah`.
    ///
    /// # Safety
    /// `ah` is NULL or was made by this provider and is not destroyed.
    #[inline]
    pub unsafe fn index_of(ah: *const ffi::ibv_ah) -> Option<u32> {
        // SAFETY: the caller's; ibv_ah is the first field.
        unsafe { ah.cast::<Self>().as_ref() }.map(|ah| ah.index)
    }
}

pub unsafe extern "C" fn query_device_ex(
    context: *mut ffi::ibv_context,
    input: *const ffi::ibv_query_device_ex_input,
    attr: *mut ffi::ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    let mut reply: ffi::ib_uverbs_ex_query_device_resp = zeroed!();
    let mut reply_size = size_of_val(&reply);
    // SAFETY: the caller's context, input and attributes.
    code(unsafe {
        check(ffi::ibv_cmd_query_device_any(
            context,
            input,
            attr,
            attr_size,
            &raw mut reply,
            &raw mut reply_size,
        ))
        .map(|()| write_version(reply.base.fw_ver, &mut (*attr).orig_attr.fw_ver))
    })
}

/// Writes `version` (major << 32 | minor << 16 | patch) as a C string.
fn write_version(version: u64, to: &mut [core::ffi::c_char; 64]) {
    struct Text<'a>(std::slice::IterMut<'a, core::ffi::c_char>);
    impl Write for Text<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            for byte in text.bytes() {
                *self.0.next().ok_or(std::fmt::Error)? = byte as core::ffi::c_char;
            }
            Ok(())
        }
    }
    to.fill(0);
    let (major, minor, patch) = (version >> 32, version >> 16 & 0xffff, version & 0xffff);
    // At most 22 characters, so it fits and the string ends.
    let _ = write!(Text(to.iter_mut()), "{major}.{minor}.{patch}");
}

pub unsafe extern "C" fn query_port(
    context: *mut ffi::ibv_context,
    port: u8,
    attr: *mut ffi::ibv_port_attr,
) -> c_int {
    let mut command: ffi::ibv_query_port = zeroed!();
    // SAFETY: the caller's context and attributes.
    unsafe { ffi::ibv_cmd_query_port(context, port, attr, &raw mut command, size_of_val(&command)) }
}

pub unsafe extern "C" fn alloc_pd(context: *mut ffi::ibv_context) -> *mut ffi::ibv_pd {
    let alloc = || -> Result<*mut ffi::ibv_pd, Errno> {
        let mut pd: Box<ffi::ibv_pd> = boxed(zeroed!())?;
        let mut command: ffi::ibv_alloc_pd = zeroed!();
        let mut reply = PdReply { ibv: zeroed!(), driver: AllocPdResp::new_zeroed() };
        // SAFETY: the caller's context; the reply is as long as said.
        check(unsafe {
            ffi::ibv_cmd_alloc_pd(
                context,
                &raw mut *pd,
                &raw mut command,
                size_of_val(&command),
                &raw mut reply.ibv,
                size_of::<PdReply>(),
            )
        })?;
        Ok(Box::into_raw(pd))
    };
    object(alloc())
}

pub unsafe extern "C" fn dealloc_pd(pd: *mut ffi::ibv_pd) -> c_int {
    // SAFETY: made by alloc_pd(), and unused once the kernel has let it go.
    unsafe { code(check(ffi::ibv_cmd_dealloc_pd(pd)).map(|()| drop(Box::from_raw(pd)))) }
}

pub unsafe extern "C" fn reg_mr(
    pd: *mut ffi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    hca_va: u64,
    access: c_int,
) -> *mut ffi::ibv_mr {
    let register = || -> Result<*mut ffi::ibv_mr, Errno> {
        let mut mr: Box<ffi::verbs_mr> = boxed(zeroed!())?;
        let mut command: ffi::ibv_reg_mr = zeroed!();
        let mut reply: ffi::ib_uverbs_reg_mr_resp = zeroed!();
        // SAFETY: the caller's PD; the kernel checks the memory.
        check(unsafe {
            ffi::ibv_cmd_reg_mr(
                pd,
                addr,
                length,
                hca_va,
                access,
                &raw mut *mr,
                &raw mut command,
                size_of_val(&command),
                &raw mut reply,
                size_of_val(&reply),
            )
        })?;
        // ibv_mr is the first field.
        Ok(Box::into_raw(mr).cast())
    };
    object(register())
}

pub unsafe extern "C" fn dereg_mr(mr: *mut ffi::verbs_mr) -> c_int {
    // SAFETY: made by reg_mr(), and unused once the kernel has let it go.
    unsafe { code(check(ffi::ibv_cmd_dereg_mr(mr)).map(|()| drop(Box::from_raw(mr)))) }
}

pub unsafe extern "C" fn create_ah(pd: *mut ffi::ibv_pd, attr: *mut ffi::ibv_ah_attr) -> *mut ffi::ibv_ah {
    let create = || -> Result<*mut ffi::ibv_ah, Errno> {
        let mut ah: Box<Ah> = boxed(Ah { verbs: zeroed!(), index: 0 })?;
        let mut reply = AhReply { ibv: zeroed!(), driver: UserCreateAhResp::new_zeroed() };
        // SAFETY: the caller's PD and attributes; the reply is as long as said.
        check(unsafe {
            ffi::ibv_cmd_create_ah(pd, &raw mut ah.verbs, attr, &raw mut reply.ibv, size_of::<AhReply>())
        })?;
        ah.index = reply.driver.ah.get();
        Ok(Box::into_raw(ah).cast())
    };
    object(create())
}

pub unsafe extern "C" fn destroy_ah(ah: *mut ffi::ibv_ah) -> c_int {
    // SAFETY: made by create_ah(), and unused once the kernel has let it go.
    unsafe { code(check(ffi::ibv_cmd_destroy_ah(ah)).map(|()| drop(Box::from_raw(ah.cast::<Ah>())))) }
}

#[cfg(test)]
pub fn version_text(version: u64) -> String {
    let mut text = [1; 64];
    write_version(version, &mut text);
    text.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect()
}
