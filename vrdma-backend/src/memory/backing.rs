//! What may be behind guest memory: which files, and how much.

use super::ledger::Ledger;
use super::reaper::Backlog;
use crate::port::Dma;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// On what conditions the memory of a front-end is mapped.
#[derive(Clone, Debug)]
pub struct MapOptions {
    /// Tables of the front-end's function that are still to be unmapped: no new one is mapped
    /// meanwhile.
    pub backlog: Arc<Backlog>,
    /// Most bytes of all regions together.
    pub memory_max: u64,
    /// The front-end's connection, which ends if one of its files is cut short.
    pub connection: Option<Arc<UnixStream>>,
    /// The device that is to reach it by itself.
    pub dma: Option<Dma>,
    /// How many pages this process may make of it.
    pub ledger: Arc<Ledger>,
}

impl Default for MapOptions {
    /// As much as there is, of nobody.
    fn default() -> Self {
        MapOptions {
            backlog: Arc::default(),
            memory_max: u64::MAX,
            connection: None,
            dma: None,
            ledger: Arc::default(),
        }
    }
}

/// Most bytes that all guests may have mapped: half of what a process has on x86-64, so that the
/// rest of the daemon finds room.
const ALL_GUESTS: u64 = 1 << 46;

static MAPPED: AtomicU64 = AtomicU64::new(0);

/// A part of [`ALL_GUESTS`], for as long as it lives.
#[derive(Debug)]
pub struct Reservation(u64);

impl Reservation {
    /// Reserves `len` bytes of address space.
    ///
    /// # Errors
    /// All guests together would have too much.
    pub fn new(len: u64) -> io::Result<Reservation> {
        let add = |mapped: u64| mapped.checked_add(len).filter(|sum| *sum <= ALL_GUESTS);
        match MAPPED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(Reservation(len)),
            Err(_) => refused(format!(
                "a memory region of {len} bytes, and all guests together may have {} TiB mapped",
                ALL_GUESTS >> 40
            )),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        MAPPED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

const TMPFS: u32 = 0x0102_1994;
const HUGETLBFS: u32 = 0x9584_58f6;

/// What pages a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Those of tmpfs.
    Ordinary,
    /// Those of hugetlbfs.
    Huge,
}

/// Refuses files whose memory it would be dangerous to touch. Of tmpfs (memfds too) and hugetlbfs
/// the pages are memory already; each access to another file may wait for a disk, a quota, or, with
/// FUSE, for a process of the front-end's choice, and with it the worker and all guests. Parts of
/// huge pages can be neither unmapped nor replaced ([`super::sigbus`]).
pub fn check_file(file: &File, offset: u64, len: u64) -> io::Result<Pages> {
    let metadata = file.metadata()?;
    let fs = rustix::fs::fstatfs(file)?;
    let kind = fs.f_type as u32;
    if !metadata.is_file() || !matches!(kind, TMPFS | HUGETLBFS) {
        return refused(format!(
            "a memory region of a file that is not in memory (file system {kind:#x}): take a memfd, or a file in /dev/shm or on hugetlbfs \
             (QEMU: -object memory-backend-memfd,share=on)"
        ));
    }
    if kind == HUGETLBFS && !len.is_multiple_of(fs.f_bsize as u64) {
        return refused(format!("a memory region of {len} bytes, in huge pages of {}", fs.f_bsize));
    }
    if offset.checked_add(len).is_none_or(|end| end > metadata.len()) {
        return refused(format!(
            "a memory region of {len} bytes at offset {offset} of a file that has {}",
            metadata.len()
        ));
    }
    Ok(if kind == HUGETLBFS { Pages::Huge } else { Pages::Ordinary })
}

/// The error of a region that is not mapped.
pub fn refused<T>(why: impl Into<String>) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, why.into()))
}
