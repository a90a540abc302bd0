//! Plain copies between guests' memory, on the worker's processor.

use crate::copies::{ALIGNMENT, CopyFn, copies};
use crate::helper::Helper;
use std::sync::Arc;
use std::time::Instant;
use vrdma_guest::memory::Memory;

/// Number of windows in which each method is tried.
const TRIES: usize = 3;

/// A buffer: the memory, and its guest-physical address.
pub type Buffer<'a> = (&'a Arc<Memory>, u64);

/// Copies of messages of one size, by the fastest method on this machine.
#[derive(Clone, Debug)]
pub struct Copying {
    /// Name of the method.
    pub name: &'static str,
    copy: CopyFn,
    from: usize,
    to: usize,
    len: usize,
    stride: usize,
    span: usize,
    /// Number of messages in a window.
    count: usize,
    _memory: [Arc<Memory>; 2],
}

impl Copying {
    /// Finds the fastest method between two buffers of `span` bytes. Each message has `len` bytes,
    /// and begins `stride` bytes after the previous one.
    ///
    /// A window takes about `millis` milliseconds.
    pub fn new(
        helper: &Helper,
        buffers: [Buffer<'_>; 2],
        len: u32,
        stride: u64,
        span: u64,
        millis: f64,
    ) -> Copying {
        let host = |(memory, gpa): Buffer<'_>| memory.host(gpa, span).as_ptr().expose_provenance();
        let mut copying = Copying {
            name: "",
            copy: copies()[0].1,
            from: host(buffers[0]),
            to: host(buffers[1]),
            len: len as usize,
            stride: stride as usize,
            span: span as usize,
            count: 16,
            _memory: buffers.map(|(memory, _)| memory.clone()),
        };
        let mut best = 0.;
        for (name, copy) in copies() {
            if !copying.len.is_multiple_of(ALIGNMENT) && name != "memcpy" {
                continue;
            }
            let mut this = Copying { name, copy, count: 16, ..copying.clone() };
            let once = this.window(helper);
            this.count = ((once * millis / 1e3 / f64::from(len)) as usize).max(1);
            let speed = (0..TRIES).map(|_| this.window(helper)).fold(0., f64::max);
            if speed > best {
                (best, copying) = (speed, this);
            }
        }
        copying
    }

    /// Measures a window. Returns bytes per second.
    pub fn window(&self, helper: &Helper) -> f64 {
        let this = self.clone();
        helper.begin(move || this.run());
        helper.end()
    }

    fn run(&self) -> f64 {
        let [from, to] = [self.from, self.to].map(std::ptr::with_exposed_provenance_mut::<u8>);
        let (mut at, start) = (0, Instant::now());
        for _ in 0..self.count {
            // SAFETY: both buffers have `span` bytes and begin at pages. `new()` makes sure that
            // `len` and `stride` are multiples of 32 if the method requires it. `at` never passes
            // the last whole message.
            unsafe { (self.copy)(from.add(at), to.add(at), self.len) };
            at += self.stride;
            if at + self.len > self.span {
                at = 0;
            }
        }
        (self.count * self.len) as f64 / start.elapsed().as_secs_f64()
    }
}
