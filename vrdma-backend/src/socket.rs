//! Listening Unix sockets, claimed for this process and open only to permitted users.

mod watch;

pub use watch::SocketWatch;

use crate::config::{Config, GuestConfig, Mode, User};
use crate::ratelimit::RateLimit;
use anyhow::{Context, Result, bail, ensure};
use rustix::event::epoll;
use rustix::fs::{CWD, FlockOperation, Mode as FileMode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

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
    /// Users who may connect. If empty, the file's mode alone decides.
    pub users: Vec<User>,
}

/// A listening socket that never blocks. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    access: SocketAccess,
    /// An epoll set with the current socket. A thread that waits on it need not know which socket
    /// that is.
    gate: OwnedFd,
    refusals: Mutex<RateLimit>,
    /// Limits messages about what happened to the file.
    changes: Mutex<RateLimit>,
    bound: Mutex<Bound>,
}

/// What a [`Listener`] holds of its path, until the socket's file is deleted.
#[derive(Debug)]
struct Bound {
    listener: UnixListener,
    file: FileId,
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
        SocketAccess { mode: Mode(0o600), owner: None, group: None, users: Vec::new() }
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
            users: guest.users.clone(),
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
        let (listener, file) = bind(path, access)?;
        let gate = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?;
        watch(&gate, &listener).context("epoll")?;
        Ok(Listener {
            path: path.to_owned(),
            access: access.clone(),
            gate,
            refusals: Mutex::default(),
            changes: Mutex::default(),
            bound: Mutex::new(Bound { listener, file, lock }),
        })
    }

    /// Binds the socket again if its file was deleted.
    ///
    /// Returns false, and logs it, if the file is missing or another one afterwards.
    pub fn mend(&self) -> bool {
        let mut bound = self.bound.lock().expect(NO_PANIC);
        let shown = self.path.display();
        let mut changes = self.changes.lock().expect(NO_PANIC);
        match file_at(&self.path) {
            Ok(file) if file == bound.file => return true,
            Ok(_) => {
                changes.warn(|| {
                    format!(
                        "{shown} was replaced by somebody else's file: no front-end reaches us; remove that"
                    )
                });
                return false;
            }
            Err(_) => {}
        }
        match self.bind_again(&mut bound) {
            Ok(()) => changes.warn(|| format!("{shown} was deleted: it is bound anew")),
            Err(error) => {
                changes.warn(|| format!("{shown} was deleted, and cannot be bound anew yet: {error:#}"))
            }
        }
        file_at(&self.path).is_ok_and(|file| file == bound.file)
    }

    fn bind_again(&self, bound: &mut Bound) -> Result<()> {
        // The lock's file may be gone, too. Then the lock protects nothing.
        if !bound.lock.is_at(&self.path) {
            bound.lock = Lock::take(&self.path)?;
        }
        let (listener, file) = bind(&self.path, &self.access)?;
        watch(&self.gate, &listener).context("epoll")?;
        // Closing the old socket removes it from the epoll set.
        (bound.listener, bound.file) = (listener, file);
        Ok(())
    }

    /// Returns the directory of the socket's file.
    pub fn directory(&self) -> &Path {
        directory_of(&self.path)
    }

    /// Returns the path of the socket's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts the next connection, as a blocking stream.
    ///
    /// Connections of users who may not connect are closed and logged.
    ///
    /// # Errors
    /// There is no connection (`WouldBlock`), or the system is out of a resource.
    pub fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.bound.lock().expect(NO_PANIC).listener.accept()?;
        stream.set_nonblocking(false)?;
        if self.access.users.is_empty() {
            return Ok(stream);
        }
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        let user = peer.uid.as_raw();
        if self.access.users.iter().any(|allowed| allowed.id == user) {
            return Ok(stream);
        }
        let text = || {
            let (path, process) = (self.path.display(), peer.pid.as_raw_pid());
            format!("{path}: process {process} of user {user} is refused: the guest's users do not name it")
        };
        self.refusals.lock().expect(NO_PANIC).warn(text);
        Err(io::ErrorKind::WouldBlock.into())
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
        remove(&self.path, bound.file);
    }
}

/// Why locking the mutexes does not fail.
const NO_PANIC: &str = "no thread panics with it";

/// Binds a listening socket at a path without a file. Returns the socket and its file.
fn bind(path: &Path, access: &SocketAccess) -> Result<(UnixListener, FileId)> {
    let shown = path.display();
    let socket = stream_socket().with_context(|| shown.to_string())?;
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
        lchown(path, access.owner, access.group)
            .with_context(|| format!("{shown} cannot be given to its owner and group"))?;
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
        Errno::ACCESS | Errno::ROFS => Some(format!(
            "no file can be made in the directory {shown} ({error}), and {path}.lock is to be one: change its rights, or name another path",
            path = path.display()
        )),
        _ => None,
    }
}

fn stream_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
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
mod tests {
    use super::*;
    use crate::config::Word;
    use std::os::unix::net::UnixDatagram;
    use std::sync::Barrier;
    use tempfile::TempDir;

    /// A temporary directory that is removed after the test.
    struct Dir(TempDir);

    impl Dir {
        fn new() -> Dir {
            Dir(TempDir::new().unwrap())
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("s")
        }
    }

    fn claim(dir: &Dir) -> Result<Listener> {
        Listener::claim(&dir.path(), &SocketAccess::private())
    }

    fn refused(dir: &Dir) -> String {
        let inode = fs::symlink_metadata(dir.path()).unwrap().ino();
        let error = format!("{:#}", claim(dir).unwrap_err());
        assert_eq!(fs::symlink_metadata(dir.path()).unwrap().ino(), inode, "it is still there");
        error
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
        let dir = Dir::new();
        drop(UnixListener::bind(dir.path()).unwrap());
        let listener = claim(&dir).unwrap();
        let this = format!("is in use by another process, {}: stop it", std::process::id());
        assert!(refused(&dir).contains(&this));
        UnixStream::connect(dir.path()).unwrap();
        drop(listener);
        assert!(!dir.path().exists());
        // A process that does not use the lock.
        let _living = UnixListener::bind(dir.path()).unwrap();
        assert!(refused(&dir).contains("is in use by another process: stop it"));
    }

    #[test]
    fn a_queue_of_connections_that_is_full_is_no_stale_socket() {
        let dir = Dir::new();
        let _living = UnixListener::bind(dir.path()).unwrap();
        let address = SocketAddrUnix::new(dir.path()).unwrap();
        let mut waiting = Vec::new();
        loop {
            let socket = stream_socket().unwrap();
            match rustix::net::connect(&socket, &address) {
                Ok(()) => waiting.push(socket),
                Err(error) => break assert_eq!(error, Errno::AGAIN),
            }
        }
        assert!(refused(&dir).contains("is in use"));
    }

    #[test]
    fn one_of_two_that_start_at_once_has_the_socket() {
        const ROUNDS: usize = 1000;
        let dir = Dir::new();
        drop(UnixListener::bind(dir.path()).unwrap());
        let barrier = Barrier::new(2);
        // No assertion in the loop: a thread that ended there would leave the other one at the
        // barrier.
        let start = || {
            let mut outcomes = Vec::with_capacity(ROUNDS);
            for _ in 0..ROUNDS {
                barrier.wait();
                let claimed = claim(&dir);
                barrier.wait();
                // Both threads have tried, so the one that has the socket can be reached.
                outcomes.push(match &claimed {
                    Ok(listener) => match UnixStream::connect(dir.path()).and_then(|_| listener.accept()) {
                        Ok(_) => "has it".to_owned(),
                        Err(error) => error.to_string(),
                    },
                    Err(error) => format!("{error:#}"),
                });
                barrier.wait();
                // Leave a stale socket for the next round, as a killed process does.
                if claimed.is_ok() {
                    drop(claimed);
                    let _ = UnixListener::bind(dir.path());
                }
            }
            outcomes
        };
        let (ours, theirs) = std::thread::scope(|scope| {
            let other = scope.spawn(start);
            (start(), other.join().unwrap())
        });
        for outcomes in ours.iter().zip(&theirs) {
            let (winner, loser) = if outcomes.0 == "has it" { outcomes } else { (outcomes.1, outcomes.0) };
            assert!(winner == "has it" && loser.contains("is in use by another process"), "{outcomes:?}");
        }
    }

    #[test]
    fn a_lock_is_a_private_file_and_nothing_else() {
        let dir = Dir::new();
        let lock = dir.0.path().join("s.lock");
        std::os::unix::fs::symlink(dir.0.path().join("elsewhere"), &lock).unwrap();
        let error = || format!("{:#}", claim(&dir).unwrap_err());
        assert!(error().contains("cannot open"), "{}", error());
        assert!(!dir.0.path().join("elsewhere").exists());
        fs::remove_file(&lock).unwrap();
        fs::create_dir(&lock).unwrap();
        assert!(error().contains("cannot open"), "{}", error());
        fs::remove_dir(&lock).unwrap();
        let _socket = UnixListener::bind(&lock).unwrap();
        assert!(error().contains("cannot open"), "{}", error());
        fs::remove_file(&lock).unwrap();
        fs::write(&lock, "a number of long ago, and more").unwrap();
        let listener = claim(&dir).unwrap();
        assert_eq!(fs::read_to_string(&lock).unwrap(), format!("{}\n", std::process::id()));
        assert_eq!(fs::metadata(&lock).unwrap().mode() & 0o777, 0o600);
        drop(listener);
        drop(claim(&dir).unwrap());
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let dir = Dir::new();
        let error = |path: &str| {
            let path = dir.0.path().join(path);
            format!("{:#}", Listener::claim(&path, &SocketAccess::private()).unwrap_err())
        };
        let shown = dir.0.path().display();
        let said = error("x/y/s");
        let missing =
            format!("{shown}/x/y/s: there is no directory {shown}/x/y: make it (`mkdir -p {shown}/x/y`)");
        assert!(said.starts_with(&missing) && !said.contains(".lock"), "{said}");
        fs::write(dir.0.path().join("file"), "").unwrap();
        assert!(error("file/s").contains(&format!("{shown}/file is no directory")), "{}", error("file/s"));
    }

    /// A failure to connect, for other reasons than refusal, does not prove that a socket is stale.
    #[test]
    fn what_cannot_be_told_is_left_alone() {
        let dir = Dir::new();
        let _living = UnixDatagram::bind(dir.path()).unwrap();
        assert!(refused(&dir).contains("cannot be told"));
        fs::remove_file(dir.path()).unwrap();
        fs::write(dir.path(), "").unwrap();
        assert!(refused(&dir).contains("is no socket"));
    }

    #[test]
    fn the_file_of_another_stays_when_ours_is_dropped() {
        let dir = Dir::new();
        let ours = claim(&dir).unwrap();
        fs::remove_file(dir.path()).unwrap();
        let _other = UnixListener::bind(dir.path()).unwrap();
        drop(ours);
        assert!(dir.path().exists());
    }

    #[test]
    fn a_file_that_is_deleted_is_made_again_with_all_that_it_was() {
        let dir = Dir::new();
        let access = SocketAccess { mode: Mode(0o640), ..SocketAccess::private() };
        let listener = Listener::claim(&dir.path(), &access).unwrap();
        let is_reached = || {
            let connected = UnixStream::connect(dir.path());
            connected.is_ok() && listener.accept().is_ok()
        };
        assert!(listener.mend() && is_reached());
        fs::remove_file(dir.path()).unwrap();
        assert!(!is_reached() && listener.mend() && is_reached());
        assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o777, 0o640);
        // The lock's file is deleted, too. Another daemon would make a new one.
        fs::remove_dir_all(dir.0.path()).unwrap();
        assert!(!listener.mend());
        fs::create_dir(dir.0.path()).unwrap();
        assert!(listener.mend() && is_reached());
        assert!(refused(&dir).contains(&format!("in use by another process, {}", std::process::id())));
        // A file that somebody else put there is not replaced.
        fs::remove_file(dir.path()).unwrap();
        fs::write(dir.path(), "").unwrap();
        assert!(!listener.mend());
        drop(listener);
        assert!(dir.path().exists());
    }

    #[test]
    fn mode_and_users_say_who_gets_in() {
        let dir = Dir::new();
        let me = rustix::process::getuid().as_raw();
        let user = |id: u32| User::read(&id.to_string()).unwrap();
        for (users, allowed) in [(vec![], true), (vec![user(me)], true), (vec![user(me + 1)], false)] {
            let access = SocketAccess { mode: Mode(0o640), users, ..SocketAccess::private() };
            let listener = Listener::claim(&dir.path(), &access).unwrap();
            assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o777, 0o640);
            let _stream = UnixStream::connect(dir.path()).unwrap();
            match listener.accept() {
                Ok(_) => assert!(allowed),
                Err(error) => assert!(!allowed && error.kind() == io::ErrorKind::WouldBlock),
            }
        }
        drop(claim(&dir).unwrap());
    }
}
