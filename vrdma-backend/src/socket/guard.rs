//! Decides whose processes may be at the other end of a socket.

use super::peer::Peer;
use crate::config::User;
use crate::ratelimit::{RateLimit, limited};
use std::fmt::Display;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

/// Decides whose processes may be at the other end of a socket.
#[derive(Debug)]
pub struct PeerGuard {
    /// If empty, all may.
    users: Vec<User>,
    /// Name of the guest whose socket it is. `None` for the admin socket.
    guest: Option<String>,
    refusals: Mutex<RateLimit>,
}

impl PeerGuard {
    /// Lets processes of these users pass, or all if there are none.
    ///
    /// `guest` is the name of the guest whose socket it is.
    pub fn new(users: &[User], guest: Option<String>) -> PeerGuard {
        PeerGuard { users: users.to_vec(), guest, refusals: Mutex::default() }
    }

    /// Returns who is at the other end, if that process may not be there.
    ///
    /// # Errors
    /// The kernel does not tell who is there.
    pub fn intruder(&self, stream: &UnixStream) -> io::Result<Option<Peer>> {
        if self.users.is_empty() {
            return Ok(None);
        }
        let peer = Peer::of(stream)?;
        let may = self.users.iter().any(|allowed| allowed.id == peer.user);
        Ok((!may).then_some(peer))
    }

    /// Checks who is at the other end. `shown` is the socket's name in messages.
    ///
    /// # Errors
    /// The process may not be there (`WouldBlock`). That is logged.
    pub fn check(&self, stream: &UnixStream, shown: impl Display) -> io::Result<()> {
        let Some(peer) = self.intruder(stream)? else { return Ok(()) };
        let mut refusals = self.refusals.lock().expect("no thread panics with it");
        match &self.guest {
            Some(guest) => limited!(refusals, Warn, guest = guest;
                "{shown}: {peer} is refused: the guest's users do not name it"),
            None => limited!(refusals, Warn;
                "{shown}: {peer} is refused: only root and this process's user may connect"),
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}
