//! Makes sure that an interface is the uplink of one daemon only.

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;

/// A claim on an interface, which excludes other daemons of this program until it is dropped.
///
/// It is a socket that listens at an abstract address. Each network namespace has its own abstract
/// addresses, as it has its own interfaces. The address contains the interface's number, so another
/// name for the interface does not matter. A process that finds the address in use connects to it,
/// to learn which process owns it.
#[derive(Debug)]
pub struct Claim(#[allow(dead_code, reason = "held for its address, which ends with it")] OwnedFd);

impl Claim {
    /// Claims the interface with this number. `name` is for messages.
    ///
    /// # Errors
    /// A daemon has the interface already, perhaps this one.
    pub fn take(index: i32, name: &str) -> Result<Claim> {
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
