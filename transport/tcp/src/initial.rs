//! Values that nobody can guess: initial sequence numbers and offsets of timestamps (RFC 6528; RFC
//! 7323, 5.4), SYN cookies, and hashes of tuples.

use crate::time::Instant;
use crate::tuple::Tuple;
use core::hash::Hasher;
use siphasher::sip::{SipHasher13, SipHasher24};

/// The clock of initial sequence numbers ticks every 4 us (RFC 9293, 3.4.1).
const TICK: u64 = 4000;

/// A random secret, kept for as long as there are connections.
#[derive(Clone, Copy)]
pub(crate) struct Secret(pub [u64; 2]);

impl Secret {
    /// Returns the initial sequence number: ISN = M + F(connection, secret).
    pub fn number(self, tuple: &Tuple, now: Instant) -> u32 {
        let ticks = (now.0 / TICK) as u32;
        ticks.wrapping_add(self.hash(tuple, 1))
    }

    /// Returns the 24-bit hash of a SYN cookie, which nobody else can compute.
    ///
    /// It covers the tuple, the number of the peer's SYN, the time interval, and `what` as a
    /// further value.
    pub fn cookie(self, tuple: &Tuple, theirs: u32, stretch: u64, what: u8) -> u32 {
        let mut hasher = self.hasher(tuple, 3);
        hasher.write_u32(theirs);
        hasher.write_u64(stretch);
        hasher.write_u8(what);
        hasher.finish() as u32 & 0xff_ffff
    }

    /// Returns the offset of our clock of timestamps.
    pub fn clock(self, tuple: &Tuple) -> u32 {
        self.hash(tuple, 2)
    }

    /// Returns the hash of a tuple for the table of connections.
    ///
    /// Peers choose their ports, but cannot know which tuples collide.
    pub fn place(self, tuple: &Tuple) -> u64 {
        let mut bytes = [0; 36];
        bytes[..16].copy_from_slice(&tuple.local.0);
        bytes[16..32].copy_from_slice(&tuple.remote.0);
        bytes[32..34].copy_from_slice(&tuple.ports.local.to_ne_bytes());
        bytes[34..].copy_from_slice(&tuple.ports.remote.to_ne_bytes());
        SipHasher13::new_with_keys(self.0[0], self.0[1]).hash(&bytes)
    }

    fn hash(self, tuple: &Tuple, purpose: u8) -> u32 {
        self.hasher(tuple, purpose).finish() as u32
    }

    fn hasher(self, tuple: &Tuple, purpose: u8) -> SipHasher24 {
        let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
        hasher.write_u8(purpose);
        hasher.write(&tuple.local.0);
        hasher.write(&tuple.remote.0);
        hasher.write_u16(tuple.ports.local);
        hasher.write_u16(tuple.ports.remote);
        hasher
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ports;
    use vrdma_wire::num::Gid;

    fn tuple(remote: u16) -> Tuple {
        Tuple { local: Gid([1; 16]), remote: Gid([2; 16]), ports: Ports { local: 1, remote } }
    }

    #[test]
    fn numbers_go_on_with_time_and_differ_else() {
        let secret = Secret([3, 4]);
        let number = secret.number(&tuple(5), Instant(0));
        assert_eq!(secret.number(&tuple(5), Instant(4_000_000)), number.wrapping_add(1000));
        assert_ne!(secret.number(&tuple(6), Instant(0)), number);
        assert_ne!(Secret([3, 5]).number(&tuple(5), Instant(0)), number);
        assert_ne!(secret.clock(&tuple(5)), number);
    }
}
