//! Requests written word by word, as a process may write them. They include requests that no driver
//! makes.

use crate::context::BoundChannel;
use crate::wait;
use std::sync::atomic::Ordering;
use vrdma_abi::wqe::{WrOpcode, flags};
use vrdma_verbs::{Remote, Sge};

/// 64-bit words of a 64-byte unit.
const WORDS: usize = 8;

/// Writes requests into a channel unchanged. Nothing else may post to that channel.
#[derive(Debug, Default)]
pub struct RawPoster {
    next: u16,
}

impl RawPoster {
    /// Writes a request into the channel, and waits while the channel is full.
    pub fn post(&mut self, channel: &mut BoundChannel, words: &[u64]) {
        let (ring, next) = (&channel.ring, &mut self.next);
        let units = (words.len() / WORDS) as u16;
        wait::until("room in the channel", || {
            channel.driver.kick();
            (next.wrapping_sub(ring.used_idx()) + units <= ring.size).then_some(())
        });
        for unit in words.chunks(WORDS) {
            let slot = *next & (ring.size - 1);
            for (i, word) in unit.iter().enumerate() {
                let at = channel.slots + 64 * u64::from(slot) + 8 * i as u64;
                ring.memory.word64(at).store(word.to_le(), Ordering::Relaxed);
            }
            ring.set_avail_entry(*next, slot);
            *next = next.wrapping_add(1);
        }
        ring.set_avail_idx(*next);
        channel.driver.kick();
    }
}

impl RawPoster {
    /// Waits until the device has taken all requests.
    pub fn drain(&self, channel: &BoundChannel) {
        channel.driver.kick();
        let taken = || (channel.ring.used_idx() == self.next).then_some(());
        wait::until("the device to take all requests", taken);
    }
}

/// Fields of a memory window's bind.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named as in vrdma_abi::wqe")]
pub struct Bind {
    pub rkey: u32,
    pub new_rkey: u32,
    pub lkey: u32,
    pub access: u32,
    pub addr: u64,
    pub length: u64,
}

/// Fields of a fast registration.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named as in vrdma_abi::wqe")]
pub struct RegMr {
    pub key: u32,
    pub access: u32,
    pub page_shift: u8,
    pub iova: u64,
    pub length: u64,
    pub page_list: u64,
}

/// Builds a signaled request of one unit for QP `qpn`.
pub fn request(opcode: WrOpcode, (qpn, id): (u32, u32), body: [u64; 2], sge: Option<Sge>) -> [u64; WORDS] {
    let header = u64::from(opcode.0) | 1 << 8 | u64::from(flags::SIGNALED) << 16 | u64::from(qpn) << 32;
    let (count, [addr, rest]) = match sge {
        Some(Sge { addr, length, lkey }) => (1, [addr, u64::from(length) | u64::from(lkey) << 32]),
        None => (0, [0; 2]),
    };
    [header, u64::from(id) | count << 32, body[0], body[1], addr, rest, 0, 0]
}

/// Builds a request that names an address in the peer's memory.
pub fn remote(opcode: WrOpcode, of: (u32, u32), to: Remote, sge: Option<Sge>) -> [u64; WORDS] {
    request(opcode, of, [to.addr, to.rkey.into()], sge)
}

/// Builds a request that names only a key: `LOCAL_INV`, `SEND_WITH_INV`.
pub fn key(opcode: WrOpcode, of: (u32, u32), rkey: u32, sge: Option<Sge>) -> [u64; WORDS] {
    request(opcode, of, [0, rkey.into()], sge)
}

/// Builds a receive.
pub fn recv((qpn, id): (u32, u32), sge: Option<Sge>) -> [u64; WORDS] {
    let mut words = request(WrOpcode::RECV, (qpn, id), [0; 2], sge);
    words[0] &= !(0xffff << 16);
    words
}

/// Builds a `BIND_MW`.
pub fn bind_mw(of: (u32, u32), bind: &Bind) -> [u64; WORDS] {
    let body = [
        u64::from(bind.rkey) | u64::from(bind.new_rkey) << 32,
        u64::from(bind.lkey) | u64::from(bind.access) << 32,
    ];
    let mut words = request(WrOpcode::BIND_MW, of, body, None);
    (words[4], words[5]) = (bind.addr, bind.length);
    words
}

/// Builds a `REG_MR`.
pub fn reg_mr(of: (u32, u32), reg: &RegMr) -> [u64; WORDS] {
    let body = [u64::from(reg.key) | u64::from(reg.access) << 32, reg.page_shift.into()];
    let mut words = request(WrOpcode::REG_MR, of, body, None);
    (words[4], words[5], words[6]) = (reg.iova, reg.length, reg.page_list);
    words
}
