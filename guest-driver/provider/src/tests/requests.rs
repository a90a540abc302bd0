//! Posting of requests.

use std::ffi::c_int;
use std::mem::zeroed;
use std::time::Duration;

use vrdma_verbs::abi::user::context_flags;
use vrdma_verbs::abi::wqe::{WrOpcode, flags};

use super::guest::{CAP, Guest, recv, sge, with_sges, wr_ids, write};
use crate::context::Context;
use crate::fake::{ENTRIES, Kernel, QUEUE};
use crate::ffi::*;
use crate::qp::modify_qp;

#[test]
fn a_query_takes_no_state_back_that_a_modify_has_led_to_meanwhile() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.qp(cq, |_| ());
    guest.modify(qp, IBV_QPS_RTR);
    // Stands for a modify by another thread while the query is in the kernel.
    kernel.state().during_query = Some(|qp| {
        let mut attr = ibv_qp_attr { qp_state: IBV_QPS_RTS, ..unsafe { zeroed() } };
        assert_eq!(unsafe { modify_qp(qp, &raw mut attr, IBV_QP_STATE as c_int) }, 0);
        IBV_QPS_RTR
    });
    let query = || {
        let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) = unsafe { (zeroed(), zeroed()) };
        let query = guest.ops.query_qp.unwrap();
        assert_eq!(unsafe { query(qp, &raw mut attr, IBV_QP_STATE as c_int, &raw mut init) }, 0);
    };
    query();
    guest.send(qp, &mut [write(1)]).unwrap();
    // A state that nobody changes meanwhile is stored.
    kernel.state().during_query = Some(|_| IBV_QPS_RTR);
    query();
    assert_eq!(guest.send(qp, &mut [write(2)]), Err((0, libc::EINVAL)));
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn each_operation_arrives_as_the_abi_says() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.qp(cq, |_| ());
    let mut sges = [sge(0x1000, 64, 5), sge(0x2000, 32, 6)];
    let make = |opcode, sges: &mut [ibv_sge]| {
        let mut wr = with_sges(write(1), sges);
        wr.opcode = opcode;
        wr.wr.rdma.remote_addr = 0x1122_3344_5566_7788;
        wr.wr.rdma.rkey = 0x99aa_bbcc;
        wr.__bindgen_anon_1.imm_data = u32::from_ne_bytes([1, 2, 3, 4]);
        wr
    };
    for opcode in
        [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_READ]
    {
        guest.send(qp, &mut [make(opcode, &mut sges)]).unwrap();
        let request = kernel.take().unwrap();
        assert_eq!(u32::from(request.header.opcode), opcode);
        assert_eq!(request.sges(), [(0x1000, 64, 5), (0x2000, 32, 6)]);
        assert_eq!(request.header.flags.get(), flags::SIGNALED);
        let has_remote = ![IBV_WR_SEND, IBV_WR_SEND_WITH_IMM].contains(&opcode);
        assert_eq!(request.bytes[16] == 0x88 && request.bytes[24] == 0xcc, has_remote);
        let has_imm = [IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_IMM].contains(&opcode);
        assert_eq!(request.bytes[28..32] == [1, 2, 3, 4], has_imm);
    }
    let mut swap = make(IBV_WR_ATOMIC_CMP_AND_SWP, &mut sges[..1]);
    swap.wr.atomic = unsafe { zeroed() };
    swap.wr.atomic.remote_addr = 0xa1;
    swap.wr.atomic.rkey = 0xa2;
    swap.wr.atomic.compare_add = 0xa3;
    swap.wr.atomic.swap = 0xa4;
    guest.send(qp, &mut [swap]).unwrap();
    let request = kernel.take().unwrap();
    assert_eq!(request.opcode(), WrOpcode::ATOMIC_CMP_AND_SWP);
    assert_eq!((request.bytes[16], request.bytes[24]), (0xa1, 0xa2));
    assert_eq!((request.bytes[32], request.bytes[40]), (0xa3, 0xa4));
    assert_eq!(request.sges(), [(0x1000, 64, 5)]);
    guest.recv(qp, &mut [recv(1, &mut sges)]).unwrap();
    let request = kernel.take().unwrap();
    assert_eq!((request.opcode(), request.sges().len()), (WrOpcode::RECV, 2));
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn flags_are_translated() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qps = [guest.qp(cq, |_| ()), guest.qp(cq, |attr| attr.sq_sig_all = 1)];
    for (qp, always) in qps.into_iter().zip([0, flags::SIGNALED]) {
        for (given, expected) in [
            (0, 0),
            (IBV_SEND_SIGNALED, flags::SIGNALED),
            (IBV_SEND_SOLICITED, flags::SOLICITED),
            (IBV_SEND_FENCE, flags::FENCE),
        ] {
            let mut wr = write(0);
            wr.send_flags = given;
            guest.send(qp, &mut [wr]).unwrap();
            assert_eq!(kernel.take().unwrap().header.flags.get(), expected | always);
        }
        guest.destroy_qp(qp);
    }
    guest.close(&[cq]);
}

#[test]
fn inline_data_is_copied_when_posted() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.qp(cq, |_| ());
    let mut payload: Vec<u8> = (0..80).collect();
    let at = payload.as_mut_ptr().expose_provenance() as u64;
    let mut pieces = [sge(at, 50, 0), sge(0, 0, 0), sge(at + 50, 30, 0)];
    let mut wr = with_sges(write(0), &mut pieces);
    wr.send_flags |= IBV_SEND_INLINE;
    guest.send(qp, &mut [wr]).unwrap();
    payload.fill(0xff);
    let request = kernel.take().unwrap();
    assert_eq!(request.inline(), (0..80).collect::<Vec<u8>>());
    assert_eq!(request.header.sge_count, 0);
    // One byte more than the QP's capability.
    pieces[0].length = 51;
    assert_eq!(guest.send(qp, &mut [with_sges(wr, &mut pieces)]), Err((0, libc::EINVAL)));
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn datagrams_name_their_address_handle() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.qp(cq, |attr| attr.qp_type = IBV_QPT_UD);
    unsafe {
        let mut attr: ibv_ah_attr = zeroed();
        let ah = guest.ops.create_ah.unwrap()(guest.pd, &raw mut attr);
        let mut wr = write(0);
        wr.opcode = IBV_WR_SEND_WITH_IMM;
        wr.__bindgen_anon_1.imm_data = u32::from_ne_bytes([9, 8, 7, 6]);
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = 0xb1;
        wr.wr.ud.remote_qkey = 0xb2;
        guest.send(qp, &mut [wr]).unwrap();
        let request = kernel.take().unwrap();
        assert_eq!((request.bytes[16], request.bytes[20], request.bytes[24]), (0xa4, 0xb1, 0xb2));
        assert_eq!(request.bytes[28..32], [9, 8, 7, 6]);
        wr.wr.ud.ah = std::ptr::null_mut();
        assert_eq!(guest.send(qp, &mut [wr]), Err((0, libc::EINVAL)));
        assert_eq!(guest.send(qp, &mut [write(0)]), Err((0, libc::EINVAL)), "no WRITE on UD");
        assert_eq!(guest.ops.destroy_ah.unwrap()(ah), 0);
    }
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn datagrams_have_inline_data_and_flags_and_each_its_own_target() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.qp(cq, |attr| attr.qp_type = IBV_QPT_UD);
    unsafe {
        let mut attr: ibv_ah_attr = zeroed();
        let ahs = [(); 2].map(|()| guest.ops.create_ah.unwrap()(guest.pd, &raw mut attr));
        let mut payload: Vec<u8> = (1..=80).collect();
        let mut sges = [sge(payload.as_mut_ptr().expose_provenance() as u64, 80, 9)];
        let mut wrs = [write(1), write(2)].map(|wr| with_sges(wr, &mut sges));
        for (i, (wr, ah)) in wrs.iter_mut().zip(ahs).enumerate() {
            wr.opcode = IBV_WR_SEND;
            wr.wr.ud.ah = ah;
            wr.wr.ud.remote_qpn = 0xaa_bbc0 + i as u32;
            // The device evaluates the highest bit, which selects the sender's own Q_Key.
            wr.wr.ud.remote_qkey = 0x8001_0000 + i as u32;
        }
        wrs[0].send_flags = IBV_SEND_INLINE | IBV_SEND_SOLICITED;
        guest.send(qp, &mut wrs).unwrap();
        let requests = kernel.take_all();
        let targets: Vec<[u32; 3]> = requests
            .iter()
            .map(|request| {
                let word = |at: usize| u32::from_le_bytes(request.bytes[at..at + 4].try_into().unwrap());
                [word(16), word(20), word(24)]
            })
            .collect();
        assert_eq!(targets, [[0xa4, 0xaa_bbc0, 0x8001_0000], [0xa5, 0xaa_bbc1, 0x8001_0001]]);
        assert_eq!(requests[0].inline(), payload);
        assert_eq!(requests[0].header.flags.get(), flags::INLINE | flags::SOLICITED);
        assert_eq!(requests[1].sges(), [(sges[0].addr, 80, 9)]);
        assert_eq!(requests[1].header.flags.get(), flags::SIGNALED);
        assert!(requests.iter().all(|request| request.bytes[28..32] == [0; 4]), "no immediate data");
        for ah in ahs {
            assert_eq!(guest.ops.destroy_ah.unwrap()(ah), 0);
        }
    }
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn unreliable_connections_send_and_write() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.qp(cq, |attr| attr.qp_type = IBV_QPT_UC);
    for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM] {
        let mut wr = write(3);
        wr.opcode = opcode;
        guest.send(qp, &mut [wr]).unwrap();
        let request = kernel.take().unwrap();
        assert_eq!(u32::from(request.opcode().0), opcode);
        kernel.complete(request.success());
        assert_eq!(wr_ids(&guest.poll(cq, 4)), [3]);
    }
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let (qp, uc) = (guest.qp(cq, |_| ()), guest.qp(cq, |attr| attr.qp_type = IBV_QPT_UC));
    let mut sges = [sge(0, 8, 0); 5];
    let bad = |qp, change: &dyn Fn(&mut ibv_send_wr), sges: &mut [ibv_sge]| {
        let mut wr = with_sges(write(0), sges);
        change(&mut wr);
        assert_eq!(guest.send(qp, &mut [wr]), Err((0, libc::EINVAL)));
    };
    bad(qp, &|wr| wr.opcode = IBV_WR_LOCAL_INV, &mut sges[..1]);
    bad(qp, &|wr| wr.opcode = 999, &mut sges[..1]);
    bad(qp, &|wr| wr.send_flags = 1 << 9, &mut sges[..1]);
    bad(qp, &|_| (), &mut sges);
    bad(qp, &|wr| wr.num_sge = -1, &mut sges[..1]);
    bad(qp, &|wr| wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, &mut sges[..2]);
    bad(qp, &|wr| wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, &mut []);
    bad(qp, &|wr| (wr.opcode, wr.send_flags) = (IBV_WR_RDMA_READ, IBV_SEND_INLINE), &mut []);
    bad(uc, &|wr| wr.opcode = IBV_WR_RDMA_READ, &mut sges[..1]);
    bad(uc, &|wr| wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, &mut sges[..1]);
    bad(uc, &|wr| wr.opcode = IBV_WR_ATOMIC_WRITE, &mut sges[..1]);
    assert_eq!(guest.recv(qp, &mut [recv(0, &mut sges[..4])]), Err((0, libc::EINVAL)));
    assert!(kernel.take().is_none());
    for qp in [qp, uc] {
        guest.destroy_qp(qp);
    }
    guest.close(&[cq]);
}

#[test]
fn states_that_take_no_requests() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.try_qp(cq, |_| ());
    let no = Err((0, libc::EINVAL));
    let expect = |state, sends, recvs| {
        guest.modify(qp, state);
        assert_eq!(guest.send(qp, &mut [write(0)]), sends, "state {state}");
        assert_eq!(guest.recv(qp, &mut [recv(0, &mut [])]), recvs, "state {state}");
    };
    expect(IBV_QPS_RESET, no, no);
    expect(IBV_QPS_INIT, no, Ok(()));
    expect(IBV_QPS_RTR, no, Ok(()));
    expect(IBV_QPS_RTS, Ok(()), Ok(()));
    expect(IBV_QPS_ERR, Ok(()), Ok(()));
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn what_precedes_a_bad_request_is_posted() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.qp(cq, |_| ());
    let mut wrs = [write(1), write(2), write(3), write(4)];
    wrs[2].opcode = IBV_WR_BIND_MW;
    assert_eq!(guest.send(qp, &mut wrs), Err((2, libc::EINVAL)));
    assert_eq!(kernel.serve(), 2);
    assert_eq!(wr_ids(&guest.poll(cq, 9)), [1, 2]);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn a_full_queue_is_enomem() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(32);
    let qp = guest.qp(cq, |_| ());
    let limit = CAP.max_send_wr as usize;
    let mut wrs: Vec<_> = (0..=limit as u64).map(write).collect();
    assert_eq!(guest.send(qp, &mut wrs), Err((limit, libc::ENOMEM)));
    assert_eq!(kernel.serve(), limit);
    assert_eq!(guest.send(qp, &mut [write(9)]), Err((0, libc::ENOMEM)), "full until polled");
    assert_eq!(guest.poll(cq, 1).len(), 1);
    guest.send(qp, &mut [write(9)]).unwrap();
    let mut recvs: Vec<_> = (0..=CAP.max_recv_wr.into()).map(|wr_id| recv(wr_id, &mut [])).collect();
    assert_eq!(guest.recv(qp, &mut recvs), Err((CAP.max_recv_wr as usize, libc::ENOMEM)));
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn kicks_only_when_the_device_asks() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.qp(cq, |_| ());
    kernel.want_kicks(false);
    guest.send(qp, &mut [write(0)]).unwrap();
    assert_eq!(kernel.doorbell(), 0);
    kernel.serve();
    kernel.want_kicks(true);
    guest.send(qp, &mut [write(1), write(2)]).unwrap();
    assert_eq!(kernel.doorbell(), QUEUE);
    assert_eq!(kernel.state().kicks, 0);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn a_doorbell_that_is_not_mapped_is_an_ioctl() {
    let kernel = Kernel::with(|reply| {
        reply.flags = (context_flags::CHANNEL | context_flags::EVENT_IDX).into();
    });
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.qp(cq, |_| ());
    kernel.want_kicks(true);
    guest.send(qp, &mut [write(0)]).unwrap();
    assert_eq!(kernel.state().kicks, 1);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn a_device_that_stands_still_is_an_error_and_not_a_hang() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(4096);
    let qp = guest.qp(cq, |attr| attr.cap.max_send_wr = 4096);
    let mut wrs: Vec<_> = (0..u64::from(ENTRIES) + 3).map(write).collect();
    kernel.want_kicks(false);
    let context = unsafe { Context::of(guest.context) };
    context.work.lock().unwrap().set_stall_timeout(Duration::from_millis(500));
    assert_eq!(guest.send(qp, &mut wrs), Err((ENTRIES.into(), libc::EIO)));
    assert_eq!(kernel.doorbell(), QUEUE, "it was kicked in despair");
    // No second post waits, or this would not end.
    context.work.lock().unwrap().set_stall_timeout(Duration::MAX);
    assert_eq!(guest.send(qp, &mut [write(0)]), Err((0, libc::EIO)));
    assert_eq!(kernel.serve(), ENTRIES.into());
    guest.send(qp, &mut [write(500)]).unwrap();
    assert_eq!(kernel.serve(), 1);
    let expected: Vec<u64> = (0..ENTRIES.into()).chain([500]).collect();
    assert_eq!(wr_ids(&guest.poll(cq, 4096)), expected);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn nobody_waits_for_a_device_that_is_lost() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(4096);
    let qp = guest.qp(cq, |attr| attr.cap.max_send_wr = 4096);
    let mut wrs: Vec<_> = (0..ENTRIES.into()).map(write).collect();
    guest.send(qp, &mut wrs).unwrap();
    unsafe {
        let mut event: ibv_async_event = zeroed();
        event.event_type = IBV_EVENT_DEVICE_FATAL;
        guest.ops.async_event.unwrap()(guest.context, &raw mut event);
    }
    // A post that waits would wait for ever.
    unsafe { Context::of(guest.context) }.work.lock().unwrap().set_stall_timeout(Duration::MAX);
    assert_eq!(guest.send(qp, &mut [write(0)]), Err((0, libc::EIO)));
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

/// Makes a guest without its own channel.
fn through_the_kernel() -> (std::sync::Arc<Kernel>, Guest) {
    let kernel = Kernel::with(|_| ());
    let guest = Guest::new(&kernel);
    (kernel, guest)
}

#[test]
fn without_a_channel_a_list_is_one_system_call() {
    let (kernel, guest) = through_the_kernel();
    let cq = guest.cq(256);
    let qp = guest.qp(cq, |attr| attr.cap.max_send_wr = 200);
    let mut sges = [sge(0, 8, 0); 3];
    // Two units for each request: 32 requests in a call.
    let mut wrs: Vec<_> = (0..100).map(|wr_id| with_sges(write(wr_id), &mut sges)).collect();
    guest.send(qp, &mut wrs[..32]).unwrap();
    assert_eq!(kernel.state().posts, 1);
    guest.send(qp, &mut wrs[32..]).unwrap();
    assert_eq!(kernel.state().posts, 1 + 3);
    assert_eq!(kernel.serve(), 100);
    assert_eq!(wr_ids(&guest.poll(cq, 256)), (0..100).collect::<Vec<u64>>());
    guest.recv(qp, &mut [recv(7, &mut [])]).unwrap();
    assert_eq!(kernel.state().posts, 5);
    assert_eq!(kernel.serve(), 1);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn what_the_kernel_refuses_is_taken_back() {
    let (kernel, guest) = through_the_kernel();
    let cq = guest.cq(256);
    let qp = guest.qp(cq, |attr| attr.cap.max_send_wr = 100);
    let mut wrs: Vec<_> = (0..100).map(write).collect();
    // 64 requests are posted; the 36 after them are not.
    kernel.state().post_errors.extend([0, libc::EIO]);
    assert_eq!(guest.send(qp, &mut wrs), Err((64, libc::EIO)));
    assert_eq!(kernel.serve(), 64);
    assert_eq!(guest.poll(cq, 256).len(), 64);
    // The first batch fails, while there is more to come.
    kernel.state().post_errors.extend([libc::EINVAL]);
    assert_eq!(guest.send(qp, &mut wrs), Err((0, libc::EINVAL)));
    assert_eq!(kernel.state().posts, 3, "what is refused is not tried again");
    // A bad request after some that the kernel refuses: the error of the earlier ones counts.
    kernel.state().post_errors.extend([libc::EIO]);
    wrs[5].opcode = 999;
    assert_eq!(guest.send(qp, &mut wrs), Err((0, libc::EIO)));
    // An interrupted call is repeated.
    kernel.state().post_errors.extend([libc::EINTR]);
    assert_eq!(guest.send(qp, &mut wrs), Err((5, libc::EINVAL)));
    assert_eq!(kernel.serve(), 5);
    assert_eq!(wr_ids(&guest.poll(cq, 256)), [0, 1, 2, 3, 4]);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}
