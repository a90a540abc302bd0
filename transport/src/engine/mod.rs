//! The engine: devices and their objects. Work requests are in [`post`], what happens by itself in
//! [`run`], QPs' lives in [`qps`], packets in [`wire`].

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

/// Devices, their objects, and what goes on between them. See the [crate] for how to use it.
pub struct Engine<R: Region> {
    pub(crate) core: Core<R>,
    /// Elements of a request of the peer of who sends, while that has its turn.
    place_scratch: Scratch,
    /// What is to be done to all QPs of devices.
    pub(crate) sweeps: Sweeps,
    /// Packets to multicast groups that not all members have had.
    pub(crate) fan_outs: FanOuts,
    /// What the requests of all devices may take.
    pub(crate) request_memory: u64,
    rng: Rng,
    /// Where an FPDU is put together that came in pieces; empty until there is a stream.
    fpdu: Vec<u8>,
    /// How often streams were joined.
    joins: u64,
}

impl<R: Region> Engine<R> {
    /// An engine without devices. Equal seeds and equal calls give equal results.
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
