//! Listeners: where connections are accepted.

use super::limits::Refused;
use super::state::{Listener, Stack};
use crate::config::Config;
use crate::connection::Connection;
use crate::tuple::Tuple;
use std::collections::VecDeque;
use vrdma_wire::num::Gid;

/// The key of a listener for all addresses of a host.
const ANY: [u8; 16] = [0; 16];

impl Stack {
    /// Returns the key of the listener at an address, or else of the one at all addresses.
    pub(super) fn listener_of(&self, tuple: &Tuple) -> Option<([u8; 16], u16)> {
        let keys = [(tuple.local.0, tuple.ports.local), (ANY, tuple.ports.local)];
        keys.into_iter().find(|key| self.listeners.contains_key(key))
    }

    /// Accepts connections at a port, of one address or (all zero) of every address.
    ///
    /// At most `backlog` half-open connections are kept. Beyond that, the oldest one is removed if
    /// it has waited for long. A genuine peer completes its connection within a round trip, and a
    /// flood never does. If none has waited for long, SYNs are answered by cookies (RFC 4987, 3.6).
    pub fn listen(&mut self, local: Gid, port: u16, backlog: usize, config: Config) -> Result<(), Refused> {
        if self.listeners.contains_key(&(local.0, port)) {
            return Err(Refused::InUse);
        }
        let listener =
            Listener { config: self.share(config), backlog: backlog.max(1), half_open: VecDeque::new() };
        self.listeners.insert((local.0, port), listener);
        Ok(())
    }

    /// Removes a listener, and ends its half-open connections.
    pub fn unlisten(&mut self, local: Gid, port: u16) {
        let Some(listener) = self.listeners.remove(&(local.0, port)) else { return };
        for id in listener.half_open {
            if self.table.get(id).is_some_and(|entry| entry.half_open) {
                self.change(id, Connection::abort);
            }
        }
    }
}
