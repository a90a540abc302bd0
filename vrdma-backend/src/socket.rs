//! Listening Unix sockets, claimed for this process and open only to permitted users.

mod admission;
mod connector;
mod guard;
mod inherited;
mod peer;
mod side;
mod stream;
mod watch;

pub use admission::Admission;
pub use connector::Connector;
pub use inherited::Inherited;
pub use peer::Peer;
pub use side::SocketSide;
pub use watch::{SocketWatch, WatchedSockets};

use crate::config::{Config, Group, GuestConfig, Mode, User};
use crate::ratelimit::{RateLimit, limited};
use anyhow::{Context, Result, bail, ensure};
use guard::PeerGuard;
use rustix::event::epoll;
use rustix::fs::{CWD, FlockOperation, Mode as FileMode, OFlags};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use stream::{stream_socket, take_no_descriptors};

/// Most connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// Who may connect to a socket.
#[derive(Clone, Debug)]
pub struct SocketAccess {
    /// Mode of the socket's file.
    pub mode: Mode,
    /// User that owns the socket's file; `None`: the user of the process.
    pub owner: Option<u32>,
    /// Group of the socket's file; `None`: the group of the process.
    pub group: Option<u32>,
    /// Whether the socket may do without that group. Only root, and a member, can give a file to a
    /// group.
    pub may_lack_group: bool,
    /// Users who may connect. If empty, the file's mode alone decides.
    pub users: Vec<User>,
    /// Name of the guest whose socket it is. `None` for the admin socket.
    pub guest: Option<String>,
    /// Whether clients may send descriptors.
    pub takes_descriptors: bool,
}

/// A listening socket that never blocks. If it was bound here, its file is removed when this is
/// dropped.
#[derive(Debug)]
pub struct Listener {
    /// Its name in messages.
    name: String,
    /// The path at which it was bound here. `None` for an inherited socket.
    path: Option<PathBuf>,
    access: SocketAccess,
    guard: PeerGuard,
    /// An epoll set with the current socket. A thread that waits on it need not know which socket
    /// that is.
    gate: OwnedFd,
    admission: Admission,
    /// Limits messages about front-ends that are not let in.
    refusals: Mutex<RateLimit>,
    /// Limits messages about what happened to the file.
    changes: Mutex<RateLimit>,
    /// Whether the socket's file was there at the last look.
    is_reachable: AtomicBool,
    bound: Mutex<Bound>,
}

/// The socket of a [`Listener`].
#[derive(Debug)]
struct Bound {
    listener: UnixListener,
    file: Option<OwnFile>,
}

/// What a [`Listener`] holds of its path, until the socket's file is deleted.
#[derive(Debug)]
struct OwnFile {
    id: FileId,
    /// Keeps other daemons from claiming the path.
    lock: Lock,
}

/// Device and inode of a file.
type FileId = (u64, u64);

/// Returns which file is at a path. It does not follow links.
fn file_at(path: &Path) -> io::Result<FileId> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

impl SocketAccess {
    /// Returns the access for this process's own user and root only.
    pub fn private() -> SocketAccess {
        SocketAccess {
            mode: Mode(0o600),
            owner: None,
            group: None,
            may_lack_group: false,
            users: Vec::new(),
            guest: None,
            takes_descriptors: true,
        }
    }

    /// Returns the access for this process's own user and root only, to a socket that somebody else
    /// made. Its file's mode is not known.
    ///
    /// `later` is the user that the process becomes.
    pub fn private_inherited(later: Option<&User>) -> SocketAccess {
        let own = rustix::process::geteuid().as_raw();
        let users = [own, 0].map(User::numbered).into_iter().chain(later.cloned());
        SocketAccess { users: users.collect(), ..SocketAccess::private() }
    }

    /// Returns the access for those who may look at the daemon: the group [`Config::OBSERVERS`], if
    /// this host has it, else the group of this process.
    pub fn to_observers() -> SocketAccess {
        let group = Group::named(Config::OBSERVERS).map(|group| group.id);
        SocketAccess {
            mode: Mode(0o660),
            group,
            may_lack_group: true,
            takes_descriptors: false,
            ..SocketAccess::private()
        }
    }

    /// Returns the access for a guest's VMM.
    ///
    /// Without a configured mode, the sockets' owner may connect, and their group if one is
    /// configured.
    pub fn to_guest(config: &Config, guest: &GuestConfig) -> SocketAccess {
        let usual = Mode(if config.socket_group.is_some() { 0o660 } else { 0o600 });
        SocketAccess {
            mode: config.socket_mode.unwrap_or(usual),
            owner: config.socket_owner.as_ref().map(|owner| owner.id),
            group: config.socket_group.as_ref().map(|group| group.id),
            may_lack_group: false,
            users: guest.users.clone(),
            guest: Some(guest.configured_name().to_owned()),
            takes_descriptors: true,
        }
    }
}

impl Listener {
    /// Binds the socket. It replaces a socket file that a dead process left behind.
    ///
    /// # Errors
    /// Another process listens there or may do so, something other than a socket is there, or the
    /// path cannot be used.
    pub fn claim(path: &Path, access: &SocketAccess) -> Result<Listener> {
        let shown = path.display();
        // Hold the lock from the check to the end, so that nobody else replaces a socket meanwhile.
        let lock = Lock::take(path)?;
        if let Ok(found) = fs::symlink_metadata(path) {
            ensure!(
                found.file_type().is_socket(),
                "{shown} exists and is no socket: remove it or name another path"
            );
            ensure_stale(path)?;
            fs::remove_file(path).with_context(|| format!("the stale socket {shown} cannot be removed"))?;
        }
        let (listener, id) = bind(path, access)?;
        Listener::of(
            shown.to_string(),
            Some(path),
            access,
            Bound { listener, file: Some(OwnFile { id, lock }) },
        )
    }

    /// Takes over a socket that listens already. It has no file that this process may remove.
    ///
    /// # Errors
    /// The system is out of a resource.
    pub fn inherit(name: &str, listener: UnixListener, access: &SocketAccess) -> Result<Listener> {
        if !access.takes_descriptors {
            take_no_descriptors(&listener);
        }
        Listener::of(name.to_owned(), None, access, Bound { listener, file: None })
    }

    fn of(name: String, path: Option<&Path>, access: &SocketAccess, bound: Bound) -> Result<Listener> {
        let gate = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?;
        watch(&gate, &bound.listener).context("epoll")?;
        Ok(Listener {
            name,
            path: path.map(Path::to_owned),
            guard: PeerGuard::new(&access.users, access.guest.clone()),
            access: access.clone(),
            gate,
            admission: Admission::default(),
            refusals: Mutex::default(),
            changes: Mutex::default(),
            is_reachable: AtomicBool::new(true),
            bound: Mutex::new(bound),
        })
    }

    /// Binds the socket again if its file was deleted.
    ///
    /// Returns false, and logs it, if the file is missing or another one afterwards.
    pub fn mend(&self) -> bool {
        let is_there = self.mend_file();
        self.is_reachable.store(is_there, Ordering::Relaxed);
        is_there
    }

    /// Whether front-ends can connect, as of the last [`Listener::mend`].
    ///
    /// `None` for an inherited socket. This process does not know the file of such a one.
    pub fn is_reachable(&self) -> Option<bool> {
        self.path.as_ref().map(|_| self.is_reachable.load(Ordering::Relaxed))
    }

    fn mend_file(&self) -> bool {
        let Some(path) = &self.path else { return true };
        let mut bound = self.bound.lock().expect(NO_PANIC);
        let shown = path.display();
        let mut changes = self.changes.lock().expect(NO_PANIC);
        match file_at(path) {
            Ok(file) if bound.has_id(file) => return true,
            Ok(_) => {
                limited!(changes, Warn;
                    "{shown} was replaced by somebody else's file: no front-end reaches us; remove that");
                return false;
            }
            Err(_) => {}
        }
        match self.bind_again(path, &mut bound) {
            Ok(()) => limited!(changes, Warn; "{shown} was deleted: it is bound anew"),
            Err(error) => {
                limited!(changes, Warn; "{shown} was deleted, and cannot be bound anew yet: {error:#}");
            }
        }
        file_at(path).is_ok_and(|file| bound.has_id(file))
    }

    fn bind_again(&self, path: &Path, bound: &mut Bound) -> Result<()> {
        let Some(file) = &mut bound.file else { return Ok(()) };
        // The lock's file may be gone, too. Then the lock protects nothing.
        if !file.lock.is_at(path) {
            file.lock = Lock::take(path)?;
        }
        let (listener, id) = bind(path, &self.access)?;
        watch(&self.gate, &listener).context("epoll")?;
        // Closing the old socket removes it from the epoll set.
        (bound.listener, file.id) = (listener, id);
        Ok(())
    }

    /// Returns the directory of the socket's file, if the socket was bound here.
    pub fn directory(&self) -> Option<&Path> {
        self.path.as_deref().map(directory_of)
    }

    /// Returns its name in messages: its path, or its descriptor.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether it lets new clients in, to be changed.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Accepts the next connection, as a blocking stream.
    ///
    /// Connections of users who may not connect are closed and logged. So are all while the daemon
    /// drains, or while the guest is about to be removed.
    ///
    /// # Errors
    /// There is no connection (`WouldBlock`), or the system is out of a resource.
    pub fn accept(&self) -> io::Result<UnixStream> {
        match self.accept_any()? {
            Arrival::Welcome(stream) => Ok(stream),
            Arrival::Refused(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Accepts the next connection, as a blocking stream, and leaves closing it to the caller.
    ///
    /// # Errors
    /// There is no connection (`WouldBlock`), or the system is out of a resource.
    pub fn accept_any(&self) -> io::Result<Arrival> {
        let (stream, _) = self.bound.lock().expect(NO_PANIC).listener.accept()?;
        stream.set_nonblocking(false)?;
        if let Some(reason) = self.admission.refusal() {
            let mut refusals = self.refusals.lock().expect(NO_PANIC);
            limited!(refusals, Warn; "{}: a front-end is refused: {reason}", self.name);
            return Ok(Arrival::Refused(stream));
        }
        Ok(match self.guard.check(&stream, &self.name) {
            Ok(()) => Arrival::Welcome(stream),
            Err(_) => Arrival::Refused(stream),
        })
    }
}

/// A connection that was accepted.
#[derive(Debug)]
pub enum Arrival {
    /// Its process may connect.
    Welcome(UnixStream),
    /// Its process may not. That is logged.
    Refused(UnixStream),
}

impl Bound {
    fn has_id(&self, id: FileId) -> bool {
        self.file.as_ref().is_some_and(|file| file.id == id)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.gate.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.gate.as_raw_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Removes the file only if it is still ours. The lock is released after that.
        let bound = self.bound.get_mut().expect(NO_PANIC);
        if let (Some(path), Some(file)) = (&self.path, &bound.file) {
            remove(path, file.id);
        }
    }
}

/// Why locking the mutexes does not fail.
const NO_PANIC: &str = "no thread panics with it";

/// Binds a listening socket at a path without a file. Returns the socket and its file.
fn bind(path: &Path, access: &SocketAccess) -> Result<(UnixListener, FileId)> {
    let shown = path.display();
    let socket = stream_socket().with_context(|| shown.to_string())?;
    if !access.takes_descriptors {
        take_no_descriptors(&socket);
    }
    let address = SocketAddrUnix::new(path).with_context(|| shown.to_string())?;
    rustix::net::bind(&socket, &address).with_context(|| format!("cannot bind {shown}"))?;
    let file = file_at(path).with_context(|| shown.to_string())?;
    let open_to = || {
        // Nobody can connect before `listen`, so nobody connects before the rights are set.
        let mode = fs::Permissions::from_mode(access.mode.0);
        fs::set_permissions(path, mode)
            .with_context(|| format!("{shown} cannot have mode {}", access.mode))?;
        // After the mode: the new owner may replace the file by a link, and the mode would be set
        // on the link's target.
        let given = lchown(path, access.owner, access.group);
        if let (Err(error), true) = (&given, access.may_lack_group) {
            log::warn!("{shown} is for the daemon's user alone, as it cannot be given to its group: {error}");
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))
                .with_context(|| format!("{shown} cannot have mode 0600"))?;
        } else {
            given.with_context(|| format!("{shown} cannot be given to its owner and group"))?;
        }
        rustix::net::listen(&socket, BACKLOG).with_context(|| format!("cannot listen on {shown}"))
    };
    open_to().inspect_err(|_| remove(path, file))?;
    Ok((socket.into(), file))
}

/// Removes a file, if it still is this file.
fn remove(path: &Path, file: FileId) {
    if file_at(path).is_ok_and(|found| found == file) {
        let _ = fs::remove_file(path);
    }
}

/// Adds a socket to the epoll set.
fn watch(gate: &OwnedFd, socket: &UnixListener) -> rustix::io::Result<()> {
    epoll::add(gate, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
}

/// Returns the directory of a path.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the path of a socket's lock file.
fn lock_of(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

/// The exclusive right to a socket's path among daemons.
///
/// It is a lock (flock(2)) on the file `PATH.lock` for as long as this lives. The file stays:
/// removing it would invalidate the lock of a daemon that opened it meanwhile.
#[derive(Debug)]
struct Lock(File);

impl Lock {
    /// Takes the lock of a socket's path, and writes this process's number into its file.
    ///
    /// # Errors
    /// Another process has the lock, or its file cannot be used.
    fn take(socket: &Path) -> Result<Lock> {
        let path = lock_of(socket);
        let shown = path.display();
        // Whatever is at the path, the flags keep `open` from following a link and from blocking.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        // The jail allows openat, and not open.
        let opened = rustix::fs::openat(CWD, &path, flags, FileMode::RUSR | FileMode::WUSR);
        let opened = opened.or_else(|error| match directory_fault(socket, error) {
            Some(fault) => bail!("{}: {fault}", socket.display()),
            None => Err(error).with_context(|| format!("cannot open {shown}")),
        });
        let mut file = File::from(opened?);
        ensure!(file.metadata()?.is_file(), "{shown} exists and is no file: remove it or name another path");
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut owner = String::new();
                // The owner may not have written its number yet.
                let _ = file.take(32).read_to_string(&mut owner);
                let process = owner.trim().parse::<u32>().map_or(String::new(), |pid| format!(", {pid}"));
                let socket = socket.display();
                bail!("{socket} is in use by another process{process}: stop it, or name another path");
            }
            Err(error) => return Err(error).with_context(|| format!("cannot lock {shown}")),
        }
        file.set_permissions(fs::Permissions::from_mode(0o600))
            .and_then(|()| file.set_len(0))
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .with_context(|| format!("cannot write {shown}"))?;
        Ok(Lock(file))
    }

    /// Whether the lock's file is still at the path where other daemons look for it.
    fn is_at(&self, socket: &Path) -> bool {
        let own = self.0.metadata().map(|own| (own.dev(), own.ino()));
        own.is_ok_and(|own| file_at(&lock_of(socket)).is_ok_and(|found| found == own))
    }
}

/// Describes why no file could be created in the directory of a path.
///
/// Returns `None` if the directory is not the cause.
fn directory_fault(path: &Path, error: Errno) -> Option<String> {
    let shown = directory_of(path).display();
    match error {
        Errno::NOENT => {
            Some(format!("there is no directory {shown}: make it (`mkdir -p {shown}`), or name another path"))
        }
        Errno::NOTDIR => Some(format!("{shown} is no directory: name another path")),
        Errno::ACCESS if lock_of(path).exists() => Some(format!(
            "{} is another user's, and a daemon that runs as root leaves it there: remove it",
            lock_of(path).display()
        )),
        Errno::ACCESS | Errno::ROFS => Some(format!(
            "no file can be made in the directory {shown} ({error}), and {path}.lock is to be one: change its rights, or name another path",
            path = path.display()
        )),
        _ => None,
    }
}

/// Fails unless the socket is stale.
///
/// Only a refused connection proves that nobody listens. Any other failure may come from a live
/// socket.
fn ensure_stale(path: &Path) -> Result<()> {
    let shown = path.display();
    let address = SocketAddrUnix::new(path).with_context(|| shown.to_string())?;
    match rustix::net::connect(&stream_socket()?, &address) {
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
        // A full queue of connections belongs to a live process.
        Ok(()) | Err(Errno::AGAIN) => {
            bail!("{shown} is in use by another process: stop it, or name another path")
        }
        Err(error) => bail!(
            "{shown} exists, and whether a process listens there cannot be told ({error}): remove it if none does, or name another path"
        ),
    }
}

#[cfg(test)]
mod tests;
