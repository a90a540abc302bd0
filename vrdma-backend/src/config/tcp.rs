//! The choice of the TCP that iWARP uses.

use serde::{Deserialize, Serialize};

/// The TCP that iWARP uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tcp {
    /// The daemon's own TCP: from the guest's addresses, over the uplink.
    #[default]
    Own,
    /// The host's TCP: sockets of the daemon, with the host's addresses.
    Kernel,
}
