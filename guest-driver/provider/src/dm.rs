//! Device memory: pages of the guest's kernel that this process maps.
//!
//! vrdma has no memory of its own.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::errno::{Errno, boxed, check, code, object};
use crate::mapping::Mapping;
use crate::mr::Mr;
use crate::objects::zeroed;
use crate::{ffi, uverbs};

/// Bytes of a word. Copies consist of whole words, so the device never sees a part of one.
///
/// Devices that have memory require whole words too, and rdma-core's tests rely on it.
const WORD: usize = size_of::<u32>();

/// Device memory.
#[repr(C)]
struct Dm {
    verbs: ffi::verbs_dm,
    pages: Mapping,
    /// Size in bytes, from the start of `pages`.
    length: usize,
}

impl Dm {
    /// Maps memory that the kernel knows by a handle, and returns its object for libibverbs.
    ///
    /// # Safety
    /// The context in `verbs` is open.
    unsafe fn map(mut verbs: ffi::verbs_dm) -> Result<*mut ffi::ibv_dm, Errno> {
        // SAFETY: by this function's own contract.
        let cmd_fd = unsafe { (*verbs.dm.context).cmd_fd };
        let reply = uverbs::query_dm(cmd_fd, verbs.handle)?;
        let size = |bytes: u64| u32::try_from(bytes).map_err(|_| libc::EPROTO);
        let (mapped, length) = (size(reply.mmap_len.get())?, size(reply.length.get())?);
        if length > mapped {
            return Err(libc::EPROTO);
        }
        let pages = Mapping::shared(cmd_fd, reply.mmap.get(), mapped)?;
        verbs.dm.memcpy_to_dm = Some(memcpy_to_dm);
        verbs.dm.memcpy_from_dm = Some(memcpy_from_dm);
        Ok(Box::into_raw(boxed(Self { verbs, pages, length: length as usize })?).cast())
    }

    /// Returns the words at `offset`. Fails with EINVAL if they are not whole words of this memory.
    fn words(&self, offset: u64, length: usize) -> Result<&[AtomicU32], Errno> {
        let offset = usize::try_from(offset).map_err(|_| libc::EINVAL)?;
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= self.length);
        if !is_inside || !offset.is_multiple_of(WORD) || !length.is_multiple_of(WORD) {
            return Err(libc::EINVAL);
        }
        let first = self.pages.part(offset, length).ok_or(libc::EINVAL)?;
        // SAFETY: inside the mapping, which is readable and writable and starts with a page, and
        // aligned. All other accesses are by another process, the device, or these functions in
        // another thread.
        Ok(unsafe { std::slice::from_raw_parts(first.as_ptr().cast(), length / WORD) })
    }
}

pub unsafe extern "C" fn alloc_dm(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_alloc_dm_attr,
) -> *mut ffi::ibv_dm {
    let alloc = || -> Result<*mut ffi::ibv_dm, Errno> {
        let mut verbs: ffi::verbs_dm = zeroed!();
        // SAFETY: the caller's context and attributes.
        unsafe {
            if (*attr).comp_mask != 0 {
                return Err(libc::EINVAL);
            }
            check(ffi::ibv_cmd_alloc_dm(context, attr, &raw mut verbs, std::ptr::null_mut()))?;
            Dm::map(verbs).inspect_err(|_| {
                ffi::ibv_cmd_free_dm(&raw mut verbs);
            })
        }
    };
    object(alloc())
}

pub unsafe extern "C" fn free_dm(dm: *mut ffi::ibv_dm) -> c_int {
    // SAFETY: made by Dm::map(), and unused after the kernel has freed it. `verbs_dm` is the first
    // field, and `ibv_dm` the first field of that.
    unsafe { code(check(ffi::ibv_cmd_free_dm(dm.cast())).map(|()| drop(Box::from_raw(dm.cast::<Dm>())))) }
}

pub unsafe extern "C" fn import_dm(context: *mut ffi::ibv_context, handle: u32) -> *mut ffi::ibv_dm {
    let mut verbs: ffi::verbs_dm = zeroed!();
    verbs.handle = handle;
    (verbs.dm.context, verbs.dm.handle) = (context, handle);
    verbs.dm.comp_mask = ffi::IBV_DM_MASK_HANDLE;
    // SAFETY: the caller's open context.
    object(unsafe { Dm::map(verbs) })
}

pub unsafe extern "C" fn unimport_dm(dm: *mut ffi::ibv_dm) {
    // SAFETY: made by import_dm(), and not used any more; the kernel keeps the memory.
    drop(unsafe { Box::from_raw(dm.cast::<Dm>()) });
}

pub unsafe extern "C" fn reg_dm_mr(
    pd: *mut ffi::ibv_pd,
    dm: *mut ffi::ibv_dm,
    offset: u64,
    length: usize,
    access: u32,
) -> *mut ffi::ibv_mr {
    // SAFETY: the caller's PD and memory; the kernel checks that the region is inside the memory.
    object(unsafe {
        Mr::make(pd, |mr| {
            ffi::ibv_cmd_reg_dm_mr(pd, dm.cast(), offset, length, access, mr, std::ptr::null_mut())
        })
    })
}

unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ffi::ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: made by Dm::map().
    let dm = unsafe { &*dm.cast::<Dm>() };
    code(dm.words(offset, length).map(|words| {
        for (i, word) in words.iter().enumerate() {
            // SAFETY: within the caller's `length` bytes.
            word.store(unsafe { from.cast::<u32>().add(i).read_unaligned() }, Ordering::Relaxed);
        }
    }))
}

unsafe extern "C" fn memcpy_from_dm(
    to: *mut c_void,
    dm: *mut ffi::ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: made by Dm::map().
    let dm = unsafe { &*dm.cast::<Dm>() };
    code(dm.words(offset, length).map(|words| {
        for (i, word) in words.iter().enumerate() {
            // SAFETY: within the caller's `length` bytes.
            unsafe { to.cast::<u32>().add(i).write_unaligned(word.load(Ordering::Relaxed)) };
        }
    }))
}
