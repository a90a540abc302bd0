//! Fuzzes an RDMA function by a hostile driver: control commands and work requests.

mod command;
mod connections;
mod driver;
mod request;

use super::input::Input;
use super::lab::{Lab, with};
use crate::worker::Worker;
use driver::{AHS, CHANNELS, CQS, DATA, GuestDriver, RINGS, SLOTS, WINDOW, ring};
use std::time::Duration;
use vrdma_abi::config::queue;
use vrdma_abi::zerocopy::IntoBytes;

pub use connections::connections;
pub use request::wqe;

/// Fuzzes control commands, most of them nearly right. The device's queues have requests, and the
/// driver writes arbitrary memory.
///
/// Each command is answered once, and a refused one changes nothing. The device writes only to its
/// rings, to buffers and to registered memory. The other guest is not affected.
pub fn control(data: &[u8]) {
    let mut driver = GuestDriver::new(Input::new(data), Lab::new());
    // More steps would only make an input slow.
    for _ in 0..200 {
        if driver.input.is_empty() {
            break;
        }
        driver.act();
    }
    driver.lab.end();
}

impl GuestDriver<'_> {
    fn act(&mut self) {
        match self.input.byte() % 16 {
            0..=8 => self.command(),
            9 | 10 => self.post(),
            11 => with(Worker::take_turn),
            12 => {
                let time = Duration::from_nanos(1 << (self.input.byte() % 40));
                with(|worker| worker.pass(time));
                with(Worker::take_turn);
            }
            13 => {
                let base = self.input.pick(&[RINGS, 0x300, 0x900, 0xc00, SLOTS, AHS, CQS, DATA]);
                let at = base + self.input.below(0x300) as u64;
                self.ram.write(at, self.input.bytes(16));
            }
            14 => self.hostile(),
            _ => self.front_end(),
        }
    }

    /// Does what the VMM may do at any time.
    fn front_end(&mut self) {
        let id = self.lab.guests[self.at].id;
        let less = self.input.once_in(3);
        let memory = if less { self.ram.less.clone() } else { self.ram.memory.clone() };
        match self.input.byte() % 8 {
            0 => self.start(),
            1 => with(|worker| worker.suspend_device(id)),
            2 => with(|worker| worker.start_device(id, false, None)),
            3 | 4 => {
                self.memory = memory.clone();
                self.lab.remap(self.at, &memory);
            }
            5 => {
                let index = self.input.below(7) as u16;
                let base = with(|worker| worker.stop_queue(id, index));
                let base = self.input.near(base.unwrap_or_default().into()) as u16;
                with(|worker| worker.start_queue(id, &memory, ring(index).setup(), base));
            }
            6 => _ = with(|worker| worker.stop_queue(id, 4)),
            _ => {
                // Returns event buffers that the driver has taken.
                for index in [queue::ASYNC_EVENTS, queue::FIRST_COMP_EVENTS] {
                    let slot = self.input.below(16) as u16;
                    ring(index).offer(&self.ram, slot);
                }
            }
        }
    }

    /// Posts requests to a channel, bound or not.
    fn post(&mut self) {
        let ring = ring(self.input.pick(&CHANNELS));
        for _ in 0..1 + self.input.below(4) {
            let slot = (ring.avail_idx(&self.ram) % 16) as u64;
            let gpa = SLOTS + WINDOW * u64::from(ring.index - CHANNELS[0]) + 64 * slot;
            let objects = request::Objects {
                qpns: &self.qpns,
                srqns: &self.srqns,
                keys: &self.keys,
                iova: command::IOVA,
                length: 0x1000,
                peer: &self.qpns,
                peer_keys: &self.keys,
            };
            let words = request::request(&mut self.input, &objects, 1);
            self.ram.write(gpa, &words.as_bytes()[..64]);
            let slot = self.input.near(slot as u32) as u16;
            ring.offer(&self.ram, slot);
        }
    }
}
