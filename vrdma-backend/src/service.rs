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

/// The service manager, and the status of the daemon.
struct Service {
    socket: UnixDatagram,
    status: Mutex<Status>,
}

/// The state of the daemon in a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Status {
    /// Front-ends that are connected.
    connected: usize,
    /// Front-ends that may connect: one for each function of a guest.
    functions: usize,
    /// Whether the daemon is ready, so that the status is told.
    is_ready: bool,
    uplink: Option<String>,
    /// Whether the uplink's link is up.
    link: bool,
    /// Whether the service manager had no room for the last change.
    is_untold: bool,
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
/// It serves this number of functions, each of which may have one front-end.
pub fn ready(functions: usize, uplink: Option<String>) {
    if let Some(service) = SERVICE.get() {
        service.ready(functions, uplink);
    }
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
        service.status().is_ready = false;
        service.tell(&[NotifyState::Stopping, NotifyState::Status("stopping")], SendFlags::empty());
    }
}

/// Whether there is a service manager that hears this process.
pub fn is_heard() -> bool {
    SERVICE.get().is_some()
}

/// Tells the status again if the service manager had no room for it.
pub fn tell_again() {
    if let Some(service) = SERVICE.get() {
        service.tell_again();
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

/// Tells that guests came or left, which have so many functions together.
pub fn functions(functions: usize) {
    update(|status| status.functions = functions);
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
    if let Some(service) = SERVICE.get() {
        service.update(change);
    }
}

impl Service {
    fn status(&self) -> MutexGuard<'_, Status> {
        // Each change is one assignment, so the status is consistent even after a panic.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ready(&self, functions: usize, uplink: Option<String>) {
        let text = {
            let mut status = self.status();
            (status.functions, status.uplink, status.is_ready) = (functions, uplink, true);
            status.to_string()
        };
        // This waits for the service manager. A worker that changes the status meanwhile does not.
        self.tell(&[NotifyState::Ready, NotifyState::Status(&text)], SendFlags::empty());
        let mut status = self.status();
        // The change may have been told before this text.
        if status.to_string() != text {
            self.tell_status(&mut status);
        }
    }

    fn update(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.status();
        let before = status.clone();
        change(&mut status);
        if *status != before {
            self.tell_status(&mut status);
        }
    }

    fn tell_again(&self) {
        let mut status = self.status();
        if status.is_untold {
            self.tell_status(&mut status);
        }
    }

    /// Tells the status if the daemon is ready. It does not wait: a worker may be the caller.
    fn tell_status(&self, status: &mut Status) {
        if status.is_ready {
            let text = status.to_string();
            status.is_untold = !self.tell(&[NotifyState::Status(&text)], SendFlags::DONTWAIT);
        }
    }

    /// Sends states. Returns false if there is no room for them.
    fn tell(&self, states: &[NotifyState<'_>], flags: SendFlags) -> bool {
        let text: String = states.iter().map(|state| format!("{state}\n")).collect();
        match rustix::net::send(&self.socket, text.as_bytes(), flags | SendFlags::NOSIGNAL) {
            Ok(_) => true,
            // It has more messages than it reads.
            Err(Errno::AGAIN) => false,
            Err(error) => {
                log::debug!("the service manager does not hear '{}': {error}", text.trim());
                true
            }
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

    fn pair() -> (Service, UnixDatagram) {
        let (socket, manager) = UnixDatagram::pair().unwrap();
        manager.set_nonblocking(true).unwrap();
        (Service { socket, status: Mutex::default() }, manager)
    }

    fn take(manager: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).ok()?;
        Some(String::from_utf8(bytes[..length].to_vec()).unwrap())
    }

    #[test]
    fn a_status_that_found_no_room_is_told_later() {
        let (service, manager) = pair();
        service.ready(2, None);
        assert_eq!(take(&manager).unwrap(), "READY=1\nSTATUS=0 of 2 front-ends connected, no uplink\n");
        while service.tell(&[NotifyState::Watchdog], SendFlags::DONTWAIT) {}
        service.update(|status| status.connected = 1);
        service.tell_again();
        while let Some(text) = take(&manager) {
            assert_eq!(text, "WATCHDOG=1\n");
        }
        service.tell_again();
        assert_eq!(take(&manager).unwrap(), "STATUS=1 of 2 front-ends connected, no uplink\n");
        service.tell_again();
        assert_eq!(take(&manager), None);
    }

    #[test]
    fn a_status_can_change_while_ready_waits() {
        let (service, manager) = pair();
        while service.tell(&[NotifyState::Watchdog], SendFlags::DONTWAIT) {}
        std::thread::scope(|scope| {
            scope.spawn(|| service.ready(2, None));
            // It would never end if the other thread kept the status while it waits.
            while !service.status().is_ready {
                std::thread::yield_now();
            }
            service.update(|status| status.connected = 1);
            manager.set_nonblocking(false).unwrap();
            let expect = |text: &str| {
                while take(&manager).unwrap() != text {
                    service.tell_again();
                }
            };
            // The last status that the service manager hears is the true one.
            expect("READY=1\nSTATUS=0 of 2 front-ends connected, no uplink\n");
            expect("STATUS=1 of 2 front-ends connected, no uplink\n");
        });
    }
}
