//! Where a capture goes: standard output, a pipe, or a new file.

use anyhow::{Context, Result};
use rustix::fs::{FileType, Mode, OFlags, fstat, open, readlinkat};
use rustix::io::Errno;
use rustix::process::{Uid, geteuid};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Most symbolic links in a row, as in the kernel (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Where a capture goes.
#[derive(Debug)]
pub enum CaptureTarget {
    /// Standard output.
    Stdout(io::Stdout),
    /// A pipe that is there.
    Pipe(File),
    /// A new file, and its path. It gets that when the daemon has accepted the capture.
    New(NamedTempFile, PathBuf),
}

impl CaptureTarget {
    /// Opens a file. A regular one that is there stays as it is.
    ///
    /// A new one is for this user alone: it shows what guests send.
    ///
    /// # Errors
    /// It cannot be written, nobody reads the pipe, or the path is a pipe or a symbolic link of
    /// another user. It is a device, a directory or a socket.
    pub fn open(path: &Path) -> Result<CaptureTarget> {
        let opened = resolved(path).and_then(|end| match fs::metadata(path) {
            Ok(found) if found.file_type().is_fifo() => pipe(path),
            Ok(found) if !found.is_file() => Err(io::Error::other("it is neither a file nor a pipe")),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(_) | Err(_) => new(end),
        });
        opened.with_context(|| format!("{} cannot be written", path.display()))
    }

    /// Returns what the daemon is to write to.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            CaptureTarget::Stdout(stdout) => stdout.as_fd(),
            CaptureTarget::Pipe(file) => file.as_fd(),
            CaptureTarget::New(file, _) => file.as_fd(),
        }
    }

    /// Gives a new file its path, in place of the one that is there.
    ///
    /// # Errors
    /// The directory does not allow that.
    pub fn settle(self) -> Result<()> {
        if let CaptureTarget::New(file, path) = self {
            file.persist(&path).with_context(|| format!("{} cannot be written", path.display()))?;
        }
        Ok(())
    }
}

/// Opens a pipe. Its reader is not waited for.
///
/// Another user's is refused, because that user reads it. Who means it can let a shell open it.
fn pipe(path: &Path) -> io::Result<CaptureTarget> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    let opened = File::options().write(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => {
            io::Error::new(error.kind(), "nobody reads it: start the program that reads it first")
        }
        _ => error,
    })?;
    let found = file.metadata()?;
    if !found.file_type().is_fifo() {
        return Err(io::Error::other("somebody replaces it"));
    }
    if !is_trusted(found.uid()) {
        let reason = "it is a pipe of another user: if that is meant, write to it by -w - > FILE";
        return Err(io::Error::new(ErrorKind::PermissionDenied, reason));
    }
    Ok(CaptureTarget::Pipe(file))
}

fn new(path: PathBuf) -> io::Result<CaptureTarget> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let file = tempfile::Builder::new()
        .prefix(".vrdma-capture-")
        .tempfile_in(directory.unwrap_or(Path::new(".")))?;
    Ok(CaptureTarget::New(file, path))
}

/// Whether what this user owns may lead a capture elsewhere.
fn is_trusted(owner: u32) -> bool {
    let owner = Uid::from_raw(owner);
    owner == geteuid() || owner == Uid::ROOT
}

/// Follows symbolic links that belong to this user or to root. Returns what they lead to.
///
/// In a directory where all may write, another user's link leads to a file of that user's choice.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match open(&path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(path),
            found => found?,
        };
        let stat = fstat(&found)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(path);
        }
        if !is_trusted(stat.st_uid) {
            let reason = "it is a symbolic link of another user";
            return Err(io::Error::new(ErrorKind::PermissionDenied, reason));
        }
        // The link that was looked at, even if another one has its name by then.
        let target = readlinkat(&found, "", Vec::new())?;
        path = path.parent().unwrap_or(Path::new("")).join(OsStr::from_bytes(target.as_bytes()));
    }
    Err(Errno::LOOP.into())
}
