//! Each limit that the device reports can be reached, and not exceeded.
//!
//! The other limits are small meanwhile.

use vrdma_backend::config::GuestLimits;
use vrdma_tests::abi::ah::AhEntry;
use vrdma_tests::abi::control::{CreateSrqReq, QpType, RegMrResp, Status, access, limit};
use vrdma_tests::abi::cqe::WcStatus;
use vrdma_tests::abi::event::EventKind;
use vrdma_tests::ah;
use vrdma_tests::context::Context;
use vrdma_tests::control::{Answer, run};
use vrdma_tests::events::Told;
use vrdma_tests::side::{Side, pair};
use vrdma_tests::verbs::{CqLayout, Data, Request, Sge, UdTarget};
use vrdma_tests::{CableOptions, Guest, Lab, LabOptions, Qp, QpOptions, connect};

/// Returns a lab on one host, and one with a cable between the guests.
fn labs() -> [Lab; 2] {
    [None, Some(CableOptions::default())]
        .map(|cable| Lab::with(2, LabOptions { cable, ..LabOptions::default() }))
}

/// Creates objects until the device refuses, which has to happen when there are `most`.
fn make_all<T>(what: &str, most: u32, mut make: impl FnMut() -> Answer<T>) -> Vec<T> {
    let made: Vec<T> = (0..most)
        .map(|n| make().unwrap_or_else(|status| panic!("{what} {n} of {most}: {status:?}")))
        .collect();
    assert_eq!(make().err(), Some(Status::NO_RESOURCES), "one {what} more than {most}");
    made
}

/// Creates as many contexts, PDs, CQs, regions, QPs and SRQs as the device reports.
///
/// One more of each is refused.
fn objects(limits: GuestLimits) {
    let lab = Lab::with(1, LabOptions { limits, ..LabOptions::default() });
    let guest = &lab.guests[0];
    let device = guest.query_device().unwrap();
    let (kernel, page) = (limit::KERNEL_CONTEXT, guest.memory.alloc(4096));

    let contexts = make_all("context", device.max_contexts.get(), || guest.alloc_context());
    let pds = make_all("PD", device.max_pd.get(), || guest.alloc_pd(kernel));
    guest.dealloc_pd(pds[2]).unwrap();
    let pd = guest.alloc_pd(contexts[0]).expect("one is free again, for whoever wants it");

    // All CQs share the same memory, as none has a completion.
    let cqs = make_all("CQ", device.max_cq.get(), || guest.create_cq(kernel, 1, 0, &[run(page, 32 + 128)]));

    let keys: Vec<RegMrResp> = make_all("region", device.max_mr.get(), || {
        guest.reg_mr(pds[0], access::ALL, 0, 4096, &[run(page, 4096)])
    });
    guest.dereg_mr(keys[1].lkey.get()).unwrap();
    guest.get_dma_mr(pds[0], access::LOCAL_WRITE).expect("the region of all memory is one of them");
    assert_eq!(guest.reg_mr(pd, 1, 0, 4096, &[run(page, 4096)]).err(), Some(Status::NO_RESOURCES));

    let small = QpOptions { send_wr: 16, recv_wr: 16, sges: 1, inline: 0, ..QpOptions::default() };
    let create = || Qp::create(guest, kernel, pds[0], cqs[0], cqs[1], &small);
    // Two QP numbers are not for ordinary QPs.
    let qps = make_all("QP", device.max_qp.get() - 2, create);
    qps[3].destroy().unwrap();
    create().expect("a number is free again");

    let srq = small_srq(kernel, pds[0]);
    let max_srq = guest.query_device_ex().unwrap().max_srq.get();
    let srqs = make_all("SRQ", max_srq, || guest.create_srq(&srq));
    guest.destroy_srq(srqs[5]).unwrap();
    guest.create_srq(&srq).expect("a number is free again");
}

/// Returns an SRQ for one receive without scatter/gather elements.
fn small_srq(context: u32, pd: u32) -> CreateSrqReq {
    CreateSrqReq {
        context: context.into(),
        pdn: pd.into(),
        max_wr: 1.into(),
        max_sge: 0.into(),
        xrcdn: limit::NONE.into(),
        cqn: limit::NONE.into(),
    }
}

#[test]
fn as_many_objects_as_the_device_tells() {
    objects(GuestLimits {
        contexts: 40,
        pds: 300,
        cqs: 200,
        mrs: 500,
        qps: 256,
        srqs: 100,
        ..GuestLimits::default()
    });
}

/// The default limits of a guest.
#[test]
#[ignore = "long"]
fn as_many_objects_as_the_device_tells_by_default() {
    objects(GuestLimits::default());
}

#[test]
fn the_limits_by_default_are_large() {
    let lab = Lab::new(1);
    let device = lab.guests[0].query_device().unwrap();
    assert!(device.max_qp.get() > 10_000 && device.max_cq.get() > 10_000 && device.max_mr.get() > 100_000);
    assert_eq!((device.max_qp_wr.get(), device.max_inline.get()), (32_768, 512));
    assert_eq!((device.max_send_sge.get(), device.max_recv_sge.get()), (32, 32));
}

#[test]
fn as_many_cqes_as_the_device_tells() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let most = guest.query_device().unwrap().max_cqe.get();
    let context = Context::open(guest).unwrap();
    assert_eq!(context.cq(most).entries(), most);
    let layout = CqLayout::for_entries(2 * most).unwrap();
    let len = layout.size() as u64;
    let gpa = guest.memory.alloc(4096);
    let answer = guest.create_cq(context.number, 2 * most, 0, &[run(gpa, len)]);
    assert_eq!(answer, Err(Status::NO_RESOURCES));
}

#[test]
fn a_region_as_large_as_the_device_tells() {
    let limits = GuestLimits { memory_max: 128, ..GuestLimits::default() };
    let lab = Lab::with(1, LabOptions { limits, ..LabOptions::default() });
    let guest = &lab.guests[0];
    let device = guest.query_device().unwrap();
    let pd = guest.alloc_pd(limit::KERNEL_CONTEXT).unwrap();
    // The guest's memory has a gap, so a region of that size needs some memory twice.
    let (size, half) = (device.max_mr_size.get(), 64 << 20);
    assert_eq!(size, 128 << 20, "what the guest may have");
    let runs = |last| [run(1 << 32, half), run(1 << 32, last)];
    assert!(guest.reg_mr(pd, 1, 0, size, &runs(half)).is_ok());
    assert_eq!(guest.reg_mr(pd, 1, 0, size + 1, &runs(half + 1)).err(), Some(Status::INVALID));
}

#[test]
fn as_many_runs_as_the_device_tells() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let most = guest.query_device().unwrap().max_mr_runs.get();
    let pd = guest.alloc_pd(limit::KERNEL_CONTEXT).unwrap();
    let page = guest.memory.alloc(4096);
    let mut runs = vec![run(page, 4096); most as usize];
    assert!(guest.reg_mr(pd, 1, 0, 4096 * u64::from(most), &runs).is_ok());
    runs.push(run(page, 4096));
    let answer = guest.reg_mr(pd, 1, 0, 4096 * u64::from(most + 1), &runs);
    assert_eq!(answer.err(), Some(Status::TOO_LARGE));
}

/// The memory that requests of all QPs together would take is limited.
#[test]
fn all_queues_together_have_the_memory_for_requests() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let context = Context::open(guest).unwrap();
    let cq = context.cq(64);
    let depth = guest.query_device().unwrap().max_qp_wr.get();
    let large = QpOptions { send_wr: depth, recv_wr: depth, sges: 32, inline: 512, ..QpOptions::default() };
    let create = || Qp::create(guest, context.number, context.pd, cq.number, cq.number, &large);
    let mut qps: Vec<Qp> = Vec::new();
    let refused = loop {
        match create() {
            Ok(qp) => qps.push(qp),
            Err(status) => break status,
        }
    };
    assert_eq!(refused, Status::NO_RESOURCES);
    assert!(!qps.is_empty(), "one QP can have all limits of a QP");
    qps.pop().unwrap().destroy().unwrap();
    create().expect("what was given back can be had again");
}

fn deep(guest: &Guest) -> (u32, QpOptions) {
    let depth = guest.query_device().unwrap().max_qp_wr.get();
    // 4 s for an answer, 30 s for all retries: a paused peer is not given up.
    let timeout = 20;
    (depth, QpOptions { send_wr: depth, recv_wr: depth, sges: 1, inline: 0, timeout, ..QpOptions::default() })
}

#[test]
fn queues_as_deep_as_the_device_tells() {
    for lab in labs() {
        let (depth, options) = deep(&lab.guests[0]);
        let [mut a, mut b] = [0, 1].map(|i| Side::with_cq(&lab.guests[i], 2 * depth, 64, &options));
        connect(&a.qp, &b.qp);
        for id in 0..depth {
            b.recv(id, &[]);
        }
        // All sends wait for a peer that does not answer.
        b.process.channel.drain();
        let stopped = lab.guests[1].pause().unwrap();
        for id in 0..depth {
            a.post(&Request::send(a.qp.tag(id), Data::EMPTY).signaled(true));
        }
        a.process.channel.drain();
        assert_eq!(lab.stats().objects(0, "pending_requests"), u64::from(depth));
        lab.guests[1].resume(&stopped).unwrap();
        for id in 0..depth {
            a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
            b.cq.expect(b.qp.number, id, WcStatus::SUCCESS);
        }
    }
}

#[test]
fn one_receive_more_than_the_queue_is_deep_is_fatal_to_its_qp() {
    let lab = Lab::new(2);
    let (depth, options) = deep(&lab.guests[0]);
    let (a, mut b) = pair(&lab, 1, 64, &options);
    for id in 0..=depth {
        b.recv(id, &[]);
    }
    b.process.channel.drain();
    assert_eq!(b.qp.state(), vrdma_tests::abi::control::QpState::ERR);
    drop(a);
}

#[test]
fn a_shared_queue_as_deep_and_wide_as_the_device_tells() {
    for lab in labs() {
        let mut client = Side::new(&lab.guests[0], 4096, &QpOptions::default());
        let mut server = Side::new(&lab.guests[1], 4096, &QpOptions::default());
        let device = lab.guests[1].query_device().unwrap();
        let (max_wr, max_sge) = (device.max_qp_wr.get(), device.max_recv_sge.get());
        let Side { process, cq, mr, .. } = &mut server;
        let srq = CreateSrqReq {
            max_wr: max_wr.into(),
            max_sge: max_sge.into(),
            ..small_srq(process.number, process.pd)
        };
        let srqn = lab.guests[1].create_srq(&srq).unwrap();
        let qp = process.qp(cq, cq, &QpOptions { srqn, ..QpOptions::default() });
        connect(&client.qp, &qp);
        let sges: Vec<Sge> = (0..max_sge).map(|i| mr.sge(u64::from(i), 1)).collect();
        (0..max_wr).for_each(|id| process.post(&Request::srq_recv(srqn, id, &sges)));
        let data: Vec<u8> = (1..=max_sge as u8).collect();
        client.post(&Request::send(client.qp.tag(1), Data::Inline(&data)).signaled(true));
        client.cq.expect_success();
        assert_eq!(server.cq.expect_success().id(), 0);
        assert_eq!(server.mr.get(0, max_sge.into()), data);
        // One receive was consumed, so there is room for one. The next is one too many.
        let mut events = lab.guests[1].async_events();
        (0..2).for_each(|id| server.process.post(&Request::srq_recv(srqn, id, &[])));
        assert_eq!(events.recv(), Told { kind: EventKind::SRQ_ERR, object: srqn });
        qp.destroy().unwrap();
        lab.guests[1].destroy_srq(srqn).unwrap();
    }
}

#[test]
fn a_queue_deeper_than_the_device_tells_is_refused() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let device = guest.query_device().unwrap();
    let context = Context::open(guest).unwrap();
    let cq = context.cq(4);
    let refused = |change: &dyn Fn(&mut QpOptions)| {
        let mut options = QpOptions::default();
        change(&mut options);
        Qp::create(guest, context.number, context.pd, cq.number, cq.number, &options).err()
    };
    assert_eq!(refused(&|qp| qp.send_wr = device.max_qp_wr.get() + 1), Some(Status::INVALID));
    assert_eq!(refused(&|qp| qp.recv_wr = device.max_qp_wr.get() + 1), Some(Status::INVALID));
    assert_eq!(refused(&|qp| qp.sges = device.max_send_sge.get() + 1), Some(Status::INVALID));
    assert_eq!(refused(&|qp| qp.inline = device.max_inline.get() + 1), Some(Status::INVALID));
}

#[test]
fn as_many_elements_and_inline_bytes_as_the_device_tells() {
    for lab in labs() {
        let device = lab.guests[0].query_device().unwrap();
        let (sges, inline) = (device.max_send_sge.get(), device.max_inline.get());
        let (mut a, mut b) = pair(&lab, 1, 8192, &QpOptions { sges, inline, ..QpOptions::default() });
        let data: Vec<u8> = (0..sges * 3).map(|i| i as u8).collect();
        a.mr.put(0, &data);
        // Each element is a byte after the one before. The receiver's elements have other sizes.
        let from: Vec<Sge> = (0..sges).map(|i| a.mr.sge(u64::from(i) * 3, 3)).collect();
        let to: Vec<Sge> =
            (0..sges).map(|i| b.mr.sge(u64::from(i) * 100, if i % 2 == 0 { 2 } else { 4 })).collect();
        b.recv(1, &to);
        a.post(&Request::send(a.qp.tag(2), Data::Sges(&from)).signaled(true));
        a.cq.expect(a.qp.number, 2, WcStatus::SUCCESS);
        assert_eq!(b.cq.expect(b.qp.number, 1, WcStatus::SUCCESS).len(), sges * 3);
        let found: Vec<u8> =
            (0..sges).flat_map(|i| b.mr.get(u64::from(i) * 100, if i % 2 == 0 { 2 } else { 4 })).collect();
        assert_eq!(found, data);

        let data: Vec<u8> = (0..inline).map(|i| (i * 7) as u8).collect();
        a.post(&Request::write(a.qp.tag(3), b.mr.remote(4096), Data::Inline(&data)).signaled(true));
        a.cq.expect(a.qp.number, 3, WcStatus::SUCCESS);
        assert_eq!(b.mr.get(4096, inline.into()), data);
    }
}

#[test]
fn as_many_reads_at_once_as_the_device_tells() {
    for lab in labs() {
        let device = lab.guests[0].query_device().unwrap();
        let most = device.max_rd_atomic.get();
        assert_eq!(device.max_dest_rd_atomic.get(), most);
        let options = QpOptions { rd_atomic: most as u8, send_wr: 1024, ..QpOptions::default() };
        // The CQ holds all completions, however late it is polled.
        let [mut a, b] = [0, 1].map(|i| Side::with_cq(&lab.guests[i], 3 * most, 8192, &options));
        connect(&a.qp, &b.qp);
        b.mr.fill(0x5a);
        for id in 0..3 * most {
            let to = [a.mr.sge(u64::from(id % 8) * 1024, 1024)];
            a.post(&Request::read(a.qp.tag(id), b.mr.remote(0), &to).signaled(true));
        }
        for id in 0..3 * most {
            a.cq.expect(a.qp.number, id, WcStatus::SUCCESS);
        }
        assert_eq!(a.mr.get(0, 8192), [0x5a; 8192]);
        let more = QpOptions { rd_atomic: most as u8 + 1, ..QpOptions::default() };
        let side = Side::new(&lab.guests[0], 64, &more);
        side.qp.to_init().unwrap();
        assert_eq!(side.qp.to_rtr(lab.guests[1].gid(), b.qp.number, 0), Err(Status::INVALID));
    }
}

#[test]
fn as_many_address_handles_as_the_device_tells() {
    let lab = Lab::new(2);
    let guest = &lab.guests[0];
    let most = guest.query_device().unwrap().max_ah.get();
    let len = u64::from(most + 1) * AhEntry::SIZE as u64;
    let gpa = guest.memory.alloc(len);
    assert_eq!(guest.set_ah_table(most + 1, &[run(gpa, len)]), Err(Status::NO_RESOURCES));
    let table = ah::AhTable::new(guest, most).unwrap();
    let options = QpOptions::of(QpType::UD);
    let [mut a, mut b] = [0, 1].map(|i| Side::new(&lab.guests[i], 4096, &options));
    [&a, &b].into_iter().for_each(|side| side.qp.start().unwrap());
    table.put(most - 1, &ah::entry(a.process.pd, lab.guests[1].gid()));
    b.recv_any(1);
    let to = UdTarget { ah: most - 1, qpn: b.qp.number, qkey: options.qkey };
    a.post(&Request::ud_send(a.qp.tag(2), to, Data::Inline(b"the last")).signaled(true));
    a.cq.expect(a.qp.number, 2, WcStatus::SUCCESS);
    b.cq.expect(b.qp.number, 1, WcStatus::SUCCESS);
    assert_eq!(b.mr.get(40, 8), b"the last");
}

#[test]
fn as_many_gids_as_the_port_tells() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let most = guest.query_port().unwrap().gid_table_len.get();
    for index in 0..most {
        guest.add_gid(index.into(), vrdma_tests::guest::gid(index as u8 + 1)).unwrap();
    }
    assert_eq!(guest.add_gid(most.into(), vrdma_tests::guest::gid(250)), Err(Status::INVALID));
}
