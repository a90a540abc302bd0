//! Namespaces of the daemon, and a root directory with little in it.

use super::plan::Plan;
use anyhow::{Context, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::CloneFlags;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Directories that many programs use.
const OF_MANY: [&str; 7] = ["/run", "/var/run", "/tmp", "/var/tmp", "/dev", "/var", "/etc"];

/// Directories over which the new root may be mounted. They are in each system.
const PLACES: [&str; 4] = ["/mnt", "/tmp", "/run", "/var"];

/// Gives the calling thread, and those that it starts, namespaces of their own.
///
/// # Errors
/// The process lacks CAP_SYS_ADMIN, or the kernel refuses.
pub fn unshare(network: bool) -> Result<()> {
    let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    if network {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    nix::sched::unshare(flags).context(
        "unshare: start the daemon as root, or give `--sandbox none` if something else confines it",
    )?;
    // Nothing that is mounted here shows on the host.
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).context("private mounts")?;
    Ok(())
}

/// What is to be in the new root: a place, and what is mounted there.
struct Visible {
    path: PathBuf,
    source: OwnedFd,
    is_directory: bool,
    is_read_only: bool,
}

/// Changes the root directory of all threads of this mount namespace.
///
/// The new root has the directories that `plan` names, `/proc`, and the files of the system that
/// `shown` names. The current directory keeps its name, so that relative paths lead to the
/// same sockets.
///
/// A directory of sockets of others that is missing may be made later. So its parent is shown
/// instead, or that one's parent.
///
/// Returns what the new root shows more, or less, than it should.
///
/// # Errors
/// The kernel refuses a mount. The root is then the old one.
pub fn change_root(plan: &Plan, shown: &[&str]) -> Result<Vec<String>> {
    let Plan { directories, peers, configuration, .. } = plan;
    let current = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let mut sorted: Vec<&Path> = directories.iter().map(PathBuf::as_path).collect();
    ensure!(
        !sorted.contains(&Path::new("/")),
        "a socket is in the directory /, and the jail shows its whole directory: name another one"
    );
    let mut gaps = Vec::new();
    for peer in peers {
        let nearest = nearest_that_exists(peer);
        if nearest == Path::new("/") {
            gaps.push(format!(
                "sockets of others in {} are not reached: that directory has to be there when the daemon starts",
                peer.display()
            ));
        } else {
            sorted.push(nearest);
        }
    }
    let of_many = sorted.iter().filter(|path| OF_MANY.iter().any(|known| Path::new(known) == **path));
    gaps.extend(of_many.map(|path| {
        format!(
            "all of {} is shown, because a socket is there: give sockets a directory of their own",
            path.display()
        )
    }));
    // Nothing is made beside the configuration file, unless a socket is.
    let configuration = configuration.as_deref().filter(|path| !sorted.contains(path));
    sorted.extend(configuration);
    let mut visible = Vec::new();
    // Outer directories first, so that they do not hide inner ones.
    sorted.sort_by_key(|path| path.components().count());
    sorted.dedup();
    let shown = shown.iter().map(Path::new);
    let systemd = sockets_of_systemd();
    let systemd = systemd.iter().map(PathBuf::as_path);
    for path in sorted.into_iter().chain(shown).chain(systemd) {
        // Opened before anything is hidden by the new root.
        if let Ok(source) = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            let is_directory = path.is_dir();
            let is_read_only = path.starts_with("/sys") || configuration == Some(path);
            visible.push(Visible { path: path.to_owned(), source, is_directory, is_read_only });
        }
    }
    let place = PLACES.iter().find(|place| Path::new(place).is_dir()).context("no directory to mount on")?;
    let place = Path::new(place);
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("jail"), place, Some("tmpfs"), flags, Some("mode=755,size=1M")).context("tmpfs")?;
    // The later user passes through the directories, whatever the umask is.
    let umask = rustix::process::umask(Mode::WGRP | Mode::WOTH);
    let result = fill(place, &visible, &current).and_then(|gap| pivot(place).map(|()| gap));
    rustix::process::umask(umask);
    if result.is_err() {
        let _ = umount2(place, MntFlags::MNT_DETACH);
        let _ = std::env::set_current_dir(&current);
    }
    gaps.extend(result?);
    // Without the directory, relative paths are lost.
    std::env::set_current_dir(&current).context("the current directory")?;
    Ok(gaps)
}

/// Returns a directory, or the innermost directory around it that exists.
fn nearest_that_exists(directory: &Path) -> &Path {
    directory.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"))
}

/// Returns where systemd is told how the service does, and its log, if that is in files.
///
/// The journal makes a new socket when it is started again, so this is its directory.
fn sockets_of_systemd() -> Vec<PathBuf> {
    let notify = std::env::var_os("NOTIFY_SOCKET").map(PathBuf::from).filter(|path| path.is_absolute());
    let journal = std::env::var_os("JOURNAL_STREAM").map(|_| PathBuf::from("/run/systemd/journal"));
    notify.into_iter().chain(journal).collect()
}

/// Fills the new root. Returns what it shows more than it should.
fn fill(root: &Path, visible: &[Visible], current: &Path) -> Result<Option<String>> {
    for each in visible {
        let shown = each.path.display();
        let target = inside(root, &each.path);
        // A directory that was mounted before may show the file already.
        if !each.is_directory && fs::symlink_metadata(&target).is_ok() {
            continue;
        }
        if each.is_directory {
            fs::create_dir_all(&target).with_context(|| format!("{shown} in the jail"))?;
        } else {
            fs::create_dir_all(target.parent().unwrap_or(root))
                .and_then(|()| fs::File::create(&target))
                .with_context(|| format!("{shown} in the jail"))?;
        }
        let source = format!("/proc/self/fd/{}", each.source.as_raw_fd());
        mount(Some(source.as_str()), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .with_context(|| format!("{shown} in the jail"))?;
        let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
        if each.is_read_only {
            flags |= MsFlags::MS_RDONLY;
        }
        // A device does not open with MS_NODEV.
        if each.path != Path::new("/dev/null") {
            flags |= MsFlags::MS_NODEV;
        }
        mount(None::<&str>, &target, None::<&str>, flags, None::<&str>)
            .with_context(|| format!("{shown} in the jail"))?;
    }
    let gap = mount_proc(&root.join("proc"))?;
    // It exists if it is a directory of sockets, or within one.
    fs::create_dir_all(inside(root, current)).context("the current directory in the jail")?;
    let flags = MsFlags::MS_REMOUNT
        | MsFlags::MS_RDONLY
        | MsFlags::MS_NOSUID
        | MsFlags::MS_NODEV
        | MsFlags::MS_NOEXEC;
    mount(None::<&str>, root, None::<&str>, flags, Some("mode=755,size=1M"))
        .context("a root without writes")?;
    Ok(gap)
}

/// Mounts /proc with the daemon's own process alone, or else with all of it. Returns what it shows
/// more than it should.
fn mount_proc(target: &Path) -> Result<Option<String>> {
    fs::create_dir_all(target).context("/proc in the jail")?;
    // Whoever could write /proc/self/mem could change what is executed.
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    let own = mount(Some("proc"), target, Some("proc"), flags, Some("subset=pid,hidepid=ptraceable"));
    let Err(error) = own else { return Ok(None) };
    // A container may refuse that, and Linux before 5.8 does not know it. Landlock still allows no
    // more than the process's own directory.
    mount(Some("/proc"), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .and_then(|()| {
            mount(
                None::<&str>,
                target,
                None::<&str>,
                flags | MsFlags::MS_BIND | MsFlags::MS_REMOUNT,
                None::<&str>,
            )
        })
        .context("/proc in the jail")?;
    Ok(Some(format!("/proc shows all processes: {error}")))
}

/// Makes a mounted directory the root, and removes the old one.
fn pivot(root: &Path) -> Result<()> {
    std::env::set_current_dir(root).context("the new root")?;
    // The old root comes to lie over the new one, from where it is taken away.
    nix::unistd::pivot_root(".", ".").context("pivot_root")?;
    umount2(".", MntFlags::MNT_DETACH).context("the old root")?;
    std::env::set_current_dir("/").context("the new root")
}

/// Returns an absolute path below another root.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
