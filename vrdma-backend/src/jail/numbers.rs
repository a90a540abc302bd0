//! Numbers of system calls, and of what their arguments are compared with.

use anyhow::{Context, Result, bail};
use seccompiler::TargetArch;

/// The number of clone3.
pub const CLONE3: i64 = libc::SYS_clone3;

/// Returns the architecture of this program.
///
/// # Errors
/// There are no filters for it.
pub fn architecture() -> Result<TargetArch> {
    std::env::consts::ARCH.try_into().context("seccomp: no filters for this architecture")
}

/// Returns the number of a system call. `None`: this architecture has another one in its place.
///
/// # Errors
/// No call of this name is known here.
pub fn call(name: &str) -> Result<Option<i64>> {
    let known = CALLS.iter().chain(OLD_CALLS).find(|(known, _)| *known == name);
    match known {
        Some((_, number)) => Ok(Some(*number)),
        None if OLD_NAMES.contains(&name) => Ok(None),
        None => bail!("no system call {name} is known here"),
    }
}

/// Returns the value of a word in a list: a number, or a constant's name.
///
/// # Errors
/// It is neither.
pub fn value(word: &str) -> Result<u64> {
    if word == "SELF" {
        // This process, to which signals may go.
        return Ok(std::process::id().into());
    }
    if let Some((_, value)) = VALUES.iter().find(|(known, _)| *known == word) {
        return Ok(*value);
    }
    let hex = word.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    hex.or_else(|| word.parse().ok())
        .with_context(|| format!("{word} is neither a number nor a constant that is known here"))
}

macro_rules! table {
    ($($name:ident $number:ident,)*) => { &[$((stringify!($name), libc::$number)),*] };
}

/// System calls of all architectures.
#[rustfmt::skip]
const CALLS: &[(&str, i64)] = table! {
    read SYS_read, write SYS_write, readv SYS_readv, writev SYS_writev, pread64 SYS_pread64,
    pwrite64 SYS_pwrite64, pwritev2 SYS_pwritev2, close SYS_close, dup SYS_dup, dup3 SYS_dup3, fcntl SYS_fcntl,
    lseek SYS_lseek, ftruncate SYS_ftruncate, fallocate SYS_fallocate, fsync SYS_fsync,
    fstat SYS_fstat, newfstatat SYS_newfstatat, statx SYS_statx, fstatfs SYS_fstatfs,
    statfs SYS_statfs, openat SYS_openat, readlinkat SYS_readlinkat, getdents64 SYS_getdents64,
    unlinkat SYS_unlinkat, mkdirat SYS_mkdirat, faccessat SYS_faccessat, faccessat2 SYS_faccessat2, fchmod SYS_fchmod,
    fchmodat SYS_fchmodat, fchown SYS_fchown, fchownat SYS_fchownat, flock SYS_flock,
    getcwd SYS_getcwd, mmap SYS_mmap, munmap SYS_munmap, mremap SYS_mremap, mprotect SYS_mprotect,
    madvise SYS_madvise, mlock SYS_mlock, munlock SYS_munlock, brk SYS_brk, msync SYS_msync,
    memfd_create SYS_memfd_create, mincore SYS_mincore, mbind SYS_mbind,
    get_mempolicy SYS_get_mempolicy, set_mempolicy SYS_set_mempolicy, move_pages SYS_move_pages, futex SYS_futex,
    sched_yield SYS_sched_yield, sched_getaffinity SYS_sched_getaffinity,
    sched_setaffinity SYS_sched_setaffinity, getcpu SYS_getcpu, clone SYS_clone, clone3 SYS_clone3,
    exit SYS_exit, exit_group SYS_exit_group, gettid SYS_gettid, getpid SYS_getpid,
    getppid SYS_getppid, tgkill SYS_tgkill, kill SYS_kill, set_robust_list SYS_set_robust_list,
    rseq SYS_rseq, membarrier SYS_membarrier, getrusage SYS_getrusage, prctl SYS_prctl,
    seccomp SYS_seccomp, set_tid_address SYS_set_tid_address, rt_sigaction SYS_rt_sigaction,
    rt_sigprocmask SYS_rt_sigprocmask, rt_sigreturn SYS_rt_sigreturn, sigaltstack SYS_sigaltstack,
    rt_sigtimedwait SYS_rt_sigtimedwait, rt_sigpending SYS_rt_sigpending,
    clock_gettime SYS_clock_gettime, clock_getres SYS_clock_getres,
    clock_nanosleep SYS_clock_nanosleep, nanosleep SYS_nanosleep, gettimeofday SYS_gettimeofday,
    restart_syscall SYS_restart_syscall, getrandom SYS_getrandom, timerfd_create SYS_timerfd_create,
    timerfd_settime SYS_timerfd_settime, timerfd_gettime SYS_timerfd_gettime,
    timer_settime SYS_timer_settime, epoll_create1 SYS_epoll_create1, epoll_ctl SYS_epoll_ctl,
    epoll_pwait SYS_epoll_pwait, epoll_pwait2 SYS_epoll_pwait2, ppoll SYS_ppoll,
    pselect6 SYS_pselect6, eventfd2 SYS_eventfd2, pipe2 SYS_pipe2, signalfd4 SYS_signalfd4,
    inotify_init1 SYS_inotify_init1, inotify_add_watch SYS_inotify_add_watch,
    inotify_rm_watch SYS_inotify_rm_watch, io_setup SYS_io_setup, io_submit SYS_io_submit,
    io_getevents SYS_io_getevents, io_destroy SYS_io_destroy, io_cancel SYS_io_cancel,
    socket SYS_socket, socketpair SYS_socketpair, bind SYS_bind, listen SYS_listen,
    connect SYS_connect, accept SYS_accept, accept4 SYS_accept4, shutdown SYS_shutdown,
    getsockname SYS_getsockname, getpeername SYS_getpeername, getsockopt SYS_getsockopt,
    setsockopt SYS_setsockopt, sendto SYS_sendto, recvfrom SYS_recvfrom, sendmsg SYS_sendmsg,
    recvmsg SYS_recvmsg, sendmmsg SYS_sendmmsg, recvmmsg SYS_recvmmsg, ioctl SYS_ioctl, bpf SYS_bpf,
    perf_event_open SYS_perf_event_open, getrlimit SYS_getrlimit, prlimit64 SYS_prlimit64,
    getuid SYS_getuid, geteuid SYS_geteuid, getgid SYS_getgid, getegid SYS_getegid, uname SYS_uname,
    sysinfo SYS_sysinfo, execve SYS_execve, execveat SYS_execveat, ptrace SYS_ptrace,
    mount SYS_mount, umount2 SYS_umount2, pivot_root SYS_pivot_root, setuid SYS_setuid,
    setresuid SYS_setresuid, setns SYS_setns, unshare SYS_unshare,
    process_vm_readv SYS_process_vm_readv, process_vm_writev SYS_process_vm_writev,
    chroot SYS_chroot, init_module SYS_init_module, finit_module SYS_finit_module,
    kexec_load SYS_kexec_load, keyctl SYS_keyctl, add_key SYS_add_key, userfaultfd SYS_userfaultfd,
    open_by_handle_at SYS_open_by_handle_at, pidfd_getfd SYS_pidfd_getfd,
    io_uring_setup SYS_io_uring_setup, capset SYS_capset,
};

/// System calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OLD_CALLS: &[(&str, i64)] = table! {
    open SYS_open, stat SYS_stat, lstat SYS_lstat, access SYS_access, readlink SYS_readlink,
    unlink SYS_unlink, chmod SYS_chmod, chown SYS_chown, lchown SYS_lchown,
    epoll_create SYS_epoll_create, epoll_wait SYS_epoll_wait, poll SYS_poll, select SYS_select,
    eventfd SYS_eventfd, pipe SYS_pipe, inotify_init SYS_inotify_init, fork SYS_fork,
    vfork SYS_vfork, arch_prctl SYS_arch_prctl, dup2 SYS_dup2, getdents SYS_getdents,
    mkdir SYS_mkdir, time SYS_time, alarm SYS_alarm, rmdir SYS_rmdir, rename SYS_rename,
};
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[(&str, i64)] = &[];

/// The names of [`OLD_CALLS`] on any architecture.
#[rustfmt::skip]
const OLD_NAMES: &[&str] = &[
    "open", "stat", "lstat", "access", "readlink", "unlink", "chmod", "chown", "lchown",
    "epoll_create", "epoll_wait", "poll", "select", "eventfd", "pipe", "inotify_init", "fork",
    "vfork", "arch_prctl", "dup2", "getdents", "mkdir", "time", "alarm", "rmdir", "rename",
];

/// Constants that lists name.
const VALUES: &[(&str, u64)] = &[
    ("F_DUPFD", libc::F_DUPFD as u64),
    ("F_DUPFD_CLOEXEC", libc::F_DUPFD_CLOEXEC as u64),
    ("F_GETFD", libc::F_GETFD as u64),
    ("F_SETFD", libc::F_SETFD as u64),
    ("F_GETFL", libc::F_GETFL as u64),
    ("F_SETFL", libc::F_SETFL as u64),
    ("F_GET_SEALS", libc::F_GET_SEALS as u64),
    ("F_ADD_SEALS", libc::F_ADD_SEALS as u64),
    ("F_SETOWN", libc::F_SETOWN as u64),
    // The libc crate does not have it.
    ("F_SETSIG", 10),
    ("SOL_SOCKET", libc::SOL_SOCKET as u64),
    ("SO_OOBINLINE", libc::SO_OOBINLINE as u64),
    ("SO_PASSRIGHTS", 83),
    ("SOL_PACKET", libc::SOL_PACKET as u64),
    ("PROT_EXEC", libc::PROT_EXEC as u64),
    ("AF_UNIX", libc::AF_UNIX as u64),
    ("AF_INET", libc::AF_INET as u64),
    ("AF_INET6", libc::AF_INET6 as u64),
    ("AF_NETLINK", libc::AF_NETLINK as u64),
    ("AF_PACKET", libc::AF_PACKET as u64),
    ("AF_XDP", libc::AF_XDP as u64),
    ("CLONE_THREAD", libc::CLONE_THREAD as u64),
    ("PR_SET_NAME", libc::PR_SET_NAME as u64),
    // Linux 6.4. The libc crate does not have it.
    ("PR_GET_AUXV", 0x4155_5856),
    ("PR_SET_VMA", libc::PR_SET_VMA as u64),
    ("PR_SET_TIMERSLACK", libc::PR_SET_TIMERSLACK as u64),
    ("PR_SET_NO_NEW_PRIVS", libc::PR_SET_NO_NEW_PRIVS as u64),
    ("SECCOMP_SET_MODE_FILTER", libc::SECCOMP_SET_MODE_FILTER as u64),
    ("FIONBIO", libc::FIONBIO),
    ("FIONREAD", libc::FIONREAD),
    ("TCGETS", libc::TCGETS),
    ("SIOCOUTQ", libc::TIOCOUTQ),
    ("SIOCGIFINDEX", libc::SIOCGIFINDEX),
    ("SIOCGIFNAME", libc::SIOCGIFNAME),
    ("SIOCGIFMTU", libc::SIOCGIFMTU),
    ("SIOCSIFMTU", libc::SIOCSIFMTU),
    ("SIOCGIFHWADDR", libc::SIOCGIFHWADDR),
    ("SIOCSIFHWADDR", libc::SIOCSIFHWADDR),
    ("SIOCGIFADDR", libc::SIOCGIFADDR),
    ("SIOCGIFFLAGS", libc::SIOCGIFFLAGS),
    ("SIOCSIFFLAGS", libc::SIOCSIFFLAGS),
    ("SIOCETHTOOL", 0x8946),
];

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn old_calls_have_their_names_on_other_architectures_too() {
        let names: Vec<&str> = super::OLD_CALLS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, super::OLD_NAMES);
    }
}
