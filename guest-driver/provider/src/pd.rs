//! Protection domains, thread domains, and parent domains.
//!
//! A parent domain is a protection domain with a thread domain and with allocators.
//!
//! A domain counts the objects that were made with it. So no object outlives its domain. The kernel
//! also counts the objects of a protection domain, for all processes that have imported it.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use vrdma_verbs::abi::user::AllocPdResp;
use vrdma_verbs::abi::zerocopy::FromZeros;

use crate::errno::{Errno, check, code, object, refusal};
use crate::objects::zeroed;
use crate::refs::Ref;
use crate::{ffi, uverbs};

/// `IBV_ALLOCATOR_USE_DEFAULT`.
const USE_DEFAULT: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// A protection domain, or a parent domain.
#[repr(C)]
pub struct Pd {
    /// rdma-core's part, which rdma-core may change at any time.
    verbs: UnsafeCell<ffi::ibv_pd>,
    /// Additional parts of a parent domain.
    parent: Option<Parent>,
}

/// The parts of a parent domain.
struct Parent {
    /// The protection domain that it stands for, which may be a parent domain itself.
    _contained: Ref<Pd>,
    /// Thread domain. Its objects are locked like all others: if the program keeps its promise, it
    /// never waits for these locks.
    _td: Option<Ref<Td>>,
    allocators: Option<Allocators>,
}

/// The program's functions for the memory of objects that are made with a parent domain.
#[derive(Clone, Copy)]
struct Allocators {
    alloc: unsafe extern "C" fn(*mut ffi::ibv_pd, *mut c_void, usize, usize, u64) -> *mut c_void,
    free: unsafe extern "C" fn(*mut ffi::ibv_pd, *mut c_void, *mut c_void, u64),
    /// Argument of both functions.
    context: *mut c_void,
}

/// Purpose of memory, as allocators are told.
///
/// The upper half is the kernel's ID of the driver, which is 0. The lower half is one of these
/// values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Resource {
    /// The ring of a CQ.
    Cq = 1,
    /// A QP's records of its send requests.
    SendQueue = 2,
    /// A QP's records of its receive requests.
    RecvQueue = 3,
}

/// Memory of an allocator, given back when dropped.
pub struct Allocated {
    start: NonNull<u8>,
    resource: Resource,
    allocators: Allocators,
    pd: Ref<Pd>,
}

impl Allocated {
    /// Returns the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        let Allocators { free, context, .. } = self.allocators;
        // SAFETY: the program's function, with what its other function returned.
        unsafe { free(self.pd.ibv(), context, self.start.as_ptr().cast(), self.resource as u64) };
    }
}

/// A thread domain.
#[repr(C)]
pub struct Td {
    verbs: ffi::ibv_td,
}

impl Pd {
    /// Returns a further reference to the domain that libibverbs calls `pd`.
    ///
    /// # Safety
    /// `pd` was made by this provider, and is not deallocated.
    pub unsafe fn of(pd: *mut ffi::ibv_pd) -> Ref<Self> {
        // SAFETY: by this function's own contract; `ibv_pd` is the first field.
        unsafe { Ref::to(pd.cast()) }
    }

    /// Whether it is a parent domain.
    pub fn is_parent(&self) -> bool {
        self.parent.is_some()
    }

    /// Returns the context of the domain.
    pub fn context(&self) -> *mut ffi::ibv_context {
        // SAFETY: set when the domain was made.
        unsafe { (*self.verbs.get()).context }
    }
}

impl Ref<Pd> {
    /// Allocates `size` zeroed bytes for an object that is made with this domain.
    ///
    /// Returns `None` if the provider has to use its own memory.
    ///
    /// # Errors
    /// ENOMEM if the allocator has no memory; EINVAL if it ignores the alignment.
    pub fn allocate(
        &self,
        size: usize,
        alignment: usize,
        resource: Resource,
    ) -> Result<Option<Allocated>, Errno> {
        let Some(allocators) = self.parent.as_ref().and_then(|parent| parent.allocators) else {
            return Ok(None);
        };
        // SAFETY: the program's function, called as ibv_alloc_parent_domain(3) specifies; no lock
        // is held.
        let start =
            unsafe { (allocators.alloc)(self.ibv(), allocators.context, size, alignment, resource as u64) };
        if start == USE_DEFAULT {
            return Ok(None);
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(libc::ENOMEM)?;
        let memory = Allocated { start, resource, allocators, pd: self.clone() };
        if !start.as_ptr().addr().is_multiple_of(alignment) {
            return Err(libc::EINVAL);
        }
        // The program should have zeroed the memory. Other bytes would be read as completions.
        // SAFETY: the program returns as many bytes as it was asked for.
        unsafe { start.write_bytes(0, size) };
        Ok(Some(memory))
    }

    fn ibv(&self) -> *mut ffi::ibv_pd {
        self.as_ptr().cast()
    }
}

/// Reply of `ibv_cmd_alloc_pd` with driver data.
#[repr(C)]
struct Reply {
    ibv: ffi::ib_uverbs_alloc_pd_resp,
    driver: AllocPdResp,
}

pub unsafe extern "C" fn alloc_pd(context: *mut ffi::ibv_context) -> *mut ffi::ibv_pd {
    let alloc = || -> Result<*mut ffi::ibv_pd, Errno> {
        let pd = Ref::new(Pd { verbs: UnsafeCell::new(zeroed!()), parent: None })?;
        let mut command: ffi::ibv_alloc_pd = zeroed!();
        let mut reply = Reply { ibv: zeroed!(), driver: AllocPdResp::new_zeroed() };
        // SAFETY: the caller's context; the reply is as long as stated.
        check(unsafe {
            ffi::ibv_cmd_alloc_pd(
                context,
                pd.verbs.get(),
                &raw mut command,
                size_of_val(&command),
                &raw mut reply.ibv,
                size_of::<Reply>(),
            )
        })?;
        Ok(pd.into_raw().cast())
    };
    object(alloc())
}

pub unsafe extern "C" fn alloc_parent_domain(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_parent_domain_init_attr,
) -> *mut ffi::ibv_pd {
    // SAFETY: the caller's attributes.
    object(unsafe { parent_domain(context, &*attr) })
}

/// Makes a parent domain.
///
/// # Safety
/// The domains in `attr` are alive.
unsafe fn parent_domain(
    context: *mut ffi::ibv_context,
    attr: &ffi::ibv_parent_domain_init_attr,
) -> Result<*mut ffi::ibv_pd, Errno> {
    let has = |bit| attr.comp_mask & bit != 0;
    let (allocators, pd_context) =
        (ffi::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS, ffi::IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT);
    if attr.pd.is_null() || attr.comp_mask & !(allocators | pd_context) != 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: by this function's own contract; all domains of this context are of this provider.
    let (contained, td) =
        unsafe { (Pd::of(attr.pd), (!attr.td.is_null()).then(|| Ref::<Td>::to(attr.td.cast()))) };
    if contained.context() != context || td.as_ref().is_some_and(|td| td.verbs.context != context) {
        return Err(libc::EINVAL);
    }
    let allocators = match (has(allocators), attr.alloc, attr.free) {
        (false, ..) => None,
        (true, Some(alloc), Some(free)) => {
            let context = if has(pd_context) { attr.pd_context } else { ptr::null_mut() };
            Some(Allocators { alloc, free, context })
        }
        (true, ..) => return Err(libc::EINVAL),
    };
    // SAFETY: the domain is alive. For the kernel, a parent domain has the handle of its protection
    // domain.
    let verbs = ffi::ibv_pd { context, handle: unsafe { (*attr.pd).handle } };
    let parent = Parent { _contained: contained, _td: td, allocators };
    Ok(Ref::new(Pd { verbs: UnsafeCell::new(verbs), parent: Some(parent) })?.into_raw().cast())
}

/// Deallocates a protection domain or parent domain. Fails with EBUSY while an object of this
/// process that was made with it exists.
pub unsafe extern "C" fn dealloc_pd(pd: *mut ffi::ibv_pd) -> c_int {
    // SAFETY: libibverbs gives its reference back.
    let owned: Ref<Pd> = unsafe { Ref::from_raw(pd.cast()) };
    let dealloc = || match &owned.parent {
        _ if !owned.is_only() => Err(libc::EBUSY),
        Some(_) => Ok(()),
        // SAFETY: made by alloc_pd() or import_pd().
        None => check(unsafe { ffi::ibv_cmd_dealloc_pd(pd) }),
    };
    let result = dealloc();
    if result.is_err() {
        // libibverbs keeps its reference.
        owned.into_raw();
    }
    code(result)
}

pub unsafe extern "C" fn import_pd(context: *mut ffi::ibv_context, handle: u32) -> *mut ffi::ibv_pd {
    let import = || -> Result<*mut ffi::ibv_pd, Errno> {
        // SAFETY: the caller's open context.
        uverbs::query_pd(unsafe { (*context).cmd_fd }, handle)?;
        let verbs = UnsafeCell::new(ffi::ibv_pd { context, handle });
        Ok(Ref::new(Pd { verbs, parent: None })?.into_raw().cast())
    };
    object(import())
}

/// Ends the import of a PD. Objects that were made with it may be destroyed later: the last one
/// frees it.
pub unsafe extern "C" fn unimport_pd(pd: *mut ffi::ibv_pd) {
    // SAFETY: libibverbs gives its reference back; the kernel keeps the PD.
    drop(unsafe { Ref::<Pd>::from_raw(pd.cast()) });
}

pub unsafe extern "C" fn alloc_td(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_td_init_attr,
) -> *mut ffi::ibv_td {
    // SAFETY: the caller's attributes.
    let has_more = unsafe { (*attr).comp_mask != 0 };
    let td = || if has_more { Err(libc::EINVAL) } else { Ref::new(Td { verbs: ffi::ibv_td { context } }) };
    object(td().map(|td| td.into_raw().cast()))
}

/// Deallocates a thread domain. Fails with EBUSY while a parent domain refers to it.
pub unsafe extern "C" fn dealloc_td(td: *mut ffi::ibv_td) -> c_int {
    // SAFETY: libibverbs gives its reference back.
    let owned: Ref<Td> = unsafe { Ref::from_raw(td.cast()) };
    if owned.is_only() {
        return 0;
    }
    // libibverbs keeps its reference.
    owned.into_raw();
    refusal(libc::EBUSY)
}
