//! What may back guest memory: which files, and how much.

use super::ledger::Ledger;
use super::reaper::Backlog;
use crate::port::Dma;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The options for mapping the memory of a front-end.
#[derive(Clone, Debug)]
pub struct MapOptions {
    /// The tables of the front-end's function that wait to be unmapped. No new one is mapped until
    /// there are none.
    pub backlog: Arc<Backlog>,
    /// Largest size of all regions together, in bytes.
    pub memory_max: u64,
    /// The front-end's connection, which ends if one of its files is cut short.
    pub connection: Option<Arc<UnixStream>>,
    /// The device that reads the memory by DMA, if any.
    pub dma: Option<Dma>,
    /// The limit of pages that this process may make of it.
    pub ledger: Arc<Ledger>,
}

impl Default for MapOptions {
    /// Returns options without limits, connection and device.
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

/// Most bytes that all guests together may have mapped.
///
/// It is half of a process's address space on x86-64, to leave room for the rest of the daemon.
const ALL_GUESTS: u64 = 1 << 46;

static MAPPED: AtomicU64 = AtomicU64::new(0);

/// A share of [`ALL_GUESTS`]. It is returned when this is dropped.
#[derive(Debug)]
pub struct Reservation(u64);

impl Reservation {
    /// Reserves `len` bytes of address space.
    ///
    /// # Errors
    /// All guests together would exceed the limit.
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

/// The kind of pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Pages of tmpfs.
    Ordinary,
    /// Pages of hugetlbfs.
    Huge,
}

/// Refuses files whose memory is dangerous to access.
///
/// Pages of tmpfs (including memfds) and hugetlbfs are already memory. Each access to another file
/// may wait for a disk or a quota, and with FUSE for a process that the front-end chose. The worker
/// and all guests would wait, too. Parts of huge pages are refused, because they can be neither
/// unmapped nor replaced ([`super::sigbus`]).
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

/// Returns the error of a region that is not mapped.
pub fn refused<T>(why: impl Into<String>) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, why.into()))
}
