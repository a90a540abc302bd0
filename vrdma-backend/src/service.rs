//! What the service manager (systemd) hears from this process: sd_notify(3).
//!
//! A process has one service manager, as it has one log, so functions reach it from anywhere. They
//! do nothing where there is none, for instance in tests and on a terminal.
//!
//! The socket is connected once, at the start. A process that gives up its view of the file system
//! later still has it.

use rustix::io::Errno;
use rustix::net::SendFlags;
use sd_notify::NotifyState;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

static SERVICE: OnceLock<Service> = OnceLock::new();

/// The service manager, and the last status that it was told.
struct Service {
    socket: UnixDatagram,
    status: Mutex<Status>,
}

/// The state of the daemon in a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Status {
    /// Front-ends that are connected.
    connected: usize,
    /// Front-ends that may connect: one for each function of a guest. 0 until the daemon is ready.
    functions: usize,
    uplink: Option<String>,
    /// Whether the uplink's link is up.
    link: bool,
}

impl Display for Status {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} front-ends connected, ", self.connected, self.functions)?;
        match &self.uplink {
            Some(uplink) => write!(f, "uplink {uplink} {}", if self.link { "up" } else { "down" }),
            None => f.write_str("no uplink"),
        }
    }
}

/// Connects to the service manager, if NOTIFY_SOCKET names one.
pub fn start() {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return };
    let connect = || {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(&name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        io::Result::Ok(socket)
    };
    match connect() {
        Ok(socket) => _ = SERVICE.set(Service { socket, status: Mutex::default() }),
        Err(error) => {
            log::warn!("the service manager is not reached (NOTIFY_SOCKET={}): {error}", name.display());
        }
    }
}

/// Tells that the daemon is ready.
///
/// It serves this number of functions, each of which has a front-end.
pub fn ready(functions: usize, uplink: Option<String>) {
    let Some(service) = SERVICE.get() else { return };
    let mut status = service.status();
    (status.functions, status.uplink) = (functions, uplink);
    let text = status.to_string();
    service.tell(&[NotifyState::Ready, NotifyState::Status(&text)], SendFlags::empty());
}

/// Tells that the configuration is read again. [`ready`] ends that.
pub fn reloading() {
    let Some(service) = SERVICE.get() else { return };
    let now = NotifyState::monotonic_usec_now();
    let states = [Some(NotifyState::Reloading), now.ok()];
    service.tell(&states.into_iter().flatten().collect::<Vec<_>>(), SendFlags::empty());
}

/// Tells that the daemon ends.
pub fn stopping() {
    if let Some(service) = SERVICE.get() {
        // Front-ends that leave from here on are no news.
        service.status().functions = 0;
        service.tell(&[NotifyState::Stopping, NotifyState::Status("stopping")], SendFlags::empty());
    }
}

/// Returns after which time without [`alive`] the service manager ends this process. `None`: never.
pub fn watchdog() -> Option<Duration> {
    SERVICE.get()?;
    sd_notify::watchdog_enabled().filter(|time| !time.is_zero())
}

/// Tells that all workers make progress.
pub fn alive() {
    if let Some(service) = SERVICE.get() {
        service.tell(&[NotifyState::Watchdog], SendFlags::DONTWAIT);
    }
}

/// Tells that the link of the uplink went up or down.
pub fn link(up: bool) {
    update(|status| status.link = up);
}

/// A connected front-end, until this is dropped.
#[derive(Debug)]
pub struct CountedFrontEnd(());

impl CountedFrontEnd {
    /// Tells that a front-end came.
    pub fn count() -> CountedFrontEnd {
        update(|status| status.connected += 1);
        CountedFrontEnd(())
    }
}

impl Drop for CountedFrontEnd {
    fn drop(&mut self) {
        update(|status| status.connected -= 1);
    }
}

/// Changes the status, and tells it if the daemon is ready.
fn update(change: impl FnOnce(&mut Status)) {
    let Some(service) = SERVICE.get() else { return };
    let mut status = service.status();
    let before = status.clone();
    change(&mut status);
    if status.functions != 0 && *status != before {
        let text = status.to_string();
        // A worker may be the caller. It does not wait for the service manager.
        service.tell(&[NotifyState::Status(&text)], SendFlags::DONTWAIT);
    }
}

impl Service {
    fn status(&self) -> MutexGuard<'_, Status> {
        // Each change is one assignment, so the status is consistent even after a panic.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, states: &[NotifyState<'_>], flags: SendFlags) {
        let text: String = states.iter().map(|state| format!("{state}\n")).collect();
        match rustix::net::send(&self.socket, text.as_bytes(), flags | SendFlags::NOSIGNAL) {
            // It has more messages than it reads. The next status says more.
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(error) => log::debug!("the service manager does not hear '{}': {error}", text.trim()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_a_sentence() {
        let alone = Status { connected: 1, functions: 3, ..Status::default() };
        assert_eq!(alone.to_string(), "1 of 3 front-ends connected, no uplink");
        let uplink = Status { uplink: Some("net_packet0,iface=eth1".into()), ..alone };
        assert_eq!(uplink.to_string(), "1 of 3 front-ends connected, uplink net_packet0,iface=eth1 down");
        let up = Status { link: true, ..uplink };
        assert!(up.to_string().ends_with(" up"));
    }
}
