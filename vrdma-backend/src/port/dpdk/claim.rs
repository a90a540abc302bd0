//! The network interface of an uplink: its claim, its MTU, its removal and its return.

use super::interface::Interface;
use crate::ratelimit::{RateLimit, limited};
use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The MTU if neither the configuration nor an interface gives one.
const DEFAULT_MTU: u16 = 1500;
/// The largest MTU: that of jumbo frames on usual switches.
const MAX_MTU: u16 = 9600;
/// How often an interface's MTU and name are checked.
///
/// It is also the delay before a failed attempt to take an interface again is repeated.
const SELDOM: Duration = Duration::from_secs(1);

/// An interface that this process has claimed. Dropping this restores its MTU.
#[derive(Debug)]
pub struct ClaimedInterface {
    interface: Interface,
    /// Restored first.
    mtu_change: Option<MtuChange>,
    /// Released last, so that no other daemon takes the interface before.
    _claim: Claim,
}

/// A changed MTU of an interface. Dropping this restores the interface's own MTU.
#[derive(Debug)]
struct MtuChange {
    interface: Interface,
    was: u16,
    now: u16,
}

impl Drop for MtuChange {
    fn drop(&mut self) {
        // Not if somebody else has changed it meanwhile, or the interface is gone.
        if self.interface.mtu().is_ok_and(|mtu| mtu == self.now)
            && let Err(error) = self.interface.set_mtu(self.was)
        {
            log::warn!("uplink: the interface keeps MTU {}: {error:#}", self.now);
        }
    }
}

impl Drop for ClaimedInterface {
    fn drop(&mut self) {
        self.mtu_change = None;
    }
}

/// Returns the MTU of a port: what was configured, or the usual one. It is at most `MAX_MTU`.
///
/// # Errors
/// It is too small for IP.
pub fn port_mtu(asked: Option<u16>) -> Result<u16> {
    let mtu = asked.unwrap_or(DEFAULT_MTU).min(MAX_MTU);
    ensure!(mtu >= 576, "MTU {mtu} is too small for IP");
    Ok(mtu)
}

impl ClaimedInterface {
    /// Claims the interface of this name and sets its MTU if one is configured. Returns the port's
    /// MTU too.
    ///
    /// # Errors
    /// There is no such interface, another daemon has it, or it does not take the MTU.
    pub fn take(name: &str, asked: Option<u16>) -> Result<(ClaimedInterface, u16)> {
        let interface = Interface::open(name)?;
        let claim = Claim::take(interface.index(), name)?;
        let mtu = port_mtu(Some(asked.map_or_else(|| interface.mtu(), Ok)?))?;
        let mut claimed = ClaimedInterface { interface, mtu_change: None, _claim: claim };
        if asked.is_some() {
            claimed.change_mtu(mtu)?;
        }
        Ok((claimed, mtu))
    }

    fn change_mtu(&mut self, mtu: u16) -> Result<()> {
        let was = self.interface.mtu()?;
        if was != mtu {
            self.interface.set_mtu(mtu)?;
            self.mtu_change = Some(MtuChange { interface: self.interface.clone(), was, now: mtu });
        }
        Ok(())
    }

    /// Returns the interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }
}

/// Follows a port's interface over time. It logs when the interface goes, comes back or changes.
#[derive(Debug)]
pub struct InterfacePresence {
    /// The interface that the port had last.
    interface: Interface,
    /// The MTU that was configured. `mtu` is the MTU that the port has.
    asked: Option<u16>,
    mtu: u16,
    /// When the next check, or the next attempt to take the interface, is due.
    due: Instant,
    /// The interface's name and MTU at the last check.
    seen: (String, u16),
    said: RateLimit,
}

impl InterfacePresence {
    /// Starts to follow the interface of a port with this MTU. `asked` is the configured MTU.
    pub fn of(interface: &Interface, asked: Option<u16>, mtu: u16) -> InterfacePresence {
        let (interface, due) = (interface.clone(), Instant::now() + SELDOM);
        let seen = (interface.to_string(), mtu);
        InterfacePresence { interface, asked, mtu, due, seen, said: RateLimit::default() }
    }

    /// Logs what was changed about the interface. It checks that at most once a second.
    pub fn look(&mut self) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        self.due = now + SELDOM;
        let (Ok(name), Ok(mtu)) = (self.interface.current_name(), self.interface.mtu()) else { return };
        let configured = &self.interface;
        if name != self.seen.0 {
            limited!(self.said, Info; "uplink: the interface {} is called {name} now", self.seen.0);
        }
        if mtu < self.mtu && mtu != self.seen.1 {
            let ours = self.mtu;
            limited!(self.said, Warn; "uplink: the interface {configured} has MTU {mtu} now, so frames beyond that are lost: `ip link set {name} mtu {ours}`");
        } else if mtu >= self.mtu && self.seen.1 < self.mtu {
            limited!(self.said, Info; "uplink: the interface {configured} has MTU {mtu} again");
        }
        self.seen = (name, mtu);
    }

    /// Records and logs that the interface is gone.
    pub fn lost(&mut self) {
        self.due = Instant::now();
        let name = &self.interface;
        limited!(self.said, Warn;
            "uplink: the interface {name} is gone: the link is down until there is one of this name again");
    }

    /// Takes the interface that has the configured name again, if there is one.
    ///
    /// Its MTU is raised to that of the port if it is lower.
    pub fn retake(&mut self) -> Option<ClaimedInterface> {
        let now = Instant::now();
        if now < self.due || !self.interface.is_back() {
            return None;
        }
        let name = self.interface.to_string();
        let take = || {
            let (mut claimed, has) = ClaimedInterface::take(&name, self.asked)?;
            if has < self.mtu {
                claimed.change_mtu(self.mtu)?;
            }
            Ok(claimed)
        };
        take().map_err(|error| self.failed(&error)).ok()
    }

    /// Logs that the interface cannot be used. The next attempt is made later.
    pub fn failed(&mut self, error: &anyhow::Error) {
        self.due = Instant::now() + SELDOM;
        let name = &self.interface;
        limited!(self.said, Warn;
            "uplink: the interface {name} is there again, but cannot be had: {error:#}");
    }

    /// Records and logs that the port has this interface.
    pub fn has(&mut self, interface: &Interface) {
        self.interface = interface.clone();
        self.due = Instant::now() + SELDOM;
        self.seen = (self.interface.to_string(), self.mtu);
        let (name, index) = (&self.interface, self.interface.index());
        limited!(self.said, Info; "uplink: the interface {name} is there again, with number {index}");
    }
}

/// A claim on an interface, which excludes other daemons of this program until it is dropped.
///
/// It is a socket that listens at an abstract address. Each network namespace has its own abstract
/// addresses, as it has its own interfaces. The address contains the interface's number, so another
/// name for the interface does not matter. A process that finds the address in use connects to it,
/// to learn which process owns it.
#[derive(Debug)]
struct Claim(#[allow(dead_code, reason = "held for its address, which ends with it")] OwnedFd);

impl Claim {
    /// Claims the interface with this number. `name` is for messages.
    ///
    /// # Errors
    /// A daemon has the interface already, perhaps this one.
    fn take(index: i32, name: &str) -> Result<Claim> {
        let address = SocketAddrUnix::new_abstract_name(format!("vrdma-backend/uplink/{index}").as_bytes())?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = || rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let own = socket().context("a socket")?;
        match rustix::net::bind(&own, &address) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => {
                let other = socket().context("a socket")?;
                let owner = rustix::net::connect(&other, &address)
                    .and_then(|()| rustix::net::sockopt::socket_peercred(&other))
                    .map(|peer| peer.pid.as_raw_pid());
                let own = rustix::process::getpid().as_raw_pid();
                match owner {
                    Ok(pid) if pid == own => bail!("the interface {name} is in use by this process already"),
                    Ok(pid) if pid > 0 => bail!(
                        "the interface {name} is in use by another vrdma-backend, process {pid}: stop it, or name another interface"
                    ),
                    // The owner is in another PID namespace, or has just ended.
                    _ => bail!(
                        "the interface {name} is in use by another vrdma-backend: stop it, or name another interface"
                    ),
                }
            }
            Err(error) => return Err(error).with_context(|| format!("interface {name}: its claim")),
        }
        // Connections are never accepted. The kernel reports the owner's PID without that.
        rustix::net::listen(&own, 16).with_context(|| format!("interface {name}: its claim"))?;
        Ok(Claim(own))
    }
}
