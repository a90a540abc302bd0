//! ibv_wr_post(3): send requests made by function calls, from ibv_wr_start() to ibv_wr_complete().
//!
//! A batch is collected as the list that ibv_post_send() would get. Then all of it is posted, or
//! nothing.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard};
use std::{iter, slice};

use vrdma_verbs::abi::control::device_cap;

use crate::errno::{Errno, code, lock, refusal};
use crate::ffi;
use crate::flush;
use crate::keys;
use crate::objects::zeroed;
use crate::post;
use crate::qp::{Kind, Qp};

/// The batch of a QP, and the lock on it.
pub struct Batches {
    /// Held by the caller from start to complete or abort. The field comes before `batch`, to which
    /// it points, so that it is dropped first.
    held: UnsafeCell<Option<MutexGuard<'static, Batch>>>,
    batch: Mutex<Batch>,
}

/// The requests since ibv_wr_start(). Its memory is kept for the next batch.
#[derive(Default)]
struct Batch {
    /// Requests without `next` and `sg_list`: only [`Batch::link`] sets `sg_list`, because the
    /// vectors grow.
    requests: Vec<ffi::ibv_send_wr>,
    /// SGEs of all requests, those of each request contiguous. With inline data, `addr` is an index
    /// into `inline`.
    elements: Vec<ffi::ibv_sge>,
    inline: Vec<u8>,
    /// The first error, or 0.
    error: Errno,
}

impl Batches {
    pub fn new() -> Self {
        Self { held: UnsafeCell::new(None), batch: Mutex::new(Batch::default()) }
    }

    /// Locks the batch, and empties it.
    ///
    /// # Safety
    /// The value must not move from now on.
    unsafe fn start(&self) {
        let mut guard = lock(&self.batch);
        guard.clear();
        // SAFETY: the guard is stored next to what it points to, in a QP that does not move. It is
        // dropped first, by the order of the fields.
        let guard =
            unsafe { std::mem::transmute::<MutexGuard<'_, Batch>, MutexGuard<'static, Batch>>(guard) };
        // SAFETY: `held` is under the lock, which the caller holds.
        unsafe { *self.held.get() = Some(guard) };
    }

    /// Unlocks the batch.
    ///
    /// # Safety
    /// The caller has started a batch, or has called this in the wrong order in a single thread.
    unsafe fn end(&self) {
        // SAFETY: `held` is under the lock, which the caller holds. The guard is taken out first,
        // because another thread may write here after unlocking.
        let guard = unsafe { (*self.held.get()).take() };
        drop(guard);
    }
}

impl Batch {
    fn clear(&mut self) {
        self.requests.clear();
        self.elements.clear();
        self.inline.clear();
        self.error = 0;
    }

    fn fail(&mut self, errno: Errno) {
        if self.error == 0 {
            self.error = errno;
        }
    }

    /// Begins a request. A batch has at most `limit` of them.
    fn begin(&mut self, limit: u32, request: ffi::ibv_send_wr) {
        if self.requests.len() >= limit as usize || self.requests.try_reserve(1).is_err() {
            return self.fail(libc::ENOMEM);
        }
        self.requests.push(request);
    }

    /// Adds SGEs to the last request.
    fn add(&mut self, limit: u32, count: usize, elements: impl Iterator<Item = ffi::ibv_sge>) {
        let Some(request) = self.requests.last_mut() else { return self.fail(libc::EINVAL) };
        // Each request has one setter.
        if count > limit as usize || request.num_sge != 0 {
            return self.fail(libc::EINVAL);
        }
        if self.elements.try_reserve(count).is_err() {
            return self.fail(libc::ENOMEM);
        }
        request.num_sge = count as c_int;
        self.elements.extend(elements.take(count));
    }

    /// Adds a copy of `pieces` to the last request, as inline data.
    ///
    /// # Safety
    /// The pieces are readable memory of this process.
    unsafe fn add_inline(&mut self, limit: u32, pieces: &[ffi::ibv_data_buf]) {
        let length = pieces.iter().fold(0, |sum: usize, piece| sum.saturating_add(piece.length));
        if length > limit as usize {
            return self.fail(libc::EINVAL);
        }
        if self.inline.try_reserve(length).is_err() {
            return self.fail(libc::ENOMEM);
        }
        let addr = self.inline.len() as u64;
        for piece in pieces.iter().filter(|piece| piece.length != 0) {
            // SAFETY: by this function's own contract, the piece is readable memory. It is not
            // empty, so it is not NULL.
            self.inline.extend_from_slice(unsafe { slice::from_raw_parts(piece.addr.cast(), piece.length) });
        }
        self.add(1, 1, iter::once(ffi::ibv_sge { addr, length: length as u32, lkey: 0 }));
        if let Some(request) = self.requests.last_mut() {
            request.send_flags |= ffi::IBV_SEND_INLINE;
        }
    }

    /// Sets `sg_list` of the requests, and the addresses of inline data.
    fn link(&mut self) {
        let inline = self.inline.as_ptr().expose_provenance() as u64;
        let mut elements = self.elements.as_mut_slice();
        for request in &mut self.requests {
            let (own, rest) = std::mem::take(&mut elements)
                .split_at_mut_checked(request.num_sge as usize)
                .unwrap_or_default();
            elements = rest;
            if request.send_flags & ffi::IBV_SEND_INLINE != 0 {
                for element in &mut *own {
                    element.addr += inline;
                }
            }
            request.sg_list = own.as_mut_ptr();
        }
    }
}

/// Returns the requests that a QP of this kind supports by function calls, as `IBV_QP_EX_WITH_*`.
///
/// `device_cap` has the functions of the device.
pub fn operations(kind: Kind, device_cap: u64) -> u32 {
    let datagram = ffi::IBV_QP_EX_WITH_SEND | ffi::IBV_QP_EX_WITH_SEND_WITH_IMM;
    let unreliable = datagram | ffi::IBV_QP_EX_WITH_RDMA_WRITE | ffi::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    let keys = keys::Functions::of(device_cap).operations(kind);
    match kind {
        Kind::Ud => datagram,
        Kind::Uc => unreliable | keys,
        Kind::XrcRecv => 0,
        Kind::Rc | Kind::XrcSend => {
            let has_it = device_cap & device_cap::ATOMIC_WRITE != 0;
            let atomic_write = if has_it { ffi::IBV_QP_EX_WITH_ATOMIC_WRITE } else { 0 };
            unreliable
                | ffi::IBV_QP_EX_WITH_RDMA_READ
                | ffi::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
                | ffi::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
                | atomic_write
                | flush::operations(kind, device_cap)
                | keys
        }
    }
}

/// Bytes of an ATOMIC WRITE.
const ATOMIC_WRITE_LENGTH: u32 = 8;

/// Returns the bytes of inline data that `operations` need in addition to the program's own inline
/// data.
pub fn inline_data(operations: u64) -> u32 {
    if operations & u64::from(ffi::IBV_QP_EX_WITH_ATOMIC_WRITE) == 0 { 0 } else { ATOMIC_WRITE_LENGTH }
}

/// Sets the functions of the QP. The functions that the program may call were checked when it made
/// the QP.
pub fn set_functions(qp: &mut ffi::ibv_qp_ex) {
    qp.wr_start = Some(start);
    qp.wr_complete = Some(complete);
    qp.wr_abort = Some(abort);
    qp.wr_send = Some(send);
    qp.wr_send_imm = Some(send_imm);
    qp.wr_rdma_write = Some(rdma_write);
    qp.wr_rdma_write_imm = Some(rdma_write_imm);
    qp.wr_rdma_read = Some(rdma_read);
    qp.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(atomic_fetch_add);
    qp.wr_atomic_write = Some(atomic_write);
    keys::set_functions(qp);
    flush::set_functions(qp);
    qp.wr_set_ud_addr = Some(set_ud_addr);
    qp.wr_set_xrc_srqn = Some(set_xrc_srqn);
    qp.wr_set_sge = Some(set_sge);
    qp.wr_set_sge_list = Some(set_sge_list);
    qp.wr_set_inline_data = Some(set_inline_data);
    qp.wr_set_inline_data_list = Some(set_inline_data_list);
}

unsafe extern "C" fn start(qp: *mut ffi::ibv_qp_ex) {
    // SAFETY: the caller's QP, which does not move.
    unsafe { Qp::of(qp.cast()).batches.start() }
}

unsafe extern "C" fn complete(qp: *mut ffi::ibv_qp_ex) -> c_int {
    // SAFETY: the caller's QP, whose batch the caller has started.
    let (qp, batch) = unsafe { current(qp) };
    let Some(batch) = batch else { return refusal(libc::EINVAL) };
    let result = if batch.error == 0 {
        batch.link();
        // SAFETY: the requests were linked just now. Inline data was copied to the batch, and
        // address handles are alive.
        unsafe { post::post_all(qp, &batch.requests) }
    } else {
        Err(batch.error)
    };
    // SAFETY: the caller's QP, whose batch the caller has started.
    unsafe { qp.batches.end() };
    code(result)
}

unsafe extern "C" fn abort(qp: *mut ffi::ibv_qp_ex) {
    // SAFETY: the caller's QP, whose batch the caller has started.
    unsafe { Qp::of(qp.cast()).batches.end() }
}

unsafe extern "C" fn send(qp: *mut ffi::ibv_qp_ex) {
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_SEND, |_| ()) }
}

unsafe extern "C" fn send_imm(qp: *mut ffi::ibv_qp_ex, imm: ffi::__be32) {
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_SEND_WITH_IMM, |wr| wr.__bindgen_anon_1.imm_data = imm) }
}

unsafe extern "C" fn rdma_write(qp: *mut ffi::ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_RDMA_WRITE, |wr| wr.wr.rdma = rdma(rkey, remote_addr)) }
}

unsafe extern "C" fn rdma_write_imm(qp: *mut ffi::ibv_qp_ex, rkey: u32, remote_addr: u64, imm: ffi::__be32) {
    // SAFETY: as for `begin`.
    unsafe {
        begin(qp, ffi::IBV_WR_RDMA_WRITE_WITH_IMM, |wr| {
            wr.wr.rdma = rdma(rkey, remote_addr);
            wr.__bindgen_anon_1.imm_data = imm;
        });
    }
}

unsafe extern "C" fn rdma_read(qp: *mut ffi::ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_RDMA_READ, |wr| wr.wr.rdma = rdma(rkey, remote_addr)) }
}

unsafe extern "C" fn atomic_cmp_swp(
    qp: *mut ffi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare_add: u64,
    swap: u64,
) {
    let atomic = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey };
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_ATOMIC_CMP_AND_SWP, |wr| wr.wr.atomic = atomic) }
}

unsafe extern "C" fn atomic_fetch_add(
    qp: *mut ffi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare_add: u64,
) {
    let atomic = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap: 0, rkey };
    // SAFETY: as for `begin`.
    unsafe { begin(qp, ffi::IBV_WR_ATOMIC_FETCH_AND_ADD, |wr| wr.wr.atomic = atomic) }
}

/// Begins an ATOMIC WRITE. Its value is an argument, so it becomes inline data, for which the QP
/// has room ([`inline_data`]).
unsafe extern "C" fn atomic_write(
    qp: *mut ffi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    value: *const c_void,
) {
    // SAFETY: as for `begin`; `value` has 8 bytes.
    unsafe {
        begin(qp, ffi::IBV_WR_ATOMIC_WRITE, |wr| wr.wr.rdma = rdma(rkey, remote_addr));
        set_inline_data(qp, value.cast_mut(), ATOMIC_WRITE_LENGTH as usize);
    }
}

unsafe extern "C" fn set_ud_addr(
    qp: *mut ffi::ibv_qp_ex,
    ah: *mut ffi::ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    // SAFETY: the caller's QP, whose batch the caller has started.
    let (_, Some(batch)) = (unsafe { current(qp) }) else { return };
    match batch.requests.last_mut() {
        Some(wr) => {
            wr.wr.ud = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah, remote_qpn, remote_qkey };
        }
        None => batch.fail(libc::EINVAL),
    }
}

unsafe extern "C" fn set_xrc_srqn(qp: *mut ffi::ibv_qp_ex, remote_srqn: u32) {
    // SAFETY: the caller's QP, whose batch the caller has started.
    let (_, Some(batch)) = (unsafe { current(qp) }) else { return };
    match batch.requests.last_mut() {
        Some(wr) => {
            wr.qp_type.xrc = ffi::ibv_send_wr__bindgen_ty_3__bindgen_ty_1 { remote_srqn };
        }
        None => batch.fail(libc::EINVAL),
    }
}

unsafe extern "C" fn set_sge(qp: *mut ffi::ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the caller's QP, whose batch the caller has started.
    if let (qp, Some(batch)) = unsafe { current(qp) } {
        batch.add(qp.max_send_sge, 1, iter::once(ffi::ibv_sge { addr, length, lkey }));
    }
}

unsafe extern "C" fn set_sge_list(qp: *mut ffi::ibv_qp_ex, count: usize, list: *const ffi::ibv_sge) {
    // SAFETY: the caller's QP, whose batch the caller has started.
    if let (qp, Some(batch)) = unsafe { current(qp) } {
        // SAFETY: the caller's list; the batch reads no more of it than there is.
        batch.add(qp.max_send_sge, count, (0..count).map(|i| unsafe { *list.add(i) }));
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut ffi::ibv_qp_ex, addr: *mut c_void, length: usize) {
    let piece = ffi::ibv_data_buf { addr, length };
    // SAFETY: the caller's QP and data.
    unsafe { set_inline_data_list(qp, 1, &raw const piece) }
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut ffi::ibv_qp_ex,
    count: usize,
    list: *const ffi::ibv_data_buf,
) {
    // SAFETY: the caller's list; a list without elements may have any address.
    let pieces = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(list, count) } };
    // SAFETY: the caller's QP, whose batch the caller has started, and the caller's data.
    unsafe {
        if let (qp, Some(batch)) = current(qp) {
            batch.add_inline(qp.max_inline, pieces);
        }
    }
}

/// Returns the QP, and the caller's batch if it has started one.
///
/// # Safety
/// The caller's QP, of which no other thread has started a batch. An earlier result is not used any
/// more.
unsafe fn current<'a>(qp: *mut ffi::ibv_qp_ex) -> (&'a Qp, Option<&'a mut Batch>) {
    // SAFETY: by this function's own contract; `held` is under the lock, which the caller holds.
    unsafe {
        let qp = Qp::of(qp.cast());
        (qp, (*qp.batches.held.get()).as_deref_mut())
    }
}

/// Begins a request.
///
/// # Safety
/// The caller's QP, whose batch the caller has started.
pub unsafe fn begin(
    qp: *mut ffi::ibv_qp_ex,
    opcode: ffi::ibv_wr_opcode,
    fill: impl FnOnce(&mut ffi::ibv_send_wr),
) {
    // SAFETY: by this function's own contract, `qp` is one of ours. Its fields belong to this
    // thread since it started a batch.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    let mut wr: ffi::ibv_send_wr = zeroed!();
    (wr.wr_id, wr.opcode, wr.send_flags) = (wr_id, opcode, flags & !ffi::IBV_SEND_INLINE);
    fill(&mut wr);
    // SAFETY: by this function's own contract; no other borrow of its batch exists.
    if let (qp, Some(batch)) = unsafe { current(qp) } {
        batch.begin(qp.sends.limit(), wr);
    }
}

fn rdma(rkey: u32, remote_addr: u64) -> ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
    ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey }
}
