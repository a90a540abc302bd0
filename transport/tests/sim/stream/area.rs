//! Regions of a stream, and elements in them.

use crate::memory::Mem;
use crate::rng::Rng;
use crate::world::Host;
use vrdma_transport::*;
use vrdma_wire::num::{Lkey, Rkey};

/// A region as its owner knows it.
#[derive(Clone)]
pub(super) struct Area {
    pub(super) memory: Mem,
    pub(super) iova: u64,
    pub(super) key: u32,
}

impl Area {
    pub(super) fn new(host: &mut Host, rng: &mut Rng, access: Access, bytes: Vec<u8>) -> Area {
        let iova = rng.range(1..=1 << 40) << 6;
        let length = bytes.len() as u64;
        let memory = Mem::new(bytes);
        let key = host.engine.reg_mr(host.device, host.pd, access, iova, length, memory.clone()).unwrap();
        Area { memory, iova, key }
    }

    pub(super) fn sge(&self, at: u64, length: u64) -> Sge {
        Sge { addr: self.iova + at, length: length as u32, lkey: Lkey(self.key) }
    }

    pub(super) fn remote(&self, at: u64) -> Remote {
        Remote { addr: self.iova + at, rkey: Rkey(self.key) }
    }

    /// A range as up to four elements one after the other, some of them empty.
    pub(super) fn elements(&self, rng: &mut Rng, at: u64, length: u64) -> Vec<Sge> {
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
