//! The table of learned addresses: behind which port each was last seen.

use super::verdict::SwitchPort;
use std::hash::{BuildHasher, RandomState};
use vrdma_transport::Instant;
use vrdma_wire::num::{Mac, VlanId};

/// Entries of a set, which one hash selects. The first half is for the uplink, the rest for guests.
///
/// So guests that send from ever new addresses evict no address behind the uplink.
const WAYS: usize = 8;
const SETS: usize = 1024;
/// Nanoseconds after which an address is forgotten if it was not seen: 300 s (IEEE 802.1Q table
/// 8-6).
const AGE: u64 = 300_000_000_000;

/// An address in a VLAN.
pub type Key = (VlanId, Mac);

/// A bounded table of addresses, allocated as a whole at the start.
#[derive(Debug)]
pub struct MacTable {
    sets: Box<[[Option<Entry>; WAYS]]>,
    /// Keyed at random, so that nobody can choose addresses that collide.
    hash: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    port: SwitchPort,
    seen: Instant,
}

/// The result of learning an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// The address was known.
    Known,
    /// The address is new.
    New,
    /// The address was behind another port.
    Moved,
    /// There was no room for the address.
    Full,
}

impl Default for MacTable {
    fn default() -> Self {
        MacTable { sets: vec![[None; WAYS]; SETS].into_boxed_slice(), hash: RandomState::new() }
    }
}

impl MacTable {
    /// Notes that an address is behind a port.
    pub fn learn(&mut self, now: Instant, key: Key, port: SwitchPort) -> Learned {
        let fresh = Some(Entry { key, port, seen: now });
        let set = self.set(key);
        let mut moved = false;
        for slot in set.iter_mut() {
            match slot {
                Some(entry) if entry.key == key && entry.port == port => {
                    let known = entry.is_alive(now);
                    entry.seen = now;
                    return if known { Learned::Known } else { Learned::New };
                }
                Some(entry) if entry.key == key => {
                    moved |= entry.is_alive(now);
                    *slot = None;
                }
                _ => {}
            }
        }
        let (uplink, guests) = set.split_at_mut(WAYS / 2);
        let part = if port == SwitchPort::Uplink { uplink } else { guests };
        let free = part.iter().position(|slot| slot.is_none_or(|entry| !entry.is_alive(now)));
        // A port may evict only its own addresses.
        let own = || {
            let own =
                part.iter().enumerate().filter_map(|(i, slot)| Some((i, slot.filter(|e| e.port == port)?)));
            own.min_by_key(|(_, entry)| entry.seen.0).map(|(i, _)| i)
        };
        match free.or_else(own) {
            Some(at) => part[at] = fresh,
            None => return Learned::Full,
        }
        if moved { Learned::Moved } else { Learned::New }
    }

    /// Returns the port behind which an address is.
    pub fn find(&mut self, now: Instant, key: Key) -> Option<SwitchPort> {
        let entry = self.set(key).iter().flatten().find(|entry| entry.key == key && entry.is_alive(now));
        entry.map(|entry| entry.port)
    }

    /// Forgets all addresses behind a port.
    pub fn forget(&mut self, port: SwitchPort) {
        for slot in self.sets.iter_mut().flatten() {
            if slot.is_some_and(|entry| entry.port == port) {
                *slot = None;
            }
        }
    }

    fn set(&mut self, key: Key) -> &mut [Option<Entry>; WAYS] {
        let at = self.hash.hash_one((key.0.number(), key.1.0)) as usize % SETS;
        &mut self.sets[at]
    }
}

impl Entry {
    fn is_alive(&self, now: Instant) -> bool {
        now.0.saturating_sub(self.seen.0) < AGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(number: u32) -> Mac {
        let [a, b, c, d] = number.to_be_bytes();
        Mac([2, 0, a, b, c, d])
    }

    fn vlan(number: u16) -> VlanId {
        VlanId::new(number).unwrap()
    }

    #[test]
    fn addresses_are_learned_move_and_age() {
        let mut table = MacTable::default();
        let (key, other_vlan) = ((vlan(7), mac(1)), (vlan(8), mac(1)));
        assert_eq!(table.learn(Instant(0), key, SwitchPort::Uplink), Learned::New);
        assert_eq!(table.learn(Instant(5), key, SwitchPort::Uplink), Learned::Known);
        assert_eq!(table.find(Instant(5), key), Some(SwitchPort::Uplink));
        assert_eq!(table.find(Instant(5), other_vlan), None);
        assert_eq!(table.learn(Instant(6), key, SwitchPort::Guest(3)), Learned::Moved);
        assert_eq!(table.find(Instant(6 + AGE - 1), key), Some(SwitchPort::Guest(3)));
        assert_eq!(table.find(Instant(6 + AGE), key), None);
        assert_eq!(table.learn(Instant(6 + AGE), key, SwitchPort::Uplink), Learned::New);
        assert_eq!(table.find(Instant(6 + AGE), key), Some(SwitchPort::Uplink));
    }

    #[test]
    fn a_flood_of_addresses_pushes_out_the_flooders_own() {
        let mut table = MacTable::default();
        for n in 0..100 {
            table.learn(Instant(1), (vlan(0), mac(n)), SwitchPort::Uplink);
        }
        table.learn(Instant(1), (vlan(0), mac(1 << 20)), SwitchPort::Guest(1));
        let known = (0..100).filter(|&n| table.find(Instant(2), (vlan(0), mac(n))).is_some()).count();
        for n in 1000..100_000 {
            table.learn(Instant(2), (vlan(0), mac(n)), SwitchPort::Guest(0));
        }
        let left = (0..100).filter(|&n| table.find(Instant(3), (vlan(0), mac(n))).is_some()).count();
        assert_eq!(left, known);
        assert_eq!(table.find(Instant(3), (vlan(0), mac(1 << 20))), Some(SwitchPort::Guest(1)));
        assert_eq!(table.find(Instant(3), (vlan(0), mac(99_999))), Some(SwitchPort::Guest(0)), "the newest");
    }
}
