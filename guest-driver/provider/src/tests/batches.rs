//! Posting by function calls: ibv_wr_post(3).

use std::ffi::c_int;
use std::mem::zeroed;
use std::ptr;
use std::sync::Arc;

use vrdma_verbs::abi::control::device_cap;
use vrdma_verbs::abi::user::AllocContextExResp;
use vrdma_verbs::abi::wqe::WrOpcode;

use super::guest::{CAP, Guest, Shared, sge, with_sges, wr_ids, write};
use crate::errno::{self, Errno};
use crate::fake::{Kernel, Parsed};
use crate::ffi::*;

const ALL: u32 = IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_ATOMIC_WRITE;

/// Makes a QP of a kind, in RTS, for these operations.
pub fn qp_ex(
    guest: &Guest,
    cq: *mut ibv_cq,
    kind: ibv_qp_type,
    operations: u32,
) -> Result<*mut ibv_qp_ex, Errno> {
    let mut attr: ibv_qp_init_attr_ex = unsafe { zeroed() };
    (attr.send_cq, attr.recv_cq, attr.pd) = (cq, cq, guest.pd);
    (attr.qp_type, attr.cap) = (kind, CAP);
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = operations.into();
    let qp = unsafe { guest.ops.create_qp_ex.unwrap()(guest.context, &raw mut attr) };
    if qp.is_null() {
        return Err(errno::last());
    }
    assert_eq!(unsafe { (*qp.cast::<verbs_qp>()).comp_mask }, VERBS_QP_EX);
    guest.modify(qp, IBV_QPS_RTS);
    Ok(qp.cast())
}

/// Programs that may set flags name the field even if they set none.
#[test]
fn creation_flags_may_be_none() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(8);
    let create = |flags| {
        let mut attr: ibv_qp_init_attr_ex = unsafe { zeroed() };
        (attr.send_cq, attr.recv_cq, attr.pd) = (cq, cq, guest.pd);
        (attr.qp_type, attr.cap) = (IBV_QPT_RC, CAP);
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
        attr.create_flags = flags;
        let qp = unsafe { guest.ops.create_qp_ex.unwrap()(guest.context, &raw mut attr) };
        assert_eq!(attr.comp_mask, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS);
        if qp.is_null() { Err(errno::last()) } else { Ok(()) }
    };
    assert_eq!(create(0), Ok(()));
    assert_eq!(create(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB), Err(libc::EOPNOTSUPP));
}

/// A batch of a QP.
pub struct Batch(*mut ibv_qp_ex);

impl Batch {
    pub fn start(qp: *mut ibv_qp_ex) -> Self {
        unsafe { (*qp).wr_start.unwrap()(qp) };
        Self(qp)
    }

    /// Begins a signaled WRITE without data.
    fn write(&self, wr_id: u64) -> &Self {
        unsafe {
            ((*self.0).wr_id, (*self.0).wr_flags) = (wr_id, IBV_SEND_SIGNALED);
            (*self.0).wr_rdma_write.unwrap()(self.0, 0, 0);
        }
        self
    }

    pub fn sges(&self, sges: &[ibv_sge]) -> &Self {
        unsafe { (*self.0).wr_set_sge_list.unwrap()(self.0, sges.len(), sges.as_ptr()) };
        self
    }

    fn inline(&self, data: &mut [u8]) -> &Self {
        unsafe { (*self.0).wr_set_inline_data.unwrap()(self.0, data.as_mut_ptr().cast(), data.len()) };
        self
    }

    pub fn complete(self) -> c_int {
        unsafe { (*self.0).wr_complete.unwrap()(self.0) }
    }

    fn abort(self) {
        unsafe { (*self.0).wr_abort.unwrap()(self.0) }
    }
}

/// Returns the part of a request that does not depend on the QP and its history.
fn content(mut request: Parsed) -> Vec<u8> {
    request.bytes[4..12].fill(0);
    // Old bytes may follow the data.
    let end = match request.header.inline_len.get() {
        0 => request.sges().len() * 16 + if request.bytes[0] == 5 || request.bytes[0] == 6 { 48 } else { 32 },
        len => 32 + usize::from(len),
    };
    request.bytes.truncate(end);
    request.bytes
}

#[test]
fn each_operation_is_what_post_send_makes_of_it() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let (old, new) = (guest.qp(cq, |_| ()), qp_ex(&guest, cq, IBV_QPT_RC, ALL).unwrap());
    let imm = u32::from_ne_bytes([1, 2, 3, 4]);
    let (addr, rkey) = (0x1122_3344_5566_7788, 0x99aa_bbcc);
    let flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
    let mut sges = [sge(0x1000, 8, 5), sge(0x2000, 32, 6)];
    for opcode in [
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_SEND,
        IBV_WR_SEND_WITH_IMM,
        IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD,
    ] {
        let atomic = [IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD].contains(&opcode);
        let count = if atomic { 1 } else { 2 };
        let mut wr = with_sges(write(7), &mut sges[..count]);
        (wr.opcode, wr.send_flags, wr.__bindgen_anon_1.imm_data) = (opcode, flags, imm);
        unsafe {
            if atomic {
                wr.wr.atomic.compare_add = 0xa3;
                wr.wr.atomic.swap = 0xa4;
                (wr.wr.atomic.remote_addr, wr.wr.atomic.rkey) = (addr, rkey);
            } else {
                (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (addr, rkey);
            }
            guest.send(old, &mut [wr]).unwrap();
            let batch = Batch::start(new);
            ((*new).wr_id, (*new).wr_flags) = (7, flags);
            match opcode {
                IBV_WR_RDMA_WRITE => (*new).wr_rdma_write.unwrap()(new, rkey, addr),
                IBV_WR_RDMA_WRITE_WITH_IMM => (*new).wr_rdma_write_imm.unwrap()(new, rkey, addr, imm),
                IBV_WR_SEND => (*new).wr_send.unwrap()(new),
                IBV_WR_SEND_WITH_IMM => (*new).wr_send_imm.unwrap()(new, imm),
                IBV_WR_RDMA_READ => (*new).wr_rdma_read.unwrap()(new, rkey, addr),
                IBV_WR_ATOMIC_CMP_AND_SWP => {
                    (*new).wr_atomic_cmp_swp.unwrap()(new, rkey, addr, 0xa3, 0xa4);
                }
                _ => (*new).wr_atomic_fetch_add.unwrap()(new, rkey, addr, 0xa3),
            }
            if atomic {
                (*new).wr_set_sge.unwrap()(new, 5, 0x1000, 8);
            } else {
                batch.sges(&sges);
            }
            assert_eq!(batch.complete(), 0);
        }
        let (by_list, by_calls) = (kernel.take().unwrap(), kernel.take().unwrap());
        assert_ne!(by_list.qpn(), by_calls.qpn());
        assert_eq!(by_list.wqe_id(), by_calls.wqe_id());
        kernel.complete(by_list.success());
        kernel.complete(by_calls.success());
        assert_eq!(wr_ids(&guest.poll(cq, 4)), [7, 7]);
        assert_eq!(content(by_list), content(by_calls), "opcode {opcode}");
    }
    guest.destroy_qp(old);
    guest.destroy_qp(new.cast());
    guest.close(&[cq]);
}

#[test]
fn an_atomic_write_takes_its_value_from_the_call() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    // The program requests no inline data.
    let mut attr: ibv_qp_init_attr_ex = unsafe { zeroed() };
    (attr.send_cq, attr.recv_cq, attr.pd) = (cq, cq, guest.pd);
    (attr.qp_type, attr.cap) = (IBV_QPT_RC, ibv_qp_cap { max_inline_data: 0, ..CAP });
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE.into();
    let qp: *mut ibv_qp_ex = unsafe { guest.ops.create_qp_ex.unwrap()(guest.context, &raw mut attr).cast() };
    assert!(!qp.is_null() && attr.cap.max_inline_data >= 8);
    guest.modify(qp.cast(), IBV_QPS_RTS);
    let (addr, rkey) = (0x1122_3344_5566_7788u64, 0x99aa_bbccu32);
    let mut value = *b"12345678";
    let batch = Batch::start(qp);
    unsafe {
        ((*qp).wr_id, (*qp).wr_flags) = (7, IBV_SEND_SIGNALED);
        (*qp).wr_atomic_write.unwrap()(qp, rkey, addr, value.as_ptr().cast());
        value.fill(0);
        assert_eq!(batch.complete(), 0);
    }
    let by_calls = kernel.take().unwrap();
    assert_eq!((by_calls.opcode(), by_calls.inline()), (WrOpcode::ATOMIC_WRITE, &b"12345678"[..]));
    assert_eq!(by_calls.bytes[16..24], addr.to_le_bytes());
    assert_eq!(by_calls.bytes[24..28], rkey.to_le_bytes());
    kernel.complete(by_calls.success());
    assert_eq!(wr_ids(&guest.poll(cq, 4)), [7]);
    // In a list the value may be inline data or an SGE.
    value = *b"12345678";
    let mut sges = [sge(value.as_ptr().expose_provenance() as u64, 8, 5)];
    for flags in [IBV_SEND_INLINE, 0] {
        let mut wr = with_sges(write(8), &mut sges);
        (wr.opcode, wr.send_flags) = (IBV_WR_ATOMIC_WRITE, IBV_SEND_SIGNALED | flags);
        (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (addr, rkey);
        guest.send(qp.cast(), &mut [wr]).unwrap();
        let by_list = kernel.take().unwrap();
        kernel.complete(by_list.success());
        assert_eq!(wr_ids(&guest.poll(cq, 4)), [8]);
        match flags {
            0 => assert_eq!(by_list.sges(), [(sges[0].addr, 8, 5)]),
            _ => assert_eq!(content(by_list), content(by_calls.clone())),
        }
    }
    // An SGE in addition to the value is one too many.
    let batch = Batch::start(qp);
    unsafe { (*qp).wr_atomic_write.unwrap()(qp, rkey, addr, value.as_ptr().cast()) };
    batch.sges(&[sge(0x1000, 8, 5)]);
    assert_eq!(batch.complete(), libc::EINVAL);
    guest.destroy_qp(qp.cast());
    guest.close(&[cq]);
}

#[test]
fn a_flush_arrives_as_the_abi_says() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = qp_ex(&guest, cq, IBV_QPT_RC, IBV_QP_EX_WITH_FLUSH).unwrap();
    let (addr, rkey) = (0x1122_3344_5566_7788u64, 0x99aa_bbccu32);
    let post = |length, placement, level| {
        let batch = Batch::start(qp);
        unsafe {
            ((*qp).wr_id, (*qp).wr_flags) = (7, IBV_SEND_SIGNALED);
            (*qp).wr_flush.unwrap()(qp, rkey, addr, length, placement, level);
        }
        batch.complete()
    };
    for (placement, level) in [(1, 0), (2, 1), (3, 0)] {
        assert_eq!(post(4096, placement, level), 0);
        let request = kernel.take().unwrap();
        assert_eq!((request.opcode(), request.header.sge_count), (WrOpcode::FLUSH, 0));
        assert_eq!(request.bytes[16..24], addr.to_le_bytes());
        assert_eq!(request.bytes[24..28], rkey.to_le_bytes());
        assert_eq!(request.bytes[28..32], [placement, level, 0, 0]);
        assert_eq!(request.bytes[32..36], 4096u32.to_le_bytes());
        kernel.complete(request.success());
        assert_eq!(wr_ids(&guest.poll(cq, 4)), [7]);
    }
    // If the whole region is flushed, any length is valid.
    assert_eq!((post(usize::MAX, 1, 1), kernel.take().is_some()), (0, true));
    for (length, placement, level) in [(8, 0, 0), (8, 4, 0), (8, 0x81, 0), (8, 1, 2), (1 << 32, 1, 0)] {
        assert_eq!(post(length, placement, level), libc::EINVAL, "{length} {placement} {level}");
    }
    // A FLUSH has no payload.
    let batch = Batch::start(qp);
    unsafe { (*qp).wr_flush.unwrap()(qp, rkey, addr, 8, 1, 0) };
    batch.sges(&[sge(0x1000, 8, 5)]);
    assert_eq!((batch.complete(), kernel.take().is_none()), (libc::EINVAL, true));
    // `ibv_send_wr` has no fields for the range of a FLUSH.
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    wr.opcode = IBV_WR_FLUSH;
    wr.wr.atomic.swap = 1;
    assert_eq!(guest.send(qp.cast(), &mut [wr]), Err((0, libc::EINVAL)));
    assert!(kernel.take().is_none());
    guest.destroy_qp(qp.cast());
    guest.close(&[cq]);
}

#[test]
fn no_qp_is_made_for_atomic_writes_that_the_device_does_not_have() {
    let kernel = Kernel::of_version(AllocContextExResp::SIZE, |reply| {
        reply.device_cap = device_cap::V1_0.into();
    });
    let guest = Guest::new(&kernel);
    let cq = guest.cq(8);
    let made = |operations| qp_ex(&guest, cq, IBV_QPT_RC, operations);
    assert_eq!(made(IBV_QP_EX_WITH_ATOMIC_WRITE).err(), Some(libc::EOPNOTSUPP));
    assert_eq!(made(IBV_QP_EX_WITH_FLUSH).err(), Some(libc::EOPNOTSUPP));
    let qp = made(ALL & !IBV_QP_EX_WITH_ATOMIC_WRITE).unwrap();
    guest.destroy_qp(qp.cast());
    guest.close(&[cq]);
}

#[test]
fn datagrams_take_their_setters_in_any_order() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = qp_ex(&guest, cq, IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM).unwrap();
    unsafe {
        let mut attr: ibv_ah_attr = zeroed();
        let ah = guest.ops.create_ah.unwrap()(guest.pd, &raw mut attr);
        let batch = Batch::start(qp);
        (*qp).wr_send.unwrap()(qp);
        (*qp).wr_set_ud_addr.unwrap()(qp, ah, 0xb1, 0xb2);
        batch.inline(&mut [1, 2, 3]);
        (*qp).wr_send_imm.unwrap()(qp, u32::from_ne_bytes([9, 8, 7, 6]));
        batch.inline(&mut [4, 5]);
        (*qp).wr_set_ud_addr.unwrap()(qp, ah, 0xc1, 0xc2);
        assert_eq!(batch.complete(), 0);
        let (first, second) = (kernel.take().unwrap(), kernel.take().unwrap());
        assert_eq!((first.bytes[16], first.bytes[20], first.bytes[24]), (0xa4, 0xb1, 0xb2));
        assert_eq!((second.bytes[16], second.bytes[20], second.bytes[24]), (0xa4, 0xc1, 0xc2));
        assert_eq!(second.bytes[28..32], [9, 8, 7, 6]);
        assert_eq!((first.inline(), second.inline()), (&[1, 2, 3][..], &[4, 5][..]));
        // The request has no destination.
        let batch = Batch::start(qp);
        (*qp).wr_send.unwrap()(qp);
        batch.inline(&mut [1]);
        assert_eq!(batch.complete(), libc::EINVAL);
        assert_eq!(guest.ops.destroy_ah.unwrap()(ah), 0);
    }
    guest.destroy_qp(qp.cast());
    guest.close(&[cq]);
}

#[test]
fn inline_data_is_copied_by_its_setter() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = qp_ex(&guest, cq, IBV_QPT_RC, ALL).unwrap();
    let mut data: Vec<u8> = (0..80).collect();
    let batch = Batch::start(qp);
    for wr_id in 0..8 {
        let (front, back) = data.split_at_mut(50);
        let pieces = [
            ibv_data_buf { addr: front.as_mut_ptr().cast(), length: front.len() },
            ibv_data_buf { addr: ptr::null_mut(), length: 0 },
            ibv_data_buf { addr: back.as_mut_ptr().cast(), length: back.len() },
        ];
        batch.write(wr_id);
        unsafe { (*qp).wr_set_inline_data_list.unwrap()(qp, pieces.len(), pieces.as_ptr()) };
        data.iter_mut().for_each(|byte| *byte += 1);
    }
    drop(data);
    assert_eq!(batch.complete(), 0);
    for first in 0..8 {
        let request = kernel.take().unwrap();
        assert_eq!(request.inline(), (first..first + 80).collect::<Vec<u8>>());
        assert!(request.sges().is_empty());
    }
    guest.destroy_qp(qp.cast());
    guest.close(&[cq]);
}

#[test]
fn a_batch_is_posted_whole_or_not_at_all() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = qp_ex(&guest, cq, IBV_QPT_RC, ALL).unwrap();
    let element = sge(0x1000, 8, 5);
    type Make<'a> = &'a dyn Fn(&Batch);
    let bad: [(Make<'_>, c_int); 7] = [
        (&|batch| _ = batch.write(3).sges(&[element; 5]), libc::EINVAL),
        (&|batch| _ = batch.write(3).sges(&[element]).sges(&[element]), libc::EINVAL),
        (&|batch| _ = batch.write(3).inline(&mut [0; 81]), libc::EINVAL),
        (&|batch| unsafe { (*batch.0).wr_rdma_read.unwrap()(batch.0, 0, 0) }, 0),
        (
            &|batch| unsafe {
                (*batch.0).wr_rdma_read.unwrap()(batch.0, 0, 0);
                batch.inline(&mut [1]);
            },
            libc::EINVAL,
        ),
        (&|batch| unsafe { (*batch.0).wr_atomic_fetch_add.unwrap()(batch.0, 0, 0, 0) }, libc::EINVAL),
        (&|batch| (0..8).for_each(|wr_id| _ = batch.write(wr_id)), libc::ENOMEM),
    ];
    for (number, (make, errno)) in bad.into_iter().enumerate() {
        let batch = Batch::start(qp);
        batch.write(1).sges(&[element]);
        make(&batch);
        assert_eq!(batch.complete(), errno, "batch {number}");
        let posted = if errno == 0 { 2 } else { 0 };
        assert_eq!(kernel.serve(), posted, "batch {number}");
        guest.poll(cq, 8);
    }
    // Setters without a request.
    let batch = Batch::start(qp);
    batch.sges(&[element]).write(1);
    assert_eq!(batch.complete(), libc::EINVAL);
    let batch = Batch::start(qp);
    batch.write(1).write(2);
    batch.abort();
    assert_eq!(Batch::start(qp).complete(), 0);
    assert!(kernel.take().is_none());
    // Outstanding requests count against the limit.
    let batch = Batch::start(qp);
    (0..6).for_each(|wr_id| _ = batch.write(wr_id));
    assert_eq!(batch.complete(), 0);
    let batch = Batch::start(qp);
    (6..9).for_each(|wr_id| _ = batch.write(wr_id));
    assert_eq!(batch.complete(), libc::ENOMEM);
    assert_eq!(kernel.serve(), 6);
    assert_eq!(wr_ids(&guest.poll(cq, 8)), (0..6).collect::<Vec<u64>>());
    // The two ways to post may alternate.
    guest.send(qp.cast(), &mut [write(10)]).unwrap();
    let batch = Batch::start(qp);
    batch.write(11);
    assert_eq!(batch.complete(), 0);
    kernel.serve();
    assert_eq!(wr_ids(&guest.poll(cq, 8)), [10, 11]);
    guest.destroy_qp(qp.cast());
    guest.close(&[cq]);
}

#[test]
fn operations_that_a_qp_cannot_do_are_refused_when_it_is_made() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let refused = Some(libc::EOPNOTSUPP);
    assert_eq!(qp_ex(&guest, cq, IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE).err(), refused);
    assert_eq!(qp_ex(&guest, cq, IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ).err(), refused);
    assert_eq!(qp_ex(&guest, cq, IBV_QPT_UC, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP).err(), refused);
    assert_eq!(qp_ex(&guest, cq, IBV_QPT_RC, IBV_QP_EX_WITH_TSO).err(), refused);
    assert_eq!(qp_ex(&guest, cq, IBV_QPT_UD, IBV_QP_EX_WITH_BIND_MW).err(), refused);
    assert_eq!(qp_ex(&guest, cq, IBV_QPT_UC, IBV_QP_EX_WITH_SEND_WITH_INV).err(), refused);
    let uc = qp_ex(&guest, cq, IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM).unwrap();
    guest.destroy_qp(uc.cast());
    guest.close(&[cq]);
}

#[test]
fn a_batch_that_the_kernel_refuses_is_taken_back() {
    let kernel = Kernel::with(|_| ());
    let guest = Guest::new(&kernel);
    let cq = guest.cq(16);
    let qp = qp_ex(&guest, cq, IBV_QPT_RC, ALL).unwrap();
    for errno in [libc::EIO, 0] {
        kernel.state().post_errors.push_back(errno);
        let batch = Batch::start(qp);
        (0..8).for_each(|wr_id| _ = batch.write(wr_id));
        assert_eq!(batch.complete(), errno);
    }
    assert_eq!(kernel.state().posts, 2);
    assert_eq!(kernel.serve(), 8);
    assert_eq!(wr_ids(&guest.poll(cq, 16)), (0..8).collect::<Vec<u64>>());
    guest.destroy_qp(qp.cast());
    guest.close(&[cq]);
}

#[test]
fn batches_of_threads_are_not_mixed() {
    const ROUNDS: u64 = 300;
    let kernel = Kernel::new();
    let guest = Arc::new(Guest::new(&kernel));
    let cq = guest.cq(16);
    let qp = Shared(qp_ex(&guest, cq, IBV_QPT_RC, ALL).unwrap());
    let served = std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    loop {
                        let batch = Batch::start(qp.get());
                        let first = (thread << 32) | (round * 3);
                        (first..first + 3).for_each(|wr_id| _ = batch.write(wr_id));
                        match batch.complete() {
                            0 => break,
                            errno => assert_eq!(errno, libc::ENOMEM),
                        }
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut served = Vec::new();
        while served.len() < (2 * 3 * ROUNDS) as usize {
            kernel.serve();
            served.extend(wr_ids(&guest.poll(cq, 16)));
            std::thread::yield_now();
        }
        served
    });
    for batch in served.chunks(3) {
        assert_eq!(batch, [batch[0], batch[0] + 1, batch[0] + 2]);
        assert_eq!(batch[0] as u32 % 3, 0);
    }
    guest.destroy_qp(qp.get().cast());
    Arc::into_inner(guest).unwrap().close(&[cq]);
}
