//! ibv_resize_cq(3), ibv_modify_cq(3).

use std::ffi::c_int;

use super::guest::{Guest, recv, wr_ids, write};
use crate::errno::Errno;
use crate::fake::{Kernel, Moment};
use crate::ffi::*;

fn resize(guest: &Guest, cq: *mut ibv_cq, cqes: c_int) -> Result<(), Errno> {
    match unsafe { guest.ops.resize_cq.unwrap()(cq, cqes) } {
        0 => Ok(()),
        errno => Err(errno),
    }
}

#[test]
fn what_was_completed_before_comes_before_what_is_completed_after() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(8);
    let qp = guest.qp(cq, |_| ());
    guest.send(qp, &mut (0..4).map(write).collect::<Vec<_>>()).unwrap();
    kernel.serve();
    assert_eq!(wr_ids(&guest.poll(cq, 1)), [0]);
    resize(&guest, cq, 30).unwrap();
    assert_eq!(unsafe { (*cq).cqe }, 32);
    guest.send(qp, &mut (4..8).map(write).collect::<Vec<_>>()).unwrap();
    kernel.serve();
    // Another resize, while the provider keeps some completions of the former ring.
    assert_eq!(wr_ids(&guest.poll(cq, 2)), [1, 2]);
    resize(&guest, cq, 6).unwrap();
    assert_eq!(wr_ids(&guest.poll(cq, 100)), [3, 4, 5, 6, 7]);
    for wr_id in 8..40 {
        guest.send(qp, &mut [write(wr_id)]).unwrap();
        kernel.serve();
        assert_eq!(wr_ids(&guest.poll(cq, 8)), [wr_id]);
    }
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn what_nobody_polled_has_to_fit() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(8);
    let qp = guest.qp(cq, |_| ());
    guest.send(qp, &mut (0..5).map(write).collect::<Vec<_>>()).unwrap();
    kernel.serve();
    assert_eq!(resize(&guest, cq, 4), Err(libc::EINVAL));
    assert_eq!(wr_ids(&guest.poll(cq, 1)), [0]);
    resize(&guest, cq, 4).unwrap();
    assert_eq!(resize(&guest, cq, 2), Err(libc::EINVAL), "they are in the provider's hands");
    assert_eq!(wr_ids(&guest.poll(cq, 8)), [1, 2, 3, 4]);
    resize(&guest, cq, 2).unwrap();
    for cqes in [0, -1, c_int::MIN] {
        assert_eq!(resize(&guest, cq, cqes), Err(libc::EINVAL));
    }
    for errno in [libc::ENOMEM, libc::EPERM] {
        kernel.state().command_error = errno;
        assert_eq!(resize(&guest, cq, 16), Err(errno));
    }
    guest.send(qp, &mut [write(5)]).unwrap();
    kernel.serve();
    assert_eq!(wr_ids(&guest.poll(cq, 8)), [5]);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn completions_and_arms_meanwhile_are_not_lost() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(8);
    let qp = guest.qp(cq, |_| ());
    guest.send(qp, &mut (0..4).map(write).collect::<Vec<_>>()).unwrap();
    let arm = guest.ops.req_notify_cq.unwrap();
    assert_eq!(unsafe { arm(cq, 0) }, 0);
    // One request completes before the device takes the new ring, the others after it.
    kernel.state().during_resize = Some(|kernel, moment| match moment {
        Moment::Before => kernel.complete(kernel.take().unwrap().success()),
        Moment::After => drop(kernel.serve()),
    });
    resize(&guest, cq, 16).unwrap();
    let qpn = kernel.state().next_qpn - 1;
    assert!(kernel.was_armed(qpn) && !kernel.was_armed(qpn), "armed once, before");
    assert_eq!(wr_ids(&guest.poll(cq, 100)), [0, 1, 2, 3]);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

/// The device does not answer in time, so nobody knows whether it executed the command. Here it
/// did.
#[test]
fn a_resize_without_an_answer_keeps_both_rings() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(4);
    let qp = guest.qp(cq, |_| ());
    guest.send(qp, &mut (0..8).map(write).collect::<Vec<_>>()).unwrap();
    kernel.state().during_resize = Some(|kernel, moment| {
        if moment == Moment::Before {
            (0..3).for_each(|_| kernel.complete(kernel.take().unwrap().success()));
        }
    });
    kernel.state().command_error = libc::EIO;
    assert_eq!(resize(&guest, cq, 16), Err(libc::EIO));
    let qpn = kernel.state().next_qpn - 1;
    assert_eq!(unsafe { guest.ops.req_notify_cq.unwrap()(cq, 0) }, 0);
    assert!(kernel.was_armed(qpn));
    assert_eq!(wr_ids(&guest.poll(cq, 2)), [0, 1]);
    kernel.serve();
    assert_eq!(resize(&guest, cq, 16), Err(libc::EIO), "it is not known where the device is");
    assert_eq!(wr_ids(&guest.poll(cq, 100)), [2, 3, 4, 5, 6, 7]);
    assert_eq!(resize(&guest, cq, 16), Err(libc::EIO));
    for wr_id in 8..60 {
        guest.send(qp, &mut [write(wr_id)]).unwrap();
        kernel.serve();
        assert_eq!(wr_ids(&guest.poll(cq, 8)), [wr_id]);
    }
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn completions_of_a_destroyed_qp_in_the_providers_hands_are_dropped() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(8);
    let srq = guest.srq(4);
    let (old, other) = (guest.qp(cq, |attr| attr.srq = srq), guest.qp(cq, |_| ()));
    let qpn = kernel.state().next_qpn - 2;
    guest.srq_recv(srq, &mut [recv(7, &mut [])]).unwrap();
    kernel.complete(kernel.take().unwrap().received(qpn));
    guest.send(old, &mut [write(1)]).unwrap();
    guest.send(other, &mut [write(2)]).unwrap();
    kernel.serve();
    resize(&guest, cq, 16).unwrap();
    guest.destroy_qp(old);
    // The receive has completed, so there is room for another one.
    guest.srq_recv(srq, &mut (0..4).map(|id| recv(id, &mut [])).collect::<Vec<_>>()).unwrap();
    kernel.state().next_qpn = qpn;
    let new = guest.qp(cq, |_| ());
    guest.send(new, &mut [write(11)]).unwrap();
    assert_eq!(wr_ids(&guest.poll(cq, 8)), [2]);
    guest.destroy_qp(new);
    guest.destroy_qp(other);
    guest.destroy_srq(srq);
    guest.close(&[cq]);
}

#[test]
fn a_device_of_an_older_version_resizes_nothing() {
    let kernel = Kernel::of_version(size_of::<vrdma_verbs::abi::user::AllocContextResp>(), |reply| {
        use vrdma_verbs::abi::user::context_flags::{CHANNEL, DOORBELL, EVENT_IDX};
        reply.base.flags = (CHANNEL | DOORBELL | EVENT_IDX).into();
    });
    let guest = Guest::new(&kernel);
    let cq = guest.cq(8);
    assert_eq!(resize(&guest, cq, 16), Err(libc::EOPNOTSUPP));
    guest.close(&[cq]);
}

#[test]
fn moderation_is_the_kernels() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(8);
    let moderate = ibv_moderate_cq { cq_count: 16, cq_period: 50 };
    let mut attr = ibv_modify_cq_attr { attr_mask: IBV_CQ_ATTR_MODERATE, moderate };
    assert_eq!(unsafe { guest.ops.modify_cq.unwrap()(cq, &raw mut attr) }, 0);
    assert_eq!(kernel.state().moderation, Some((16, 50)));
    kernel.state().command_error = libc::EOPNOTSUPP;
    assert_eq!(unsafe { guest.ops.modify_cq.unwrap()(cq, &raw mut attr) }, libc::EOPNOTSUPP);
    guest.close(&[cq]);
}
