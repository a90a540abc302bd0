//! Disturbances of running programs.

use std::fmt;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vrdma_lab::driver::wait_for_device;
use vrdma_lab::vm::Pair;

use crate::lineup::{PathMtu, Running, prepare};

/// A disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// All clients are killed.
    KillClients,
    /// All servers are killed.
    KillServers,
    /// VM b's driver is removed and loaded again.
    RemoveDriver,
    /// VM b is reset.
    Reset,
    /// VM b's QEMU is killed, and the VM is booted again.
    KillVm,
    /// VM b's interface, or with two hosts its host's cable, is down for this many milliseconds.
    LinkDown(u64),
    /// The backends are stopped for this many milliseconds.
    Stop(u64),
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillClients => f.write_str("kill -9 of the clients"),
            Self::KillServers => f.write_str("kill -9 of the servers"),
            Self::RemoveDriver => f.write_str("rmmod and insmod in VM b"),
            Self::Reset => f.write_str("reset of VM b"),
            Self::KillVm => f.write_str("kill -9 of VM b's QEMU"),
            Self::LinkDown(time) => write!(f, "VM b's link down for {time} ms"),
            Self::Stop(time) => write!(f, "the backend stopped for {time} ms"),
        }
    }
}

impl Disturbance {
    /// Chooses a disturbance. In a third of the rounds there is none.
    pub fn choose(rng: &mut fastrand::Rng) -> Option<Self> {
        Some(match rng.u32(..18) {
            0..3 => Self::KillClients,
            3..6 => Self::KillServers,
            6..8 => Self::RemoveDriver,
            8 => Self::Reset,
            9 => Self::KillVm,
            10 => Self::LinkDown(rng.u64(1..5000)),
            11 => Self::Stop(rng.u64(1..2000)),
            _ => return None,
        })
    }

    /// Chooses a disturbance that leaves VMs and backends running.
    pub fn in_guests(rng: &mut fastrand::Rng) -> Self {
        match rng.u32(..6) {
            0 => Self::KillClients,
            1 => Self::KillServers,
            2 => Self::LinkDown(rng.u64(1..3000)),
            _ => Self::RemoveDriver,
        }
    }

    /// Whether VM b's driver is loaded again.
    pub fn begins_anew(&self) -> bool {
        matches!(self, Self::RemoveDriver | Self::Reset | Self::KillVm)
    }

    /// Executes the disturbance on the pair on which these programs run.
    ///
    /// Afterwards VM b is ready for the next programs.
    pub fn happen(self, pair: &mut Pair, running: &[Running]) -> Result<()> {
        let patience = pair.patience(5);
        match self {
            Self::KillClients => {
                running.iter().try_for_each(|running| running.client.signal(9))?;
                // The servers get some time to react.
                sleep(Duration::from_millis(300));
            }
            Self::KillServers => {
                running
                    .iter()
                    .filter_map(|running| running.server.as_ref())
                    .try_for_each(|job| job.signal(9))?;
                sleep(Duration::from_millis(300));
            }
            Self::RemoveDriver => {
                pair.b.check("rmmod vrdma", patience).context("rmmod beside programs")?;
                pair.b.check("insmod /lib/vrdma/vrdma.ko", patience)?;
            }
            Self::Reset => pair.b.reset()?,
            Self::KillVm => pair.reboot("b")?,
            Self::LinkDown(time) => {
                let wired = pair.wire().is_ok();
                set_link(pair, wired, false)?;
                sleep(Duration::from_millis(time));
                set_link(pair, wired, true)?;
            }
            Self::Stop(time) => {
                let mut pids = Vec::new();
                for backend in pair.backends() {
                    pids.push(Pid::from_raw(i32::try_from(backend.pid())?));
                }
                pids.iter().try_for_each(|pid| kill(*pid, Signal::SIGSTOP))?;
                sleep(Duration::from_millis(time));
                pids.iter().try_for_each(|pid| kill(*pid, Signal::SIGCONT))?;
            }
        }
        wait_for_device(pair)?;
        let readdress = self.begins_anew() || matches!(self, Self::LinkDown(_));
        if readdress { prepare(pair, PathMtu::Jumbo) } else { Ok(()) }
    }
}

fn set_link(pair: &Pair, wired: bool, up: bool) -> Result<()> {
    if wired {
        return pair.wire()?.set_link("b", up);
    }
    let state = if up { "up" } else { "down" };
    // Linux drops an interface's IPv6 addresses when it goes down.
    pair.b.check(&format!("ip link set dev eth0 {state}"), pair.patience(3)).map(|_| ())
}
