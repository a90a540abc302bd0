//! XRC: domains, shared receive queues with their own CQs, initiators, targets.

use std::mem::zeroed;
use std::ptr;

use vrdma_verbs::Cqe;
use vrdma_verbs::abi::cqe;
use vrdma_verbs::abi::wqe::{WrOpcode, flags};

use super::guest::{CAP, Guest, recv, sge, with_sges, wr_ids, write};
use crate::errno;
use crate::fake::{Kernel, Parsed};
use crate::ffi::*;

fn open_xrcd(guest: &Guest) -> *mut ibv_xrcd {
    let mut attr: ibv_xrcd_init_attr = unsafe { zeroed() };
    let xrcd = unsafe { guest.ops.open_xrcd.unwrap()(guest.context, &raw mut attr) };
    assert!(!xrcd.is_null());
    xrcd
}

fn close_xrcd(guest: &Guest, xrcd: *mut ibv_xrcd) {
    assert_eq!(unsafe { guest.ops.close_xrcd.unwrap()(xrcd) }, 0);
}

const ALL: u32 =
    IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;

fn try_srq(
    guest: &Guest,
    cq: *mut ibv_cq,
    xrcd: *mut ibv_xrcd,
    change: impl FnOnce(&mut ibv_srq_init_attr_ex),
) -> *mut ibv_srq {
    let mut attr: ibv_srq_init_attr_ex = unsafe { zeroed() };
    attr.attr = ibv_srq_attr { max_wr: 4, max_sge: 3, srq_limit: 0 };
    (attr.comp_mask, attr.srq_type) = (ALL, IBV_SRQT_XRC);
    (attr.pd, attr.xrcd, attr.cq) = (guest.pd, xrcd, cq);
    change(&mut attr);
    unsafe { guest.ops.create_srq_ex.unwrap()(guest.context, &raw mut attr) }
}

fn initiator(guest: &Guest, cq: *mut ibv_cq) -> *mut ibv_qp {
    guest.qp(cq, |attr| (attr.qp_type, attr.recv_cq) = (IBV_QPT_XRC_SEND, ptr::null_mut()))
}

fn to(mut wr: ibv_send_wr, remote_srqn: u32) -> ibv_send_wr {
    wr.qp_type.xrc = ibv_send_wr__bindgen_ty_3__bindgen_ty_1 { remote_srqn };
    wr
}

/// Returns the number of the queue that a request names, if it names one.
fn queue(request: &Parsed) -> Option<u32> {
    let word = u32::from_le_bytes(request.bytes[32..36].try_into().unwrap());
    (request.header.flags.get() & flags::XRC != 0).then_some(word)
}

#[test]
fn requests_name_the_queue_that_the_program_says() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(8);
    let qp = initiator(&guest, cq);
    let mut sges = [sge(0x1000, 64, 5)];
    let mut inline = *b"inline";
    let mut data = [sge(inline.as_mut_ptr().expose_provenance() as u64, 6, 0)];
    let mut atomic = with_sges(to(write(2), 0x77), &mut sges);
    atomic.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    atomic.wr.atomic.compare_add = 0x0102;
    let mut local = write(3);
    (local.opcode, local.__bindgen_anon_1.invalidate_rkey) = (IBV_WR_LOCAL_INV, 9);
    let mut small = with_sges(to(write(4), 0x99), &mut data);
    (small.opcode, small.send_flags) = (IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    let mut wrs = [with_sges(to(write(1), 0x55), &mut sges), atomic, local, small];
    guest.send(qp, &mut wrs).unwrap();
    let requests = kernel.take_all();
    assert_eq!(requests.iter().map(queue).collect::<Vec<_>>(), [Some(0x55), Some(0x77), None, Some(0x99)]);
    let element: Vec<u8> = [&0x1000u64.to_le_bytes()[..], &64u32.to_le_bytes(), &5u32.to_le_bytes()].concat();
    assert_eq!((&requests[0].bytes[48..64], requests[0].header.units), (&element[..], 1));
    // The SGE of an atomic is in a unit of its own.
    assert_eq!((requests[1].opcode(), requests[1].header.units), (WrOpcode::ATOMIC_FETCH_AND_ADD, 2));
    assert_eq!((&requests[1].bytes[48..50], &requests[1].bytes[64..80]), (&[2, 1][..], &element[..]));
    assert_eq!(requests[2].opcode(), WrOpcode::LOCAL_INV);
    assert_eq!(&requests[3].bytes[48..54], b"inline");
    for request in &requests {
        kernel.complete(request.success());
    }
    assert_eq!(wr_ids(&guest.poll(cq, 8)), [1, 2, 3, 4]);
    assert_eq!(guest.recv(qp, &mut [recv(1, &mut [])]), Err((0, libc::EINVAL)));
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn a_batch_names_queues_too() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(8);
    unsafe {
        let mut attr: ibv_qp_init_attr_ex = zeroed();
        (attr.send_cq, attr.pd, attr.qp_type, attr.cap) = (cq, guest.pd, IBV_QPT_XRC_SEND, CAP);
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = u64::from(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ);
        let qp = guest.ops.create_qp_ex.unwrap()(guest.context, &raw mut attr);
        guest.modify(qp, IBV_QPS_RTS);
        let ex: *mut ibv_qp_ex = qp.cast();
        (*ex).wr_start.unwrap()(ex);
        (*ex).wr_send.unwrap()(ex);
        (*ex).wr_set_xrc_srqn.unwrap()(ex, 0xabc);
        (*ex).wr_set_sge.unwrap()(ex, 5, 0x1000, 64);
        (*ex).wr_rdma_read.unwrap()(ex, 7, 0x2000);
        (*ex).wr_set_xrc_srqn.unwrap()(ex, 0xdef);
        (*ex).wr_set_sge.unwrap()(ex, 5, 0x1000, 64);
        assert_eq!((*ex).wr_complete.unwrap()(ex), 0);
        let requests = kernel.take_all();
        assert_eq!(requests.iter().map(queue).collect::<Vec<_>>(), [Some(0xabc), Some(0xdef)]);
        (*ex).wr_start.unwrap()(ex);
        (*ex).wr_set_xrc_srqn.unwrap()(ex, 0xdef);
        assert_eq!((*ex).wr_complete.unwrap()(ex), libc::EINVAL, "of no request");
        guest.destroy_qp(qp);
    }
    guest.close(&[cq]);
}

#[test]
fn receives_of_a_queue_complete_whichever_process_has_the_target() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let (xrcd, cqs) = (open_xrcd(&guest), [guest.cq(8), guest.cq(8)]);
    let srqs = cqs.map(|cq| try_srq(&guest, cq, xrcd, |_| ()));
    let requests = srqs.map(|srq| {
        guest.srq_recv(srq, &mut [recv(10, &mut []), recv(11, &mut []), recv(12, &mut [])]).unwrap();
        kernel.take_all()
    });
    // No QP of this process has this number.
    for (queue, request) in [(0, 1), (1, 2), (0, 0)] {
        kernel.receive_xrc(&requests[queue][request], 0xffff);
    }
    let found = cqs.map(|cq| guest.poll(cq, 8));
    assert_eq!(found.each_ref().map(|wcs| wr_ids(wcs)), [vec![11, 10], vec![12]]);
    assert_eq!((found[0][0].qp_num, found[0][0].opcode, found[0][0].src_qp), (0xffff, IBV_WC_RECV, 0));
    // The receive has completed already.
    kernel.receive_xrc(&requests[0][0], 0xffff);
    assert!(guest.poll(cqs[0], 8).is_empty());
    // Completions left over from a destroyed queue belong to nobody.
    kernel.receive_xrc(&requests[0][2], 0xffff);
    guest.destroy_srq(srqs[0]);
    assert!(guest.poll(cqs[0], 8).is_empty());
    kernel.receive_xrc(&requests[1][0], 0xffff);
    assert_eq!(wr_ids(&guest.poll(cqs[1], 8)), [10]);
    guest.destroy_srq(srqs[1]);
    close_xrcd(&guest, xrcd);
    assert_eq!(kernel.state().xrcds, 0);
    guest.close(&cqs);
}

#[test]
fn a_device_that_names_a_queue_of_another_cq_completes_nothing() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let (xrcd, cqs) = (open_xrcd(&guest), [guest.cq(8), guest.cq(8)]);
    let srq = try_srq(&guest, cqs[0], xrcd, |_| ());
    let qp = guest.qp(cqs[1], |_| ());
    guest.srq_recv(srq, &mut [recv(10, &mut [])]).unwrap();
    let request = kernel.take().unwrap();
    let named = Cqe {
        src_qpn: request.qpn().into(),
        qpn: 0xffff.into(),
        flags: cqe::flags::RECV | cqe::flags::XRC,
        ..request.received(0xffff)
    };
    kernel.complete_as(named, unsafe { (*qp).qp_num });
    assert!(guest.poll(cqs[1], 8).is_empty());
    kernel.receive_xrc(&request, 0xffff);
    assert_eq!(wr_ids(&guest.poll(cqs[0], 8)), [10]);
    guest.destroy_qp(qp);
    guest.destroy_srq(srq);
    close_xrcd(&guest, xrcd);
    guest.close(&cqs);
}

#[test]
fn a_qp_with_the_number_of_a_target_takes_nothing_from_it() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let (xrcd, cq) = (open_xrcd(&guest), guest.cq(8));
    let srq = try_srq(&guest, cq, xrcd, |_| ());
    guest.srq_recv(srq, &mut [recv(10, &mut [])]).unwrap();
    let request = kernel.take_all().remove(0);
    let qp = guest.qp(cq, |_| ());
    kernel.receive_xrc(&request, unsafe { (*qp).qp_num });
    guest.destroy_qp(qp);
    assert_eq!(wr_ids(&guest.poll(cq, 8)), [10]);
    guest.destroy_srq(srq);
    close_xrcd(&guest, xrcd);
    guest.close(&[cq]);
}

#[test]
fn targets_are_made_and_opened_by_their_domain() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let xrcd = open_xrcd(&guest);
    unsafe {
        let mut attr: ibv_qp_init_attr_ex = zeroed();
        (attr.qp_type, attr.xrcd, attr.comp_mask) = (IBV_QPT_XRC_RECV, xrcd, IBV_QP_INIT_ATTR_XRCD);
        let qp = guest.ops.create_qp_ex.unwrap()(guest.context, &raw mut attr);
        assert!(!qp.is_null());
        let mut attr: ibv_qp_open_attr = zeroed();
        (attr.qp_num, attr.xrcd, attr.qp_type) = ((*qp).qp_num, xrcd, IBV_QPT_XRC_RECV);
        let again = guest.ops.open_qp.unwrap()(guest.context, &raw mut attr);
        assert_eq!((*again).qp_num, (*qp).qp_num);
        guest.modify(again, IBV_QPS_INIT);
        for qp in [qp, again] {
            guest.modify(qp, IBV_QPS_RESET);
            assert_eq!(guest.recv(qp, &mut [recv(1, &mut [])]), Err((0, libc::EINVAL)));
            guest.destroy_qp(qp);
        }
    }
    close_xrcd(&guest, xrcd);
    guest.close(&[]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let (xrcd, cq) = (open_xrcd(&guest), guest.cq(8));
    type Spoil = fn(&mut ibv_srq_init_attr_ex);
    let queues: [(Spoil, i32); 6] = [
        (|attr| attr.comp_mask &= !IBV_SRQ_INIT_ATTR_CQ, libc::EINVAL),
        (|attr| attr.comp_mask &= !IBV_SRQ_INIT_ATTR_XRCD, libc::EINVAL),
        (|attr| attr.comp_mask &= !IBV_SRQ_INIT_ATTR_PD, libc::EINVAL),
        (|attr| attr.cq = ptr::null_mut(), libc::EINVAL),
        (|attr| attr.attr.max_sge = 1000, libc::EINVAL),
        (|attr| attr.comp_mask |= 1 << 20, libc::EOPNOTSUPP),
    ];
    for (spoil, error) in queues {
        assert!(try_srq(&guest, cq, xrcd, spoil).is_null());
        assert_eq!(errno::last(), error);
    }
    let refuse = |error: i32, change: &dyn Fn(&mut ibv_qp_init_attr_ex)| unsafe {
        let mut attr: ibv_qp_init_attr_ex = zeroed();
        (attr.qp_type, attr.xrcd, attr.comp_mask) = (IBV_QPT_XRC_RECV, xrcd, IBV_QP_INIT_ATTR_XRCD);
        change(&mut attr);
        assert!(guest.ops.create_qp_ex.unwrap()(guest.context, &raw mut attr).is_null());
        assert_eq!(errno::last(), error);
    };
    refuse(libc::EINVAL, &|attr| attr.comp_mask = 0);
    refuse(libc::EINVAL, &|attr| attr.xrcd = ptr::null_mut());
    // An initiator has no domain.
    refuse(libc::EOPNOTSUPP, &|attr| attr.qp_type = IBV_QPT_XRC_SEND);
    close_xrcd(&guest, xrcd);
    guest.close(&[cq]);
}
