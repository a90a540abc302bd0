//! The flag of the worker's inbox.

mod sync {
    pub use loom::sync::atomic::{AtomicBool, Ordering};
}

#[path = "../../src/worker/mail.rs"]
mod flag;

use flag::Mail;
use loom::sync::atomic::AtomicUsize;
use loom::sync::{Arc, Notify};
use loom::thread;
use sync::{AtomicBool, Ordering};

/// A counter in place of the inbox, a wake-up for the worker, and the flag.
struct Post {
    inbox: AtomicUsize,
    wake: Notify,
    mail: Mail,
}

fn post() -> Arc<Post> {
    let mail = Mail { flag: AtomicBool::new(false) };
    Arc::new(Post { inbox: AtomicUsize::new(0), wake: Notify::new(), mail })
}

/// Sends a message in another thread, as `WorkerHandle::call` does.
fn send(post: &Arc<Post>) -> thread::JoinHandle<()> {
    let post = post.clone();
    thread::spawn(move || {
        post.inbox.fetch_add(1, Ordering::Release);
        post.mail.announce();
        post.wake.notify();
    })
}

#[test]
fn a_worker_that_polls_misses_no_message() {
    loom::model(|| {
        let post = post();
        let senders = [send(&post), send(&post)];
        // One round is concurrent with the senders. The last one follows after all have sent.
        let turn = || {
            if post.mail.may_be_there() {
                post.mail.take();
                return post.inbox.load(Ordering::Relaxed);
            }
            0
        };
        let seen = turn();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        let seen = seen.max(turn());
        assert_eq!(seen, 2);
    });
}

#[test]
fn a_worker_that_sleeps_is_woken_for_each_message() {
    loom::model(|| {
        let post = post();
        let sender = send(&post);
        loop {
            if post.mail.may_be_there() {
                post.mail.take();
            }
            if post.inbox.load(Ordering::Acquire) == 1 {
                break;
            }
            // This would never return if a message came without a wake-up.
            post.wake.wait();
        }
        sender.join().unwrap();
    });
}
