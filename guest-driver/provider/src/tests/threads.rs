//! Many QPs and several threads share one channel.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::guest::{Guest, Shared, write};
use crate::fake::Kernel;

/// Sets a flag when dropped, so that a panic also ends the threads that wait for it.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Threads that share the channel post to 1,000 QPs of one context. No completion is lost, doubled
/// or out of order.
#[test]
fn a_thousand_qps_through_one_channel() {
    many_qps(&Kernel::new(), 50_000);
}

#[test]
fn a_thousand_qps_through_the_kernel() {
    many_qps(&Kernel::with(|_| ()), 5_000);
}

fn many_qps(kernel: &std::sync::Arc<Kernel>, requests: usize) {
    const THREADS: usize = 3;
    const QPS: usize = 1_000;
    let guest = Guest::new(kernel);
    let cqs: Vec<_> = (0..THREADS).map(|_| Shared(guest.cq(QPS as i32 * 8))).collect();
    let qps: Vec<_> = (0..QPS).map(|i| Shared(guest.qp(cqs[i % THREADS].0, |_| ()))).collect();
    let stop = AtomicBool::new(false);
    let served = AtomicUsize::new(0);
    thread::scope(|scope| {
        let stopping = Stop(&stop);
        let device = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                served.fetch_add(kernel.serve(), Ordering::Relaxed);
                thread::yield_now();
            }
        });
        let drivers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (guest, qps, cqs) = (&guest, &qps, &cqs);
                scope.spawn(move || {
                    let mine: Vec<_> = qps.iter().skip(thread).step_by(THREADS).collect();
                    let (mut posted, mut done) = (vec![0u64; mine.len()], vec![0u64; mine.len()]);
                    let (mut to_post, mut to_poll, mut random) = (requests, requests, thread as u32 + 1);
                    while to_poll != 0 {
                        if to_post != 0 {
                            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                            let which = (random >> 8) as usize % mine.len();
                            let wr_id = (which as u64) << 32 | posted[which];
                            match guest.send(mine[which].get(), &mut [write(wr_id)]) {
                                Ok(()) => {
                                    posted[which] += 1;
                                    to_post -= 1;
                                }
                                Err((_, errno)) => assert_eq!(errno, libc::ENOMEM),
                            }
                        }
                        for wc in guest.poll(cqs[thread].get(), 4) {
                            let which = (wc.wr_id >> 32) as usize;
                            assert_eq!(wc.wr_id as u32 as u64, done[which]);
                            done[which] += 1;
                            to_poll -= 1;
                        }
                    }
                    assert_eq!(posted, done);
                })
            })
            .collect();
        for driver in drivers {
            driver.join().unwrap();
        }
        drop(stopping);
        device.join().unwrap();
    });
    assert_eq!(served.load(Ordering::Relaxed), THREADS * requests);
    for qp in qps {
        guest.destroy_qp(qp.0);
    }
    guest.close(&cqs.iter().map(|cq| cq.0).collect::<Vec<_>>());
}

/// QPs are made and destroyed while another thread polls the CQ that they share.
#[test]
fn polling_meets_qps_that_go() {
    let kernel = Kernel::new();
    let guest = Guest::new(&kernel);
    let cq = Shared(guest.cq(1024));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stopping = Stop(&stop);
        let poller = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for wc in guest.poll(cq.get(), 16) {
                    assert_eq!(wc.wr_id >> 32, u64::from(wc.qp_num), "a completion of another QP");
                }
            }
        });
        for _ in 0..2_000 {
            // A program posts no more than its CQ holds. The other thread may get no processor for
            // a long time.
            while kernel.room() < 2 && !poller.is_finished() {
                thread::yield_now();
            }
            // The number of a destroyed QP may be used again.
            kernel.state().next_qpn = 40;
            let qp = guest.qp(cq.0, |_| ());
            guest.send(qp, &mut [write(40 << 32), write(40 << 32 | 1)]).unwrap();
            kernel.serve();
            guest.destroy_qp(qp);
        }
        drop(stopping);
        poller.join().unwrap();
    });
    guest.close(&[cq.0]);
}
