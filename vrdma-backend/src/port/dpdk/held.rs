//! The network interface of an uplink: its claim, its MTU, its removal and its return.

use super::claim::Claim;
use super::interface::Interface;
use crate::ratelimit::RateLimit;
use anyhow::{Result, ensure};
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
pub struct Held {
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

impl Drop for Held {
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

impl Held {
    /// Claims the interface of this name and sets its MTU if one is configured. Returns the port's
    /// MTU too.
    ///
    /// # Errors
    /// There is no such interface, another daemon has it, or it does not take the MTU.
    pub fn take(name: &str, asked: Option<u16>) -> Result<(Held, u16)> {
        let interface = Interface::open(name)?;
        let claim = Claim::take(interface.index(), name)?;
        let mtu = port_mtu(Some(asked.map_or_else(|| interface.mtu(), Ok)?))?;
        let mut held = Held { interface, mtu_change: None, _claim: claim };
        if asked.is_some() {
            held.change_mtu(mtu)?;
        }
        Ok((held, mtu))
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
pub struct Presence {
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

impl Presence {
    /// Starts to follow the interface of a port with this MTU. `asked` is the configured MTU.
    pub fn of(interface: &Interface, asked: Option<u16>, mtu: u16) -> Presence {
        let (interface, due) = (interface.clone(), Instant::now() + SELDOM);
        let seen = (interface.to_string(), mtu);
        Presence { interface, asked, mtu, due, seen, said: RateLimit::default() }
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
            self.said.log(log::Level::Info, || {
                format!("uplink: the interface {} is called {name} now", self.seen.0)
            });
        }
        if mtu < self.mtu && mtu != self.seen.1 {
            let ours = self.mtu;
            self.said.warn(|| format!("uplink: the interface {configured} has MTU {mtu} now, so frames beyond that are lost: `ip link set {name} mtu {ours}`"));
        } else if mtu >= self.mtu && self.seen.1 < self.mtu {
            self.said
                .log(log::Level::Info, || format!("uplink: the interface {configured} has MTU {mtu} again"));
        }
        self.seen = (name, mtu);
    }

    /// Records and logs that the interface is gone.
    pub fn lost(&mut self) {
        self.due = Instant::now();
        let name = &self.interface;
        self.said.warn(|| {
            format!(
                "uplink: the interface {name} is gone: the link is down until there is one of this name again"
            )
        });
    }

    /// Takes the interface that has the configured name again, if there is one.
    ///
    /// Its MTU is raised to that of the port if it is lower.
    pub fn retake(&mut self) -> Option<Held> {
        let now = Instant::now();
        if now < self.due || !self.interface.is_back() {
            return None;
        }
        let name = self.interface.to_string();
        let take = || {
            let (mut held, has) = Held::take(&name, self.asked)?;
            if has < self.mtu {
                held.change_mtu(self.mtu)?;
            }
            Ok(held)
        };
        take().map_err(|error| self.failed(&error)).ok()
    }

    /// Logs that the interface cannot be used. The next attempt is made later.
    pub fn failed(&mut self, error: &anyhow::Error) {
        self.due = Instant::now() + SELDOM;
        let name = &self.interface;
        self.said
            .warn(|| format!("uplink: the interface {name} is there again, but cannot be had: {error:#}"));
    }

    /// Records and logs that the port has this interface.
    pub fn has(&mut self, interface: &Interface) {
        self.interface = interface.clone();
        self.due = Instant::now() + SELDOM;
        self.seen = (self.interface.to_string(), self.mtu);
        let (name, index) = (&self.interface, self.interface.index());
        self.said.log(log::Level::Info, || {
            format!("uplink: the interface {name} is there again, with number {index}")
        });
    }
}
