//! A network of this process's own, with a veth in it.

use anyhow::{Context, Result, bail, ensure};
use std::process::Command;

/// Enters a new network namespace. Without root, it also enters a new user namespace.
///
/// Threads and programs that this thread starts later are in the namespace, too.
///
/// # Errors
/// The system refuses.
pub fn own_network() -> Result<()> {
    // SAFETY: this is a plain system call.
    let unshare = |flags| unsafe { libc::unshare(flags) } == 0;
    if unshare(libc::CLONE_NEWNET) || unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) {
        return Ok(());
    }
    bail!("a veth wants root, or a user namespace: {}", std::io::Error::last_os_error())
}

/// Makes the veth with the ends `va` and `vb`.
///
/// # Errors
/// The system refuses, or there is no program `ip`.
pub fn make_veth() -> Result<()> {
    ip("link add va type veth peer name vb")
}

/// Sets the MTU of both ends of the veth, and brings them up.
///
/// # Errors
/// The system refuses.
pub fn bring_up(mtu: u16) -> Result<()> {
    for end in ["va", "vb"] {
        ip(&format!("link set {end} mtu {mtu}"))?;
        ip(&format!("link set {end} up"))?;
    }
    Ok(())
}

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output().context("ip (Debian: iproute2)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {arguments}: {}", said.trim());
    Ok(())
}
