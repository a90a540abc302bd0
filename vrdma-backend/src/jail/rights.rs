//! The user and the capabilities of the process.

use super::plan::{Plan, UplinkKind};
use anyhow::{Context, Result, bail, ensure};
use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::{Gid, Uid, User};
use std::ffi::CString;

/// The user that the daemon becomes if none is named and this one exists.
const USUAL: &str = "vrdma";

/// The user that the process becomes.
#[derive(Debug)]
pub struct DaemonUser {
    name: CString,
    user: Uid,
    group: Gid,
}

impl DaemonUser {
    /// Finds the user that the process becomes; `None` if it keeps its user.
    ///
    /// A user that is merely the usual one is no error: the reason why it cannot be had is returned
    /// as text then.
    ///
    /// # Errors
    /// A user was asked for that does not exist, or whom this process cannot become.
    pub fn find(asked: Option<u32>) -> Result<(Option<DaemonUser>, Option<String>)> {
        let own = Uid::effective();
        let found = match asked {
            Some(id) => {
                let found = User::from_uid(Uid::from_raw(id)).context("user")?;
                Some(found.with_context(|| {
                    format!("user = {id}: this host has no such user; its group is needed, so name one that is in `getent passwd`")
                })?)
            }
            None if own.is_root() => User::from_name(USUAL).ok().flatten(),
            None => None,
        };
        let Some(found) = found else {
            if own.is_root() {
                log::info!(
                    "the daemon stays root, because there is no user {USUAL} (`useradd --system {USUAL}`) and `user` names none"
                );
            }
            return Ok((None, None));
        };
        if found.uid == own {
            return Ok((None, None));
        }
        if let Some(missing) = missing_to_change() {
            let reason = format!("user {}: only a process with {missing} becomes another user", found.name);
            ensure!(asked.is_none() || !own.is_root(), "{reason}");
            if own.is_root() {
                return Ok((None, Some(reason)));
            }
        }
        if !own.is_root() {
            bail!(
                "user = {}: user {own} may not become another user: start the daemon as root or as {}, or leave user out",
                found.name,
                found.name
            );
        }
        let user = DaemonUser { name: CString::new(found.name)?, user: found.uid, group: found.gid };
        Ok((Some(user), None))
    }

    /// Returns the user's name.
    pub fn name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// Makes the process, with all its threads, one of this user. The calling thread keeps its
    /// permitted capabilities.
    pub fn become_it(&self) -> Result<()> {
        // Groups before the user: only root may change them.
        nix::unistd::initgroups(&self.name, self.group).context("its groups")?;
        nix::unistd::setresgid(self.group, self.group, self.group).context("its group")?;
        caps::securebits::set_keepcaps(true).context("keep capabilities")?;
        nix::unistd::setresuid(self.user, self.user, self.user).context("its number")?;
        caps::securebits::set_keepcaps(false).context("keep capabilities")?;
        Ok(())
    }
}

/// Returns the name of a capability that this process lacks to become another user.
fn missing_to_change() -> Option<Capability> {
    let has = |capability: &Capability| caps::has_cap(None, CapSet::Effective, *capability).unwrap_or(false);
    [Capability::CAP_SETUID, Capability::CAP_SETGID].into_iter().find(|capability| !has(capability))
}

/// Keeps programs that this process might start from having more rights.
pub fn no_new_privileges() -> Result<()> {
    Ok(nix::sys::prctl::set_no_new_privs()?)
}

/// Empties the bounding set.
///
/// It bounds what programs get that this process starts. A process without CAP_SETPCAP cannot
/// change it. It does not matter then: nobody gains a capability with `NO_NEW_PRIVS`.
pub fn drop_bounding_set() {
    if let Err(error) = caps::clear(None, CapSet::Bounding) {
        log::debug!("the bounding set stays as it is: {error}");
    }
}

/// Returns the capabilities that the daemon needs after the start.
pub fn kept(plan: &Plan) -> CapsHashSet {
    use Capability::{CAP_BPF, CAP_CHOWN, CAP_IPC_LOCK, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN};
    let uplink: &[Capability] = match plan.uplink {
        UplinkKind::None | UplinkKind::Memory | UplinkKind::Memif { .. } => &[],
        // An interface that comes back: its socket, its promiscuous mode, its MTU.
        UplinkKind::NetPacket => &[CAP_NET_RAW, CAP_NET_ADMIN],
        // The rings of the new socket are locked memory.
        UplinkKind::AfPacket | UplinkKind::Virtual => &[CAP_NET_RAW, CAP_NET_ADMIN, CAP_IPC_LOCK],
        // libxdp finds its map by number, which needs CAP_SYS_ADMIN.
        UplinkKind::AfXdp => &[CAP_NET_RAW, CAP_NET_ADMIN, CAP_IPC_LOCK, CAP_BPF, CAP_SYS_ADMIN],
        // Memory of guests that come later is locked for the NIC.
        UplinkKind::Pci { vfio: true } => &[CAP_IPC_LOCK],
        // The kernel's driver checks who makes queues, and sets MTU and promiscuous mode.
        UplinkKind::Pci { vfio: false } => &[CAP_IPC_LOCK, CAP_NET_RAW, CAP_NET_ADMIN],
    };
    let mut all: CapsHashSet = uplink.iter().copied().collect();
    if plan.gives_sockets {
        // A socket whose file was deleted is given to its owner again.
        all.insert(CAP_CHOWN);
    }
    all
}

/// Gives up all capabilities of the calling thread but these.
pub fn keep_only(wanted: &CapsHashSet) -> Result<()> {
    let has = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet = wanted.intersection(&has).copied().collect();
    let _ = caps::clear(None, CapSet::Ambient);
    // The filter of a service may forbid to set what is set already.
    let is_done = |set, expected: &CapsHashSet| caps::read(None, set).is_ok_and(|read| read == *expected);
    if is_done(CapSet::Permitted, &kept)
        && is_done(CapSet::Effective, &kept)
        && is_done(CapSet::Inheritable, &CapsHashSet::new())
    {
        return Ok(());
    }
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    caps::clear(None, CapSet::Inheritable)?;
    Ok(())
}
