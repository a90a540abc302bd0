//! Tries what the jail forbids, for tests. Release builds have no such command.
#![allow(unsafe_code, reason = "forbidden system calls that the standard library has no safe form of")]

use super::calls::KINDS;
use super::confine;
use anyhow::{Context, Result};
use std::io;

/// Something that no thread may do.
type Attempt = fn() -> io::Result<()>;

/// What can be tried.
const ATTEMPTS: [(&str, Attempt); 10] = [
    ("open", open),
    ("execve", || call(libc::SYS_execve, [c"/bin/true".as_ptr().addr(), 0, 0])),
    ("ptrace", || call(libc::SYS_ptrace, [libc::PTRACE_TRACEME as usize, 0, 0])),
    ("mount", || {
        call(libc::SYS_mount, [c"none".as_ptr().addr(), c"/".as_ptr().addr(), c"tmpfs".as_ptr().addr()])
    }),
    ("setuid", || call(libc::SYS_setuid, [0, 0, 0])),
    ("mmap-exec", map_executable),
    ("file-outside", || std::fs::read("/etc/passwd").map(drop)),
    ("socket-inet", || socket(libc::AF_INET)),
    ("socket-vsock", || socket(libc::AF_VSOCK)),
    ("fork", || call(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0])),
];

/// Tries `THREAD:WHAT` in a thread of this kind, and returns what came of it.
///
/// # Errors
/// There is no such kind or attempt, or no thread.
pub fn run(asked: &str) -> Result<String> {
    let (kind, attempt) = asked.split_once(':').context("write THREAD:WHAT")?;
    let (_, kind) = KINDS.iter().find(|(name, _)| *name == kind).context("no such thread")?;
    let (_, attempt) = ATTEMPTS.iter().find(|(name, _)| *name == attempt).context("no such attempt")?;
    let thread = std::thread::Builder::new().spawn(move || {
        confine(*kind);
        attempt()
    })?;
    Ok(match thread.join().expect("attempts do not panic") {
        Ok(()) => "allowed".into(),
        Err(error) => format!("refused: {error}"),
    })
}

fn call(number: libc::c_long, arguments: [usize; 3]) -> io::Result<()> {
    // SAFETY: each attempt passes pointers to static strings, or numbers. If the kernel carried one
    // out, the test has failed.
    match unsafe { libc::syscall(number, arguments[0], arguments[1], arguments[2], 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The call that has no directory. No thread needs it, since C libraries use openat.
fn open() -> io::Result<()> {
    #[cfg(target_arch = "x86_64")]
    return call(libc::SYS_open, [c"/dev/null".as_ptr().addr(), 0, 0]);
    #[cfg(not(target_arch = "x86_64"))]
    Err(io::ErrorKind::Unsupported.into())
}

fn map_executable() -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping that nothing uses.
    let mapped =
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_EXEC, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn socket(family: i32) -> io::Result<()> {
    call(libc::SYS_socket, [family as usize, libc::SOCK_STREAM as usize, 0])
}
