//! The interface of an uplink: it is ours alone, has the MTU that we want, may go, and come back.

use super::claim::Claim;
use super::interface::Interface;
use crate::ratelimit::RateLimit;
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

/// MTU where neither the configuration nor an interface says one.
const DEFAULT_MTU: u16 = 1500;
/// Largest MTU: jumbo frames as switches have them.
const MAX_MTU: u16 = 9600;
/// How often an interface's MTU and name are looked at, and how long after a failure it is tried to
/// take one again.
const SELDOM: Duration = Duration::from_secs(1);

/// An interface that this process has claimed. Its MTU is as before again once this is dropped.
#[derive(Debug)]
pub struct Held {
    interface: Interface,
    /// Given back first.
    mtu_change: Option<MtuChange>,
    /// Others may have it after all else.
    _claim: Claim,
}

/// An MTU that is not the interface's own: it gets that back when this is dropped.
#[derive(Debug)]
struct MtuChange {
    interface: Interface,
    was: u16,
    now: u16,
}

impl Drop for MtuChange {
    fn drop(&mut self) {
        // Unless somebody else has changed it meanwhile, or the interface is gone.
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

/// The MTU of a port: what was asked for, else the usual one.
///
/// # Errors
/// It is too small.
pub fn port_mtu(asked: Option<u16>) -> Result<u16> {
    let mtu = asked.unwrap_or(DEFAULT_MTU).min(MAX_MTU);
    ensure!(mtu >= 576, "MTU {mtu} is too small for IP");
    Ok(mtu)
}

impl Held {
    /// Claims the interface of this name, and gives it the MTU that is asked for. Also what the
    /// port's MTU is.
    ///
    /// # Errors
    /// There is none, another daemon has it, or it does not take the MTU.
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

    /// The interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }
}

/// What a port knows of its interface over the time: it says when that goes, comes, and changes.
#[derive(Debug)]
pub struct Presence {
    /// The one that the port had last.
    interface: Interface,
    /// That was asked for; what the port has.
    asked: Option<u16>,
    mtu: u16,
    /// When it is looked at, or tried for, again.
    due: Instant,
    /// What it was called and had when last looked at.
    seen: (String, u16),
    said: RateLimit,
}

impl Presence {
    /// Of an interface, of which an MTU was asked for, of a port with this MTU.
    pub fn of(interface: &Interface, asked: Option<u16>, mtu: u16) -> Presence {
        let (interface, due) = (interface.clone(), Instant::now() + SELDOM);
        let seen = (interface.to_string(), mtu);
        Presence { interface, asked, mtu, due, seen, said: RateLimit::default() }
    }

    /// Says, now and then, what somebody has changed of it.
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

    /// It is gone.
    pub fn lost(&mut self) {
        self.due = Instant::now();
        let name = &self.interface;
        self.said.warn(|| {
            format!(
                "uplink: the interface {name} is gone: the link is down until there is one of this name again"
            )
        });
    }

    /// Takes the interface that has the configured name now, if there is one, with the port's MTU
    /// at least.
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

    /// It cannot be had, or is of no use: said, and tried again later.
    pub fn failed(&mut self, error: &anyhow::Error) {
        self.due = Instant::now() + SELDOM;
        let name = &self.interface;
        self.said
            .warn(|| format!("uplink: the interface {name} is there again, but cannot be had: {error:#}"));
    }

    /// The port has this one now.
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
