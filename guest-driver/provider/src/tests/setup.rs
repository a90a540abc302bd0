//! Opening and closing of devices, and creation of objects.

use std::ffi::{CStr, CString};
use std::mem::zeroed;
use std::ptr;
use std::sync::atomic::Ordering;

use vrdma_verbs::abi::control::device_cap;
use vrdma_verbs::abi::user::{AllocContextExResp, AllocContextResp, context_flags};

use super::guest::{CAP, Guest, sge, with_sges, write};
use crate::context::Context;
use crate::fake::{self, Kernel};
use crate::ffi::*;
use crate::{driver, queries};

#[test]
fn the_constructor_registers_a_table_that_names_our_devices() {
    let (table, register) = driver::registered();
    register();
    assert_eq!(fake::REGISTERED.load(Ordering::Relaxed), 1);
    assert_eq!((table.match_min_abi_version, table.match_max_abi_version), (1, 1));
    assert_eq!(unsafe { CStr::from_ptr(table.name) }, c"vrdma");
    let patterns: Vec<_> = (0..)
        .map(|i| unsafe { &*table.match_table.add(i) })
        .take_while(|entry| u32::from(entry.kind) != VERBS_MATCH_SENTINEL)
        .map(|entry| unsafe { CStr::from_ptr(entry.u.modalias) })
        .collect();
    // What Linux calls the PCI function and the virtio device of each id, and QEMU's virtio-net.
    let modaliases = [
        ("pci:v00001AF4d00001066sv00001AF4sd00001100bc07sc80i00", true),
        ("pci:v00001AF4d0000106Asv00001AF4sd00001100bc02sc80i00", true),
        ("virtio:d00000026v00001AF4", true),
        ("virtio:d0000002Av00001AF4", true),
        ("rdma_device:Nvrdma0", true),
        ("rdma_device:Nrocep0s4", false),
        ("pci:v00001AF4d00001041sv00001AF4sd00001100bc02sc00i00", false),
        ("pci:v00008086d00001066sv00001AF4sd00001100bc02sc00i00", false),
        ("virtio:d00000001v00001AF4", false),
    ];
    for (modalias, ours) in modaliases {
        let modalias = CString::new(modalias).unwrap();
        let matches = |pattern: &&CStr| unsafe { libc::fnmatch(pattern.as_ptr(), modalias.as_ptr(), 0) } == 0;
        assert_eq!(patterns.iter().any(matches), ours, "{modalias:?}");
    }
    let device = unsafe { table.alloc_device.unwrap()(ptr::null_mut()) };
    assert!(!device.is_null());
    unsafe { table.uninit_device.unwrap()(device) };
}

#[test]
fn a_context_comes_and_goes() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    assert_eq!(kernel.state().contexts, 1);
    assert_eq!(kernel.state().context_flags, 0);
    guest.close(&[]);
}

#[test]
fn no_channel_is_asked_for_on_demand() {
    let kernel = Kernel::with(|_| ());
    let guest = Guest::open(&kernel, false).unwrap();
    assert_eq!(kernel.state().context_flags, context_flags::NO_CHANNEL);
    guest.close(&[]);
}

#[test]
fn an_older_kernel_has_the_functions_of_the_first_version_and_a_newer_one_says_which() {
    let cap = |reply_len, cap: u64| {
        let kernel = Kernel::of_version(reply_len, |reply| reply.device_cap = cap.into());
        let guest = Guest::open(&kernel, true).unwrap();
        let found = unsafe { Context::of(guest.context) }.device_cap;
        guest.close(&[]);
        found
    };
    let whole = AllocContextExResp::SIZE;
    let more = device_cap::V1_0 | device_cap::ATOMIC_WRITE;
    assert_eq!(cap(AllocContextResp::SIZE, more), device_cap::V1_0, "the word is not in the reply");
    assert_eq!(cap(AllocContextResp::SIZE + 8, more), more, "what lies behind the word is not");
    assert_eq!(cap(whole, more), more);
    assert_eq!(cap(whole, 0), device_cap::V1_0);
}

#[test]
fn a_context_that_the_kernel_refuses_leaves_nothing() {
    let kernel = Kernel::new();
    kernel.state().command_error = libc::ENOSPC;
    assert_eq!(Guest::open(&kernel, true).err(), Some(libc::ENOSPC));
    assert_eq!(kernel.state().contexts, 0);
}

#[test]
fn a_reply_that_makes_no_sense_is_refused() {
    let with = |change: fn(&mut vrdma_verbs::abi::user::AllocContextResp)| {
        let kernel = Kernel::with(|reply| {
            reply.flags = (context_flags::CHANNEL | context_flags::DOORBELL).into();
            change(reply);
        });
        let error = Guest::open(&kernel, true).err();
        assert_eq!(kernel.state().contexts, 0);
        error.unwrap()
    };
    assert_eq!(with(|reply| reply.max_qp = 1000.into()), libc::EPROTO);
    assert_eq!(with(|reply| reply.entries = 100.into()), libc::EPROTO);
    assert_eq!(with(|reply| reply.used_offset = (8 * 4096 - 100).into()), libc::EPROTO);
    assert_eq!(with(|reply| reply.avail_offset = u32::MAX.into()), libc::EPROTO);
    assert_eq!(with(|reply| reply.slots_len = 4096.into()), libc::EPROTO);
    assert_eq!(with(|reply| reply.doorbell_offset = 4096.into()), libc::EPROTO);
    assert_eq!(with(|reply| reply.doorbell_offset = 3.into()), libc::EPROTO);
    assert_eq!(with(|reply| reply.rings_len = 0.into()), libc::EINVAL);
    assert_eq!(with(|reply| reply.rings_mmap = u64::MAX.into()), libc::EINVAL);
}

#[test]
fn objects_that_the_kernel_refuses_are_null_with_errno() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(4);
    let refused = |is_null: bool| {
        assert!(is_null);
        assert_eq!(crate::errno::last(), libc::EDQUOT);
    };
    let order = || kernel.state().command_error = libc::EDQUOT;
    unsafe {
        order();
        refused(guest.ops.alloc_pd.unwrap()(guest.context).is_null());
        order();
        refused(guest.ops.create_cq.unwrap()(guest.context, 4, ptr::null_mut(), 0).is_null());
        order();
        refused(guest.ops.reg_mr.unwrap()(guest.pd, ptr::null_mut(), 0, 0, 0).is_null());
        order();
        refused(guest.try_qp(cq, |_| ()).is_null());
        assert!(guest.ops.create_cq.unwrap()(guest.context, 0, ptr::null_mut(), 0).is_null());
        assert_eq!(crate::errno::last(), libc::EINVAL);
    }
    guest.close(&[cq]);
}

#[test]
fn memory_regions_come_and_go() {
    let guest = Guest::new(&Kernel::new());
    unsafe {
        let mr = guest.ops.reg_mr.unwrap()(guest.pd, ptr::null_mut(), 4096, 0, 0);
        assert_eq!(((*mr).lkey, (*mr).rkey, (*mr).length), (7, 8, 4096));
        assert_eq!(guest.ops.dereg_mr.unwrap()(mr.cast()), 0);
    }
    guest.close(&[]);
}

#[test]
fn qps_that_cannot_be_are_refused() {
    let guest = Guest::new(&Kernel::new());
    let cq = guest.cq(4);
    let error = |change: &dyn Fn(&mut ibv_qp_init_attr)| {
        assert!(guest.try_qp(cq, |attr| change(attr)).is_null());
        crate::errno::last()
    };
    assert_eq!(error(&|attr| attr.qp_type = IBV_QPT_RAW_PACKET), libc::EOPNOTSUPP);
    assert_eq!(error(&|attr| attr.send_cq = ptr::null_mut()), libc::EINVAL);
    assert_eq!(error(&|attr| attr.cap.max_inline_data = 97), libc::EINVAL);
    // 4 units hold 14 SGEs.
    assert_eq!(error(&|attr| attr.cap.max_send_sge = 15), libc::EINVAL);
    assert_eq!(error(&|attr| attr.cap.max_recv_sge = 15), libc::EINVAL);
    let largest = guest.qp(cq, |attr| attr.cap = ibv_qp_cap { max_send_sge: 14, max_recv_sge: 14, ..CAP });
    guest.destroy_qp(largest);
    guest.close(&[cq]);
}

#[test]
fn a_channel_that_is_smaller_than_the_largest_request_bounds_what_a_qp_may_ask_for() {
    let kernel = Kernel::with(|reply| {
        reply.flags = (context_flags::CHANNEL | context_flags::DOORBELL).into();
        reply.entries = 2.into();
    });
    let guest = Guest::new(&kernel);
    let cq = guest.cq(4);
    let mut attr: ibv_device_attr_ex = unsafe { zeroed() };
    let query = guest.ops.query_device_ex.unwrap();
    assert_eq!(unsafe { query(guest.context, ptr::null(), &raw mut attr, size_of_val(&attr)) }, 0);
    // 2 units hold 6 SGEs.
    let attr = attr.orig_attr;
    assert_eq!([attr.max_sge, attr.max_sge_rd, attr.max_srq_sge], [6; 3]);
    let asking =
        |most| guest.try_qp(cq, |attr| (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (most, most));
    assert!(asking(7).is_null());
    assert_eq!(crate::errno::last(), libc::EINVAL);
    let qp = asking(6);
    guest.modify(qp, IBV_QPS_RTS);
    let mut sges = [sge(0, 8, 1); 6];
    guest.send(qp, &mut [with_sges(write(3), &mut sges)]).unwrap();
    assert_eq!(kernel.take().unwrap().sges().len(), 6);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn a_qp_has_inline_room_for_what_its_elements_take() {
    let guest = Guest::new(&Kernel::new());
    let cq = guest.cq(4);
    // The device has 96 bytes.
    for (max_send_sge, asked, expected) in [(1, 0, 16), (4, 8, 64), (4, 80, 80), (14, 0, 96)] {
        let cap = ibv_qp_cap { max_send_sge, max_inline_data: asked, ..CAP };
        let mut attr: ibv_qp_init_attr = unsafe { zeroed() };
        (attr.send_cq, attr.recv_cq, attr.qp_type, attr.cap) = (cq, cq, IBV_QPT_RC, cap);
        let qp = unsafe { guest.ops.create_qp.unwrap()(guest.pd, &raw mut attr) };
        assert!(!qp.is_null());
        assert_eq!(attr.cap.max_inline_data, expected, "{max_send_sge} elements");
        guest.destroy_qp(qp);
    }
    guest.close(&[cq]);
}

#[test]
fn a_qp_that_could_not_be_destroyed_still_works() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(4);
    let qp = guest.qp(cq, |_| ());
    kernel.state().command_error = libc::EBUSY;
    assert_eq!(unsafe { guest.ops.destroy_qp.unwrap()(qp) }, libc::EBUSY);
    guest.send(qp, &mut [write(3)]).unwrap();
    kernel.serve();
    assert_eq!(guest.poll(cq, 4).len(), 1);
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn a_qp_joins_a_multicast_group_and_leaves_it() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(4);
    let qp = guest.qp(cq, |attr| attr.qp_type = IBV_QPT_UD);
    let gid = ibv_gid { raw: [0xff; 16] };
    let (attach, detach) = (guest.ops.attach_mcast.unwrap(), guest.ops.detach_mcast.unwrap());
    unsafe {
        kernel.state().command_error = libc::ENOMEM;
        assert_eq!((attach(qp, &raw const gid, 3), kernel.state().groups.len()), (libc::ENOMEM, 0));
        assert_eq!(attach(qp, &raw const gid, 3), 0);
        assert_eq!(kernel.state().groups, [((*qp).qp_num, [0xff; 16], 3)]);
        assert_eq!((detach(qp, &raw const gid, 3), kernel.state().groups.len()), (0, 0));
    }
    guest.destroy_qp(qp);
    guest.close(&[cq]);
}

#[test]
fn the_device_tells_its_version() {
    let guest = Guest::new(&Kernel::new());
    unsafe {
        let mut attr: ibv_device_attr_ex = zeroed();
        let query = guest.ops.query_device_ex.unwrap();
        assert_eq!(query(guest.context, ptr::null(), &raw mut attr, size_of_val(&attr)), 0);
        assert_eq!(CStr::from_ptr(attr.orig_attr.fw_ver.as_ptr()), c"1.2.3");
    }
    assert_eq!(queries::version_text(u64::MAX), "4294967295.65535.65535");
    guest.close(&[]);
}
