//! A session without its own thread and socket, for fuzzing (`fuzzing/`). Its caller runs
//! it.

use super::{Connection, Guest};
use crate::queue::Ringer;
use crate::socket::{Listener, SocketAccess, SocketSide};
use crate::vhost::{FrontEnd, Function};
use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use vmm_sys_util::event::{EventFlag, EventNotifier, new_event_consumer_and_notifier};

/// A session that runs in its caller's thread.
pub struct Inline<F> {
    guest: Guest<F>,
    _stop: EventNotifier,
}

impl<F: Function> Inline<F> {
    /// Creates a session of that function.
    pub fn new(function: F) -> Inline<F> {
        let (stopped, stop) = new_event_consumer_and_notifier(EventFlag::NONBLOCK).expect("an eventfd");
        // Nobody ever connects to it.
        let path = std::env::temp_dir().join(unique());
        let listener = Listener::claim(&path, &SocketAccess::private()).expect("a name that nobody has");
        let ringer = Ringer::start("fuzzed").expect("a thread");
        let guest = Guest {
            owner: "fuzzed".into(),
            name: "fuzzed".into(),
            side: SocketSide::Server(Arc::new(listener)),
            stopped,
            connection: Connection::default(),
            front_end: Arc::new(Mutex::new(FrontEnd::new(function, ringer))),
            visits: RefCell::default(),
            violations: RefCell::default(),
        };
        Inline { guest, _stop: stop }
    }

    /// Serves a front-end until it sends nothing more, or breaks the rules.
    pub fn serve(&self, stream: UnixStream) {
        self.guest.serve(stream).expect("descriptors are left");
    }
}

/// Returns a socket name that is unique in the system.
fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("vrdma-fuzz-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
