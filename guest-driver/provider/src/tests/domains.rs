//! Parent domains, thread domains, and allocators.
//!
//! Shows: imports.

use std::ffi::c_void;
use std::mem::zeroed;
use std::ptr;
use std::sync::Mutex;

use super::guest::{Guest, wr_ids, write};
use crate::fake::{Kernel, MAX_CQE};
use crate::ffi::*;

/// State of a test allocator: the requests it got, and how it allocates.
#[derive(Default)]
struct Asked {
    given: Vec<(usize, usize, u64)>,
    freed: Vec<u64>,
    how: How,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum How {
    #[default]
    Aligned,
    /// One byte off the alignment.
    Shifted,
    None,
    UseDefault,
}

/// Bytes before each allocation, so that it can be found again.
const HEAD: usize = 4096;

unsafe extern "C" fn alloc(
    pd: *mut ibv_pd,
    context: *mut c_void,
    size: usize,
    alignment: usize,
    resource: u64,
) -> *mut c_void {
    unsafe {
        assert!(!(*pd).context.is_null());
        let mut asked = (*context.cast::<Mutex<Asked>>()).lock().unwrap();
        asked.given.push((size, alignment, resource));
        let memory = || {
            let memory = libc::memalign(HEAD, size + HEAD).cast::<u8>();
            // Memory that was used before.
            memory.write_bytes(0xff, size + HEAD);
            memory
        };
        match asked.how {
            How::Aligned => memory().cast(),
            How::Shifted => memory().add(1).cast(),
            How::None => ptr::null_mut(),
            How::UseDefault => ptr::without_provenance_mut(usize::MAX),
        }
    }
}

unsafe extern "C" fn free(_pd: *mut ibv_pd, context: *mut c_void, memory: *mut c_void, resource: u64) {
    unsafe {
        (*context.cast::<Mutex<Asked>>()).lock().unwrap().freed.push(resource);
        libc::free(memory.map_addr(|addr| addr & !1));
    }
}

impl Guest {
    fn try_parent(&self, change: impl FnOnce(&mut ibv_parent_domain_init_attr)) -> Result<*mut ibv_pd, i32> {
        unsafe {
            let mut attr: ibv_parent_domain_init_attr = zeroed();
            attr.pd = self.pd;
            change(&mut attr);
            let pd = self.ops.alloc_parent_domain.unwrap()(self.context, &raw mut attr);
            if pd.is_null() { Err(crate::errno::last()) } else { Ok(pd) }
        }
    }

    fn with_allocators(&self, asked: &Mutex<Asked>) -> *mut ibv_pd {
        let parent = self.try_parent(|attr| {
            attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
            attr.alloc = Some(alloc);
            attr.free = Some(free);
            attr.pd_context = ptr::from_ref(asked).cast_mut().cast();
        });
        parent.unwrap()
    }

    fn td(&self) -> *mut ibv_td {
        let mut attr = ibv_td_init_attr { comp_mask: 0 };
        unsafe { self.ops.alloc_td.unwrap()(self.context, &raw mut attr) }
    }

    fn dealloc_td(&self, td: *mut ibv_td) -> i32 {
        unsafe { self.ops.dealloc_td.unwrap()(td) }
    }

    fn dealloc_pd(&self, pd: *mut ibv_pd) -> i32 {
        unsafe { self.ops.dealloc_pd.unwrap()(pd) }
    }

    fn cq_in(&self, domain: *mut ibv_pd) -> Result<*mut ibv_cq, i32> {
        self.cq_of(4, domain)
    }

    fn cq_of(&self, cqe: u32, domain: *mut ibv_pd) -> Result<*mut ibv_cq, i32> {
        unsafe {
            let mut attr: ibv_cq_init_attr_ex = zeroed();
            (attr.cqe, attr.parent_domain) = (cqe, domain);
            attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
            let cq = self.ops.create_cq_ex.unwrap()(self.context, &raw mut attr);
            if cq.is_null() { Err(crate::errno::last()) } else { Ok(cq.cast()) }
        }
    }

    fn qp_in(&self, domain: *mut ibv_pd, cq: *mut ibv_cq) -> *mut ibv_qp {
        let inside = Guest { kernel: self.kernel.clone(), pd: domain, ..*self };
        inside.try_qp(cq, |_| ())
    }

    fn destroy_cq(&self, cq: *mut ibv_cq) {
        assert_eq!(unsafe { self.ops.destroy_cq.unwrap()(cq) }, 0);
    }
}

#[test]
fn a_parent_domain_stands_for_its_pd_until_its_objects_are_gone() {
    let guest = Guest::new(&Kernel::new());
    let cq = guest.cq(4);
    let parent = guest.try_parent(|_| ()).unwrap();
    let nested = guest.try_parent(|attr| attr.pd = parent).unwrap();
    unsafe {
        assert_eq!(((*parent).handle, (*parent).context), ((*guest.pd).handle, guest.context));
        assert_eq!((*nested).handle, (*guest.pd).handle);
    }
    assert_eq!(guest.dealloc_pd(guest.pd), libc::EBUSY, "it has a parent domain");
    assert_eq!(guest.dealloc_pd(parent), libc::EBUSY, "another contains it");
    assert_eq!(guest.dealloc_pd(nested), 0);

    let qp = guest.qp_in(parent, cq);
    assert_eq!(guest.dealloc_pd(parent), libc::EBUSY, "it has a QP");
    guest.destroy_qp(qp);
    let attr = ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 };
    let mut attr = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
    unsafe {
        let srq = guest.ops.create_srq.unwrap()(parent, &raw mut attr);
        assert_eq!(guest.dealloc_pd(parent), libc::EBUSY, "it has an SRQ");
        guest.destroy_srq(srq);
        let mr = guest.ops.reg_mr.unwrap()(parent, ptr::null_mut(), 4096, 0, 0);
        assert_eq!(guest.dealloc_pd(parent), libc::EBUSY, "it has a region");
        assert_eq!(guest.ops.dereg_mr.unwrap()(mr.cast()), 0);
        let mut attr: ibv_ah_attr = zeroed();
        let ah = guest.ops.create_ah.unwrap()(parent, &raw mut attr);
        assert_eq!(guest.dealloc_pd(parent), libc::EBUSY, "it has an address handle");
        assert_eq!(guest.ops.destroy_ah.unwrap()(ah), 0);
    }
    let inside = guest.cq_in(parent).unwrap();
    assert_eq!(guest.dealloc_pd(parent), libc::EBUSY, "it has a CQ");
    guest.destroy_cq(inside);
    assert_eq!(guest.dealloc_pd(parent), 0);
    guest.close(&[cq]);
}

#[test]
fn a_pd_that_the_kernel_keeps_can_be_deallocated_later() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    kernel.state().command_error = libc::EBUSY;
    assert_eq!(guest.dealloc_pd(guest.pd), libc::EBUSY);
    guest.close(&[]);
    assert!(kernel.state().pds.is_empty());
}

#[test]
fn a_thread_domain_stays_while_a_parent_domain_has_it() {
    let guest = Guest::new(&Kernel::new());
    let td = guest.td();
    assert_eq!(unsafe { (*td).context }, guest.context);
    let parent = guest.try_parent(|attr| attr.td = td).unwrap();
    assert_eq!(guest.dealloc_td(td), libc::EBUSY);
    assert_eq!(guest.dealloc_pd(parent), 0);
    assert_eq!(guest.dealloc_td(td), 0);
    let mut attr = ibv_td_init_attr { comp_mask: 1 };
    assert!(unsafe { guest.ops.alloc_td.unwrap()(guest.context, &raw mut attr) }.is_null());
    assert_eq!(crate::errno::last(), libc::EINVAL);
    guest.close(&[]);
}

#[test]
fn parent_domains_that_cannot_be_are_refused() {
    let guest = Guest::new(&Kernel::new());
    let other = Guest::new(&Kernel::new());
    let td = other.td();
    let error = |change: &dyn Fn(&mut ibv_parent_domain_init_attr)| guest.try_parent(change).unwrap_err();
    let allocators = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
    assert_eq!(error(&|attr| attr.pd = ptr::null_mut()), libc::EINVAL);
    assert_eq!(error(&|attr| attr.pd = other.pd), libc::EINVAL);
    assert_eq!(error(&|attr| attr.td = td), libc::EINVAL);
    assert_eq!(error(&|attr| attr.comp_mask = 4), libc::EINVAL);
    assert_eq!(error(&|attr| attr.comp_mask = allocators), libc::EINVAL);
    let no_free = |attr: &mut ibv_parent_domain_init_attr| {
        attr.comp_mask = allocators;
        attr.alloc = Some(alloc);
    };
    assert_eq!(error(&no_free), libc::EINVAL);
    assert_eq!(other.dealloc_td(td), 0);
    other.close(&[]);
    guest.close(&[]);
}

#[test]
fn a_cq_is_made_with_a_parent_domain_of_its_context_alone() {
    let guest = Guest::new(&Kernel::new());
    let other = Guest::new(&Kernel::new());
    let foreign = other.try_parent(|_| ()).unwrap();
    assert_eq!(guest.cq_in(guest.pd), Err(libc::EINVAL));
    assert_eq!(guest.cq_in(ptr::null_mut()), Err(libc::EINVAL));
    assert_eq!(guest.cq_in(foreign), Err(libc::EINVAL));
    assert_eq!(other.dealloc_pd(foreign), 0);
    other.close(&[]);
    guest.close(&[]);
}

#[test]
fn allocators_give_the_memory_of_queues() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let asked = Mutex::new(Asked::default());
    let parent = guest.with_allocators(&asked);
    let cq = guest.cq_in(parent).unwrap();
    let qp = guest.qp_in(parent, cq);
    // 8 sends and 4 receives of 8 bytes each; the ring is in pages.
    let given = std::mem::take(&mut asked.lock().unwrap().given);
    let ring = given[0].0;
    assert!(ring >= 4 * 64);
    assert_eq!(given, [(ring, 4096, 1), (64, 8, 2), (32, 8, 3)]);
    // The allocator's memory was not zeroed, but has no completions.
    assert!(guest.poll(cq, 4).is_empty());
    guest.modify(qp, IBV_QPS_RTS);
    guest.send(qp, &mut [write(5), write(6)]).unwrap();
    assert_eq!(kernel.serve(), 2);
    assert_eq!(wr_ids(&guest.poll(cq, 4)), [5, 6]);
    guest.destroy_qp(qp);
    guest.destroy_cq(cq);
    let mut freed = std::mem::take(&mut asked.lock().unwrap().freed);
    freed.sort_unstable();
    assert_eq!(freed, [1, 2, 3]);
    assert_eq!(guest.dealloc_pd(parent), 0);
    guest.close(&[]);
}

#[test]
fn allocators_may_fail_or_leave_it_to_the_provider() {
    let guest = Guest::new(&Kernel::new());
    let asked = Mutex::new(Asked::default());
    let parent = guest.with_allocators(&asked);
    asked.lock().unwrap().how = How::None;
    assert_eq!(guest.cq_in(parent), Err(libc::ENOMEM));
    asked.lock().unwrap().how = How::Shifted;
    assert_eq!(guest.cq_in(parent), Err(libc::EINVAL));
    assert_eq!(asked.lock().unwrap().freed, [1]);
    asked.lock().unwrap().how = How::UseDefault;
    let cq = guest.cq_in(parent).unwrap();
    let qp = guest.qp_in(parent, cq);
    asked.lock().unwrap().how = How::None;
    assert!(guest.qp_in(parent, cq).is_null());
    assert_eq!(crate::errno::last(), libc::ENOMEM);
    asked.lock().unwrap().how = How::Shifted;
    assert!(guest.qp_in(parent, cq).is_null());
    assert_eq!(crate::errno::last(), libc::EINVAL);
    guest.destroy_qp(qp);
    guest.destroy_cq(cq);
    assert_eq!(asked.lock().unwrap().freed, [1, 2], "what it did not give is not given back");
    assert_eq!(guest.dealloc_pd(parent), 0);
    guest.close(&[]);
}

#[test]
fn a_cq_that_is_too_large_is_refused_before_it_has_memory() {
    let guest = Guest::new(&Kernel::new());
    let asked = Mutex::new(Asked::default());
    let parent = guest.with_allocators(&asked);
    let largest = guest.cq_of(MAX_CQE as u32, parent).unwrap();
    asked.lock().unwrap().given.clear();
    let refused = |result: i32| assert_eq!((result, crate::errno::last()), (libc::EINVAL, libc::EINVAL));
    for cqes in [MAX_CQE + 1, i32::MAX] {
        assert_eq!(guest.cq_of(cqes as u32, parent), Err(libc::EINVAL), "{cqes}");
        refused(unsafe { guest.ops.resize_cq.unwrap()(largest, cqes) });
        let plain = unsafe { guest.ops.create_cq.unwrap()(guest.context, cqes, ptr::null_mut(), 0) };
        refused(if plain.is_null() { libc::EINVAL } else { 0 });
    }
    assert_eq!(guest.cq_of(u32::MAX, parent), Err(libc::EINVAL));
    assert_eq!(asked.lock().unwrap().given, []);
    assert_eq!(unsafe { guest.ops.resize_cq.unwrap()(largest, MAX_CQE) }, 0);
    guest.destroy_cq(largest);
    assert_eq!(guest.dealloc_pd(parent), 0);
    guest.close(&[]);
}
