//! Connects to front-ends that listen.

use super::admission::Admission;
use super::guard::PeerGuard;
use super::peer::Peer;
use super::stream::stream_socket;
use crate::config::User;
use crate::ratelimit::{RateLimit, limited};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::cell::RefCell;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long to wait before the next attempt to connect.
pub const AGAIN: Duration = Duration::from_secs(1);

/// Connects to the front-end of a function, which listens at a path.
#[derive(Debug)]
pub struct Connector {
    /// Name of the guest.
    guest: String,
    path: PathBuf,
    guard: PeerGuard,
    admission: Admission,
    /// Why there was no front-end at the last attempt.
    absence: RefCell<Option<Absence>>,
    changes: RefCell<RateLimit>,
}

/// Why an attempt gave no front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    /// Nobody listens, or the queue of connections is full. That ends when the VMM is ready.
    NotYet(Errno),
    /// Somebody has to mend this.
    Failed(Errno),
    /// The one that listens may not be the guest's front-end.
    Refused(Peer),
}

impl From<Errno> for Absence {
    fn from(error: Errno) -> Absence {
        match error {
            Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN => Absence::NotYet(error),
            _ => Absence::Failed(error),
        }
    }
}

impl Connector {
    /// Makes a connector to a guest's front-end, whose socket has to be of one of these users.
    ///
    /// The kernel tells which process called listen(2) (unix(7), SO_PEERCRED). Another one may have
    /// inherited the socket from it.
    pub fn new(guest: &str, path: &Path, users: &[User]) -> Connector {
        Connector {
            guest: guest.to_owned(),
            path: path.to_owned(),
            guard: PeerGuard::new(users, Some(guest.to_owned())),
            admission: Admission::default(),
            absence: RefCell::default(),
            changes: RefCell::default(),
        }
    }

    /// Returns whether it connects to new front-ends, to be changed.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Connects to the front-end, as a blocking stream.
    ///
    /// A failure is logged if it is another than that of the attempt before.
    ///
    /// # Errors
    /// It does not listen, may not be the guest's front-end, or the daemon drains (`WouldBlock`).
    /// Otherwise the system is out of a resource.
    pub fn connect(&self) -> io::Result<UnixStream> {
        if !self.admission.is_open() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let stream = self.attempt()?;
        let absence = stream.as_ref().err().copied();
        let before = self.absence.replace(absence);
        if let Some(absence) = absence.filter(|absence| before != Some(*absence)) {
            self.tell(absence);
        }
        stream.map_err(|_| io::ErrorKind::WouldBlock.into())
    }

    fn attempt(&self) -> io::Result<Result<UnixStream, Absence>> {
        let connect = || -> rustix::io::Result<UnixStream> {
            let socket = stream_socket()?;
            // A front-end whose queue of connections is full gives EAGAIN.
            rustix::net::connect(&socket, &SocketAddrUnix::new(&self.path)?)?;
            Ok(UnixStream::from(socket))
        };
        let stream = match connect() {
            Ok(stream) => stream,
            Err(error) => return Ok(Err(Absence::from(error))),
        };
        stream.set_nonblocking(false)?;
        Ok(match self.guard.intruder(&stream)? {
            Some(peer) => Err(Absence::Refused(peer)),
            None => Ok(stream),
        })
    }

    fn tell(&self, absence: Absence) {
        let (guest, shown) = (&self.guest, self.path.display());
        let mut changes = self.changes.borrow_mut();
        match absence {
            Absence::NotYet(Errno::AGAIN) => limited!(changes, Info, guest = guest;
                "guest {guest}: the front-end at {shown} accepts nobody yet: tried again each second"),
            Absence::NotYet(error) => limited!(changes, Info, guest = guest;
                "guest {guest}: no front-end listens at {shown} ({error}): tried again each second"),
            Absence::Failed(error) => limited!(changes, Warn, guest = guest;
                "guest {guest}: cannot connect to {shown}: {error}; tried again each second"),
            Absence::Refused(peer) => limited!(changes, Warn, guest = guest;
                "guest {guest}: {shown} is refused: the guest's users do not name the maker of its listener, {peer}; tried again each second"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Word;
    use std::os::unix::net::UnixListener;

    /// Connects, which has to fail. Returns why.
    fn absence(connector: &Connector) -> Absence {
        assert_eq!(connector.connect().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        connector.absence.borrow().expect("there is no front-end")
    }

    #[test]
    fn a_front_end_may_come_later_and_has_to_be_of_the_users() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("s");
        let me = rustix::process::getuid().as_raw();
        let connector = |users: &[u32]| {
            let users: Vec<User> = users.iter().map(|id| User::read(&id.to_string()).unwrap()).collect();
            Connector::new("a", &path, &users)
        };
        let ours = connector(&[me]);
        assert_eq!(absence(&ours), Absence::NotYet(Errno::NOENT));
        let listener = UnixListener::bind(&path).unwrap();
        ours.connect().unwrap();
        assert_eq!(*ours.absence.borrow(), None);
        listener.accept().unwrap();
        ours.admission().set_draining(true);
        assert_eq!(ours.connect().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        ours.admission().set_draining(false);
        ours.connect().unwrap();
        assert!(connector(&[]).connect().is_ok());
        drop(listener);
        assert_eq!(absence(&ours), Absence::NotYet(Errno::CONNREFUSED));
    }

    /// Only a change of this state is logged.
    #[test]
    fn a_refused_front_end_stays_refused_until_something_changes() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("s");
        let other = rustix::process::getuid().as_raw() + 1;
        let theirs = Connector::new("a", &path, &[User::read(&other.to_string()).unwrap()]);
        let listener = UnixListener::bind(&path).unwrap();
        let first = absence(&theirs);
        assert!(matches!(first, Absence::Refused(_)), "{first:?}");
        assert_eq!(absence(&theirs), first, "a second attempt changes nothing");
        drop(listener);
        assert_eq!(absence(&theirs), Absence::NotYet(Errno::CONNREFUSED));
    }

    #[test]
    fn what_somebody_has_to_mend_is_another_absence() {
        let long = "x".repeat(200);
        let connector = Connector::new("a", Path::new(&long), &[]);
        assert_eq!(absence(&connector), Absence::Failed(Errno::NAMETOOLONG));
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("s");
        let _datagrams = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        assert_eq!(absence(&Connector::new("a", &path, &[])), Absence::Failed(Errno::PROTOTYPE));
    }
}
