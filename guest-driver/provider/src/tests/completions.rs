//! Polling and arming.

use std::mem::zeroed;

use vrdma_verbs::Cqe;
use vrdma_verbs::abi::control::device_cap;
use vrdma_verbs::abi::cqe::{WcOpcode, WcStatus, flags};
use vrdma_verbs::abi::user::AllocContextExResp;

use super::guest::{CAP, Guest, recv, wr_ids, write};
use crate::errno::{self, Errno};
use crate::fake::{Kernel, MAX_QP};
use crate::ffi::*;

#[test]
fn every_field_of_a_receive_arrives() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(8);
    let qp = guest.qp(cq, |_| ());
    guest.recv(qp, &mut [recv(0xfeed, &mut [])]).unwrap();
    let request = kernel.take().unwrap();
    kernel.complete(Cqe {
        wqe_id: request.wqe_id().into(),
        qpn: request.qpn().into(),
        byte_len: 1234.into(),
        imm: 0x0102_0304.into(),
        src_qpn: 0x77.into(),
        opcode: WcOpcode::RECV_RDMA_WITH_IMM.0,
        flags: flags::RECV | flags::IMM | flags::GRH,
        ..Cqe::default()
    });
    let wcs = guest.poll(cq, 8);
    let [wc] = wcs[..] else { panic!("one completion") };
    assert_eq!((wc.wr_id, wc.status, wc.opcode), (0xfeed, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM));
    assert_eq!((wc.byte_len, wc.src_qp, wc.qp_num), (1234, 0x77, request.qpn()));
    assert_eq!(wc.wc_flags, IBV_WC_WITH_IMM | IBV_WC_GRH);
    assert_eq!(unsafe { wc.__bindgen_anon_1.imm_data }.to_ne_bytes(), [1, 2, 3, 4]);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn statuses_keep_their_numbers_and_unknown_ones_are_general() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(8);
    let qp = guest.qp(cq, |_| ());
    for (status, expected) in [
        (WcStatus::REM_ACCESS_ERR.0, IBV_WC_REM_ACCESS_ERR),
        (WcStatus::WR_FLUSH_ERR.0, IBV_WC_WR_FLUSH_ERR),
        (200, IBV_WC_GENERAL_ERR),
    ] {
        guest.send(qp, &mut [write(5)]).unwrap();
        kernel.complete(Cqe { status, ..kernel.take().unwrap().success() });
        let wc = guest.poll(cq, 8)[0];
        assert_eq!((wc.wr_id, wc.status, wc.vendor_err), (5, expected, status.into()));
    }
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn unsignaled_requests_are_retired_by_the_next_completion() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(8);
    let qp = guest.qp(cq, |_| ());
    let limit = u64::from(CAP.max_send_wr);
    for _ in 0..20 {
        let mut wrs: Vec<_> = (0..limit).map(write).collect();
        for wr in &mut wrs[..limit as usize - 1] {
            wr.send_flags = 0;
        }
        guest.send(qp, &mut wrs).unwrap();
        kernel.serve();
        assert_eq!(wr_ids(&guest.poll(cq, 8)), [limit - 1]);
    }
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn sends_and_receives_may_have_different_cqs() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let (send_cq, recv_cq) = (guest.cq(8), guest.cq(8));
    let qp = guest.qp(send_cq, |attr| attr.recv_cq = recv_cq);
    guest.recv(qp, &mut [recv(1, &mut [])]).unwrap();
    guest.send(qp, &mut [write(2)]).unwrap();
    kernel.serve();
    assert_eq!(wr_ids(&guest.poll(send_cq, 8)), [2]);
    assert_eq!(wr_ids(&guest.poll(recv_cq, 8)), [1]);
    guest.destroy_qp(qp);
    guest.close(&[send_cq, recv_cq]);
}

#[test]
fn completions_of_a_destroyed_qp_are_nobodys() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let (old, other) = (guest.qp(cq, |_| ()), guest.qp(cq, |_| ()));
    let qpn = kernel.state().next_qpn - 2;
    // One completion is polled, so that the CQ remembers the QP. Two more follow, with one of
    // another QP between them.
    guest.send(old, &mut [write(1)]).unwrap();
    kernel.serve();
    assert_eq!(guest.poll(cq, 8).len(), 1);
    guest.send(old, &mut [write(2)]).unwrap();
    guest.send(other, &mut [write(3)]).unwrap();
    guest.send(old, &mut [write(4)]).unwrap();
    kernel.serve();
    guest.destroy_qp(old);
    // A new QP gets the same number, and its requests get the same wqe_ids.
    kernel.state().next_qpn = qpn;
    let new = guest.qp(cq, |_| ());
    guest.send(new, &mut [write(11), write(12), write(13)]).unwrap();
    assert_eq!(wr_ids(&guest.poll(cq, 8)), [3]);
    kernel.serve();
    assert_eq!(wr_ids(&guest.poll(cq, 8)), [11, 12, 13]);
    guest.destroy_qp(new);
    guest.destroy_qp(other);
    guest.close(&[cq]);
}

#[test]
fn numbers_equal_modulo_the_table_are_not_mixed_up() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.qp(cq, |_| ());
    guest.send(qp, &mut [write(1)]).unwrap();
    let request = kernel.take().unwrap();
    kernel.state().next_qpn = request.qpn();
    let stranger = Cqe { qpn: (request.qpn() + MAX_QP).into(), ..request.success() };
    // The fake finds the CQ by the right number.
    kernel.complete_as(stranger, request.qpn());
    kernel.complete(request.success());
    let wcs = guest.poll(cq, 8);
    assert_eq!(wr_ids(&wcs), [1]);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn a_device_that_names_a_qp_of_another_cq_completes_nothing() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cqs = [guest.cq(16), guest.cq(16)];
    let (qp, other) = (guest.qp(cqs[0], |_| ()), guest.qp(cqs[1], |_| ()));
    guest.send(qp, &mut [write(1), write(2)]).unwrap();
    let mut requests = kernel.take_all().into_iter();
    let mut complete = |at| kernel.complete_as(requests.next().unwrap().success(), at);
    let at = unsafe { (*other).qp_num };
    complete(at);
    assert!(guest.poll(cqs[1], 8).is_empty());
    complete(unsafe { (*qp).qp_num });
    assert_eq!(wr_ids(&guest.poll(cqs[0], 8)), [2]);
    guest.destroy_qp(qp);
    // A destroyed QP was not remembered either.
    kernel.complete_as(Cqe { qpn: (at - 1).into(), ..Cqe::default() }, at);
    assert!(guest.poll(cqs[1], 8).is_empty());
    guest.destroy_qp(other);
    guest.close(&cqs);
}

#[test]
fn a_reset_forgets_what_was_outstanding() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.qp(cq, |_| ());
    guest.send(qp, &mut (0..8).map(write).collect::<Vec<_>>()).unwrap();
    guest.recv(qp, &mut [recv(90, &mut [])]).unwrap();
    kernel.serve();
    guest.modify(qp, IBV_QPS_RESET);
    assert!(guest.poll(cq, 8).is_empty());
    guest.modify(qp, IBV_QPS_RTS);
    guest.send(qp, &mut (20..28).map(write).collect::<Vec<_>>()).unwrap();
    kernel.serve();
    assert_eq!(wr_ids(&guest.poll(cq, 16)), (20..28).collect::<Vec<u64>>());
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn arming_is_a_store() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.qp(cq, |_| ());
    guest.send(qp, &mut [write(1)]).unwrap();
    let qpn = kernel.take().unwrap().qpn();
    assert!(!kernel.was_armed(qpn));
    assert_eq!(unsafe { guest.ops.req_notify_cq.unwrap()(cq, 0) }, 0);
    assert!(kernel.was_armed(qpn) && !kernel.was_armed(qpn));
    assert_eq!(unsafe { guest.ops.req_notify_cq.unwrap()(cq, 1) }, 0);
    assert!(!kernel.was_armed(qpn), "the word of solicited completions is another");
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn poll_takes_no_more_than_asked_for() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.qp(cq, |_| ());
    guest.send(qp, &mut (0..8).map(write).collect::<Vec<_>>()).unwrap();
    kernel.serve();
    let poll = guest.ops.poll_cq.unwrap();
    let mut wc: ibv_wc = unsafe { zeroed() };
    assert_eq!(unsafe { poll(cq, 0, &raw mut wc) }, 0);
    assert_eq!(unsafe { poll(cq, -3, &raw mut wc) }, 0);
    assert_eq!(wr_ids(&guest.poll(cq, 3)), [0, 1, 2]);
    assert_eq!(wr_ids(&guest.poll(cq, 8)), [3, 4, 5, 6, 7]);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

/// Makes a CQ whose completions are read one by one.
fn cq_ex(guest: &Guest, change: impl FnOnce(&mut ibv_cq_init_attr_ex)) -> Result<*mut ibv_cq_ex, Errno> {
    let mut attr: ibv_cq_init_attr_ex = unsafe { zeroed() };
    (attr.cqe, attr.wc_flags) = (8, IBV_WC_STANDARD_FLAGS.into());
    change(&mut attr);
    let cq = unsafe { guest.ops.create_cq_ex.unwrap()(guest.context, &raw mut attr) };
    if cq.is_null() { Err(errno::last()) } else { Ok(cq) }
}

#[test]
fn completions_can_be_visited_one_by_one() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = cq_ex(&guest, |_| ()).unwrap();
    let qp = guest.qp(cq.cast(), |_| ());
    let mut attr: ibv_poll_cq_attr = unsafe { zeroed() };
    unsafe {
        let (start, next, end) =
            ((*cq).start_poll.unwrap(), (*cq).next_poll.unwrap(), (*cq).end_poll.unwrap());
        // There is no completion, so the next caller is not locked out.
        assert_eq!(start(cq, &raw mut attr), libc::ENOENT);
        assert_eq!(start(cq, &raw mut attr), libc::ENOENT);
        guest.recv(qp, &mut [recv(0xfeed, &mut [])]).unwrap();
        let request = kernel.take().unwrap();
        kernel.complete(Cqe {
            wqe_id: request.wqe_id().into(),
            qpn: request.qpn().into(),
            byte_len: 1234.into(),
            imm: 0x0102_0304.into(),
            src_qpn: 0x77.into(),
            opcode: WcOpcode::RECV_RDMA_WITH_IMM.0,
            flags: flags::RECV | flags::IMM,
            ..Cqe::default()
        });
        guest.send(qp, &mut [write(5)]).unwrap();
        let failed = kernel.take().unwrap().success();
        kernel.complete(Cqe { status: WcStatus::REM_ACCESS_ERR.0, ..failed });
        assert_eq!(start(cq, &raw mut attr), 0);
        assert_eq!(((*cq).wr_id, (*cq).status), (0xfeed, IBV_WC_SUCCESS));
        assert_eq!((*cq).read_opcode.unwrap()(cq), IBV_WC_RECV_RDMA_WITH_IMM);
        assert_eq!((*cq).read_byte_len.unwrap()(cq), 1234);
        assert_eq!((*cq).read_imm_data.unwrap()(cq).to_ne_bytes(), [1, 2, 3, 4]);
        assert_eq!((*cq).read_qp_num.unwrap()(cq), request.qpn());
        assert_eq!((*cq).read_src_qp.unwrap()(cq), 0x77);
        assert_eq!((*cq).read_wc_flags.unwrap()(cq), IBV_WC_WITH_IMM);
        assert_eq!(((*cq).read_slid.unwrap()(cq), (*cq).read_sl.unwrap()(cq)), (0, 0));
        assert_eq!(next(cq), 0);
        assert_eq!(((*cq).wr_id, (*cq).status), (5, IBV_WC_REM_ACCESS_ERR));
        assert_eq!((*cq).read_vendor_err.unwrap()(cq), IBV_WC_REM_ACCESS_ERR);
        assert_eq!(next(cq), libc::ENOENT);
        // The same poll finds later completions.
        guest.send(qp, &mut [write(6)]).unwrap();
        kernel.serve();
        assert_eq!((next(cq), (*cq).wr_id), (0, 6));
        end(cq);
        // The device gets the room back: more completions than the ring holds, by both ways to
        // poll.
        for wr_id in 0..40 {
            guest.send(qp, &mut [write(wr_id)]).unwrap();
            kernel.serve();
            if wr_id % 2 == 0 {
                assert_eq!(wr_ids(&guest.poll(cq.cast(), 8)), [wr_id]);
            } else {
                assert_eq!((start(cq, &raw mut attr), (*cq).wr_id), (0, wr_id));
                end(cq);
            }
        }
        attr.comp_mask = 1;
        assert_eq!(start(cq, &raw mut attr), libc::EINVAL);
    }
    guest.destroy_qp(qp);
    guest.close(&[cq.cast()]);
}

#[test]
fn extended_queues_that_cannot_be_are_refused() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let refused = Some(libc::EOPNOTSUPP);
    for unknown in [IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_EX_WITH_TM_INFO] {
        assert_eq!(cq_ex(&guest, |attr| attr.wc_flags |= u64::from(unknown)).err(), refused);
    }
    assert_eq!(cq_ex(&guest, |attr| attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD << 1).err(), refused);
    let flags =
        |flags| cq_ex(&guest, |attr| (attr.comp_mask, attr.flags) = (IBV_CQ_INIT_ATTR_MASK_FLAGS, flags));
    assert_eq!(flags(4).err(), refused);
    assert_eq!(cq_ex(&guest, |attr| attr.cqe = u32::MAX).err(), Some(libc::EINVAL));
    guest.close(&[]);
    let older = Kernel::of_version(size_of::<AllocContextExResp>(), |reply| {
        reply.device_cap = (device_cap::V1_0 | device_cap::CQ_RESIZE).into();
    });
    let guest = Guest::new(&older);
    let ignoring = |attr: &mut ibv_cq_init_attr_ex| {
        (attr.comp_mask, attr.flags) = (IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
    };
    assert_eq!(cq_ex(&guest, ignoring).err(), refused);
    guest.close(&[]);
}

#[test]
fn queues_of_one_thread_and_queues_that_ignore_overruns_work_as_others() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let both = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    for flags in [IBV_CREATE_CQ_ATTR_SINGLE_THREADED, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, both] {
        let cq = cq_ex(&guest, |attr| (attr.comp_mask, attr.flags) = (IBV_CQ_INIT_ATTR_MASK_FLAGS, flags));
        let cq = cq.unwrap();
        let qp = guest.qp(cq.cast(), |_| ());
        let mut attr: ibv_poll_cq_attr = unsafe { zeroed() };
        for wr_id in 0..20 {
            guest.send(qp, &mut [write(wr_id), write(wr_id + 100)]).unwrap();
            kernel.serve();
            unsafe {
                assert_eq!(((*cq).start_poll.unwrap()(cq, &raw mut attr), (*cq).wr_id), (0, wr_id));
                (*cq).end_poll.unwrap()(cq);
            }
            assert_eq!(wr_ids(&guest.poll(cq.cast(), 8)), [wr_id + 100]);
        }
        guest.destroy_qp(qp);
        assert_eq!(unsafe { guest.ops.destroy_cq.unwrap()(cq.cast()) }, 0);
    }
    guest.close(&[]);
}
