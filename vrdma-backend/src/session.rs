//! The control plane of one function of a guest.
//!
//! A session is a thread. It listens for the function's front-end and speaks vhost-user with it. It
//! also serves the one virtqueue that the function leaves to the session, if there is one.

#[cfg(any(test, feature = "fuzzing"))]
pub mod inline;

use crate::config::GuestConfig;
use crate::jail;
use crate::panics;
use crate::queue::{Kick, Ringer};
use crate::ratelimit::{RateLimit, limited};
use crate::service::CountedFrontEnd;
use crate::socket::{Peer, SocketSide};
use crate::vhost::{FrontEnd, Function, Served};
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::RecvFlags;
use std::cell::RefCell;
use std::fmt::{Display, Formatter};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use vhost::vhost_user::message::FrontendReq;
use vhost::vhost_user::{BackendReqHandler, Error as VhostError, VhostUserBackendReqHandler};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier};

/// A running session.
#[derive(Debug)]
pub struct Session {
    thread: Option<JoinHandle<()>>,
    stop: EventNotifier,
    connection: Connection,
}

/// The current connection. A stop uses it to end a read that waits for the rest of a message.
type Connection = Arc<Mutex<Option<UnixStream>>>;

/// How long to wait before the next front-end after one could not be served.
pub const PAUSE: Duration = Duration::from_millis(100);

const SOCKET: u64 = 0;
const STOP: u64 = 1;
const KICK: u64 = 2;
const ANOTHER: u64 = 3;

impl Session {
    /// Starts the thread that serves front-ends, one after another.
    ///
    /// # Errors
    /// The system is out of a resource.
    pub fn start<F: Function>(guest: &GuestConfig, side: SocketSide, function: F) -> Result<Session> {
        let name = &guest.name;
        let (stopped, stop) = new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC)?;
        let connection = Connection::default();
        // The system keeps 15 bytes of a thread's name.
        let ringer = Ringer::start(&format!("ring {name}")).context("no thread")?;
        let guest = Guest {
            owner: guest.configured_name().to_owned(),
            name: format!("{name}, {}", F::NAME),
            side,
            stopped,
            connection: connection.clone(),
            front_end: Arc::new(Mutex::new(FrontEnd::new(function, ringer))),
            visits: RefCell::default(),
            violations: RefCell::default(),
        };
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name(format!("{} {name}", F::NAME)).spawn(move || {
            jail::confine(jail::Kind::Session);
            guest.run(ready);
        })?;
        let session = Session { thread: Some(thread), stop, connection };
        // After this, the session needs nothing more of the system, except for what its front-end
        // brings.
        is_ready.recv().with_context(|| format!("guest {name}: its thread ended"))?;
        Ok(session)
    }

    /// Returns a handle that tells whether a front-end is connected.
    pub fn presence(&self) -> Presence {
        Presence(self.connection.clone())
    }
}

/// Tells whether a session has a front-end. It works after the session's end, too.
#[derive(Clone, Debug)]
pub struct Presence(Connection);

impl Presence {
    /// Whether a front-end is connected now.
    pub fn is_connected(&self) -> bool {
        self.0.lock().expect("no thread panics with it").is_some()
    }

    /// Returns process and user of the front-end that is connected now, if the kernel knows them.
    pub fn peer(&self) -> Option<(u32, u32)> {
        let connection = self.0.lock().expect("no thread panics with it");
        let peer = rustix::net::sockopt::socket_peercred(connection.as_ref()?).ok()?;
        Some((u32::try_from(peer.pid.as_raw_pid()).ok()?, peer.uid.as_raw()))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.stop.notify();
        if let Some(stream) = self.connection.lock().expect("no thread panics with it").as_ref() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Milliseconds until an idle queue is looked at again before the thread sleeps without a limit.
///
/// A driver with a weak barrier may have published a request without seeing that it has to kick. Or
/// it may wait for an interrupt that it requested too late.
const SECOND_LOOK: i32 = 1;

struct Guest<F> {
    /// Name of the guest in the configuration, and that of its function.
    owner: String,
    name: String,
    side: SocketSide,
    stopped: EventConsumer,
    connection: Connection,
    front_end: Arc<Mutex<FrontEnd<F>>>,
    /// Limits messages about front-ends that come and leave.
    visits: RefCell<RateLimit>,
    /// Limits messages about the front-ends' violations.
    violations: RefCell<RateLimit>,
}

impl<F: Function> Guest<F> {
    fn run(self, ready: Sender<()>) {
        if let Err(error) = self.accept_loop(ready) {
            log::error!(guest:% = self.owner; "guest {}: {error:#}", self.name);
        }
    }

    /// Serves one front-end after another.
    fn accept_loop(&self, ready: Sender<()>) -> Result<()> {
        let epoll = Epoll::new()?;
        if let Some(fd) = self.side.to_watch() {
            epoll.ctl(ControlOperation::Add, fd, EpollEvent::new(EventSet::IN, SOCKET))?;
        }
        epoll.ctl(ControlOperation::Add, self.stopped.as_raw_fd(), EpollEvent::new(EventSet::IN, STOP))?;
        // The thread that starts the session waits for this.
        let _ = ready.send(());
        let mut events = [EpollEvent::default(); 4];
        // A client tries to connect at once.
        let pause = self.side.pause().map_or(-1, |pause| pause.as_millis() as i32);
        let mut timeout = pause.min(0);
        loop {
            let count = retry(|| epoll.wait(timeout, &mut events))?;
            timeout = pause;
            if events[..count].iter().any(|event| event.data() == STOP) {
                return Ok(());
            }
            let served = match self.admit() {
                Ok(stream) => self.serve_contained(stream),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
                Err(error) => Err(error.into()),
            };
            if let Err(error) = served {
                // Most likely out of file descriptors. The client stays in the queue, and epoll
                // reports it again at once, so pause.
                self.violation(|| format!("cannot serve a front-end: {error:#}"));
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Lets a front-end in, if there is one and it may come.
    ///
    /// Whoever closes the socket's gate and then asks whether a front-end is connected has either
    /// kept it out, or sees it.
    ///
    /// # Errors
    /// There is none (`WouldBlock`), or the system is out of a resource.
    fn admit(&self) -> io::Result<UnixStream> {
        let mut connection = self.connection.lock().expect("no thread panics with it");
        let stream = self.side.front_end()?;
        *connection = Some(stream.try_clone()?);
        Ok(stream)
    }

    /// Serves a front-end until it leaves, breaks the rules, or triggers a panic.
    ///
    /// A panic ends only this front-end's connection.
    fn serve_contained(&self, stream: UnixStream) -> Result<()> {
        match panics::contain(|| self.serve(stream)) {
            Ok(served) => served,
            Err(panic) => {
                log::error!(
                    guest:% = self.owner;
                    "guest {}: its connection ends, for a fault of this program: {panic}", self.name
                );
                if let Some(stream) = self.connection.lock().expect("no thread panics with it").take() {
                    let _ = stream.shutdown(Shutdown::Both);
                }
                // Discard what the step left half changed. The state is then that before a
                // front-end came.
                self.front_end.clear_poison();
                self.front_end().panicked();
                Ok(())
            }
        }
    }

    /// Serves a front-end until it leaves or breaks the rules.
    fn serve(&self, stream: UnixStream) -> Result<()> {
        match Peer::of(&stream) {
            // The kernel tells who called listen(2), which may have been another process.
            Ok(peer) if self.side.is_client() => {
                self.visit(&format!("connected: its listener was made by {peer}"));
            }
            Ok(peer) => self.visit(&format!("connected: {peer}")),
            Err(_) => self.visit("connected"),
        }
        let for_memory = match stream.try_clone() {
            Ok(stream) => stream,
            Err(error) => {
                // No copy is left, and the front-end sees at once that the connection ended.
                *self.connection.lock().expect("no thread panics with it") = None;
                return Err(error.into());
            }
        };
        self.front_end().connect(for_memory);
        let _counted = CountedFrontEnd::count();
        let result = self.converse(stream);
        if let Some(stream) = self.connection.lock().expect("no thread panics with it").take() {
            // Memory that is not unmapped yet has the connection, too. Shut it down, so that the
            // front-end sees its end now.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let lost = self.front_end().has_lost_memory();
        self.front_end().disconnect();
        match result {
            _ if lost => self.violation(|| {
                "front-end disconnected: it cut the file behind its memory short, or there was no page for it".into()
            }),
            Ok(()) => self.visit("left"),
            Err(Ended { error: VhostError::Disconnected | VhostError::SocketBroken(_) | VhostError::PartialMessage, .. }) => {
                self.visit("left");
            }
            Err(ended) => self.violation(|| format!("front-end disconnected: {ended}")),
        }
        Ok(())
    }

    fn front_end(&self) -> MutexGuard<'_, FrontEnd<F>> {
        self.front_end.lock().expect("no other thread has it")
    }

    fn visit(&self, what: &str) {
        let mut visits = self.visits.borrow_mut();
        limited!(visits, Info, guest = self.owner; "guest {}: front-end {what}", self.name);
    }

    fn violation(&self, what: impl FnOnce() -> String) {
        let mut violations = self.violations.borrow_mut();
        limited!(violations, Warn, guest = self.owner; "guest {}: {}", self.name, what());
    }

    /// Refuses a client that connects while a front-end is served.
    ///
    /// Returns true, and refuses nothing, if that front-end has left: then it is the client's turn.
    fn refuse_another(&self, stream: &UnixStream) -> bool {
        let mut poll = [PollFd::new(stream, PollFlags::RDHUP)];
        if rustix::event::poll(&mut poll, Some(&Timespec::default())).is_ok_and(|ready| ready != 0) {
            return true;
        }
        // The accepted stream is dropped at the end of this function, so the client sees it closed.
        let accepted = self.side.front_end();
        if accepted.as_ref().is_err_and(|error| error.kind() != ErrorKind::WouldBlock) {
            // Most likely out of file descriptors. The client stays in the queue, and epoll reports
            // it again at once, so pause.
            std::thread::sleep(PAUSE);
        } else if accepted.is_ok() {
            let name = self.side.listener().map_or("", |listener| listener.name());
            self.violation(|| format!("another front-end was refused: {name} serves one at a time"));
        }
        false
    }

    fn converse(&self, stream: UnixStream) -> Result<(), Ended> {
        let epoll = Epoll::new().map_err(VhostError::SocketError)?;
        let add = |fd, token| {
            epoll
                .ctl(ControlOperation::Add, fd, EpollEvent::new(EventSet::IN, token))
                .map_err(VhostError::SocketError)
        };
        add(stream.as_raw_fd(), SOCKET)?;
        add(self.stopped.as_raw_fd(), STOP)?;
        if let Some(fd) = self.side.to_watch() {
            add(fd, ANOTHER)?;
        }
        let ours = stream.try_clone().map_err(VhostError::SocketError)?;
        let mut handler = BackendReqHandler::from_stream(stream, self.front_end.clone());
        let mut kick = WatchedKick { epoll: &epoll, kick: None };
        let mut events = [EpollEvent::default(); 4];
        let (mut served, mut looked) = (Served::Nothing, false);
        loop {
            // Once there is no work, look at the queue once more after SECOND_LOOK. If it is still
            // empty, sleep without a limit.
            let timeout = match (served, looked) {
                (Served::More, _) => 0,
                (Served::Nothing, true) => -1,
                _ => SECOND_LOOK,
            };
            #[cfg(feature = "hooks")]
            if timeout == SECOND_LOOK {
                crate::hooks::run();
            }
            let count = retry(|| epoll.wait(timeout, &mut events)).map_err(VhostError::SocketError)?;
            looked = count == 0 && served != Served::More;
            let has = |token| events[..count].iter().any(|event| event.data() == token);
            // Check this first. A stop may have come before it could see the connection. Then it
            // had no way to end a read.
            if has(STOP) {
                return Ok(());
            }
            if has(SOCKET) {
                let request = peek_request(&ours);
                let early = self.take_early_enable(&ours);
                let taken = early.and_then(|taken| if taken { Ok(()) } else { handler.handle_request() });
                taken.map_err(|error| Ended { request, error })?;
            } else if has(ANOTHER) && self.refuse_another(&ours) {
                return Ok(());
            }
            let mut front_end = self.front_end();
            if let Err(error) = kick.update(front_end.kick()) {
                self.violation(|| format!("a kick cannot be watched: {error}"));
            }
            served = front_end.serve();
        }
    }

    /// Takes a SET_VRING_ENABLE that comes before the features are acknowledged.
    ///
    /// Returns whether there was one. QEMU sends it this early for an Ethernet function, and does
    /// not repeat it later. The handler would refuse it and end the connection.
    fn take_early_enable(&self, mut stream: &UnixStream) -> Result<bool, VhostError> {
        const SET_VRING_ENABLE: u32 = FrontendReq::SET_VRING_ENABLE as u32;
        const VERSION_AND_REPLY: u32 = 0x1 | 0x4;
        const NEED_REPLY: u32 = 0x8;
        if self.front_end().has_protocol_features() {
            return Ok(false);
        }
        // Header: request, flags, size of the payload. Payload: index and state of the virtqueue.
        // All are in the machine's byte order (vhost-user, "Message Specification").
        let mut message = [0; 20];
        let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let word = |message: &[u8; 20], index: usize| {
            u32::from_ne_bytes([0, 1, 2, 3].map(|byte| message[4 * index + byte]))
        };
        match rustix::net::recv(stream, &mut message, peek) {
            Ok((_, 20)) if word(&message, 0) == SET_VRING_ENABLE && word(&message, 2) == 8 => {}
            // Anything else, including errors, is left to the handler.
            _ => return Ok(false),
        }
        stream.read_exact(&mut message).map_err(VhostError::SocketError)?;
        let enabled = word(&message, 4) == 1;
        let result = self.front_end.set_vring_enable(word(&message, 3), enabled);
        if word(&message, 1) & NEED_REPLY != 0 {
            let words = [SET_VRING_ENABLE, VERSION_AND_REPLY, 8, u32::from(result.is_err()), 0];
            let reply: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            stream.write_all(&reply).map_err(VhostError::SocketError)?;
        }
        result.map(|()| true)
    }
}

/// Why the conversation with a front-end ended.
#[derive(Debug)]
struct Ended {
    /// The request in progress, if there was one.
    request: Option<u32>,
    error: VhostError,
}

impl From<VhostError> for Ended {
    fn from(error: VhostError) -> Ended {
        Ended { request: None, error }
    }
}

impl Display for Ended {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        if let Some(request) = self.request {
            match FrontendReq::try_from(request) {
                Ok(request) => write!(f, "{request:?}: ")?,
                Err(_) => write!(f, "request {request}: ")?,
            }
        }
        match &self.error {
            // This daemon's own error, whose text is complete.
            VhostError::ReqHandlerError(error) => write!(f, "{error}"),
            error => write!(f, "{error}"),
        }
    }
}

/// Returns the request number of the next message, if its header has come.
fn peek_request(stream: &UnixStream) -> Option<u32> {
    let mut request = [0; 4];
    let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let (_, length) = rustix::net::recv(stream, &mut request, peek).ok()?;
    (length == 4).then_some(u32::from_ne_bytes(request))
}

/// The kick that this thread's epoll set watches, of the virtqueue that the thread serves.
struct WatchedKick<'a> {
    epoll: &'a Epoll,
    kick: Option<Arc<Kick>>,
}

impl WatchedKick<'_> {
    fn update(&mut self, wanted: Option<&Arc<Kick>>) -> std::io::Result<()> {
        if self.kick.as_ref().map(Arc::as_ptr) == wanted.map(Arc::as_ptr) {
            return Ok(());
        }
        let event = EpollEvent::new(EventSet::IN | EventSet::EDGE_TRIGGERED, KICK);
        if let Some(old) = self.kick.take() {
            let _ = self.epoll.ctl(ControlOperation::Delete, old.as_raw_fd(), event);
        }
        if let Some(new) = wanted {
            self.epoll.ctl(ControlOperation::Add, new.as_raw_fd(), event)?;
            self.kick = Some(new.clone());
        }
        Ok(())
    }
}

/// Calls `f` again as long as a signal interrupts it.
pub fn retry<T>(mut f: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match f() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
