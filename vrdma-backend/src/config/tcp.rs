//! Whose TCP iWARP goes over.

use serde::{Deserialize, Serialize};

/// Whose TCP iWARP goes over. (Our own is to come.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tcp {
    /// The host's: by sockets of the daemon.
    Kernel,
}
