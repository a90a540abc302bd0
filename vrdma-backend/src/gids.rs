//! Which guest has which GID in which VLAN, where there are several workers: each worker's engine
//! knows only its own guests'.
//!
//! It changes by control commands alone, each time as a whole: who reads it has a snapshot, and
//! asks for the next one only when there is one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use vrdma_wire::num::{Gid, Mac, VlanId};

/// A GID in a VLAN.
type Key = (Gid, VlanId);
type Table = HashMap<Key, Arc<Holder>>;

/// Who has a GID.
#[derive(Debug, PartialEq, Eq)]
pub struct Holder {
    /// The guest's worker.
    pub worker: usize,
    /// Its name.
    pub name: String,
    /// Its MAC address.
    pub mac: Mac,
}

/// The GIDs of all guests of the process.
#[derive(Clone, Debug, Default)]
pub struct Gids(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Held for one change, or for as long as it takes to clone an `Arc`.
    table: Mutex<Arc<Table>>,
    /// Changes so far.
    version: AtomicU64,
}

/// They as one worker knows them.
#[derive(Debug)]
pub struct GidView {
    gids: Gids,
    /// The worker.
    worker: usize,
    seen: Arc<Table>,
    version: u64,
    /// RoCE packets that came under a GID of a guest of another worker, and not from its engine.
    pub spoofed: u64,
}

impl Gids {
    /// As the worker with this number will know them.
    pub fn view(&self, worker: usize) -> GidView {
        GidView { gids: self.clone(), worker, seen: Arc::default(), version: 0, spoofed: 0 }
    }

    fn table(&self) -> MutexGuard<'_, Arc<Table>> {
        self.0.table.lock().expect("nothing panics while it holds the lock")
    }
}

impl GidView {
    /// A guest of this worker takes a GID, which it may have already.
    ///
    /// # Errors
    /// Another guest has it: its name.
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

    /// A guest of this worker has a GID no longer, if it had it.
    pub fn release(&mut self, key: Key, guest: &str) {
        let mut table = self.gids.table();
        if table.get(&key).is_some_and(|holder| holder.worker == self.worker && holder.name == guest) {
            Arc::make_mut(&mut table).remove(&key);
            self.gids.0.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether a guest of another worker has a GID.
    pub fn is_elsewhere(&mut self, key: Key) -> bool {
        self.elsewhere(key).is_some()
    }

    /// The guest of another worker that has a GID, by its MAC address.
    pub fn elsewhere(&mut self, key: Key) -> Option<Mac> {
        let version = self.gids.0.version.load(Ordering::Acquire);
        if version != self.version {
            match self.gids.0.table.try_lock() {
                Ok(table) => {
                    (self.seen, self.version) = (table.clone(), self.gids.0.version.load(Ordering::Relaxed))
                }
                // Whoever changes it now: the table as it was will do.
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
