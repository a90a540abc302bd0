//! Keys of remote memory, and memory windows that are bound and invalidated in turn.

use crate::args::WindowType;
use crate::host::refused;
use crate::process::Process;
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};
use vrdma_guest::abi::control::{access, mw_type};
use vrdma_guest::abi::cqe::WcStatus;
use vrdma_guest::verbs::{Bind, Request, Tag};
use vrdma_guest::{Mr, Qp};

/// Number of windows that are bound and invalidated in turn. It is half of the default number of
/// outstanding requests, so that no window is used by two pairs of them at a time.
const WINDOWS: u32 = 64;
/// Time limit of a bind.
const PATIENCE: Duration = Duration::from_secs(10);

/// Keys that name remote memory, used in turn.
#[derive(Debug)]
pub struct Keys {
    all: Vec<u32>,
    at: usize,
}

impl Keys {
    /// Creates the list, in this order.
    pub fn new(all: Vec<u32>) -> Keys {
        assert!(!all.is_empty(), "remote memory has a key");
        Keys { all, at: 0 }
    }

    /// Returns the key of the next request.
    #[inline]
    pub fn next(&self) -> u32 {
        self.all[self.at]
    }

    /// Advances after a request was posted.
    #[inline]
    pub fn pushed(&mut self) {
        self.at += 1;
        if self.at == self.all.len() {
            self.at = 0;
        }
    }
}

/// Returns keys of `count` regions that each are a process's buffer. The first is the existing
/// region.
///
/// # Errors
/// The device refuses.
pub fn regions(process: &Process, count: u32) -> Result<Vec<u32>> {
    let (mr, guest, pd) = (&process.mr, &process.context.guest, process.context.pd);
    let another = |_| {
        let region = Mr::register_runs(guest, pd, access::REGION, mr.iova, &mr.runs);
        Ok(refused(region, "a memory region")?.key)
    };
    let others = (1..count).map(another);
    std::iter::once(Ok(mr.key)).chain(others).collect()
}

/// Returns the key of a new window of a process, which its QP binds to its whole buffer.
///
/// # Errors
/// The device refuses, or the bind fails.
pub fn bound(process: &mut Process, qp: &Qp, of: WindowType) -> Result<u32> {
    let of = match of {
        WindowType::Type1 => mw_type::TYPE_1,
        WindowType::Type2b => mw_type::TYPE_2B,
    };
    let rkey = refused(process.context.guest.alloc_mw(process.context.pd, of), "a memory window")?;
    let bind = whole(process, rkey);
    process.context.post(&Request::bind_mw(qp.tag(0), &bind).signaled(true));
    let (mut status, start) = (None, Instant::now());
    while status.is_none() {
        ensure!(start.elapsed() < PATIENCE, "a memory window is not bound after {} s", PATIENCE.as_secs());
        process.cq.driver.poll_batch(1, |cqe| status = Some(WcStatus(cqe.status)));
    }
    ensure!(status == Some(WcStatus::SUCCESS), "a memory window cannot be bound: {status:?}");
    Ok(bind.new_rkey)
}

/// Returns the keys of new windows that are not bound.
///
/// # Errors
/// The device refuses.
pub fn unbound(process: &Process) -> Result<Vec<u32>> {
    let (guest, pd) = (&process.context.guest, process.context.pd);
    (0..WINDOWS).map(|_| refused(guest.alloc_mw(pd, mw_type::TYPE_2B), "a memory window")).collect()
}

/// Makes request number `tag.wqe_id`. Successive requests bind a window, then invalidate it.
#[inline]
pub fn request<'a>(process: &Process, windows: &[u32], tag: Tag) -> Request<'a> {
    let bind = whole(process, windows[place(tag.wqe_id)]);
    match tag.wqe_id % 2 {
        0 => Request::bind_mw(tag, &bind),
        _ => Request::local_inv(tag, bind.new_rkey),
    }
}

/// Records that request `id` was posted. An invalidated window gets its next key.
#[inline]
pub fn pushed(windows: &mut [u32], id: u32) {
    if id % 2 == 1 {
        let rkey = &mut windows[place(id)];
        *rkey = next(*rkey);
    }
}

#[inline]
fn place(id: u32) -> usize {
    (id / 2 % WINDOWS) as usize
}

/// Makes a bind of a window to the whole buffer, with the next key.
#[inline]
fn whole(process: &Process, rkey: u32) -> Bind {
    let access = access::REMOTE_WRITE | access::REMOTE_READ | access::REMOTE_ATOMIC;
    let mr = &process.mr;
    Bind { rkey, new_rkey: next(rkey), lkey: mr.key, access, addr: mr.iova, length: mr.len }
}

/// Returns the key with its last byte incremented.
#[inline]
fn next(rkey: u32) -> u32 {
    rkey & !0xff | (rkey.wrapping_add(1) & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_turn() {
        let mut keys = Keys::new(vec![7, 5, 6]);
        let taken: Vec<u32> = (0..4)
            .map(|_| {
                let key = keys.next();
                keys.pushed();
                key
            })
            .collect();
        assert_eq!(taken, [7, 5, 6, 7]);
    }

    #[test]
    fn a_window_gets_its_next_key_when_it_is_invalidated() {
        let mut windows = vec![0x1ff; WINDOWS as usize];
        pushed(&mut windows, 0);
        assert_eq!(windows[0], 0x1ff);
        pushed(&mut windows, 1);
        assert_eq!((windows[0], windows[1]), (0x100, 0x1ff));
        pushed(&mut windows, 2 * WINDOWS + 1);
        assert_eq!(windows[0], 0x101);
    }
}
