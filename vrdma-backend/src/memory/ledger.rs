//! How many pages of guests' memory this process has made, that no VMM had: they count for its
//! control group, and the system ends it when there are too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of them, of all guests.
static ALL: AtomicU64 = AtomicU64::new(0);

/// Those of one function.
#[derive(Debug)]
pub struct Ledger {
    bytes: AtomicU64,
    /// Most of them,
    most: u64,
    /// and of all guests.
    all_most: u64,
    /// Registrations that were refused since somebody asked.
    refused: AtomicU64,
}

impl Default for Ledger {
    /// As many as there are.
    fn default() -> Ledger {
        Ledger::new(u64::MAX, u64::MAX)
    }
}

/// There would be more of them than may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl Ledger {
    /// For a function that may have so many bytes of them, as long as all guests have no more than
    /// `all_most`.
    pub fn new(most: u64, all_most: u64) -> Ledger {
        Ledger { bytes: AtomicU64::new(0), most, all_most, refused: AtomicU64::new(0) }
    }

    /// How many registrations were refused since this was asked last.
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

    /// Bytes that count now.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A registration is refused.
    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// What was made of one mapping's pages: they are the file's, and count until it is unmapped here.
#[derive(Debug)]
pub(super) struct Charge {
    ledger: Arc<Ledger>,
    bytes: AtomicU64,
}

impl Charge {
    /// Nothing yet.
    pub(super) fn new(ledger: Arc<Ledger>) -> Charge {
        Charge { ledger, bytes: AtomicU64::new(0) }
    }

    /// So many bytes more are about to be made.
    pub(super) fn add(&self, bytes: u64) -> Result<(), TooMany> {
        self.ledger.add(bytes)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// So many of them are not made after all.
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
