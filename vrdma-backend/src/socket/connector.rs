//! Connects to front-ends that listen.

use super::guard::PeerGuard;
use super::stream::stream_socket;
use crate::config::User;
use crate::ratelimit::{RateLimit, limited};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
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
    absence: Mutex<Absence>,
}

/// Why the last attempt failed.
#[derive(Debug, Default)]
struct Absence {
    error: Option<Errno>,
    changes: RateLimit,
}

impl Connector {
    /// Makes a connector to a guest's front-end, which has to be a process of one of these users.
    pub fn new(guest: &str, path: &Path, users: &[User]) -> Connector {
        let guard = PeerGuard::new(users);
        Connector { guest: guest.to_owned(), path: path.to_owned(), guard, absence: Mutex::default() }
    }

    /// Connects to the front-end, as a blocking stream.
    ///
    /// A failure is logged if it is another than that of the attempt before.
    ///
    /// # Errors
    /// It does not listen, or may not be the guest's front-end (`WouldBlock`).
    pub fn connect(&self) -> io::Result<UnixStream> {
        let connect = || {
            let socket = stream_socket()?;
            // A front-end whose queue of connections is full gives EAGAIN.
            rustix::net::connect(&socket, &SocketAddrUnix::new(&self.path)?)?;
            Ok(UnixStream::from(socket))
        };
        let mut absence = self.absence.lock().expect("no thread panics with it");
        let stream = match connect() {
            Ok(stream) => stream,
            Err(error) => {
                if absence.error.replace(error) != Some(error) {
                    let (guest, shown) = (&self.guest, self.path.display());
                    limited!(absence.changes, Info, guest = guest;
                        "guest {guest}: no front-end listens at {shown} ({error}): tried again each second");
                }
                return Err(io::ErrorKind::WouldBlock.into());
            }
        };
        absence.error = None;
        stream.set_nonblocking(false)?;
        self.guard.check(&stream, self.path.display())?;
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Word;
    use std::os::unix::net::UnixListener;

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
        assert_eq!(ours.connect().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let listener = UnixListener::bind(&path).unwrap();
        ours.connect().unwrap();
        listener.accept().unwrap();
        assert!(connector(&[]).connect().is_ok());
        assert_eq!(connector(&[me + 1]).connect().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(listener);
        assert_eq!(ours.connect().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
