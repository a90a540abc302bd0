//! Shared receive queues.

use std::collections::HashMap;
use std::mem::zeroed;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use vrdma_verbs::abi::control::device_cap;
use vrdma_verbs::abi::user::{AllocContextExResp, context_flags};
use vrdma_verbs::abi::wqe::{WrOpcode, flags};

use super::guest::{Guest, Shared, recv, sge, with_sges, wr_ids, write};
use crate::errno;
use crate::fake::{Kernel, Parsed};
use crate::ffi::*;

/// Makes a QP that uses the queue.
fn qp_with(guest: &Guest, cq: *mut ibv_cq, srq: *mut ibv_srq) -> *mut ibv_qp {
    guest.qp(cq, |attr| attr.srq = srq)
}

fn number(qp: *mut ibv_qp) -> u32 {
    unsafe { (*qp).qp_num }
}

fn srq_num(guest: &Guest, srq: *mut ibv_srq) -> u32 {
    let mut number = 0;
    assert_eq!(unsafe { guest.ops.get_srq_num.unwrap()(srq, &raw mut number) }, 0);
    number
}

fn modify(guest: &Guest, srq: *mut ibv_srq, max_wr: u32, mask: u32) -> i32 {
    let mut attr = ibv_srq_attr { max_wr, max_sge: 0, srq_limit: 2 };
    unsafe { guest.ops.modify_srq.unwrap()(srq, &raw mut attr, mask as i32) }
}

/// Posts receives until one is refused. Returns the number of the others, and the requests.
fn fill(guest: &Guest, srq: *mut ibv_srq, kernel: &Kernel) -> (usize, Vec<Parsed>) {
    let mut count = 0;
    let error = loop {
        match guest.srq_recv(srq, &mut [recv(count as u64, &mut [])]) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, (0, libc::ENOMEM));
    (count, kernel.take_all())
}

#[test]
fn receives_name_their_queue_and_complete_in_any_order() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let (cqs, srq) = ([guest.cq(8), guest.cq(8)], guest.srq(4));
    let qps = cqs.map(|cq| qp_with(&guest, cq, srq));
    for round in 0..5 {
        let mut sges = [sge(0x1000, 64, 5), sge(0x2000, 32, 6)];
        let mut wrs: Vec<_> = (0..4).map(|i| recv(10 * round + i, &mut sges)).collect();
        guest.srq_recv(srq, &mut wrs).unwrap();
        let requests = kernel.take_all();
        for request in &requests {
            assert_eq!((request.opcode(), request.qpn()), (WrOpcode::SRQ_RECV, srq_num(&guest, srq)));
            assert_eq!(request.sges(), [(0x1000, 64, 5), (0x2000, 32, 6)]);
        }
        for (request, at) in [(3, 0), (0, 1), (2, 0), (1, 1)] {
            kernel.complete(requests[request].received(number(qps[at])));
        }
        let found = cqs.map(|cq| guest.poll(cq, 8));
        assert_eq!(
            found.each_ref().map(|wcs| wr_ids(wcs)),
            [[3, 2], [0, 1]].map(|ids| ids.map(|id| 10 * round + id))
        );
        assert_eq!((found[0][0].qp_num, found[0][0].opcode), (number(qps[0]), IBV_WC_RECV));
        // None of these receives is outstanding any more.
        kernel.complete(requests[0].received(number(qps[0])));
        assert!(guest.poll(cqs[0], 8).is_empty());
    }
    for qp in qps {
        guest.destroy_qp(qp);
    }
    guest.destroy_srq(srq);
    guest.close(&cqs);
}

/// Receives with one SGE each share a request, whatever is between them. Then the channel has fewer
/// units than receives.
#[test]
fn receives_of_one_element_share_requests() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let (cq, srq) = (guest.cq(32), guest.srq(20));
    let qp = guest.qp(cq, |attr| attr.cap.max_recv_wr = 20);
    let sharing = qp_with(&guest, cq, srq);
    let mut sges: Vec<_> = (0..20).map(|i| [sge(0x1000 * i, 64, 5), sge(0, 32, 6)]).collect();
    // (receives, the index of the one with two SGEs, units)
    for (count, pair, units) in
        [(1, None, 1), (2, None, 1), (5, None, 2), (6, None, 3), (12, None, 5), (12, Some(6), 6)]
    {
        for shared in [false, true] {
            let taken = kernel.state().taken;
            let mut wrs: Vec<_> = sges
                .iter_mut()
                .take(count)
                .enumerate()
                .map(|(i, sges)| recv(i as u64, &mut sges[..if Some(i) == pair { 2 } else { 1 }]))
                .collect();
            if shared { guest.srq_recv(srq, &mut wrs) } else { guest.recv(qp, &mut wrs) }.unwrap();
            let requests = kernel.take_all();
            assert_eq!(kernel.state().taken.wrapping_sub(taken), units, "{count} receives, {pair:?}");
            let addresses: Vec<_> = requests.iter().map(|request| request.sges()[0].0).collect();
            assert_eq!(addresses, (0..count as u64).map(|i| 0x1000 * i).collect::<Vec<_>>());
            for request in &requests {
                kernel.complete(if shared { request.received(number(sharing)) } else { request.success() });
            }
            assert_eq!(wr_ids(&guest.poll(cq, 32)), (0..count as u64).collect::<Vec<_>>());
        }
    }
    for qp in [qp, sharing] {
        guest.destroy_qp(qp);
    }
    guest.destroy_srq(srq);
    guest.close(&[cq]);
}

/// SENDs of the same kind share a request too, and keep their properties.
#[test]
fn sends_of_one_element_share_requests() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(32);
    let qp = guest.qp(cq, |_| ());
    let mut sges = [sge(0x1000, 64, 5)];
    let [signaled, silent, fenced] = [IBV_SEND_SIGNALED, 0, IBV_SEND_SIGNALED | IBV_SEND_FENCE];
    for (asked, units) in [
        (&[signaled; 5][..], 2),
        (&[silent; 5], 2),
        (&[signaled, signaled, silent, silent, fenced], 3),
        (&[signaled, silent, signaled, silent, signaled], 5),
    ] {
        let taken = kernel.state().taken;
        let send = |(id, &send_flags): (usize, &u32)| {
            let wr = with_sges(write(id as u64), &mut sges);
            ibv_send_wr { opcode: IBV_WR_SEND, send_flags, ..wr }
        };
        guest.send(qp, &mut asked.iter().enumerate().map(send).collect::<Vec<_>>()).unwrap();
        let requests = kernel.take_all();
        assert_eq!(kernel.state().taken.wrapping_sub(taken), units, "{asked:?}");
        let bit = |set, flag| if set { flag } else { 0 };
        let found = requests.iter().map(|request| {
            assert_eq!((request.opcode(), request.sges()), (WrOpcode::SEND, vec![(0x1000, 64, 5)]));
            let bits = request.header.flags.get();
            bit(bits & flags::SIGNALED != 0, IBV_SEND_SIGNALED)
                | bit(bits & flags::FENCE != 0, IBV_SEND_FENCE)
        });
        assert!(found.eq(asked.iter().copied()), "{asked:?}");
        requests.iter().for_each(|request| kernel.complete(request.success()));
        assert_eq!(wr_ids(&guest.poll(cq, 32)), [0, 1, 2, 3, 4]);
    }
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

/// A device without lists gets none.
#[test]
fn a_device_without_lists_gets_each_request_by_itself() {
    let kernel = Kernel::of_version(AllocContextExResp::SIZE, |reply| {
        reply.base.flags = context_flags::CHANNEL.into();
        reply.device_cap = (device_cap::V1_0 | device_cap::SRQ).into();
    });
    let guest = Guest::new(&kernel);
    let (cq, srq) = (guest.cq(32), guest.srq(8));
    let mut one = [sge(0x1000, 64, 5)];
    let taken = kernel.state().taken;
    let mut wrs: Vec<_> = (0..5).map(|i| recv(i, &mut one)).collect();
    guest.srq_recv(srq, &mut wrs).unwrap();
    assert_eq!((kernel.take_all().len(), kernel.state().taken.wrapping_sub(taken)), (5, 5));
    guest.destroy_srq(srq);
    guest.close(&[cq]);
}

/// Receives before a refused one are posted. The refused one and all after it are not.
#[test]
fn the_first_receive_that_is_refused_is_told() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let (cq, srq) = (guest.cq(32), guest.srq(8));
    let mut one = [sge(0x1000, 64, 5)];
    let mut many = [one[0]; 33];
    for bad in 0..8 {
        let mut wrs: Vec<_> = (0..8).map(|i| recv(i, &mut one)).collect();
        wrs[bad] = recv(99, &mut many);
        assert_eq!(guest.srq_recv(srq, &mut wrs), Err((bad, libc::EINVAL)));
        let requests = kernel.take_all();
        assert_eq!(requests.len(), bad);
        let qp = qp_with(&guest, cq, srq);
        requests.iter().for_each(|request| kernel.complete(request.received(number(qp))));
        assert_eq!(wr_ids(&guest.poll(cq, 32)), (0..bad as u64).collect::<Vec<_>>());
        guest.destroy_qp(qp);
    }
    let mut wrs: Vec<_> = (0..12).map(|i| recv(i, &mut one)).collect();
    assert_eq!(guest.srq_recv(srq, &mut wrs), Err((8, libc::ENOMEM)));
    assert_eq!(kernel.take_all().len(), 8);
    guest.destroy_srq(srq);
    guest.close(&[cq]);
}

#[test]
fn completions_are_read_one_by_one_too() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let srq = guest.srq(4);
    unsafe {
        let mut attr = ibv_cq_init_attr_ex { cqe: 8, ..zeroed() };
        let cq = guest.ops.create_cq_ex.unwrap()(guest.context, &raw mut attr);
        let qp = qp_with(&guest, cq.cast(), srq);
        guest.srq_recv(srq, &mut [recv(7, &mut []), recv(8, &mut [])]).unwrap();
        let requests = kernel.take_all();
        for request in requests.iter().rev() {
            kernel.complete(request.received(number(qp)));
        }
        let mut poll: ibv_poll_cq_attr = zeroed();
        assert_eq!((*cq).start_poll.unwrap()(cq, &raw mut poll), 0);
        let first = (*cq).wr_id;
        assert_eq!((*cq).next_poll.unwrap()(cq), 0);
        assert_eq!((first, (*cq).wr_id), (8, 7));
        assert_eq!((*cq).next_poll.unwrap()(cq), libc::ENOENT);
        (*cq).end_poll.unwrap()(cq);
        guest.destroy_qp(qp);
        guest.destroy_srq(srq);
        guest.close(&[cq.cast()]);
    }
}

#[test]
fn a_full_queue_takes_as_many_as_complete() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let (cq, srq) = (guest.cq(8), guest.srq(5));
    let qp = qp_with(&guest, cq, srq);
    let mut wrs: Vec<_> = (0..7).map(|wr_id| recv(wr_id, &mut [])).collect();
    assert_eq!(guest.srq_recv(srq, &mut wrs), Err((5, libc::ENOMEM)));
    let requests = kernel.take_all();
    assert_eq!(requests.len(), 5);
    kernel.complete(requests[3].received(number(qp)));
    assert_eq!(guest.srq_recv(srq, &mut [recv(9, &mut [])]), Err((0, libc::ENOMEM)), "full until polled");
    assert_eq!(wr_ids(&guest.poll(cq, 8)), [3]);
    assert_eq!(fill(&guest, srq, &kernel).0, 1);
    guest.destroy_qp(qp);
    guest.destroy_srq(srq);
    guest.close(&[cq]);
}

#[test]
fn bad_receives_are_refused() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let (cq, srq) = (guest.cq(8), guest.srq(4));
    let qp = qp_with(&guest, cq, srq);
    assert_eq!(guest.recv(qp, &mut [recv(0, &mut [])]), Err((0, libc::EINVAL)), "it has no queue of its own");
    let mut sges = [sge(0, 8, 0); 4];
    let mut wrs = [recv(1, &mut []), recv(2, &mut sges)];
    assert_eq!(guest.srq_recv(srq, &mut wrs), Err((1, libc::EINVAL)));
    wrs[1].num_sge = -1;
    assert_eq!(guest.srq_recv(srq, &mut wrs[1..]), Err((0, libc::EINVAL)));
    assert_eq!(kernel.take_all().len(), 1);
    assert_eq!(fill(&guest, srq, &kernel).0, 3, "what was refused takes no room");
    guest.destroy_qp(qp);
    guest.destroy_srq(srq);
    guest.close(&[cq]);
}

#[test]
fn completions_of_a_qp_that_goes_make_room() {
    for reset in [false, true] {
        let kernel = Kernel::new();
        let guest = Guest::new(&kernel);
        let (cq, srq) = (guest.cq(8), guest.srq(4));
        let qps = [(); 2].map(|()| qp_with(&guest, cq, srq));
        let (count, requests) = fill(&guest, srq, &kernel);
        assert_eq!(count, 4);
        for (request, qp) in requests.iter().zip([qps[0], qps[1], qps[0], qps[1]]) {
            kernel.complete(request.received(number(qp)));
        }
        match reset {
            true => guest.modify(qps[0], IBV_QPS_RESET),
            false => guest.destroy_qp(qps[0]),
        }
        assert_eq!(fill(&guest, srq, &kernel).0, 2);
        assert_eq!(wr_ids(&guest.poll(cq, 8)), [1, 3], "the others' are still there");
        guest.destroy_qp(qps[1]);
        if reset {
            guest.destroy_qp(qps[0]);
        }
        guest.destroy_srq(srq);
        guest.close(&[cq]);
    }
}

#[test]
fn a_qp_with_one_has_no_receives_of_its_own() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let (cq, srq) = (guest.cq(8), guest.srq(4));
    let mut attr: ibv_qp_init_attr = unsafe { zeroed() };
    (attr.send_cq, attr.recv_cq, attr.srq, attr.qp_type) = (cq, cq, srq, IBV_QPT_UD);
    // Receives do not count.
    attr.cap = ibv_qp_cap { max_send_wr: 1, max_recv_wr: u32::MAX, max_recv_sge: u32::MAX, ..attr.cap };
    let qp = unsafe { guest.ops.create_qp.unwrap()(guest.pd, &raw mut attr) };
    assert!(!qp.is_null());
    assert_eq!((attr.cap.max_send_wr, attr.cap.max_recv_wr, attr.cap.max_recv_sge), (1, 0, 0));
    guest.destroy_qp(qp);
    guest.destroy_srq(srq);
    guest.close(&[cq]);
}

#[test]
fn the_size_changes() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let (cq, srq) = (guest.cq(64), guest.srq(4));
    let qp = qp_with(&guest, cq, srq);
    let (_, mut requests) = fill(&guest, srq, &kernel);
    assert_eq!(modify(&guest, srq, 10, IBV_SRQ_MAX_WR), 0);
    let (count, more) = fill(&guest, srq, &kernel);
    requests.extend(more);
    assert_eq!(count, 6);
    for refused in [0, 40_000, u32::MAX] {
        assert_eq!(modify(&guest, srq, refused, IBV_SRQ_MAX_WR), libc::EINVAL);
    }
    kernel.state().command_error = libc::EINVAL;
    assert_eq!(modify(&guest, srq, 2, IBV_SRQ_MAX_WR), libc::EINVAL);
    requests.drain(..2).for_each(|request| kernel.complete(request.received(number(qp))));
    assert_eq!(guest.poll(cq, 64).len(), 2);
    let (count, more) = fill(&guest, srq, &kernel);
    requests.extend(more);
    assert_eq!(count, 2, "it is as it was");
    // Nobody knows whether this command was executed. So no more is posted than both sizes allow.
    kernel.state().command_error = libc::EIO;
    assert_eq!(modify(&guest, srq, 9, IBV_SRQ_MAX_WR), libc::EIO);
    requests.drain(..2).for_each(|request| kernel.complete(request.received(number(qp))));
    assert_eq!(guest.poll(cq, 64).len(), 2);
    let (count, more) = fill(&guest, srq, &kernel);
    requests.extend(more);
    assert_eq!(count, 1);
    assert_eq!(modify(&guest, srq, 10, IBV_SRQ_MAX_WR), 0);
    let (count, more) = fill(&guest, srq, &kernel);
    requests.extend(more);
    assert_eq!(count, 1);
    assert_eq!(modify(&guest, srq, 3, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
    requests.drain(..7).for_each(|request| kernel.complete(request.received(number(qp))));
    assert_eq!(guest.poll(cq, 64).len(), 7);
    assert_eq!(fill(&guest, srq, &kernel).0, 0, "three are outstanding");
    kernel.complete(requests[0].received(number(qp)));
    assert_eq!(guest.poll(cq, 64).len(), 1);
    assert_eq!(fill(&guest, srq, &kernel).0, 1);
    let mut attr: ibv_srq_attr = unsafe { zeroed() };
    assert_eq!(unsafe { guest.ops.query_srq.unwrap()(srq, &raw mut attr) }, 0);
    assert_eq!((attr.max_wr, attr.srq_limit), (3, 2));
    assert_eq!(modify(&guest, srq, 99, IBV_SRQ_LIMIT), 0, "a size that is not asked for does not count");
    assert_eq!(fill(&guest, srq, &kernel).0, 0);
    guest.destroy_qp(qp);
    guest.destroy_srq(srq);
    guest.close(&[cq]);
}

#[test]
fn what_the_kernel_refuses_to_post_takes_no_room() {
    let kernel = Kernel::with(|_| ());
    let guest = Guest::new(&kernel);
    let srq = guest.srq(100);
    let mut wrs: Vec<_> = (0..100).map(|wr_id| recv(wr_id, &mut [])).collect();
    // 64 receives are posted; the 36 after them are not.
    kernel.state().post_errors.extend([0, libc::EIO]);
    assert_eq!(guest.srq_recv(srq, &mut wrs), Err((64, libc::EIO)));
    assert_eq!(kernel.take_all().len(), 64);
    let (count, rest) = fill(&guest, srq, &kernel);
    assert_eq!(count, 36);
    let mut indices: Vec<_> = rest.iter().map(Parsed::wqe_id).collect();
    indices.sort_unstable();
    assert_eq!(indices, (64..100).collect::<Vec<_>>(), "each has a slot of its own");
    guest.destroy_srq(srq);
    guest.close(&[]);
}

#[test]
fn queues_that_cannot_be_are_refused() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let refused = |srq: *mut ibv_srq, errno| {
        assert!(srq.is_null());
        assert_eq!(errno::last(), errno);
    };
    refused(guest.srq(0), libc::EINVAL);
    refused(guest.srq(u32::MAX), libc::EINVAL);
    kernel.state().command_error = libc::EDQUOT;
    refused(guest.srq(4), libc::EDQUOT);
    let create = |change: &dyn Fn(&mut ibv_srq_init_attr_ex)| unsafe {
        let mut attr: ibv_srq_init_attr_ex = zeroed();
        attr.attr.max_wr = 4;
        attr.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
        (attr.pd, attr.srq_type) = (guest.pd, IBV_SRQT_BASIC);
        change(&mut attr);
        guest.ops.create_srq_ex.unwrap()(guest.context, &raw mut attr)
    };
    // 4 units hold 14 SGEs.
    refused(create(&|attr| attr.attr.max_sge = 15), libc::EINVAL);
    // The attributes name neither a domain nor a CQ.
    refused(create(&|attr| attr.srq_type = IBV_SRQT_XRC), libc::EINVAL);
    refused(create(&|attr| attr.srq_type = IBV_SRQT_TM), libc::EOPNOTSUPP);
    refused(create(&|attr| attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ), libc::EOPNOTSUPP);
    refused(create(&|attr| attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE), libc::EINVAL);
    let srq = create(&|attr| attr.attr.max_sge = 14);
    assert!(!srq.is_null() && srq_num(&guest, srq) >> 16 == 0xab);
    kernel.state().command_error = libc::EBUSY;
    assert_eq!(unsafe { guest.ops.destroy_srq.unwrap()(srq) }, libc::EBUSY);
    assert_eq!(fill(&guest, srq, &kernel).0, 4, "it still works");
    guest.destroy_srq(srq);
    guest.close(&[]);
}

/// Sets a flag if its thread panics, so that the others do not wait for it.
struct Failed<'a>(&'a AtomicBool);

impl Drop for Failed<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(thread::panicking(), Ordering::Relaxed);
    }
}

/// Threads post to one queue, and each polls its own CQ. The device completes receives in any
/// order. None is lost or doubled.
#[test]
fn threads_share_a_queue() {
    const THREADS: usize = 3;
    const RECEIVES: usize = 2_000;
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let srq = Shared(guest.srq(50));
    let cqs: Vec<_> = (0..THREADS).map(|_| Shared(guest.cq(64))).collect();
    let qps: Vec<_> = cqs.iter().map(|cq| Shared(qp_with(&guest, cq.0, srq.0))).collect();
    let [stop, failed] = [false; 2].map(AtomicBool::new);
    let done = AtomicUsize::new(0);
    let seen = Mutex::new(HashMap::new());
    thread::scope(|scope| {
        let device = scope.spawn(|| {
            let _failed = Failed(&failed);
            let (mut held, mut random) = (Vec::new(), 1u32);
            while !stop.load(Ordering::Relaxed) {
                held.extend(kernel.take_all());
                while !held.is_empty() {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let request = held.swap_remove((random >> 8) as usize % held.len());
                    kernel.complete(request.received(number(qps[(random >> 16) as usize % THREADS].get())));
                }
                thread::yield_now();
            }
        });
        let drivers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (guest, srq, cqs, done, seen, failed) = (&guest, &srq, &cqs, &done, &seen, &failed);
                scope.spawn(move || {
                    let _failed = Failed(failed);
                    let mut posted = 0;
                    while done.load(Ordering::Relaxed) < THREADS * RECEIVES && !failed.load(Ordering::Relaxed)
                    {
                        if posted < RECEIVES {
                            match guest
                                .srq_recv(srq.get(), &mut [recv((thread << 32 | posted) as u64, &mut [])])
                            {
                                Ok(()) => posted += 1,
                                Err((_, errno)) => assert_eq!(errno, libc::ENOMEM),
                            }
                        }
                        for wc in guest.poll(cqs[thread].get(), 4) {
                            *seen.lock().unwrap().entry(wc.wr_id).or_insert(0) += 1;
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        thread::yield_now();
                    }
                })
            })
            .collect();
        let ended: Vec<_> = drivers.into_iter().map(|driver| driver.join()).collect();
        stop.store(true, Ordering::Relaxed);
        device.join().unwrap();
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    let seen = seen.into_inner().unwrap();
    assert!(seen.len() == THREADS * RECEIVES && seen.values().all(|&times| times == 1));
    assert_eq!(fill(&guest, srq.0, &kernel).0, 50);
    qps.iter().for_each(|qp| guest.destroy_qp(qp.0));
    guest.destroy_srq(srq.0);
    guest.close(&cqs.iter().map(|cq| cq.0).collect::<Vec<_>>());
}
