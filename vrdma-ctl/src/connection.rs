//! Finds the daemon's socket.

use std::path::{Path, PathBuf};
use std::time::Duration;
use vrdma_admin::{ADMIN, Client, ClientError, OBSERVE};

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where the daemon listens.
#[derive(Debug)]
pub struct Connection {
    /// The socket that the command line names.
    socket: Option<PathBuf>,
}

impl Connection {
    /// Returns the connection to this socket, or to a usual one.
    pub fn new(socket: Option<&Path>) -> Connection {
        Connection { socket: socket.map(Path::to_owned) }
    }

    /// Connects to look. Both sockets will do, and the admin socket tells a little more.
    ///
    /// # Errors
    /// Neither can be reached.
    pub fn to_observe(&self) -> Result<Client, ClientError> {
        match &self.socket {
            Some(path) => client(path),
            None => client(Path::new(ADMIN)).or_else(|_| client(Path::new(OBSERVE))),
        }
    }

    /// Connects to change something.
    ///
    /// # Errors
    /// The socket cannot be reached.
    pub fn to_administer(&self) -> Result<Client, ClientError> {
        client(self.socket.as_deref().unwrap_or(Path::new(ADMIN)))
    }
}

fn client(path: &Path) -> Result<Client, ClientError> {
    let client = Client::connect(path)?;
    client.set_timeout(Some(PATIENCE))?;
    Ok(client)
}
