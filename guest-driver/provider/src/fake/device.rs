//! The device of the fake kernel: it takes requests, and writes completions.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering, fence};

use vrdma_verbs::abi::cqe::{WcOpcode, flags as cqe_flags};
use vrdma_verbs::abi::wqe::{ListBody, Sge, WqeHeader, WrOpcode, flags};
use vrdma_verbs::abi::zerocopy::{FromBytes, IntoBytes};
use vrdma_verbs::{CqLayout, Cqe, Unit};

use super::{ENTRIES, Kernel, State, USED_OFFSET};
use crate::mapping::Mapping;

/// A completion queue in the provider's memory.
pub struct FakeCq {
    pub start: usize,
    pub layout: CqLayout,
    next: u32,
    /// Value of the arm word when it was last read.
    seen: u32,
}

impl FakeCq {
    pub fn new(start: u64, entries: u32, is_timed: bool) -> Self {
        let layout = CqLayout::for_entries(entries).unwrap().with_timestamps(is_timed);
        assert_eq!(layout.entries(), entries);
        Self { start: start as usize, layout, next: 0, seen: 0 }
    }

    /// Returns the number of CQEs that it has room for.
    pub fn room(&self) -> u32 {
        let ring = std::ptr::with_exposed_provenance_mut::<u8>(self.start);
        // SAFETY: the provider keeps the memory until the CQ is destroyed. The consumer's word is
        // 64 bytes into the record.
        let consumer = unsafe {
            let word = ring.add(self.layout.record_offset() + 64);
            AtomicU32::from_ptr(word.cast()).load(Ordering::Acquire)
        };
        self.layout.entries() - self.next.wrapping_sub(consumer)
    }

    /// Moves to another ring. Returns false if the present CQEs do not fit.
    pub fn resize(&mut self, start: u64, entries: u32, held: u32) -> bool {
        if self.layout.entries() - self.room() + held > entries {
            return false;
        }
        *self = Self { seen: self.seen, ..Self::new(start, entries, self.layout.is_timed()) };
        true
    }

    pub(super) fn put(&mut self, mut cqe: Cqe, timestamp: u64) {
        assert!(self.room() > 0, "the CQ overflows");
        let ring = std::ptr::with_exposed_provenance_mut::<u8>(self.start);
        // SAFETY: the provider keeps the memory until the CQ is destroyed.
        unsafe {
            cqe.phase = u8::from(self.next & self.layout.entries() == 0);
            let at = ring.add((self.next & (self.layout.entries() - 1)) as usize * self.layout.cqe_size());
            if self.layout.is_timed() {
                at.add(Cqe::SIZE).cast::<u64>().write(timestamp);
            }
            at.copy_from_nonoverlapping(cqe.as_bytes().as_ptr(), Cqe::SIZE - 1);
            AtomicU8::from_ptr(at.add(Cqe::SIZE - 1)).store(cqe.phase, Ordering::Release);
        }
        self.next = self.next.wrapping_add(1);
    }

    fn was_armed(&mut self) -> bool {
        let ring = std::ptr::with_exposed_provenance_mut::<u8>(self.start);
        fence(Ordering::SeqCst);
        // SAFETY: the provider keeps the memory until the CQ is destroyed.
        let arm = unsafe { AtomicU32::from_ptr(ring.add(self.layout.record_offset()).cast()) };
        let now = arm.load(Ordering::Relaxed);
        std::mem::replace(&mut self.seen, now) != now
    }
}

/// A request that the device took.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub header: WqeHeader,
    /// All bytes of the request.
    pub bytes: Vec<u8>,
}

impl Parsed {
    fn new(units: &[Unit]) -> Self {
        let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.0).flat_map(u64::to_ne_bytes).collect();
        Self { header: WqeHeader::read_from_prefix(&bytes).unwrap().0, bytes }
    }

    pub fn opcode(&self) -> WrOpcode {
        WrOpcode(self.header.opcode)
    }

    pub fn qpn(&self) -> u32 {
        self.header.object.get()
    }

    pub fn wqe_id(&self) -> u32 {
        self.header.wqe_id.get()
    }

    pub fn inline(&self) -> &[u8] {
        &self.bytes[32..32 + usize::from(self.header.inline_len.get())]
    }

    pub fn sges(&self) -> Vec<(u64, u32, u32)> {
        self.bytes[if self.opcode().is_atomic() { 48 } else { 32 }..]
            .chunks_exact(16)
            .take(self.header.sge_count.into())
            .map(|sge| Sge::read_from_bytes(sge).unwrap())
            .map(|sge| (sge.addr.get(), sge.length.get(), sge.lkey.get()))
            .collect()
    }

    /// Returns the requests of a list.
    fn requests(&self) -> Vec<Self> {
        let body = ListBody::read_from_prefix(&self.bytes[16..]).unwrap().0;
        let ids = [self.header.wqe_id].into_iter().chain(body.wqe_ids);
        let count = usize::from(self.header.sge_count);
        assert!((2..=5).contains(&count) && usize::from(self.header.units) == (32 + 16 * count).div_ceil(64));
        let single = |(place, wqe_id)| {
            let flags = (self.header.flags.get() & !flags::LIST).into();
            let header = WqeHeader { wqe_id, units: 1, flags, sge_count: 1, ..self.header };
            let sge = &self.bytes[32 + 16 * place..][..16];
            Self { bytes: [header.as_bytes(), &[0; 16], sge, &[0; 16]].concat(), header }
        };
        ids.take(count).enumerate().map(single).collect()
    }

    /// Returns the completion of a receive of a shared queue that this QP has taken.
    pub fn received(&self, qpn: u32) -> Cqe {
        assert_eq!(self.opcode(), WrOpcode::SRQ_RECV);
        Cqe {
            wqe_id: self.header.wqe_id,
            qpn: qpn.into(),
            opcode: WcOpcode::RECV.0,
            flags: cqe_flags::RECV,
            ..Cqe::default()
        }
    }

    /// Returns a completion with success.
    pub fn success(&self) -> Cqe {
        let recv = self.opcode() == WrOpcode::RECV;
        Cqe {
            wqe_id: self.header.wqe_id,
            qpn: self.header.object,
            opcode: if recv { WcOpcode::RECV.0 } else { WcOpcode::RDMA_WRITE.0 },
            flags: if recv { cqe_flags::RECV } else { 0 },
            ..Cqe::default()
        }
    }
}

impl Kernel {
    /// Returns the number of CQEs that each CQ has room for.
    pub fn room(&self) -> u32 {
        self.state().cqs.values().map(FakeCq::room).min().expect("there is a CQ")
    }

    /// Takes the next request, from the context's channel or from `METHOD_POST`.
    ///
    /// Requests of a list are taken one by one.
    pub fn take(&self) -> Option<Parsed> {
        let mut state = self.state();
        if let Some(receive) = state.listed.pop_front() {
            return Some(receive);
        }
        let first = self.unit(&mut state)?;
        let mut units = vec![first];
        while units.len() < usize::from(Parsed::new(&units).header.units) {
            // Units of one request become visible together.
            units.push(self.unit(&mut state).unwrap());
        }
        let request = Parsed::new(&units);
        if request.header.flags.get() & flags::LIST == 0 {
            return Some(request);
        }
        state.listed = request.requests().into();
        state.listed.pop_front()
    }

    /// Takes all requests.
    pub fn take_all(&self) -> Vec<Parsed> {
        std::iter::from_fn(|| self.take()).collect()
    }

    /// Writes a completion to the CQ of its QP.
    pub fn complete(&self, cqe: Cqe) {
        self.complete_as(cqe, cqe.qpn.get());
    }

    /// Writes a completion to the CQ of `qpn`, whatever QP the completion names.
    pub fn complete_as(&self, cqe: Cqe, qpn: u32) {
        let mut state = self.state();
        let (send_cq, recv_cq) = state.qp_cqs[&qpn];
        let cq = if cqe.flags & cqe_flags::RECV != 0 { recv_cq } else { send_cq };
        let clock = state.clock;
        state.cqs.get_mut(&cq).unwrap().put(cqe, clock);
    }

    /// Takes all requests, and completes them with success. Returns their number.
    pub fn serve(&self) -> usize {
        let requests = self.take_all();
        for request in &requests {
            let signaled = request.header.flags.get() & flags::SIGNALED != 0;
            if signaled || request.opcode() == WrOpcode::RECV {
                self.complete(request.success());
            }
        }
        requests.len()
    }

    /// Whether the send CQ of `qpn` was armed since the last call.
    pub fn was_armed(&self, qpn: u32) -> bool {
        let mut state = self.state();
        let cq = state.qp_cqs[&qpn].0;
        state.cqs.get_mut(&cq).unwrap().was_armed()
    }

    /// Asks to be kicked for the next entry, or not.
    pub fn want_kicks(&self, yes: bool) {
        let event = self.state().taken.wrapping_sub(u16::from(!yes));
        word(&self.rings, USED_OFFSET as usize + 4 + 8 * usize::from(ENTRIES)).store(event, Ordering::SeqCst);
    }

    /// Returns the last value written to the doorbell, and resets it to 0.
    pub fn doorbell(&self) -> u16 {
        word(&self.doorbell, 64).swap(0, Ordering::SeqCst)
    }

    fn unit(&self, state: &mut State) -> Option<Unit> {
        if let Some(unit) = state.posted.pop_front() {
            return Some(unit);
        }
        if word(&self.rings, 2).load(Ordering::Acquire) == state.taken {
            return None;
        }
        let position = usize::from(state.taken % ENTRIES);
        let slot = usize::from(word(&self.rings, 4 + 2 * position).load(Ordering::Relaxed));
        let slot: NonNull<Unit> = self.slots.part(64 * slot, 64).unwrap().cast();
        // SAFETY: the device owns the slot until it returns it.
        let unit = unsafe { slot.read() };
        state.taken = state.taken.wrapping_add(1);
        word(&self.rings, USED_OFFSET as usize + 2).store(state.taken, Ordering::Release);
        Some(unit)
    }
}

fn word(mapping: &Mapping, offset: usize) -> &AtomicU16 {
    // SAFETY: part() checks that it is inside, and the offsets are even.
    unsafe { AtomicU16::from_ptr(mapping.part(offset, 2).unwrap().cast().as_ptr()) }
}
