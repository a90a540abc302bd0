//! The owner of each GID and VLAN, if there are several workers.
//!
//! Each worker's engine knows only the GIDs of its own guests.
//!
//! Only control commands change the table, and each replaces it as a whole. A reader has a
//! snapshot, and fetches another one only if the version has changed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use vrdma_wire::num::{Gid, Mac, VlanId};

/// A GID in a VLAN.
type Key = (Gid, VlanId);
type Table = HashMap<Key, Arc<Holder>>;

/// The owner of a GID.
#[derive(Debug, PartialEq, Eq)]
pub struct Holder {
    /// Number of the guest's worker.
    pub worker: usize,
    /// Name of the guest.
    pub name: String,
    /// MAC address of the guest.
    pub mac: Mac,
}

/// The GIDs of all guests of the process.
#[derive(Clone, Debug, Default)]
pub struct Gids(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Held for one change, or while an `Arc` is cloned.
    table: Mutex<Arc<Table>>,
    /// Number of changes so far.
    version: AtomicU64,
}

/// One worker's view of the GIDs of all guests.
#[derive(Debug)]
pub struct GidView {
    gids: Gids,
    /// Number of the worker.
    worker: usize,
    seen: Arc<Table>,
    version: u64,
    /// Spoofed RoCE packets: their source is a GID of another worker's guest, but they did not come
    /// from that worker's engine.
    pub spoofed: u64,
}

impl Gids {
    /// Returns the view of the worker with this number.
    pub fn view(&self, worker: usize) -> GidView {
        GidView { gids: self.clone(), worker, seen: Arc::default(), version: 0, spoofed: 0 }
    }

    fn table(&self) -> MutexGuard<'_, Arc<Table>> {
        self.0.table.lock().expect("nothing panics while it holds the lock")
    }
}

impl GidView {
    /// Claims a GID for a guest of this worker, which may have it already.
    ///
    /// # Errors
    /// Another guest has it. The error is the name of that guest.
    pub fn claim(&mut self, key: Key, (guest, mac): (&str, Mac)) -> Result<(), String> {
        let mut table = self.gids.table();
        let holder = Holder { worker: self.worker, name: guest.to_owned(), mac };
        match table.get(&key) {
            Some(other) if **other == holder => return Ok(()),
            Some(other) => return Err(other.name.clone()),
            None => {}
        }
        Arc::make_mut(&mut table).insert(key, Arc::new(holder));
        self.gids.0.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Releases a GID, if this guest of this worker has it.
    pub fn release(&mut self, key: Key, guest: &str) {
        let mut table = self.gids.table();
        if table.get(&key).is_some_and(|holder| holder.worker == self.worker && holder.name == guest) {
            Arc::make_mut(&mut table).remove(&key);
            self.gids.0.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether a guest of another worker has a GID.
    pub fn is_elsewhere(&mut self, key: Key) -> bool {
        self.holder(key).is_some()
    }

    /// Returns the MAC address of the guest of another worker that has a GID.
    pub fn holder(&mut self, key: Key) -> Option<Mac> {
        let version = self.gids.0.version.load(Ordering::Acquire);
        if version != self.version {
            match self.gids.0.table.try_lock() {
                Ok(table) => {
                    (self.seen, self.version) = (table.clone(), self.gids.0.version.load(Ordering::Relaxed))
                }
                // A command is changing the table. The last snapshot is good enough.
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Poisoned(_)) => panic!("nothing panics while it holds the lock"),
            }
        }
        self.seen.get(&key).filter(|holder| holder.worker != self.worker).map(|holder| holder.mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(last: u8, vlan: u16) -> Key {
        (Gid::from_ipv4([10, 0, 0, last]), VlanId::new(vlan).unwrap())
    }

    #[test]
    fn a_gid_is_one_guest_s_in_a_vlan() {
        let gids = Gids::default();
        let (mut one, mut two) = (gids.view(0), gids.view(1));
        assert_eq!(one.claim(key(1, 0), ("a", Mac([2; 6]))), Ok(()));
        assert_eq!(one.claim(key(1, 0), ("a", Mac([2; 6]))), Ok(()), "it has it already");
        assert_eq!(one.claim(key(1, 0), ("b", Mac([2; 6]))), Err("a".into()), "another guest of that worker");
        assert_eq!(two.claim(key(1, 0), ("c", Mac([2; 6]))), Err("a".into()));
        assert_eq!(two.claim(key(1, 5), ("c", Mac([2; 6]))), Ok(()), "in another VLAN");
        assert_eq!([0, 5, 6].map(|vlan| two.is_elsewhere(key(1, vlan))), [true, false, false]);
        assert_eq!([0, 5, 6].map(|vlan| one.is_elsewhere(key(1, vlan))), [false, true, false]);
    }

    #[test]
    fn what_is_given_up_is_free_for_others() {
        let gids = Gids::default();
        let (mut one, mut two) = (gids.view(0), gids.view(1));
        one.claim(key(1, 0), ("a", Mac([2; 6]))).unwrap();
        assert!(two.is_elsewhere(key(1, 0)));
        two.release(key(1, 0), "c");
        one.release(key(1, 0), "b");
        assert!(two.is_elsewhere(key(1, 0)), "neither was theirs");
        one.release(key(1, 0), "a");
        assert!(!two.is_elsewhere(key(1, 0)));
        assert_eq!(two.claim(key(1, 0), ("c", Mac([2; 6]))), Ok(()));
        assert!(one.is_elsewhere(key(1, 0)));
    }
}
