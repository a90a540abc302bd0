//! Fuzzes channels, completion queues and event queues with arbitrary memory.

use super::guest::{Ram, Ring};
use super::input::Input;
use crate::memory::Extent;
use crate::queue::channel::{Channel, NO_WORDS};
use crate::queue::cq::{CqRing, CqeKind};
use crate::queue::event::EventQueue;
use vrdma_abi::cqe::{CqRecord, Cqe, TimedCqe};
use vrdma_abi::event::{Event, EventKind};
use vrdma_abi::zerocopy::{FromBytes, IntoBytes};

/// Fuzzes rings of one kind. The guest writes arbitrary memory between any two steps of the device.
///
/// The device must write only where it may, take each entry once, and end each step.
pub fn rings(data: &[u8]) {
    let mut input = Input::new(data);
    let ram = Ram::of(0);
    match input.byte() % 4 {
        0 | 1 => channel(&mut input, &ram),
        2 => completions(&mut input, &ram),
        _ => events(&mut input, &ram),
    }
}

/// More steps would only make an input slow.
const ACTS: usize = 200;
const UNIT: u64 = 64;

/// Writes bytes anywhere near the rings.
fn scribble(input: &mut Input<'_>, ram: &Ram, places: &[(u64, u64)]) {
    let (base, len) = input.pick(places);
    let at = base + input.below(len as usize) as u64;
    ram.write(at, input.bytes(16));
}

fn channel(input: &mut Input<'_>, ram: &Ram) {
    // The slots of one window cross the boundary between two regions.
    let windows = [Extent { gpa: 0x1000, len: 0x400 }, Extent { gpa: 0x3f00, len: 0x200 }];
    let size = input.pick(&[8, 1, 2, 4, 16]);
    let ring = Ring { event_idx: input.byte() & 1 == 0, ..Ring::at(4, size, 0) };
    let slots = (0..u64::from(size)).map(|slot| input.pick(&[0x1000, 0x3f00]) + UNIT * (slot % 8));
    for (slot, gpa) in slots.enumerate() {
        ring.put_descriptor(ram, slot as u16, (gpa, UNIT as u32, 0, 0));
    }
    while input.once_in(16) {
        scribble(input, ram, &[(0, 0x300)]);
    }
    let before = ram.image();
    let bound = Channel::bind(&ram.memory, ring.setup(), &windows);
    ram.assert_same_but(&before, &[(ring.used, 2)], "bind");
    let Ok(mut channel) = bound else { return };
    let slots: Vec<u64> =
        (0..u64::from(size)).map(|slot| u64::from_le_bytes(ram.read(ring.desc + 16 * slot))).collect();
    for &gpa in &slots {
        let inside = |run: &Extent| gpa >= run.gpa && gpa + UNIT <= run.gpa + run.len;
        assert!(gpa.is_multiple_of(UNIT) && windows.iter().any(inside), "a slot at {gpa:#x}");
    }
    let mut next = 0;
    for _ in 0..ACTS {
        if input.is_empty() {
            break;
        }
        let before = ram.image();
        match input.byte() % 8 {
            0..=2 => {
                for _ in 0..input.below(usize::from(size) + 1) {
                    let slot = input.near(u32::from(ring.avail_idx(ram) % size)) as u16;
                    if let Some(&gpa) = slots.get(usize::from(slot)) {
                        let units = if input.once_in(4) { input.byte() } else { 1 };
                        ram.write(gpa, &[input.byte(), units, input.byte()]);
                    }
                    ring.offer(ram, slot);
                }
            }
            3 | 4 => {
                take(&mut channel, ram, &ring, &slots, &mut next);
                ram.assert_same_but(&before, &[ring.used_part()], "taking");
            }
            5 => {
                if input.byte() & 1 == 0 {
                    let late = channel.arm();
                    assert!(!(late && channel.is_broken()));
                }
                channel.disarm();
                ram.assert_same_but(&before, &[ring.used_part()], "asking for a kick");
            }
            6 if change(input, &mut channel, ram, &ring) => break,
            6 => {}
            _ => scribble(input, ram, &[(0, 0x300), (0x1000, 0x400), (0x3f00, 0x200)]),
        }
    }
}

/// The front-end stops, starts or moves the queue. Returns true if it then runs with other rings.
fn change(input: &mut Input<'_>, channel: &mut Channel, ram: &Ram, ring: &Ring) -> bool {
    let memory = if input.once_in(8) { &ram.less } else { &ram.memory };
    if input.byte() & 1 == 0 {
        channel.remap(memory);
        return false;
    }
    let base = channel.stop();
    let base = input.near(base.into()) as u16;
    let mut setup = ring.setup();
    if input.once_in(4) {
        setup.avail = u64::from(input.word());
        setup.used = u64::from(input.word());
    }
    let moved = (setup.avail, setup.used) != (ring.avail, ring.used);
    // Later checks hold for the original rings only.
    channel.resume(memory, setup, base) && moved
}

/// Takes all requests from index `next` on, and compares each with its slots.
fn take(channel: &mut Channel, ram: &Ram, ring: &Ring, slots: &[u64], next: &mut u16) {
    let mut words = NO_WORDS;
    let mut entries = 0;
    if !matches!(channel.refresh(), Ok(true)) {
        assert!(matches!(channel.pop(&mut words), Ok(None)), "there was nothing");
        return;
    }
    loop {
        match channel.pop(&mut words) {
            Ok(Some(units)) => {
                assert!((1..=8).contains(&units));
                for unit in 0..units as u16 {
                    let index = next.wrapping_add(unit) % ring.size;
                    let slot = ram.get16(ring.avail + 4 + 2 * u64::from(index));
                    let held: [u8; 64] = ram.read(slots[usize::from(slot)]);
                    let start = 64 * usize::from(unit);
                    assert_eq!(words.as_bytes()[start..start + 64], held, "slot {slot}");
                }
                *next = next.wrapping_add(units as u16);
                entries += units;
                assert!(entries <= usize::from(ring.size), "more than the ring holds");
            }
            Ok(None) => break,
            Err(_) => {
                assert!(channel.is_broken());
                break;
            }
        }
    }
    channel.publish_used();
}

fn completions(input: &mut Input<'_>, ram: &Ram) {
    let shape = input.below(14);
    let (entries, kind) = (1u32 << (shape % 7), if shape < 7 { CqeKind::Plain } else { CqeKind::Timed });
    let mut left = CqRing::bytes(kind, entries);
    let mut runs = Vec::new();
    let mut gpa = 0x1000;
    while left != 0 && runs.len() < 16 {
        let cut = if input.once_in(3) { 8 * input.below(1 + left as usize / 8) as u64 } else { left };
        let len = if input.once_in(3) { cut & !63 } else { cut };
        runs.push(Extent { gpa: if input.once_in(8) { u64::from(input.long()) } else { gpa }, len });
        gpa += len + if input.once_in(2) { 64 } else { 0 };
        left -= len;
    }
    // The parser of the command checks that the extents have this total length.
    runs.push(Extent { gpa, len: left });
    runs.retain(|run| run.len != 0);
    let Some(mut ring) = CqRing::new(&ram.memory, &runs, kind, entries) else { return };
    let mut driver = Driver::new(&runs, kind, entries);
    let record = driver.place(CqRing::bytes(kind, entries) - CqRecord::SIZE as u64);
    for n in 0..ACTS as u32 {
        if input.is_empty() {
            break;
        }
        let before = ram.image();
        match input.byte() % 8 {
            0..=3 => driver.push(&mut ring, ram, n),
            4 => {
                driver.consumer = driver.consumer.wrapping_add(input.below(8) as u32).min(driver.head);
                ram.write(record + 64, &driver.consumer.to_le_bytes());
            }
            5 => {
                let _ = ring.take_event(input.byte() & 1 == 0);
                ram.assert_same_but(&before, &[], "looking at arm words");
            }
            6 => {
                driver.honest = false;
                ram.write(record + 4 * input.below(32) as u64, &input.long().to_le_bytes());
            }
            _ => {
                let less = input.once_in(4);
                let Some(layout) = ring.layout() else { continue };
                let new = layout.map(if less { &ram.less } else { &ram.memory });
                driver.broken |= new.is_none();
                drop(ring.install(new));
            }
        }
    }
}

/// A program that polls a CQ.
struct Driver<'a> {
    runs: &'a [Extent],
    kind: CqeKind,
    entries: u32,
    head: u32,
    consumer: u32,
    /// The program has written only its own index and arm words, so the device agrees with it.
    honest: bool,
    broken: bool,
}

impl Driver<'_> {
    fn new(runs: &[Extent], kind: CqeKind, entries: u32) -> Driver<'_> {
        Driver { runs, kind, entries, head: 0, consumer: 0, honest: true, broken: false }
    }

    /// Returns the guest-physical address of a byte of the CQ.
    fn place(&self, mut offset: u64) -> u64 {
        for run in self.runs {
            if offset < run.len {
                return run.gpa + offset;
            }
            offset -= run.len;
        }
        panic!("runs have all bytes of the CQ");
    }

    fn push(&mut self, ring: &mut CqRing, ram: &Ram, n: u32) {
        let before = ram.image();
        let pushed = ring.reserve().map(|place| ring.write(place, &[n.into(), 0, 0, 0], || n.into())).is_ok();
        let full = self.head.wrapping_sub(self.consumer) >= self.entries;
        if self.honest {
            assert_eq!(pushed, !full && !self.broken, "head {} consumer {}", self.head, self.consumer);
        }
        if !pushed {
            self.broken = true;
            return ram.assert_same_but(&before, &[], "an overrun");
        }
        assert!(!self.broken, "a CQ that is broken takes nothing");
        let size = if self.kind == CqeKind::Timed { TimedCqe::SIZE } else { Cqe::SIZE } as u64;
        let at = self.place(u64::from(self.head & (self.entries - 1)) * size);
        ram.assert_same_but(&before, &[(at, size)], "a completion");
        let cqe = Cqe::read_from_bytes(&ram.read::<{ Cqe::SIZE }>(at)).expect("its size");
        let phase = u8::from(self.head & self.entries == 0);
        assert_eq!((cqe.wqe_id.get(), cqe.phase), (n, phase));
        self.head = self.head.wrapping_add(1);
    }
}

fn events(input: &mut Input<'_>, ram: &Ram) {
    let ring = Ring { event_idx: input.byte() & 1 == 0, ..Ring::at(1, input.pick(&[8, 1, 16]), 0) };
    let mut queue = EventQueue::default();
    // Only the driver's proper actions have touched the queue since it was attached.
    let mut honest = queue.attach(&ram.memory, &ring.setup(), 0);
    let mut waiting = 0;
    for n in 0..ACTS as u32 {
        if input.is_empty() {
            break;
        }
        match input.byte() % 8 {
            0 | 1 => {
                let head = ring.avail_idx(ram) % ring.size;
                let wrong = input.once_in(4);
                let len = if wrong { input.below(64) as u32 } else { Event::SIZE as u32 };
                let flags = if wrong { input.byte().into() } else { super::guest::WRITE };
                honest &= !wrong && ring.avail_idx(ram).wrapping_sub(ring.used_idx(ram)) < ring.size;
                let gpa = 0x1000 + 64 * u64::from(head);
                ring.put_descriptor(ram, head, (gpa, len, flags, input.below(16) as u16));
                ring.offer(ram, head);
            }
            2 | 3 => {
                queue.push(EventKind::COMPLETION, n);
                waiting += 1;
            }
            4 | 5 => {
                let before = ram.image();
                let room = ring.avail_idx(ram).wrapping_sub(ring.used_idx(ram));
                queue.flush();
                if honest {
                    let buffers = (0x1000, 64 * u64::from(ring.size));
                    ram.assert_same_but(&before, &[ring.used_part(), buffers], "events");
                    waiting -= room.min(waiting);
                    assert_eq!(queue.is_waiting(), waiting != 0);
                }
            }
            6 => {
                honest = false;
                match input.byte() % 4 {
                    0 => queue.remap(if input.byte() & 1 == 0 { &ram.less } else { &ram.memory }),
                    1 => _ = queue.detach(),
                    2 => _ = queue.attach(&ram.memory, &ring.setup(), input.word()),
                    _ => queue.forget(input.below(200) as u32, &[EventKind::COMPLETION]),
                }
            }
            _ => {
                honest = false;
                scribble(input, ram, &[(0, 0x300)]);
            }
        }
    }
}
