//! Polling and arming.

use std::mem::zeroed;

use vrdma_verbs::Cqe;
use vrdma_verbs::abi::cqe::{WcOpcode, WcStatus, flags};

use super::guest::{CAP, Guest, recv, wr_ids, write};
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
    // One polled, so that the CQ remembers the QP; then two more, with another QP's between.
    guest.send(old, &mut [write(1)]).unwrap();
    kernel.serve();
    assert_eq!(guest.poll(cq, 8).len(), 1);
    guest.send(old, &mut [write(2)]).unwrap();
    guest.send(other, &mut [write(3)]).unwrap();
    guest.send(old, &mut [write(4)]).unwrap();
    kernel.serve();
    guest.destroy_qp(old);
    // The same number again, with requests of the same ids.
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
    // The fake looks its CQ up by the right number.
    kernel.complete_as(stranger, request.qpn());
    kernel.complete(request.success());
    let wcs = guest.poll(cq, 8);
    assert_eq!(wr_ids(&wcs), [1]);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
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
