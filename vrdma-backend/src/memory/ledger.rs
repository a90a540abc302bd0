//! Counts the pages of guest memory that this process has made, and that no VMM had.
//!
//! They count for the process's control group. The system kills the process if there are too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of such pages, of all guests.
static ALL: AtomicU64 = AtomicU64::new(0);

/// The page account of one function.
#[derive(Debug)]
pub struct Ledger {
    bytes: AtomicU64,
    /// Limit of the function, in bytes.
    most: u64,
    /// Limit of all guests together, in bytes.
    all_most: u64,
    /// Number of refused registrations since the last query.
    refused: AtomicU64,
}

impl Default for Ledger {
    /// Returns an account without limits.
    fn default() -> Ledger {
        Ledger::new(u64::MAX, u64::MAX)
    }
}

/// The error that a limit of pages would be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl Ledger {
    /// Opens an account for a function that may have `most` bytes of such pages, if all guests
    /// together have at most `all_most`.
    pub fn new(most: u64, all_most: u64) -> Ledger {
        Ledger { bytes: AtomicU64::new(0), most, all_most, refused: AtomicU64::new(0) }
    }

    /// Returns the number of refused registrations since the last call.
    pub fn take_refused(&self) -> u64 {
        self.refused.swap(0, Ordering::Relaxed)
    }

    fn add(&self, bytes: u64) -> Result<(), TooMany> {
        let within = |most: u64| move |before: u64| before.checked_add(bytes).filter(|sum| *sum <= most);
        let update = |counter: &AtomicU64, most| {
            let updated = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within(most));
            updated.map(drop).map_err(|_| TooMany)
        };
        update(&self.bytes, self.most)?;
        update(&ALL, self.all_most).inspect_err(|_| _ = self.bytes.fetch_sub(bytes, Ordering::Relaxed))
    }

    fn sub(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        ALL.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes that are charged.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts a refused registration.
    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// The bytes that were made of one mapping's pages.
///
/// The pages belong to the file, and count until this process unmaps it.
#[derive(Debug)]
pub(super) struct Charge {
    ledger: Arc<Ledger>,
    bytes: AtomicU64,
}

impl Charge {
    /// Creates an empty charge.
    pub(super) fn new(ledger: Arc<Ledger>) -> Charge {
        Charge { ledger, bytes: AtomicU64::new(0) }
    }

    /// Charges `bytes` more, which are about to be made.
    pub(super) fn add(&self, bytes: u64) -> Result<(), TooMany> {
        self.ledger.add(bytes)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Takes back `bytes` that are not made after all.
    pub(super) fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.ledger.sub(bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.ledger.sub(bytes);
    }
}
