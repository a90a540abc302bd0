//! The control plane of one function of a guest: a thread that listens for its front-end, speaks vhost-user with it, and serves what
//! virtqueue the function leaves to it.

use crate::queue::{Call, Kick};
use crate::ratelimit::RateLimit;
use crate::vhost::{FrontEnd, Function};
use anyhow::{Context, Result, bail};
use rustix::net::RecvFlags;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
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

/// The connection of the moment, so that a stop can end a read that waits for the rest of a message.
type Connection = Arc<Mutex<Option<UnixStream>>>;

/// How long to wait before the next front-end when one could not be served.
pub const PAUSE: Duration = Duration::from_millis(100);

const SOCKET: u64 = 0;
const STOP: u64 = 1;
const KICK: u64 = 2;

impl Session {
    /// Binds the socket and starts the thread.
    ///
    /// # Errors
    /// The socket cannot be bound, or another process listens on it.
    pub fn start<F: Function>(name: &str, socket: &Path, function: F) -> Result<Session> {
        let listener = bind(socket)?;
        let (stopped, stop) = new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC)?;
        let connection = Connection::default();
        let guest = Guest {
            name: format!("{name}, {}", F::NAME),
            socket: socket.to_owned(),
            listener,
            stopped,
            connection: connection.clone(),
            front_end: Arc::new(Mutex::new(FrontEnd::new(function))),
        };
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(format!("{} {name}", F::NAME))
            .spawn(move || guest.run(ready))?;
        let session = Session { thread: Some(thread), stop, connection };
        // From here on the session has what it needs of the system but for what its front-end brings.
        is_ready.recv().with_context(|| format!("guest {name}: its thread ended"))?;
        Ok(session)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.stop.notify();
        if let Some(stream) = self.connection.lock().expect("no thread panics with it").as_ref() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Binds a Unix socket; a file that an earlier process left behind is replaced.
///
/// # Errors
/// Somebody listens there, something else than a socket is there, or the path cannot be had.
pub fn bind(path: &Path) -> Result<UnixListener> {
    use std::os::unix::fs::FileTypeExt;
    let shown = path.display();
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            bail!("{shown} exists and is no socket");
        }
        if UnixStream::connect(path).is_ok() {
            bail!("{shown} is in use by another process");
        }
        std::fs::remove_file(path).with_context(|| format!("cannot replace {shown}"))?;
    }
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen on {shown}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

struct Guest<F> {
    name: String,
    socket: PathBuf,
    listener: UnixListener,
    stopped: EventConsumer,
    connection: Connection,
    front_end: Arc<Mutex<FrontEnd<F>>>,
}

impl<F: Function> Guest<F> {
    fn run(self, ready: Sender<()>) {
        Call::prepare();
        if let Err(error) = self.accept_loop(ready) {
            log::error!("guest {}: {error:#}", self.name);
        }
        let _ = std::fs::remove_file(&self.socket);
    }

    /// One front-end after the other.
    fn accept_loop(&self, ready: Sender<()>) -> Result<()> {
        let epoll = Epoll::new()?;
        epoll.ctl(ControlOperation::Add, self.listener.as_raw_fd(), EpollEvent::new(EventSet::IN, SOCKET))?;
        epoll.ctl(ControlOperation::Add, self.stopped.as_raw_fd(), EpollEvent::new(EventSet::IN, STOP))?;
        // Whoever starts the session waits for it.
        let _ = ready.send(());
        let mut events = [EpollEvent::default(); 4];
        let mut warnings = RateLimit::default();
        loop {
            let count = retry(|| epoll.wait(-1, &mut events))?;
            if events[..count].iter().any(|event| event.data() == STOP) {
                return Ok(());
            }
            let served = match self.listener.accept() {
                Ok((stream, _)) => self.serve(stream),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
                Err(error) => Err(error.into()),
            };
            if let Err(error) = served {
                // Out of file descriptors, most likely. Who waits to be accepted waits on, and is seen again at once.
                warnings.warn(|| format!("guest {}: cannot serve a front-end: {error:#}", self.name));
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Serves a front-end until it leaves or breaks the rules.
    fn serve(&self, stream: UnixStream) -> Result<()> {
        log::info!("guest {}: front-end connected", self.name);
        stream.set_nonblocking(false)?;
        *self.connection.lock().expect("no thread panics with it") = Some(stream.try_clone()?);
        let result = self.converse(stream);
        *self.connection.lock().expect("no thread panics with it") = None;
        self.front_end.lock().expect("no other thread has it").disconnect();
        match result {
            Ok(())
            | Err(VhostError::Disconnected | VhostError::SocketBroken(_) | VhostError::PartialMessage) => {
                log::info!("guest {}: front-end left", self.name);
            }
            Err(error) => log::warn!("guest {}: connection closed: {error}", self.name),
        }
        Ok(())
    }

    fn converse(&self, stream: UnixStream) -> Result<(), VhostError> {
        let epoll = Epoll::new().map_err(VhostError::SocketError)?;
        let add = |fd, token| {
            epoll
                .ctl(ControlOperation::Add, fd, EpollEvent::new(EventSet::IN, token))
                .map_err(VhostError::SocketError)
        };
        add(stream.as_raw_fd(), SOCKET)?;
        add(self.stopped.as_raw_fd(), STOP)?;
        let ours = stream.try_clone().map_err(VhostError::SocketError)?;
        let mut handler = BackendReqHandler::from_stream(stream, self.front_end.clone());
        let mut kick = WatchedKick { epoll: &epoll, kick: None };
        let mut events = [EpollEvent::default(); 4];
        let mut again = false;
        loop {
            let timeout = if again { 0 } else { -1 };
            let count = retry(|| epoll.wait(timeout, &mut events)).map_err(VhostError::SocketError)?;
            let has = |token| events[..count].iter().any(|event| event.data() == token);
            // First: a stop that came before the connection was known to it has nothing else to end a read with.
            if has(STOP) {
                return Ok(());
            }
            if has(SOCKET) && !self.take_early_enable(&ours)? {
                handler.handle_request()?;
            }
            let mut front_end = self.front_end.lock().expect("no other thread has it");
            kick.update(front_end.kick());
            again = front_end.serve();
        }
    }

    /// Takes a SET_VRING_ENABLE that comes before the features are acknowledged, and says whether there was one. QEMU sends such for an
    /// Ethernet function, and no other after that; the handler would refuse it and end the connection.
    fn take_early_enable(&self, mut stream: &UnixStream) -> Result<bool, VhostError> {
        const SET_VRING_ENABLE: u32 = 18;
        const VERSION_AND_REPLY: u32 = 0x1 | 0x4;
        const NEED_REPLY: u32 = 0x8;
        if self.front_end.lock().expect("no other thread has it").has_protocol_features() {
            return Ok(false);
        }
        // Header: request, flags, size of the payload. Payload: index and state of the virtqueue. All in the machine's byte order
        // (vhost-user, "Message Specification").
        let mut message = [0; 20];
        let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let word = |message: &[u8; 20], index: usize| {
            u32::from_ne_bytes([0, 1, 2, 3].map(|byte| message[4 * index + byte]))
        };
        match rustix::net::recv(stream, &mut message, peek) {
            Ok((_, 20)) if word(&message, 0) == SET_VRING_ENABLE && word(&message, 2) == 8 => {}
            // Anything else, errors too, is the handler's.
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

/// The kick of the virtqueue that this thread serves, as far as it is watched.
struct WatchedKick<'a> {
    epoll: &'a Epoll,
    kick: Option<Arc<Kick>>,
}

impl WatchedKick<'_> {
    fn update(&mut self, wanted: Option<&Arc<Kick>>) {
        if self.kick.as_ref().map(Arc::as_ptr) == wanted.map(Arc::as_ptr) {
            return;
        }
        let event = EpollEvent::new(EventSet::IN | EventSet::EDGE_TRIGGERED, KICK);
        if let Some(old) = self.kick.take() {
            let _ = self.epoll.ctl(ControlOperation::Delete, old.as_raw_fd(), event);
        }
        if let Some(new) = wanted {
            match self.epoll.ctl(ControlOperation::Add, new.as_raw_fd(), event) {
                Ok(()) => self.kick = Some(new.clone()),
                Err(error) => log::warn!("a kick cannot be watched: {error}"),
            }
        }
    }
}

/// Repeats a call that a signal interrupted.
pub fn retry<T>(mut f: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match f() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
