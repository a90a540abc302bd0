//! No verb that waits for the program holds a lock that the program may need before.

use std::ffi::c_int;
use std::mem::zeroed;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::guest::{Guest, Shared, recv, wr_ids, write};
use crate::context::Context;
use crate::errno;
use crate::fake::{ENTRIES, Kernel, Moment, QUEUE};
use crate::ffi::*;
use crate::wait;

/// Runs work that must not wait for ever.
fn ends<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    wait::receive(what, &receiver)
}

/// A verb that destroys an object: the kernel has done so, and the events are not acknowledged.
struct Destroyed {
    reached: mpsc::Receiver<()>,
    acknowledge: mpsc::Sender<()>,
    end: mpsc::Receiver<()>,
}

impl Destroyed {
    /// Destroys an object in another thread, up to the wait for its events.
    fn by(kernel: &Kernel, destroy: impl FnOnce() + Send + 'static) -> Self {
        let ((told, reached), (acknowledge, acknowledged)) = (mpsc::channel(), mpsc::channel());
        kernel.state().during_destroy = Some(Box::new(move || {
            let _ = (told.send(()), acknowledged.recv());
        }));
        let (done, end) = mpsc::channel();
        thread::spawn(move || {
            destroy();
            let _ = done.send(());
        });
        wait::receive("the kernel's part", &reached);
        Self { reached, acknowledge, end }
    }

    /// Acknowledges the events.
    fn end(self) {
        self.acknowledge.send(()).unwrap();
        wait::receive("the end of what was destroyed", &self.end);
        drop(self.reached);
    }
}

impl Guest {
    /// Makes a CQ whose completions are read one by one.
    fn cq_ex(&self, cqe: u32) -> *mut ibv_cq_ex {
        unsafe {
            let mut attr: ibv_cq_init_attr_ex = zeroed();
            attr.cqe = cqe;
            let cq = self.ops.create_cq_ex.unwrap()(self.context, &raw mut attr);
            assert!(!cq.is_null());
            cq
        }
    }

    /// Makes an XRC shared receive queue.
    fn xrc_srq(&self, xrcd: *mut ibv_xrcd, cq: *mut ibv_cq) -> *mut ibv_srq {
        unsafe {
            let mut attr: ibv_srq_init_attr_ex = zeroed();
            attr.attr = ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 };
            (attr.srq_type, attr.pd, attr.xrcd, attr.cq) = (IBV_SRQT_XRC, self.pd, xrcd, cq);
            attr.comp_mask =
                IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
            let srq = self.ops.create_srq_ex.unwrap()(self.context, &raw mut attr);
            assert!(!srq.is_null());
            srq
        }
    }

    fn xrcd(&self) -> *mut ibv_xrcd {
        unsafe { self.ops.open_xrcd.unwrap()(self.context, &mut zeroed::<ibv_xrcd_init_attr>()) }
    }

    fn close_xrcd(&self, xrcd: *mut ibv_xrcd) {
        assert_eq!(unsafe { self.ops.close_xrcd.unwrap()(xrcd) }, 0);
    }

    fn resize_srq(&self, srq: *mut ibv_srq, max_wr: u32) -> c_int {
        let mut attr = ibv_srq_attr { max_wr, max_sge: 0, srq_limit: 0 };
        unsafe { self.ops.modify_srq.unwrap()(srq, &raw mut attr, IBV_SRQ_MAX_WR as c_int) }
    }
}

fn start_poll(cq: *mut ibv_cq_ex) -> c_int {
    unsafe { (*cq).start_poll.unwrap()(cq, &mut ibv_poll_cq_attr { comp_mask: 0 }) }
}

fn end_poll(cq: *mut ibv_cq_ex) {
    unsafe { (*cq).end_poll.unwrap()(cq) }
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
fn others_come_and_go_while_the_end_of_a_qp_waits_for_its_events() {
    let kernel = Kernel::new();
    let guest = Arc::new(Guest::new(&kernel));
    let cq = Shared(guest.cq(16));
    let going = Shared(guest.qp(cq.0, |_| ()));
    let theirs = guest.clone();
    let destroyed = Destroyed::by(&kernel, move || theirs.destroy_qp(going.get()));
    let ours = guest.clone();
    ends("what the program does before it acknowledges the events", move || {
        let (guest, cq) = (ours, cq.get());
        let qp = guest.qp(cq, |_| ());
        guest.send(qp, &mut [write(7)]).unwrap();
        guest.kernel.serve();
        assert_eq!(wr_ids(&guest.poll(cq, 8)), [7]);
        guest.modify(qp, IBV_QPS_RESET);
        guest.destroy_qp(qp);
        let srq = guest.srq(4);
        assert_eq!([8, 2].map(|max_wr| guest.resize_srq(srq, max_wr)), [0, 0]);
        guest.destroy_srq(srq);
    });
    destroyed.end();
    assert_eq!(kernel.state().queues, 0);
    close(guest, &[cq.0]);
}

#[test]
fn xrc_queues_come_and_go_while_the_end_of_one_waits_for_its_events() {
    let kernel = Kernel::new();
    let guest = Arc::new(Guest::new(&kernel));
    let (cq, xrcd) = (Shared(guest.cq(16)), Shared(guest.xrcd()));
    let going = Shared(guest.xrc_srq(xrcd.0, cq.0));
    let theirs = guest.clone();
    let destroyed = Destroyed::by(&kernel, move || theirs.destroy_srq(going.get()));
    let ours = guest.clone();
    ends("what the program does before it acknowledges the events", move || {
        let srq = ours.xrc_srq(xrcd.get(), cq.get());
        ours.destroy_srq(srq);
    });
    destroyed.end();
    guest.close_xrcd(xrcd.0);
    close(guest, &[cq.0]);
}

#[test]
fn a_thread_that_polls_makes_and_destroys_qps_while_others_wait_for_its_poll() {
    let kernel = Kernel::new();
    let guest = Arc::new(Guest::new(&kernel));
    let (cq, other) = (Shared(guest.cq_ex(16)), Shared(guest.cq(16)));
    let going = Shared(guest.qp(cq.0.cast(), |_| ()));
    let kept = Shared(guest.qp(cq.0.cast(), |_| ()));
    guest.send(kept.0, &mut [write(5)]).unwrap();
    kernel.serve();
    let ours = guest.clone();
    let end = ends("what a thread does that polls", move || {
        let (guest, cq) = (ours, cq.get());
        assert_eq!(start_poll(cq), 0);
        let theirs = guest.clone();
        let destroyed = Destroyed::by(&guest.kernel, move || theirs.destroy_qp(going.get()));
        // The destroying thread continues, and waits for this poll.
        destroyed.acknowledge.send(()).unwrap();
        for cq in [other.get(), cq.cast()] {
            let qp = guest.qp(cq, |_| ());
            guest.destroy_qp(qp);
        }
        assert_eq!(unsafe { (*cq).wr_id }, 5);
        end_poll(cq);
        destroyed.end
    });
    wait::receive("the end of a QP whose CQ was polled", &end);
    guest.destroy_qp(kept.0);
    close(guest, &[cq.0.cast(), other.0]);
}

#[test]
fn a_number_that_the_kernel_gives_again_before_its_qp_has_ended_is_not_used() {
    let kernel = Kernel::new();
    let guest = Arc::new(Guest::new(&kernel));
    let cq = Shared(guest.cq(16));
    let going = Shared(guest.qp(cq.0, |_| ()));
    let qpn = unsafe { (*going.0).qp_num };
    guest.send(going.0, &mut [write(1), write(2)]).unwrap();
    kernel.serve();
    let theirs = guest.clone();
    let destroyed = Destroyed::by(&kernel, move || theirs.destroy_qp(going.get()));
    kernel.state().next_qpn = qpn;
    let ours = guest.clone();
    let new = ends("a QP whose number was that of another", move || Shared(ours.qp(cq.get(), |_| ())));
    assert_eq!(unsafe { (*new.0).qp_num }, qpn + 1);
    assert_eq!(kernel.state().queues, 1, "what was made in vain is destroyed");
    guest.send(new.0, &mut [write(11)]).unwrap();
    kernel.serve();
    destroyed.end();
    assert_eq!(wr_ids(&guest.poll(cq.0, 16)), [11]);
    // Now the entry of the number is free.
    kernel.state().next_qpn = qpn;
    let again = guest.qp(cq.0, |_| ());
    assert_eq!(unsafe { (*again).qp_num }, qpn);
    guest.send(again, &mut [write(21)]).unwrap();
    kernel.serve();
    assert_eq!(wr_ids(&guest.poll(cq.0, 16)), [21]);
    [again, new.0].into_iter().for_each(|qp| guest.destroy_qp(qp));
    close(guest, &[cq.0]);
}

#[test]
fn a_number_that_the_kernel_gives_again_before_its_xrc_queue_has_ended_is_not_used() {
    let kernel = Kernel::new();
    let guest = Arc::new(Guest::new(&kernel));
    let (cq, xrcd) = (Shared(guest.cq(16)), Shared(guest.xrcd()));
    let number = |srq| {
        let mut number = 0;
        assert_eq!(unsafe { guest.ops.get_srq_num.unwrap()(srq, &raw mut number) }, 0);
        number
    };
    let going = Shared(guest.xrc_srq(xrcd.0, cq.0));
    let srqn = number(going.0);
    guest.srq_recv(going.0, &mut [recv(1, &mut [])]).unwrap();
    kernel.receive_xrc(&kernel.take().unwrap(), 77);
    let theirs = guest.clone();
    let destroyed = Destroyed::by(&kernel, move || theirs.destroy_srq(going.get()));
    kernel.state().next_srqn = Some(srqn);
    let ours = guest.clone();
    let new =
        ends("a queue whose number was that of another", move || Shared(ours.xrc_srq(xrcd.get(), cq.get())));
    assert_ne!(number(new.0), srqn);
    assert_eq!(kernel.state().queues, 1, "what was made in vain is destroyed");
    guest.srq_recv(new.0, &mut [recv(11, &mut [])]).unwrap();
    kernel.receive_xrc(&kernel.take().unwrap(), 77);
    destroyed.end();
    assert_eq!(wr_ids(&guest.poll(cq.0, 16)), [11]);
    guest.destroy_srq(new.0);
    guest.close_xrcd(xrcd.0);
    close(guest, &[cq.0]);
}

#[test]
fn within_its_poll_a_thread_may_do_with_the_cq_what_it_likes() {
    let kernel = Kernel::new();
    let guest = Arc::new(Guest::new(&kernel));
    let cq = Shared(guest.cq_ex(8));
    let (qp, gone) = (Shared(guest.qp(cq.0.cast(), |_| ())), Shared(guest.qp(cq.0.cast(), |_| ())));
    let qpn = unsafe { (*qp.0).qp_num };
    guest.send(qp.0, &mut [write(1), write(2), write(3)]).unwrap();
    guest.send(gone.0, &mut [write(4)]).unwrap();
    kernel.serve();
    let (ours, device) = (guest.clone(), kernel.clone());
    ends("what a thread does within its poll", move || {
        let (guest, cq, plain) = (ours, cq.get(), cq.get().cast::<ibv_cq>());
        assert_eq!(start_poll(cq), 0);
        assert_eq!((start_poll(cq), errno::last()), (libc::EINVAL, libc::EINVAL), "it has one");
        assert!(!device.was_armed(qpn));
        assert_eq!(unsafe { guest.ops.req_notify_cq.unwrap()(plain, 0) }, 0);
        assert!(device.was_armed(qpn));
        assert_eq!(wr_ids(&guest.poll(plain, 1)), [2]);
        assert_eq!(unsafe { guest.ops.resize_cq.unwrap()(plain, 16) }, 0);
        guest.destroy_qp(gone.get());
        assert_eq!(unsafe { (*cq).wr_id }, 1, "the completion is still there");
        assert_eq!(unsafe { ((*cq).next_poll.unwrap()(cq), (*cq).wr_id) }, (0, 3));
        guest.modify(qp.get(), IBV_QPS_RESET);
        assert_eq!(unsafe { (*cq).next_poll.unwrap()(cq) }, libc::ENOENT);
        end_poll(cq);
        guest.modify(qp.get(), IBV_QPS_RTS);
    });
    // Now another thread gets the CQ.
    guest.send(qp.0, &mut [write(5)]).unwrap();
    kernel.serve();
    assert_eq!((start_poll(cq.0), unsafe { (*cq.0).wr_id }), (0, 5));
    end_poll(cq.0);
    assert_eq!(guest.poll(cq.0.cast(), 8).len(), 0);
    guest.destroy_qp(qp.0);
    close(guest, &[cq.0.cast()]);
}

#[test]
fn a_thread_that_polls_does_not_wait_for_the_resize_of_another() {
    /// 1: the other thread resizes. 2: it may continue.
    static STAGE: AtomicUsize = AtomicUsize::new(0);
    let kernel = Kernel::new();
    let guest = Arc::new(Guest::new(&kernel));
    let cq = Shared(guest.cq_ex(8));
    kernel.state().during_resize = Some(|_, moment| {
        if moment == Moment::Before {
            STAGE.store(1, Ordering::Release);
            wait::until("a poll meanwhile", || (STAGE.load(Ordering::Acquire) == 2).then_some(()));
        }
    });
    let resize =
        move |guest: Arc<Guest>, cqes| unsafe { guest.ops.resize_cq.unwrap()(cq.get().cast(), cqes) };
    let theirs = guest.clone();
    let (done, end) = mpsc::channel();
    thread::spawn(move || done.send(resize(theirs, 16)));
    wait::until("a resize", || (STAGE.load(Ordering::Acquire) == 1).then_some(()));
    let ours = guest.clone();
    ends("a resize within a poll", move || {
        assert_eq!(start_poll(cq.get()), libc::ENOENT);
        // Nothing was found, so no poll is started, and a resize would wait.
        let qp = ours.qp(cq.get().cast(), |_| ());
        ours.send(qp, &mut [write(1)]).unwrap();
        ours.kernel.serve();
        assert_eq!(start_poll(cq.get()), 0);
        assert_eq!(resize(ours.clone(), 32), libc::EBUSY);
        STAGE.store(2, Ordering::Release);
        end_poll(cq.get());
        ours.destroy_qp(qp);
    });
    assert_eq!(wait::receive("the other resize", &end), 0);
    assert_eq!(resize(guest.clone(), 32), 0);
    close(guest, &[cq.0.cast()]);
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
    // A waiting post kicks now and then.
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

#[test]
fn a_reset_waits_for_the_end_of_a_post_that_is_refused() {
    let (kernel, sends, receives) = (Kernel::with(|_| ()), 0..8, 10..14);
    let guest = Arc::new(Guest::new(&kernel));
    let cq = guest.cq(16);
    let qp = Shared(guest.qp(cq, |_| ()));
    let send = || guest.send(qp.0, &mut sends.clone().map(write).collect::<Vec<_>>());
    let receive =
        || guest.recv(qp.0, &mut receives.clone().map(|wr_id| recv(wr_id, &mut [])).collect::<Vec<_>>());
    for post in [&send as &dyn Fn() -> _, &receive] {
        let (done, end) = mpsc::channel();
        let theirs = guest.clone();
        kernel.state().post_errors.push_back(libc::EPERM);
        kernel.state().during_post = Some(Box::new(move || {
            let reset = thread::spawn(move || theirs.modify(qp.get(), IBV_QPS_RESET));
            // A reset that does not wait ends within this time. For one that waits, or is late, the
            // time makes no difference.
            let _ = wait::within(Duration::from_millis(500), || reset.is_finished().then_some(()));
            let _ = done.send(reset);
        }));
        assert_eq!(post(), Err((0, libc::EPERM)));
        let reset = wait::receive("a reset that was begun", &end);
        wait::until("the end of a reset", || reset.is_finished().then_some(()));
        reset.join().unwrap();
        guest.modify(qp.0, IBV_QPS_RTS);
        for _ in 0..2 {
            assert_eq!((send(), receive()), (Ok(()), Ok(())));
            kernel.serve();
            assert_eq!(guest.poll(cq, 16).len(), 12);
        }
    }
    guest.destroy_qp(qp.0);
    close(guest, &[cq]);
}
