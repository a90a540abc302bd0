//! Control commands: what they return, and what they reject.

use vrdma_backend::config::GuestLimits;
use vrdma_tests::abi::control::{Opcode, Status, access, limit, port_state};
use vrdma_tests::control::run;
use vrdma_tests::{CableOptions, Context, Cq, Lab, LabOptions};

#[test]
fn the_configuration_space_names_the_device() {
    let lab = Lab::new(1);
    let config = lab.guests[0].config;
    assert_eq!(config.magic.get(), vrdma_tests::abi::config::device::MAGIC);
    assert_eq!(
        (config.version_major.get(), config.num_comp_vectors.get(), config.num_channels.get()),
        (1, 2, 13)
    );
    assert_eq!(config.mac, [0x52, 0x54, 0, 0, 0, 1]);
    assert_eq!(lab.guests[0].queues.len(), 2 + 2 + 13);
}

#[test]
fn the_device_tells_its_limits_and_its_port() {
    let lab = Lab::new(1);
    let device = lab.guests[0].query_device().unwrap();
    assert_eq!(device.sys_image_guid, [0x50, 0x54, 0, 0xff, 0xfe, 0, 0, 1]);
    assert_eq!((device.max_qp.get(), device.max_send_sge.get(), device.max_inline.get()), (16384, 32, 512));
    assert!(
        device.max_cqe.get().is_power_of_two()
            && device.max_mr_size.get() == GuestLimits::default().memory_bytes()
    );
    let port = lab.guests[0].query_port().unwrap();
    assert_eq!((port.state, port.max_mtu.get(), port.active_mtu.get()), (port_state::ACTIVE, 4096, 4096));
    assert!(port.gid_table_len.get() >= 2 && port.max_msg_size.get() >= 1 << 30);
}

#[test]
fn the_port_is_as_fast_as_the_uplink() {
    let speed = |cable| {
        let lab = Lab::with(2, LabOptions { cable, ..LabOptions::default() });
        lab.guests[0].query_port().unwrap().speed.get()
    };
    assert_eq!(speed(None), 100_000);
    assert_eq!(speed(Some(CableOptions::default())), 25_000);
}

#[test]
fn gids_are_set_replaced_and_deleted() {
    let lab = Lab::new(2);
    let [a, b] = &lab.guests[..] else { panic!() };
    assert_eq!(a.query_gid(0).unwrap().gid, a.gid());
    let other = vrdma_tests::guest::gid(77);
    a.add_gid(1, other).unwrap();
    assert_eq!(a.query_gid(1).unwrap().gid, other);
    assert_eq!(b.add_gid(1, other), Err(Status::DENIED), "another guest has it");
    a.del_gid(1).unwrap();
    a.del_gid(1).unwrap();
    assert_eq!(a.query_gid(1).unwrap().gid, [0; 16]);
    b.add_gid(1, other).unwrap();
    assert_eq!(a.query_gid(1 << 20), Err(Status::INVALID));
    assert_eq!(a.add_gid(1 << 20, vrdma_tests::guest::gid(78)), Err(Status::INVALID));
}

#[test]
fn objects_come_and_go_and_are_counted() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let context = Context::open(guest).unwrap();
    let cq = context.cq(16);
    let mr = context.mr(10_000);
    let qp = context.qp(&cq, &cq, &Default::default());
    let stats = lab.stats();
    for kind in ["contexts", "channels", "pds", "cqs", "mrs", "qps", "gids"] {
        assert_eq!(stats.objects(0, kind), 1, "{kind}");
    }
    assert_eq!(guest.dealloc_context(context.number), Err(Status::BUSY));
    assert_eq!(guest.dealloc_pd(context.pd), Err(Status::BUSY));
    assert_eq!(guest.destroy_cq(cq.number), Err(Status::BUSY));
    qp.destroy().unwrap();
    assert_eq!(qp.destroy(), Err(Status::NOT_FOUND));
    mr.deregister().unwrap();
    assert_eq!(mr.deregister(), Err(Status::NOT_FOUND));
    cq.destroy().unwrap();
    context.close().unwrap();
    guest.del_gid(0).unwrap();
    lab.expect_nothing_left(0);
}

#[test]
fn objects_of_another_context_are_denied() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let (one, other) = (Context::open(guest).unwrap(), Context::open(guest).unwrap());
    let (cq, foreign) = (one.cq(4), other.cq(4));
    let create = |pd, send: &Cq, recv: &Cq| {
        vrdma_tests::Qp::create(guest, one.number, pd, send.number, recv.number, &Default::default()).err()
    };
    assert_eq!(create(one.pd, &cq, &foreign), Some(Status::DENIED));
    assert_eq!(create(one.pd, &foreign, &cq), Some(Status::DENIED));
    assert_eq!(create(other.pd, &cq, &cq), Some(Status::DENIED));
    assert_eq!(create(one.pd, &cq, &cq), None);
    assert_eq!(guest.get_dma_mr(one.pd, access::LOCAL_WRITE), Err(Status::DENIED));
    let kernel = guest.alloc_pd(limit::KERNEL_CONTEXT).unwrap();
    assert!(guest.get_dma_mr(kernel, access::LOCAL_WRITE).is_ok());
}

#[test]
fn channels_are_bound_once_and_the_first_is_the_kernels() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let context = guest.alloc_context().unwrap();
    let bind = |context, queue| {
        vrdma_tests::context::BoundChannel::bind(guest, context, queue).map(|channel| channel.queue)
    };
    let first = guest.first_channel();
    assert_eq!(bind(context, first), Err(Status::DENIED));
    assert_eq!(bind(context + 1, first + 1), Err(Status::NOT_FOUND));
    assert_eq!(bind(context, first + 1), Ok(first + 1));
    assert_eq!(bind(context, first + 1), Err(Status::BUSY));
    assert_eq!(guest.dealloc_context(context), Err(Status::BUSY));
    guest.unbind_channel(first + 1).unwrap();
    assert_eq!(guest.unbind_channel(first + 1), Err(Status::NOT_FOUND));
    assert_eq!(bind(context, first + 1), Ok(first + 1), "it can be bound again");
    assert_eq!(bind(limit::KERNEL_CONTEXT, first), Ok(first));
    for queue in [0, 1, 2, first - 1, guest.queues.len() as u16, 0xffff] {
        let page = guest.memory.alloc(4096);
        let status = guest.bind_channel(context, queue, &[run(page, 4096)]).unwrap_err();
        assert!([Status::INVALID, Status::FAULT].contains(&status), "queue {queue}: {status:?}");
    }
}

#[test]
fn memory_that_is_not_there_is_a_fault() {
    let lab = Lab::new(1);
    let guest = &lab.guests[0];
    let pd = guest.alloc_pd(0).unwrap();
    let page = guest.memory.alloc(8192);
    let hole = (32 << 20) + 0x1000;
    for (runs, status) in [
        (vec![run(page, 4096), run(hole, 4096)], Status::FAULT),
        (vec![run(page, 4096), run(hole - 4096, 4096)], Status::OK),
        (vec![run(hole - 4096, 8192)], Status::FAULT),
        (vec![run(u64::MAX - 4095, 8192)], Status::FAULT),
        (vec![run(page, 8192), run(page, 0)], Status::FAULT),
        (vec![run(page, u64::MAX), run(page, 8193)], Status::FAULT),
        (vec![run(page, 4096)], Status::INVALID),
        (vec![run(page, 1), run(page, 8190), run(page, 1)], Status::OK),
        (vec![run(page, 4096), run(page, 1), run(page, 4095)], Status::INVALID),
        (vec![], Status::INVALID),
    ] {
        let answer = guest.reg_mr(pd, 1, 0, 8192, &runs);
        assert_eq!(answer.err().unwrap_or(Status::OK), status, "{runs:x?}");
    }
    assert_eq!(guest.reg_mr(pd, 1, u64::MAX - 8190, 8192, &[run(page, 8192)]).err(), Some(Status::INVALID));
    assert_eq!(guest.reg_mr(pd, 1, 0, 0, &[run(page, 1)]).err(), Some(Status::INVALID));
    assert_eq!(
        guest.reg_mr(pd, access::REMOTE_WRITE, 0, 8192, &[run(page, 8192)]).err(),
        Some(Status::INVALID)
    );
    assert_eq!(guest.reg_mr(pd, 1 << 10, 0, 8192, &[run(page, 8192)]).err(), Some(Status::INVALID));
    assert_eq!(guest.create_cq(0, 2, 0, &[run(hole - 64, 192)]), Err(Status::FAULT));
    assert_eq!(guest.create_cq(0, 2, 7, &[run(page, 192)]), Err(Status::INVALID), "no such vector");
    assert_eq!(guest.create_cq(0, 3, 0, &[run(page, 96 + 128)]), Err(Status::INVALID));
    assert_eq!(guest.create_cq(0, 0x8000_0000, 0, &[run(page, (32 << 31) + 128)]), Err(Status::NO_RESOURCES));
}

#[test]
fn commands_that_do_not_exist_are_answered() {
    let lab = Lab::new(1);
    for opcode in [0, 6, 7, 99, 0xffff] {
        let answer = lab.guests[0].command::<[u8; 0]>(Opcode(opcode), &[0u8; 4], &[]);
        assert_eq!(answer, Err(Status::UNSUPPORTED));
    }
}
