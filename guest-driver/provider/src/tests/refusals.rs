//! A verb that fails by its result also sets errno.

use std::ffi::c_int;
use std::mem::zeroed;

use super::batches::{Batch, qp_ex};
use super::guest::{Guest, recv, sge, with_sges, write};
use crate::errno;
use crate::fake::Kernel;
use crate::ffi::*;

/// Returns the result of `verb`, and errno after it. Before it, errno is 0.
fn both(verb: impl FnOnce() -> c_int) -> (c_int, c_int) {
    errno::set(0);
    let result = verb();
    (result, errno::last())
}

#[test]
fn a_verb_that_returns_an_errno_sets_it_too() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let (ops, cq) = (guest.ops, guest.cq(8));
    let qp = guest.qp(cq, |_| ());
    let refused = |what: &str, expected, verb: &dyn Fn() -> c_int| {
        assert_eq!(both(verb), (expected, expected), "{what}");
    };
    refused("a PD with a QP", libc::EBUSY, &|| unsafe { ops.dealloc_pd.unwrap()(guest.pd) });
    unsafe {
        let td = ops.alloc_td.unwrap()(guest.context, &mut ibv_td_init_attr { comp_mask: 0 });
        let mut attr: ibv_parent_domain_init_attr = zeroed();
        (attr.pd, attr.td) = (guest.pd, td);
        let parent = ops.alloc_parent_domain.unwrap()(guest.context, &raw mut attr);
        refused("a thread domain of a parent domain", libc::EBUSY, &|| ops.dealloc_td.unwrap()(td));
        assert_eq!(both(|| ops.dealloc_pd.unwrap()(parent)), (0, 0), "what succeeds leaves it");
        assert_eq!(both(|| ops.dealloc_td.unwrap()(td)), (0, 0));
    }
    let code = |result: Result<(), (usize, c_int)>| result.err().map_or(0, |(_, errno)| errno);
    let send = |sges: usize, posts: usize| {
        let mut sges = vec![sge(0, 8, 1); sges];
        let mut wrs: Vec<_> = (0..posts).map(|_| with_sges(write(1), &mut sges)).collect();
        code(guest.send(qp, &mut wrs))
    };
    refused("too many elements", libc::EINVAL, &|| send(5, 1));
    refused("too many requests", libc::ENOMEM, &|| send(1, 9));
    refused("too many receives", libc::ENOMEM, &|| {
        code(guest.recv(qp, &mut (0..5).map(|_| recv(1, &mut [])).collect::<Vec<_>>()))
    });
    let srq = guest.srq(4);
    let sharing = guest.qp(cq, |attr| attr.srq = srq);
    refused("a receive of a QP that shares a queue", libc::EINVAL, &|| {
        code(guest.recv(sharing, &mut [recv(1, &mut [])]))
    });
    refused("a receive of too many elements", libc::EINVAL, &|| {
        code(guest.srq_recv(srq, &mut [recv(1, &mut [sge(0, 8, 1); 4])]))
    });
    unsafe {
        let mw = ops.alloc_mw.unwrap()(guest.pd, IBV_MW_TYPE_1);
        let mut bind: ibv_mw_bind = zeroed();
        bind.send_flags = IBV_SEND_INLINE;
        refused("a bind with inline data", libc::EINVAL, &|| {
            ops.bind_mw.unwrap()(qp, mw, (&raw const bind).cast_mut())
        });
        assert_eq!(ops.dealloc_mw.unwrap()(mw), 0);
        let ex = qp_ex(&guest, cq, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE).unwrap();
        refused("a batch that was not begun", libc::EINVAL, &|| (*ex).wr_complete.unwrap()(ex));
        refused("a batch of nothing but elements", libc::EINVAL, &|| {
            let batch = Batch::start(ex);
            batch.sges(&[sge(0, 8, 1)]);
            batch.complete()
        });
        guest.destroy_qp(ex.cast());
    }
    refused("a CQ of no entries", libc::EINVAL, &|| unsafe { ops.resize_cq.unwrap()(cq, 0) });
    kernel.state().command_error = libc::EBUSY;
    refused("what the kernel refuses", libc::EBUSY, &|| unsafe { ops.destroy_srq.unwrap()(srq) });
    guest.destroy_qp(sharing);
    guest.destroy_srq(srq);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn a_poll_that_finds_nothing_leaves_errno_and_a_wrong_one_sets_it() {
    let guest = Guest::new(&Kernel::new());
    unsafe {
        let mut attr: ibv_cq_init_attr_ex = zeroed();
        attr.cqe = 4;
        let cq = guest.ops.create_cq_ex.unwrap()(guest.context, &raw mut attr);
        let start = |comp_mask| {
            let mut attr = ibv_poll_cq_attr { comp_mask };
            both(|| (*cq).start_poll.unwrap()(cq, &raw mut attr))
        };
        assert_eq!(start(0), (libc::ENOENT, 0));
        assert_eq!(start(1), (libc::EINVAL, libc::EINVAL));
        guest.close(&[cq.cast()]);
    }
}
