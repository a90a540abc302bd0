//! Memory windows, invalidation, re-registration.

use std::mem::zeroed;
use std::ptr;
use std::sync::Arc;

use vrdma_verbs::Cqe;
use vrdma_verbs::abi::control::device_cap;
use vrdma_verbs::abi::cqe::{WcOpcode, WcStatus, flags as cqe_flags};
use vrdma_verbs::abi::user::AllocContextExResp;
use vrdma_verbs::abi::wqe::{WrOpcode, flags};

use super::batches::{Batch, qp_ex};
use super::guest::{CAP, Guest, recv, sge, with_sges, wr_ids, write};
use crate::errno::{self, Errno};
use crate::fake::{Kernel, Parsed, Rereg};
use crate::ffi::*;

/// Registers a region of 4 KiB at 0x10000.
fn region(guest: &Guest) -> *mut ibv_mr {
    let addr = ptr::without_provenance_mut(0x1_0000);
    let mr = unsafe { guest.ops.reg_mr.unwrap()(guest.pd, addr, 4096, 0x1_0000, 0) };
    assert!(!mr.is_null());
    mr
}

fn dereg(guest: &Guest, mr: *mut ibv_mr) {
    assert_eq!(unsafe { guest.ops.dereg_mr.unwrap()(mr.cast()) }, 0);
}

fn window(guest: &Guest, kind: ibv_mw_type) -> Result<*mut ibv_mw, Errno> {
    let mw = unsafe { guest.ops.alloc_mw.unwrap()(guest.pd, kind) };
    if mw.is_null() { Err(errno::last()) } else { Ok(mw) }
}

fn dealloc(guest: &Guest, mw: *mut ibv_mw) {
    assert_eq!(unsafe { guest.ops.dealloc_mw.unwrap()(mw) }, 0);
}

/// Returns the range of `mr` to which a window is bound.
fn shown(mr: *mut ibv_mr, mw_access_flags: u32) -> ibv_mw_bind_info {
    ibv_mw_bind_info { mr, addr: 0x1_0040, length: 0x80, mw_access_flags }
}

/// Makes a signaled BIND_MW.
fn bind(mw: *mut ibv_mw, rkey: u32, bind_info: ibv_mw_bind_info) -> ibv_send_wr {
    let mut wr = write(7);
    wr.opcode = IBV_WR_BIND_MW;
    wr.__bindgen_anon_2.bind_mw = ibv_send_wr__bindgen_ty_4__bindgen_ty_1 { mw, rkey, bind_info };
    wr
}

/// Makes a signaled LOCAL_INV or SEND_WITH_INV.
fn invalidate(opcode: ibv_wr_opcode, rkey: u32) -> ibv_send_wr {
    let mut wr = write(7);
    (wr.opcode, wr.__bindgen_anon_1.invalidate_rkey) = (opcode, rkey);
    wr
}

/// Returns the words of a BIND_MW: both rkeys, lkey, rights, address, length.
fn bound(request: &Parsed) -> ([u32; 4], [u64; 2]) {
    assert_eq!((request.opcode(), request.header.units), (WrOpcode::BIND_MW, 1));
    assert_eq!((request.header.sge_count, request.header.inline_len.get()), (0, 0));
    let word = |at: usize| u32::from_le_bytes(request.bytes[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_le_bytes(request.bytes[at..at + 8].try_into().unwrap());
    ([16, 20, 24, 28].map(word), [32, 40].map(long))
}

fn rkey_of(request: &Parsed) -> u32 {
    u32::from_le_bytes(request.bytes[24..28].try_into().unwrap())
}

/// Makes a kernel with these functions in addition to those of version 1.0.
fn kernel_with(cap: u64) -> Arc<Kernel> {
    Kernel::of_version(AllocContextExResp::SIZE, |reply| {
        reply.device_cap = (device_cap::V1_0 | cap).into();
    })
}

#[test]
fn windows_come_and_go() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    for kind in [IBV_MW_TYPE_1, IBV_MW_TYPE_2] {
        let mw = window(&guest, kind).unwrap();
        let found = unsafe { *mw };
        assert_eq!((found.context, found.pd, found.type_), (guest.context, guest.pd, kind));
        assert_eq!(kernel.state().mws, 1);
        kernel.state().command_error = libc::EBUSY;
        assert_eq!(unsafe { guest.ops.dealloc_mw.unwrap()(mw) }, libc::EBUSY);
        dealloc(&guest, mw);
        assert_eq!(kernel.state().mws, 0);
    }
    kernel.state().command_error = libc::ENOMEM;
    assert_eq!(window(&guest, IBV_MW_TYPE_1).err(), Some(libc::ENOMEM));
    assert_eq!(window(&guest, 3).err(), Some(libc::EINVAL));
    guest.close(&[]);
}

#[test]
fn windows_that_the_device_does_not_have_are_not_supported() {
    let (no, yes) = (Some(libc::EOPNOTSUPP), None);
    let unknown = Some(libc::EINVAL);
    for (cap, expected) in [
        (0, [no, no, no]),
        (device_cap::MEM_WINDOW, [yes, no, unknown]),
        (device_cap::MEM_WINDOW_TYPE_2B, [no, yes, unknown]),
    ] {
        let guest = Guest::open(&kernel_with(cap), true).unwrap();
        let made = [IBV_MW_TYPE_1, IBV_MW_TYPE_2, 3].map(|kind| {
            let mw = window(&guest, kind);
            if let Ok(mw) = mw {
                dealloc(&guest, mw);
            }
            mw.err()
        });
        assert_eq!(made, expected, "{cap:#x}");
        guest.close(&[]);
    }
}

#[test]
fn requests_for_keys_need_a_device_that_has_them() {
    for (cap, local_inv, send_inv) in [
        (0, false, false),
        (device_cap::MEM_WINDOW, false, false),
        (device_cap::MEM_WINDOW_TYPE_2B, true, true),
        (device_cap::MEM_MGT_EXTENSIONS, true, true),
    ] {
        let kernel = kernel_with(cap);
        let guest = Guest::open(&kernel, true).unwrap();
        let cq = guest.cq(16);
        let qp = guest.qp(cq, |_| ());
        for (opcode, expected) in [(IBV_WR_LOCAL_INV, local_inv), (IBV_WR_SEND_WITH_INV, send_inv)] {
            let posted = guest.send(qp, &mut [invalidate(opcode, 5)]);
            assert_eq!(posted, if expected { Ok(()) } else { Err((0, libc::EINVAL)) }, "{cap:#x} {opcode}");
        }
        let windows = cap & (device_cap::MEM_WINDOW | device_cap::MEM_WINDOW_TYPE_2B) != 0;
        for (operation, expected) in [
            (IBV_QP_EX_WITH_LOCAL_INV, local_inv),
            (IBV_QP_EX_WITH_SEND_WITH_INV, send_inv),
            (IBV_QP_EX_WITH_BIND_MW, windows),
        ] {
            let made = qp_ex(&guest, cq, IBV_QPT_RC, operation);
            assert_eq!(made.err(), if expected { None } else { Some(libc::EOPNOTSUPP) }, "{cap:#x}");
            if let Ok(qp) = made {
                guest.destroy_qp(qp.cast());
            }
        }
        guest.destroy_qp(qp);
        guest.close(&[cq]);
    }
}

#[test]
fn a_bind_arrives_as_the_abi_says() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED;
    for kind in [IBV_QPT_RC, IBV_QPT_UC] {
        let qp = guest.qp(cq, |attr| attr.qp_type = kind);
        let (mr, mw) = (region(&guest), window(&guest, IBV_MW_TYPE_2).unwrap());
        // Local rights and hints have no effect.
        let info = shown(mr, rights | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
        let mut wr = bind(mw, 0x5512, info);
        wr.send_flags |= IBV_SEND_FENCE;
        guest.send(qp, &mut [wr]).unwrap();
        let request = kernel.take().unwrap();
        assert_eq!(bound(&request), ([0x55ff, 0x5512, 7, rights], [0x1_0040, 0x80]));
        assert_eq!(request.header.flags.get(), flags::SIGNALED | flags::FENCE);
        assert_eq!(unsafe { (*mw).rkey }, 0x55ff, "the program changes it");
        kernel.complete(Cqe { opcode: WcOpcode::BIND_MW.0, ..request.success() });
        let wc = guest.poll(cq, 4)[0];
        assert_eq!((wc.wr_id, wc.opcode, wc.status), (7, IBV_WC_BIND_MW, IBV_WC_SUCCESS));
        guest.destroy_qp(qp);
        dealloc(&guest, mw);
        dereg(&guest, mr);
    }
    guest.close(&[cq]);
}

#[test]
fn binds_that_cannot_be_are_refused() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let (qp, ud) = (guest.qp(cq, |_| ()), guest.qp(cq, |attr| attr.qp_type = IBV_QPT_UD));
    let (mr, mw) = (region(&guest), window(&guest, IBV_MW_TYPE_2).unwrap());
    let no = Err((0, libc::EINVAL));
    let nothing = ptr::null_mut();
    assert_eq!(guest.send(ud, &mut [bind(mw, 0x5512, shown(mr, 0))]), no);
    assert_eq!(guest.send(qp, &mut [bind(nothing, 0x5512, shown(mr, 0))]), no);
    assert_eq!(guest.send(qp, &mut [bind(mw, 0x5512, shown(ptr::null_mut(), 0))]), no);
    for access in [IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_FLUSH_GLOBAL, 1 << 19] {
        assert_eq!(guest.send(qp, &mut [bind(mw, 0x5512, shown(mr, access))]), no, "{access:#x}");
    }
    let mut sges = [sge(0, 8, 0)];
    assert_eq!(guest.send(qp, &mut [with_sges(bind(mw, 0x5512, shown(mr, 0)), &mut sges)]), no);
    assert!(kernel.take().is_none());
    guest.destroy_qp(qp);
    guest.destroy_qp(ud);
    dealloc(&guest, mw);
    dereg(&guest, mr);
    guest.close(&[cq]);
}

#[test]
fn a_window_of_type_1_has_its_next_key_once_the_bind_is_posted() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = guest.qp(cq, |_| ());
    let (mr, mw) = (region(&guest), window(&guest, IBV_MW_TYPE_1).unwrap());
    let bind_mw = |info, send_flags| unsafe {
        let mut bind = ibv_mw_bind { wr_id: 9, send_flags, bind_info: info };
        guest.ops.bind_mw.unwrap()(qp, mw, &raw mut bind)
    };
    let rkey = || unsafe { (*mw).rkey };
    assert_eq!(bind_mw(shown(mr, IBV_ACCESS_REMOTE_READ), IBV_SEND_SIGNALED), 0);
    assert_eq!(rkey(), 0x5500, "the index stays");
    let request = kernel.take().unwrap();
    assert_eq!(bound(&request), ([0x55ff, 0x5500, 7, IBV_ACCESS_REMOTE_READ], [0x1_0040, 0x80]));
    kernel.complete(Cqe { status: WcStatus::MW_BIND_ERR.0, ..request.success() });
    let wc = guest.poll(cq, 4)[0];
    assert_eq!((wc.wr_id, wc.status), (9, IBV_WC_MW_BIND_ERR));
    // A bind of length 0 unbinds the window. The request has no completion.
    let none = ibv_mw_bind_info { mr: ptr::null_mut(), addr: 0, length: 0, mw_access_flags: 0 };
    assert_eq!(bind_mw(none, IBV_SEND_FENCE), 0);
    let request = kernel.take().unwrap();
    assert_eq!(bound(&request), ([0x5500, 0x5501, 0, 0], [0, 0]));
    assert_eq!(request.header.flags.get(), flags::FENCE);
    // A request that is not posted changes no key.
    assert_eq!(bind_mw(none, IBV_SEND_INLINE), libc::EINVAL);
    assert_eq!(bind_mw(shown(mr, IBV_ACCESS_ON_DEMAND), 0), libc::EINVAL);
    let mut wrs: Vec<_> = (0..u64::from(CAP.max_send_wr) - 1).map(write).collect();
    guest.send(qp, &mut wrs).unwrap();
    assert_eq!(bind_mw(none, 0), libc::ENOMEM);
    assert_eq!(rkey(), 0x5501);
    guest.destroy_qp(qp);
    dealloc(&guest, mw);
    dereg(&guest, mr);
    guest.close(&[cq]);
}

#[test]
fn invalidations_arrive_as_the_abi_says() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let (rc, uc) = (guest.qp(cq, |_| ()), guest.qp(cq, |attr| attr.qp_type = IBV_QPT_UC));
    let rkey = 0x99aa_bbcc;
    for qp in [rc, uc] {
        guest.send(qp, &mut [invalidate(IBV_WR_LOCAL_INV, rkey)]).unwrap();
        let request = kernel.take().unwrap();
        assert_eq!((request.opcode(), rkey_of(&request)), (WrOpcode::LOCAL_INV, rkey));
        assert_eq!((request.header.sge_count, request.header.units), (0, 1));
        kernel.complete(Cqe { opcode: WcOpcode::LOCAL_INV.0, ..request.success() });
        assert_eq!(guest.poll(cq, 4)[0].opcode, IBV_WC_LOCAL_INV);
    }
    let mut sges = [sge(0x1000, 64, 5)];
    let send = with_sges(invalidate(IBV_WR_SEND_WITH_INV, rkey), &mut sges);
    guest.send(rc, &mut [send]).unwrap();
    let request = kernel.take().unwrap();
    assert_eq!((request.opcode(), rkey_of(&request)), (WrOpcode::SEND_WITH_INV, rkey));
    assert_eq!(request.sges(), [(0x1000, 64, 5)]);
    let data = *b"inline";
    sges[0] = sge(data.as_ptr().expose_provenance() as u64, 6, 0);
    let mut inline = with_sges(send, &mut sges);
    inline.send_flags |= IBV_SEND_INLINE | IBV_SEND_SOLICITED;
    guest.send(rc, &mut [inline]).unwrap();
    let request = kernel.take().unwrap();
    assert_eq!((request.inline(), rkey_of(&request)), (&data[..], rkey));
    assert_eq!(request.header.flags.get(), flags::SIGNALED | flags::INLINE | flags::SOLICITED);
    let no = Err((0, libc::EINVAL));
    assert_eq!(guest.send(uc, &mut [send]), no, "RC alone");
    assert_eq!(guest.send(rc, &mut [with_sges(invalidate(IBV_WR_LOCAL_INV, rkey), &mut sges)]), no);
    guest.destroy_qp(rc);
    guest.destroy_qp(uc);
    guest.close(&[cq]);
}

#[test]
fn function_calls_make_the_same_requests() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let operations = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;
    let qp = qp_ex(&guest, cq, IBV_QPT_RC, operations).unwrap();
    let (mr, mw) = (region(&guest), window(&guest, IBV_MW_TYPE_2).unwrap());
    let batch = Batch::start(qp);
    unsafe {
        ((*qp).wr_id, (*qp).wr_flags) = (1, IBV_SEND_FENCE);
        let info = Box::new(shown(mr, IBV_ACCESS_REMOTE_READ));
        (*qp).wr_bind_mw.unwrap()(qp, mw, 0x5500, &raw const *info);
        drop(info);
        (*qp).wr_local_inv.unwrap()(qp, 0x5500);
        ((*qp).wr_id, (*qp).wr_flags) = (3, IBV_SEND_SIGNALED);
        (*qp).wr_send_inv.unwrap()(qp, 0x6600);
        batch.sges(&[sge(0x1000, 8, 5), sge(0x2000, 8, 6)]);
        assert_eq!(batch.complete(), 0);
    }
    let requests = kernel.take_all();
    let [first, second, third] = &requests[..] else { panic!("three requests") };
    assert_eq!(bound(first), ([0x55ff, 0x5500, 7, IBV_ACCESS_REMOTE_READ], [0x1_0040, 0x80]));
    assert_eq!(first.header.flags.get(), flags::FENCE);
    assert_eq!((second.opcode(), rkey_of(second)), (WrOpcode::LOCAL_INV, 0x5500));
    assert_eq!((third.opcode(), rkey_of(third)), (WrOpcode::SEND_WITH_INV, 0x6600));
    assert_eq!(third.sges(), [(0x1000, 8, 5), (0x2000, 8, 6)]);
    kernel.complete(third.success());
    assert_eq!(wr_ids(&guest.poll(cq, 4)), [3]);
    // An SGE for a request that takes none.
    let batch = Batch::start(qp);
    unsafe { (*qp).wr_local_inv.unwrap()(qp, 0x5500) };
    batch.sges(&[sge(0x1000, 8, 5)]);
    assert_eq!(batch.complete(), libc::EINVAL);
    guest.destroy_qp(qp.cast());
    dealloc(&guest, mw);
    dereg(&guest, mr);
    guest.close(&[cq]);
}

/// Returns the completion of a receive that invalidated a key.
fn invalidated(request: &Parsed) -> Cqe {
    let flags = cqe_flags::RECV | cqe_flags::INV;
    Cqe { imm: 0x0102_0304.into(), flags, opcode: WcOpcode::RECV.0, ..request.success() }
}

#[test]
fn a_receive_tells_which_key_was_invalidated() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = unsafe {
        let mut attr: ibv_cq_init_attr_ex = zeroed();
        (attr.cqe, attr.wc_flags) = (8, IBV_WC_STANDARD_FLAGS.into());
        guest.ops.create_cq_ex.unwrap()(guest.context, &raw mut attr)
    };
    let qp = guest.qp(cq.cast(), |_| ());
    guest.recv(qp, &mut [recv(1, &mut []), recv(2, &mut [])]).unwrap();
    for request in kernel.take_all() {
        kernel.complete(invalidated(&request));
    }
    let wc = guest.poll(cq.cast(), 1)[0];
    assert_eq!((wc.wr_id, wc.opcode, wc.wc_flags), (1, IBV_WC_RECV, IBV_WC_WITH_INV));
    assert_eq!(unsafe { wc.__bindgen_anon_1.invalidated_rkey }, 0x0102_0304);
    unsafe {
        let mut attr: ibv_poll_cq_attr = zeroed();
        assert_eq!((*cq).start_poll.unwrap()(cq, &raw mut attr), 0);
        assert_eq!((*cq).read_wc_flags.unwrap()(cq), IBV_WC_WITH_INV);
        // ibv_wc_read_invalidated_rkey() calls this function.
        assert_eq!((*cq).read_imm_data.unwrap()(cq), 0x0102_0304);
        (*cq).end_poll.unwrap()(cq);
    }
    guest.destroy_qp(qp);
    guest.close(&[cq.cast()]);
}

#[test]
fn regions_are_registered_again() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let mr = region(&guest);
    let rereg = |flags: u32, addr: usize, length, access: u32| unsafe {
        let addr = ptr::without_provenance_mut(addr);
        let (flags, access) = (flags as i32, access as i32);
        guest.ops.rereg_mr.unwrap()(mr.cast(), flags, guest.pd, addr, length, access)
    };
    let keys = || unsafe { ((*mr).lkey, (*mr).rkey) };
    let all = IBV_REREG_MR_FLAGS_SUPPORTED;
    assert_eq!(rereg(all, 0x2_0000, 8192, IBV_ACCESS_LOCAL_WRITE), 0);
    let asked = Rereg { flags: all, addr: 0x2_0000, length: 8192, iova: 0x2_0000, access: 1 };
    assert_eq!((kernel.state().rereg, keys()), (Some(asked), (0x107, 0x108)));
    kernel.state().command_error = libc::EBUSY;
    assert_eq!(rereg(IBV_REREG_MR_CHANGE_ACCESS, 0, 0, 0), IBV_REREG_MR_ERR_CMD);
    assert_eq!((errno::last(), keys()), (libc::EBUSY, (0x107, 0x108)));
    dereg(&guest, mr);
    guest.close(&[]);
}

#[test]
fn regions_are_not_registered_again_without_the_device() {
    let windows = device_cap::MEM_WINDOW | device_cap::MEM_WINDOW_TYPE_2B;
    let kernel = kernel_with(windows);
    let guest = Guest::open(&kernel, true).unwrap();
    let mr = region(&guest);
    let access = IBV_REREG_MR_CHANGE_ACCESS as i32;
    let rereg = guest.ops.rereg_mr.unwrap();
    assert_ne!(unsafe { rereg(mr.cast(), access, guest.pd, ptr::null_mut(), 0, 0) }, 0);
    assert_eq!(errno::last(), libc::EOPNOTSUPP);
    assert_eq!(kernel.state().rereg, None);
    dereg(&guest, mr);
    guest.close(&[]);
}
