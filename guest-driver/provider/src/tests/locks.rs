//! No verb holds a lock that a thread of the program may need before it does what the verb waits for.

use std::mem::zeroed;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::guest::{Guest, Shared, write};
use crate::context::Context;
use crate::fake::{ENTRIES, Kernel, QUEUE};
use crate::ffi::*;
use crate::wait;

/// Does what must not wait for ever.
fn ends<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    wait::receive(what, &receiver)
}

fn close(guest: Arc<Guest>, cqs: &[*mut ibv_cq]) {
    let (mut guest, mut left) = (Some(guest), None);
    wait::until("other threads let go of the guest", || {
        match Arc::try_unwrap(guest.take()?) {
            Ok(whole) => left = Some(whole),
            Err(shared) => guest = Some(shared),
        }
        left.is_some().then_some(())
    });
    left.unwrap().close(cqs);
}

#[test]
fn who_waits_for_a_device_that_is_lost_is_told_at_once_and_so_is_the_program() {
    let kernel = Kernel::new();
    let guest = Arc::new(Guest::new(&kernel));
    let cq = guest.cq(4096);
    let qp = Shared(guest.qp(cq, |attr| attr.cap.max_send_wr = 4096));
    unsafe { Context::of(guest.context) }.work.lock().unwrap().set_stall_timeout(Duration::MAX);
    let (told, end) = mpsc::channel();
    let theirs = guest.clone();
    thread::spawn(move || {
        let mut wrs: Vec<_> = (0..u64::from(ENTRIES) + 1).map(write).collect();
        told.send(theirs.send(qp.get(), &mut wrs))
    });
    // Who waits kicks now and then.
    wait::until("a post that waits", || (kernel.doorbell() == QUEUE).then_some(()));
    wait::until("a post that still waits", || (kernel.doorbell() == QUEUE).then_some(()));
    let ours = guest.clone();
    ends("the news that the device is lost", move || unsafe {
        let mut event: ibv_async_event = zeroed();
        event.event_type = IBV_EVENT_DEVICE_FATAL;
        ours.ops.async_event.unwrap()(ours.context, &raw mut event);
    });
    let refused = wait::receive("the end of a post to a device that is lost", &end);
    assert_eq!(refused, Err((ENTRIES.into(), libc::EIO)));
    guest.destroy_qp(qp.0);
    close(guest, &[cq]);
}
