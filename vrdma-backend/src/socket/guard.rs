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
    refusals: Mutex<RateLimit>,
}

impl PeerGuard {
    /// Lets processes of these users pass, or all if there are none.
    pub fn new(users: &[User]) -> PeerGuard {
        PeerGuard { users: users.to_vec(), refusals: Mutex::default() }
    }

    /// Checks who is at the other end. `shown` is the socket's name in messages.
    ///
    /// # Errors
    /// The process may not be there (`WouldBlock`). That is logged.
    pub fn check(&self, stream: &UnixStream, shown: impl Display) -> io::Result<()> {
        if self.users.is_empty() {
            return Ok(());
        }
        let peer = Peer::of(stream)?;
        if self.users.iter().any(|allowed| allowed.id == peer.user) {
            return Ok(());
        }
        let mut refusals = self.refusals.lock().expect("no thread panics with it");
        limited!(refusals, Warn; "{shown}: {peer} is refused: the guest's users do not name it");
        Err(io::ErrorKind::WouldBlock.into())
    }
}
