//! The engine: devices and their objects.
//!
//! Work requests are in [`post`], work that is due in [`run`], creation and changes of QPs in
//! [`qps`], and packets in [`wire`].

mod arrive;
mod datagram;
mod devices;
mod flush;
pub(crate) mod groups;
mod joined;
mod keys;
pub(crate) mod lines;
mod look;
mod near;
mod panicked;
mod post;
mod qps;
mod run;
mod save;
mod srqs;
mod streams;
pub(crate) mod sweep;
mod wake;
pub(crate) mod wire;
mod xrcds;

#[cfg(test)]
pub(crate) use run::{DEADLINES, TURNS};

use crate::agenda::fan_out::FanOuts;
use crate::agenda::sweeps::Sweeps;
use crate::base::memory::Region;
use crate::base::rng::Rng;
use crate::message::core::Core;
use crate::objects::outstanding::Scratch;

/// The protocol engine: devices, their objects, and the messages between them. The [crate]
/// documents its use.
pub struct Engine<R: Region> {
    pub(crate) core: Core<R>,
    /// Elements of a request of the peer, while a QP on a loopback connection has its turn.
    place_scratch: Scratch,
    /// Tasks for all QPs of a device.
    pub(crate) sweeps: Sweeps,
    /// Packets to multicast groups that some members have not had.
    pub(crate) fan_outs: FanOuts,
    /// Most bytes that the pending requests of all devices may take.
    pub(crate) request_memory: u64,
    rng: Rng,
    /// Buffer in which an FPDU is reassembled. Empty until there is a stream.
    fpdu: Vec<u8>,
    /// How many loopback connections were made.
    joins: u64,
}

impl<R: Region> Engine<R> {
    /// Makes an engine without devices. Equal seeds and equal calls give equal results.
    pub fn new(seed: u64) -> Self {
        Engine {
            core: Core::new(),
            place_scratch: Scratch::default(),
            sweeps: Sweeps::default(),
            fan_outs: FanOuts::default(),
            request_memory: u64::MAX,
            rng: Rng::new(seed),
            fpdu: Vec::new(),
            joins: 0,
        }
    }
}
