//! Opens the sockets of guests.

use crate::config::{Config, GuestConfig, MeetingPlace};
use crate::socket::{Connector, Inherited, Listener, SocketAccess, SocketSide};
use anyhow::{Context, Result};
use std::sync::Arc;

/// The sockets of an RDMA function and of an Ethernet function, where the guest has these.
pub type GuestSockets = [Option<SocketSide>; 2];

/// Opens the sockets of one RDMA function, and of the Ethernet function of the same guest.
///
/// `guest` is one of [`Config::resolved_guests`].
///
/// # Errors
/// A socket is not available. The error names its guest and key.
pub fn guest_sockets(
    config: &Config,
    guest: &GuestConfig,
    inherited: &mut Inherited,
) -> Result<GuestSockets> {
    Ok([
        side(config, guest, guest.rdma_place(), ["socket", "fd"], inherited)?,
        side(config, guest, guest.net_place(), ["net", "net_fd"], inherited)?,
    ])
}

/// Opens the socket of a function. The keys name it in messages: that of a path, and that of a
/// descriptor.
fn side(
    config: &Config,
    guest: &GuestConfig,
    place: Option<MeetingPlace<'_>>,
    [socket, fd]: [&str; 2],
    inherited: &mut Inherited,
) -> Result<Option<SocketSide>> {
    let Some(place) = place else { return Ok(None) };
    if let MeetingPlace::Connect(path) = place {
        let connector = Connector::new(guest.configured_name(), path, &guest.users);
        return Ok(Some(SocketSide::Client(Box::new(connector))));
    }
    let key = if matches!(place, MeetingPlace::Socket(_)) { socket } else { fd };
    let key = format!("guest {}: {key}", guest.name);
    let access = SocketAccess::to_guest(config, guest);
    let listener = listener(place, &key, &access, inherited).context(key)?;
    Ok(Some(SocketSide::Server(Arc::new(listener))))
}

/// Opens a socket that listens. `key` names it in messages.
///
/// # Errors
/// It is not available.
pub fn listener(
    place: MeetingPlace<'_>,
    key: &str,
    access: &SocketAccess,
    inherited: &mut Inherited,
) -> Result<Listener> {
    match place {
        MeetingPlace::Socket(path) => Listener::claim(path, access),
        MeetingPlace::Descriptor(descriptor) => {
            Listener::inherit(&place.to_string(), inherited.take(descriptor, key)?, access)
        }
        MeetingPlace::Connect(_) => unreachable!("a daemon that connects does not listen"),
    }
}
