//! The surroundings of an engine: choices from the input, memory, completions, sent packets.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use vrdma_transport::*;
use vrdma_wire::roce::*;

/// The input, read from front to back. After its end, all reads return zeros.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    pub fn long(&mut self) -> u32 {
        (u32::from(self.word()) << 16) | u32::from(self.word())
    }

    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Returns `right` mostly, otherwise a number near it, or any number.
    pub fn near(&mut self, right: u32) -> u32 {
        match self.byte() {
            0..=127 => right,
            b @ 128..=223 => right.wrapping_add(u32::from(b)).wrapping_sub(176),
            _ => self.long(),
        }
    }
}

/// The length of the guard on each side of registered memory.
const GUARD: usize = 64;

/// Memory between two guards that must not be touched.
#[derive(Clone)]
pub struct Mem(Rc<RefCell<Vec<u8>>>);

impl Mem {
    /// Returns memory of this length, filled with 0x33.
    pub fn filled(length: usize) -> Mem {
        Mem(Rc::new(RefCell::new(vec![0x33; length + 2 * GUARD])))
    }

    /// Returns zeroed memory of this length, which costs nothing until it is touched.
    pub fn zeroed(length: usize) -> Mem {
        let mut bytes = vec![0; length + 2 * GUARD];
        bytes[..GUARD].fill(0x33);
        bytes[GUARD + length..].fill(0x33);
        Mem(Rc::new(RefCell::new(bytes)))
    }

    fn at(&self, offset: u64, len: usize) -> std::ops::Range<usize> {
        let offset = usize::try_from(offset).expect("within the region");
        let length = self.0.borrow().len() - 2 * GUARD;
        assert!(offset.checked_add(len).is_some_and(|end| end <= length), "{offset} + {len} is outside");
        offset + GUARD..offset + GUARD + len
    }

    /// Returns all of its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let bytes = self.0.borrow();
        bytes[GUARD..bytes.len() - GUARD].to_vec()
    }

    /// Checks that the guards are unchanged.
    pub fn check(&self) {
        let bytes = self.0.borrow();
        let guards = bytes[..GUARD].iter().chain(&bytes[bytes.len() - GUARD..]);
        assert!(guards.copied().all(|b| b == 0x33), "bytes beside the region changed");
    }
}

impl Region for Mem {
    fn copy_to(&self, offset: u64, dst: &Self, dst_offset: u64, len: u64) -> Result<(), Fault> {
        let mut buf = vec![0; len as usize];
        self.read(offset, &mut buf)?;
        dst.write(dst_offset, &buf)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        buf.copy_from_slice(&self.0.borrow()[self.at(offset, buf.len())]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let at = self.at(offset, data.len());
        self.0.borrow_mut()[at].copy_from_slice(data);
        Ok(())
    }

    fn with_word<T>(&self, offset: u64, operation: impl FnOnce(&AtomicU64) -> T) -> Result<T, Fault> {
        let at = self.at(offset, 8);
        let bytes: &mut [u8] = &mut self.0.borrow_mut()[at];
        let word = AtomicU64::new(u64::from_ne_bytes((&*bytes).try_into().expect("8 bytes")));
        let result = operation(&word);
        bytes.copy_from_slice(&word.into_inner().to_ne_bytes());
        Ok(result)
    }
}

/// Pending requests of a QP, by queue: their ids, and whether they are signaled.
#[derive(Default)]
pub struct Pending {
    pub sends: VecDeque<(u32, bool)>,
    pub receives: VecDeque<(u32, bool)>,
}

/// The output of an engine.
///
/// All targets use this one sink, so that the engine is compiled once for each kind of memory.
#[derive(Default)]
pub struct Log {
    pub completions: Vec<(DeviceId, CqId, Completion)>,
    pub events: Vec<(DeviceId, Event)>,
}

impl Sink for Log {
    fn complete(&mut self, device: DeviceId, cq: CqId, completion: &Completion) {
        self.completions.push((device, cq, *completion));
    }

    fn event(&mut self, device: DeviceId, event: Event) {
        self.events.push((device, event));
    }
}

/// An outlet that keeps the last packets, so that answers can be made.
#[derive(Default)]
pub struct Wire {
    pub room: usize,
    pub sent: VecDeque<Packet>,
}

impl Outlet for Wire {
    fn has_room(&mut self) -> bool {
        self.room > 0
    }
}

impl PacketOutlet<Mem> for Wire {
    fn send(&mut self, packet: &Packet, payload: &Pieces<'_, Mem>) -> Result<(), Fault> {
        assert!(self.room > 0, "nobody sends without room");
        self.room -= 1;
        // Like a buffer of a port, it has a fixed length and arbitrary content.
        let mut frame = [0xee; MAX_FRAME];
        let length = write_frame(packet, payload, &mut frame)?;
        assert_eq!(length, packet.frame_len(payload.len()));
        let parsed = Packet::parse(&frame[..length]).expect("what is sent can be read");
        assert_eq!(parsed.packet, *packet);
        assert_eq!(parsed.check_icrc(), Ok(()));
        // Datagrams have the port's MTU, not a path MTU.
        let most = if matches!(packet.body, Body::Ud { .. }) { MAX_PAYLOAD } else { 1024 };
        assert!(payload.len() <= most, "more than the path MTU");
        self.sent.push_back(*packet);
        if self.sent.len() > 16 {
            self.sent.pop_front();
        }
        Ok(())
    }
}

impl StreamOutlet<Mem> for Wire {}
