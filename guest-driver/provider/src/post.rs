//! Posting of verbs requests to the device.

mod requests;

use std::ffi::c_int;
use std::ptr;

use vrdma_verbs::{Request, Tag};

use crate::context::Context;
use crate::errno::{Errno, code, lock, refusal};
use crate::ffi;
use crate::qp::{Qp, Requests};
use crate::srq::Srq;
use crate::work::{Lost, Work};
use requests::elements;

pub unsafe extern "C" fn post_send(
    qp: *mut ffi::ibv_qp,
    wr: *mut ffi::ibv_send_wr,
    bad_wr: *mut *mut ffi::ibv_send_wr,
) -> c_int {
    // SAFETY: libibverbs calls this with a QP of ours, a list that ends with null, and a place for
    // the bad request (ibv_post_send(3)).
    unsafe { post(&Sends(Qp::of(qp)), wr, bad_wr) }
}

pub unsafe extern "C" fn post_recv(
    qp: *mut ffi::ibv_qp,
    wr: *mut ffi::ibv_recv_wr,
    bad_wr: *mut *mut ffi::ibv_recv_wr,
) -> c_int {
    // SAFETY: libibverbs calls this with a QP of ours, a list that ends with null, and a place for
    // the bad request (ibv_post_recv(3)).
    unsafe {
        let qp = Qp::of(qp);
        if !qp.has_receive_queue() {
            bad_wr.write(wr);
            return refusal(libc::EINVAL);
        }
        post(&Receives(qp), wr, bad_wr)
    }
}

pub unsafe extern "C" fn post_srq_recv(
    srq: *mut ffi::ibv_srq,
    wr: *mut ffi::ibv_recv_wr,
    bad_wr: *mut *mut ffi::ibv_recv_wr,
) -> c_int {
    // SAFETY: libibverbs calls this with an SRQ of ours, a list that ends with null, and a place
    // for the bad request (ibv_post_srq_recv(3)).
    unsafe { post(Srq::of(srq), wr, bad_wr) }
}

/// A request as verbs programs write it.
trait WorkRequest {
    /// Returns the program's ID of the request.
    fn wr_id(&self) -> u64;
    /// Returns the next request of the list.
    fn next(&self) -> *mut Self;
}

/// A queue to which requests are posted.
trait Queue {
    /// Type of the queue's requests.
    type Wr: WorkRequest;
    /// Returns the context of the queue.
    fn context(&self) -> &Context;
    /// Returns the wqe_id of a request that is about to be posted.
    ///
    /// Returns `None` if as many requests as allowed are outstanding. The lock of
    /// [`crate::context::Own::work`] is held.
    fn take(&self, wr_id: u64) -> Option<u32>;
    /// Forgets the `count` youngest requests, which the device has never seen. The lock of
    /// [`crate::context::Own::work`] is held.
    fn take_back(&self, count: u32);
    /// Translates a request for the device.
    ///
    /// # Safety
    /// All pointers in `wr` are valid as ibv_post_send(3) requires.
    unsafe fn translate<'a>(&self, wr: &'a Self::Wr, wqe_id: u32) -> Result<Request<'a>, Errno>;
}

/// Posts a list of requests.
///
/// Sets `bad_wr` if the result is not 0. All requests before that one are posted.
///
/// # Safety
/// `wr` is NULL or a list as ibv_post_send(3) requires it, and `bad_wr` can be written.
#[inline]
unsafe fn post<Q: Queue>(queue: &Q, mut wr: *mut Q::Wr, bad_wr: *mut *mut Q::Wr) -> c_int {
    let first = wr;
    let mut result = Ok(());
    let mut posted = 0;
    let mut work = lock(&queue.context().work);
    // SAFETY: by this function's own contract, each element of the list may be read until the call
    // returns.
    while let Some(request) = unsafe { wr.as_ref() } {
        // SAFETY: by this function's own contract, `request` is an element of a valid list.
        if let Err(error) = unsafe { push(&mut work, queue, request) } {
            result = Err(error);
            break;
        }
        posted += 1;
        wr = request.next();
    }
    // The requests before a bad one are posted.
    if let Err(lost) = work.finish() {
        result = Err(lost.errno);
        // SAFETY: by this function's own contract the list may be read; `posted` requests of it
        // were pushed.
        wr = unsafe { give_back(queue, first, posted, &lost) };
    }
    drop(work);
    if result.is_err() {
        // SAFETY: by this function's own contract `bad_wr` may be written.
        unsafe { bad_wr.write(wr) };
    }
    code(result)
}

/// Posts all send requests, or none (unless the device is lost meanwhile).
///
/// # Safety
/// As for [`Queue::translate`] with each of them. Their `next` is not read.
pub unsafe fn post_all(qp: &Qp, wrs: &[ffi::ibv_send_wr]) -> Result<(), Errno> {
    let queue = &Sends(qp);
    let mut work = lock(&qp.context().work);
    if wrs.len() > qp.sends.limit().saturating_sub(qp.sends.outstanding()) as usize {
        return Err(libc::ENOMEM);
    }
    // All requests are checked before any of them is pushed.
    for wr in wrs {
        // SAFETY: by this function's own contract, each of `wrs` meets the contract of `translate`.
        unsafe { queue.translate(wr, 0) }?;
    }
    let mut posted = 0;
    let mut result = Ok(());
    for wr in wrs {
        // SAFETY: by this function's own contract, each of `wrs` meets the contract of `translate`.
        result = unsafe { push(&mut work, queue, wr) };
        if result.is_err() {
            break;
        }
        posted += 1;
    }
    work.finish().map_err(|lost| {
        queue.take_back(lost.requests.min(posted));
        lost.errno
    })?;
    result
}

/// Pushes one request. On an error the queue is as before.
///
/// # Safety
/// As for [`Queue::translate`].
#[inline]
unsafe fn push<Q: Queue>(work: &mut Work, queue: &Q, wr: &Q::Wr) -> Result<(), Errno> {
    let wqe_id = queue.take(wr.wr_id()).ok_or(libc::ENOMEM)?;
    // SAFETY: by this function's own contract, which is that of `translate`.
    let pushed = unsafe { queue.translate(wr, wqe_id) }.and_then(|request| work.push(&request));
    if pushed.is_err() {
        queue.take_back(1);
    }
    pushed
}

/// Takes back lost requests of a list of which `posted` were pushed. Returns the first lost one.
///
/// # Safety
/// `first` is a list of at least `posted` requests.
#[cold]
unsafe fn give_back<Q: Queue>(queue: &Q, first: *mut Q::Wr, posted: u32, lost: &Lost) -> *mut Q::Wr {
    queue.take_back(lost.requests.min(posted));
    let mut wr = first;
    for _ in lost.requests..posted {
        // SAFETY: an element of the list.
        wr = unsafe { wr.as_ref() }.map_or(ptr::null_mut(), Q::Wr::next);
    }
    wr
}

/// The send queue of a QP.
struct Sends<'q>(&'q Qp);

impl Queue for Sends<'_> {
    type Wr = ffi::ibv_send_wr;

    #[inline]
    fn context(&self) -> &Context {
        self.0.context()
    }

    #[inline]
    fn take(&self, wr_id: u64) -> Option<u32> {
        take(&self.0.sends, wr_id)
    }

    fn take_back(&self, count: u32) {
        self.0.sends.take_back(count);
    }

    #[inline]
    unsafe fn translate<'a>(&self, wr: &'a ffi::ibv_send_wr, wqe_id: u32) -> Result<Request<'a>, Errno> {
        // SAFETY: by this function's own contract, the request's SGEs and its address handle are as
        // ibv_post_send(3) requires them.
        unsafe { wr.translate(self.0, wqe_id) }
    }
}

/// The receive queue of a QP.
struct Receives<'q>(&'q Qp);

impl Queue for Receives<'_> {
    type Wr = ffi::ibv_recv_wr;

    #[inline]
    fn context(&self) -> &Context {
        self.0.context()
    }

    #[inline]
    fn take(&self, wr_id: u64) -> Option<u32> {
        take(&self.0.recvs, wr_id)
    }

    fn take_back(&self, count: u32) {
        self.0.recvs.take_back(count);
    }

    #[inline]
    unsafe fn translate<'a>(&self, wr: &'a ffi::ibv_recv_wr, wqe_id: u32) -> Result<Request<'a>, Errno> {
        if !self.0.takes_recvs() {
            return Err(libc::EINVAL);
        }
        // SAFETY: `sg_list` has `num_sge` elements (ibv_post_send(3), ibv_post_recv(3)).
        let sges = unsafe { elements(wr.sg_list, wr.num_sge, self.0.max_recv_sge) }?;
        Ok(Request::recv(Tag { qpn: self.0.qpn, wqe_id }, sges))
    }
}

impl Queue for Srq {
    type Wr = ffi::ibv_recv_wr;

    #[inline]
    fn context(&self) -> &Context {
        self.context()
    }

    #[inline]
    fn take(&self, wr_id: u64) -> Option<u32> {
        lock(&self.slots).take(wr_id)
    }

    fn take_back(&self, count: u32) {
        lock(&self.slots).take_back(count);
    }

    #[inline]
    unsafe fn translate<'a>(&self, wr: &'a ffi::ibv_recv_wr, wqe_id: u32) -> Result<Request<'a>, Errno> {
        // SAFETY: `sg_list` has `num_sge` elements (ibv_post_send(3), ibv_post_recv(3)).
        let sges = unsafe { elements(wr.sg_list, wr.num_sge, self.max_sge) }?;
        Ok(Request::srq_recv(self.srqn, wqe_id, sges))
    }
}

/// Returns the wqe_id of a request that is about to be posted, and records its wr_id.
#[inline]
fn take(queue: &Requests, wr_id: u64) -> Option<u32> {
    let wqe_id = queue.next()?;
    queue.push(wr_id);
    Some(wqe_id)
}

impl WorkRequest for ffi::ibv_send_wr {
    #[inline]
    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    #[inline]
    fn next(&self) -> *mut Self {
        self.next
    }
}

impl WorkRequest for ffi::ibv_recv_wr {
    #[inline]
    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    #[inline]
    fn next(&self) -> *mut Self {
        self.next
    }
}
