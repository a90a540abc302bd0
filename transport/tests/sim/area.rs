//! Memory regions of guests, and SGEs in them.

use crate::memory::Mem;
use crate::rng::Rng;
use crate::world::World;
use vrdma_transport::*;
use vrdma_wire::num::{Lkey, Rkey};

/// A region as its owner knows it.
#[derive(Clone)]
pub struct Area {
    pub memory: Mem,
    pub iova: u64,
    pub key: u32,
}

impl Area {
    pub fn new(world: &mut World, guest: usize, rng: &mut Rng, access: Access, bytes: Vec<u8>) -> Area {
        let iova = rng.range(1..=1 << 40) << 6;
        let memory = Mem::new(bytes);
        let key = world.register(guest, access, iova, memory.clone());
        Area { memory, iova, key }
    }

    pub fn sge(&self, at: u64, length: u64) -> Sge {
        Sge { addr: self.iova + at, length: length as u32, lkey: Lkey(self.key) }
    }

    pub fn remote(&self, at: u64) -> Remote {
        Remote { addr: self.iova + at, rkey: Rkey(self.key) }
    }

    /// Returns a range as up to four successive SGEs, some of them empty.
    pub fn elements(&self, rng: &mut Rng, at: u64, length: u64) -> Vec<Sge> {
        let mut sges = Vec::new();
        let mut done = 0;
        while done < length && sges.len() < 3 && rng.one_in(2) {
            let piece = rng.range(0..=length - done);
            if piece == 0 {
                sges.push(Sge { addr: rng.next(), length: 0, lkey: Lkey(rng.next() as u32) });
            } else {
                sges.push(self.sge(at + done, piece));
            }
            done += piece;
        }
        if done < length {
            sges.push(self.sge(at + done, length - done));
        }
        sges
    }
}
