//! Whose TCP iWARP goes over.

use serde::{Deserialize, Serialize};

/// Whose TCP iWARP goes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tcp {
    /// The daemon's: from addresses of the guest, by the uplink.
    #[default]
    Own,
    /// The host's: by sockets of the daemon, from addresses of the host.
    Kernel,
}
