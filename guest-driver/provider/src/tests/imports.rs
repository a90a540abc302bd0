//! Device memory, and objects of another process.
//!
//! Shows: imports.

use std::os::unix::fs::FileExt;
use std::ptr;

use super::guest::{Guest, wr_ids, write};
use crate::context::Context;
use crate::fake::Kernel;
use crate::ffi::*;

impl Guest {
    fn try_dm(&self, length: usize, comp_mask: u32) -> Result<*mut ibv_dm, i32> {
        let mut attr = ibv_alloc_dm_attr { length, log_align_req: 0, comp_mask };
        let dm = unsafe { self.ops.alloc_dm.unwrap()(self.context, &raw mut attr) };
        if dm.is_null() { Err(crate::errno::last()) } else { Ok(dm) }
    }

    fn dm(&self, length: usize) -> *mut ibv_dm {
        self.try_dm(length, 0).unwrap()
    }

    fn free_dm(&self, dm: *mut ibv_dm) {
        assert_eq!(unsafe { self.ops.free_dm.unwrap()(dm) }, 0);
    }
}

fn to_dm(dm: *mut ibv_dm, offset: u64, bytes: &[u8]) -> i32 {
    unsafe { (*dm).memcpy_to_dm.unwrap()(dm, offset, bytes.as_ptr().cast(), bytes.len()) }
}

fn from_dm(dm: *mut ibv_dm, offset: u64, length: usize) -> Result<Vec<u8>, i32> {
    let mut bytes = vec![0; length];
    match unsafe { (*dm).memcpy_from_dm.unwrap()(bytes.as_mut_ptr().cast(), dm, offset, length) } {
        0 => Ok(bytes),
        errno => Err(errno),
    }
}

#[test]
fn device_memory_is_shared_with_the_kernel() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    // Two objects, so that one does not start at the beginning of the mapped file.
    let (first, dm) = (guest.dm(100), guest.dm(6000));
    // The source address is not aligned.
    assert_eq!(to_dm(dm, 4092, &b"_twelve bytes"[1..]), 0);
    assert_eq!(from_dm(dm, 4096, 8).unwrap(), b"ve bytes");
    assert_eq!(from_dm(dm, 5992, 8).unwrap(), [0; 8]);
    let mut bytes = [0; 12];
    let (offset, length) = kernel.state().dms[&unsafe { (*dm).handle }];
    assert_eq!(length, 6000);
    kernel.file().read_exact_at(&mut bytes, offset + 4092).unwrap();
    assert_eq!(&bytes, b"twelve bytes");
    assert_eq!(from_dm(first, 0, 100).unwrap(), [0; 100]);
    guest.free_dm(first);
    guest.free_dm(dm);
    assert!(kernel.state().dms.is_empty());
    guest.close(&[]);
}

#[test]
fn copies_are_whole_words_inside_of_device_memory() {
    let guest = Guest::new(&Kernel::new());
    let dm = guest.dm(100);
    for (offset, length) in
        [(3, 4), (4, 3), (104, 4), (0, 104), (100, 4), (96, 8), (u64::MAX - 3, 4), (u64::MAX - 3, 8)]
    {
        assert_eq!(from_dm(dm, offset, length), Err(libc::EINVAL), "{length} at {offset}");
        assert_eq!(to_dm(dm, offset, &vec![1; length]), libc::EINVAL, "{length} at {offset}");
    }
    assert_eq!(from_dm(dm, 0, 100).unwrap(), [0; 100]);
    assert_eq!(from_dm(dm, 100, 0).unwrap(), []);
    guest.free_dm(dm);
    guest.close(&[]);
}

#[test]
fn device_memory_that_cannot_be_is_refused_and_leaves_nothing() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    assert_eq!(guest.try_dm(4096, 1), Err(libc::EINVAL), "a comp_mask that nobody knows");
    kernel.state().command_error = libc::ENOMEM;
    assert_eq!(guest.try_dm(4096, 0), Err(libc::ENOMEM));
    // The kernel allocates the memory, but it cannot be mapped.
    assert_eq!(guest.try_dm(0, 0), Err(libc::EINVAL));
    assert!(kernel.state().dms.is_empty());

    let dm = guest.dm(4096);
    kernel.state().command_error = libc::EBUSY;
    assert_eq!(unsafe { guest.ops.free_dm.unwrap()(dm) }, libc::EBUSY);
    assert_eq!(to_dm(dm, 0, &[1; 4]), 0, "it is still there");
    guest.free_dm(dm);
    guest.close(&[]);
}

#[test]
fn device_memory_is_registered_zero_based() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let dm = guest.dm(4096);
    let register = |offset, length, access| unsafe {
        guest.ops.reg_dm_mr.unwrap()(guest.pd, dm, offset, length, access)
    };
    unsafe {
        let mr = register(4, 4092, IBV_ACCESS_ZERO_BASED);
        assert_eq!(((*mr).lkey, (*mr).rkey, (*mr).length, (*mr).addr), (7, 8, 4092, ptr::null_mut()));
        assert_eq!(guest.ops.dealloc_pd.unwrap()(guest.pd), libc::EBUSY);
        assert_eq!(guest.ops.dereg_mr.unwrap()(mr.cast()), 0);
    }
    assert!(register(4, 4092, IBV_ACCESS_LOCAL_WRITE).is_null());
    assert_eq!(crate::errno::last(), libc::EINVAL);
    assert!(register(8, 4092, IBV_ACCESS_ZERO_BASED).is_null());
    guest.free_dm(dm);
    guest.close(&[]);
}

#[test]
fn an_imported_context_has_no_channel_and_posts_through_the_kernel() {
    let kernel = Kernel::new();
    let opener = Guest::new(&kernel);
    let import = Guest::import(&kernel).unwrap();
    assert_eq!(kernel.state().contexts, 2);
    let context = unsafe { Context::of(import.context) };
    assert_eq!(context.device_cap, kernel.reply.device_cap.get());
    assert_eq!(unsafe { (*import.context).num_comp_vectors }, 3);
    let (cq, own_cq) = (import.cq(4), opener.cq(4));
    let (qp, own_qp) = (import.qp(cq, |_| ()), opener.qp(own_cq, |_| ()));
    import.send(qp, &mut [write(1)]).unwrap();
    assert_eq!(kernel.state().posts, 1);
    opener.send(own_qp, &mut [write(2)]).unwrap();
    assert_eq!(kernel.state().posts, 1, "the opener has its channel");
    while kernel.serve() != 0 {}
    assert_eq!(wr_ids(&import.poll(cq, 4)), [1]);
    assert_eq!(wr_ids(&opener.poll(own_cq, 4)), [2]);
    import.destroy_qp(qp);
    opener.destroy_qp(own_qp);
    import.leave(&[cq]);
    opener.close(&[own_cq]);
}

#[test]
fn a_context_that_cannot_be_imported_leaves_nothing() {
    let kernel = Kernel::new();
    kernel.state().command_error = libc::EPROTONOSUPPORT;
    assert_eq!(Guest::import(&kernel).err(), Some(libc::EPROTONOSUPPORT));
    assert_eq!(kernel.state().contexts, 0);
}

#[test]
fn imported_objects_are_the_kernels_and_stay_there_when_unimported() {
    let kernel = Kernel::new();
    let opener = Guest::new(&kernel);
    let import = Guest::import(&kernel).unwrap();
    let (ops, cq) = (import.ops, import.cq(4));
    unsafe {
        let mr = opener.ops.reg_mr.unwrap()(opener.pd, ptr::null_mut(), 4096, 0, 0);
        let dm = opener.dm(64);
        let pd = ops.import_pd.unwrap()(import.context, (*opener.pd).handle);
        assert_eq!(((*pd).handle, (*pd).context), ((*opener.pd).handle, import.context));
        let imported_mr = ops.import_mr.unwrap()(pd, (*mr).handle);
        assert_eq!(((*imported_mr).rkey, (*imported_mr).length), (8, 4096));
        let imported_dm = ops.import_dm.unwrap()(import.context, (*dm).handle);
        assert_eq!((*imported_dm).comp_mask, IBV_DM_MASK_HANDLE);
        assert_eq!(to_dm(dm, 8, b"eight by"), 0);
        assert_eq!(from_dm(imported_dm, 8, 8).unwrap(), b"eight by");

        // rdma-core's tests have this order: the QP is destroyed after its PD is unimported.
        let qp = Guest { kernel: kernel.clone(), pd, ..import }.qp(cq, |_| ());
        ops.unimport_mr.unwrap()(imported_mr);
        ops.unimport_pd.unwrap()(pd);
        ops.unimport_dm.unwrap()(imported_dm);
        import.destroy_qp(qp);
        assert_eq!(kernel.state().mrs.len(), 1);
        assert_eq!(kernel.state().pds.len(), 2);
        assert_eq!(from_dm(dm, 8, 8).unwrap(), b"eight by");

        // An import may also deregister the region for all processes.
        let pd = ops.import_pd.unwrap()(import.context, (*opener.pd).handle);
        let again = ops.import_mr.unwrap()(pd, (*mr).handle);
        assert_eq!(ops.dealloc_pd.unwrap()(pd), libc::EBUSY);
        assert_eq!(ops.dereg_mr.unwrap()(again.cast()), 0);
        assert!(kernel.state().mrs.is_empty());
        opener.ops.unimport_mr.unwrap()(mr);
        ops.unimport_pd.unwrap()(pd);
        opener.free_dm(dm);
    }
    import.leave(&[cq]);
    opener.close(&[]);
}

#[test]
fn what_the_kernel_does_not_know_is_not_imported() {
    let kernel = Kernel::new();
    let import = Guest::import(&kernel).unwrap();
    let refused = |is_null: bool| {
        assert!(is_null);
        assert_eq!(crate::errno::last(), libc::ENOENT);
    };
    unsafe {
        refused(import.ops.import_pd.unwrap()(import.context, 99).is_null());
        refused(import.ops.import_mr.unwrap()(import.pd, 99).is_null());
        refused(import.ops.import_dm.unwrap()(import.context, 99).is_null());
    }
    import.close(&[]);
}
