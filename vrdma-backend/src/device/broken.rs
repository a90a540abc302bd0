//! A step panicked that had devices at hand: these are emptied, the others go on
//! (docs/design/panics.md).

use super::outputs::{Broken, Outputs};
use crate::memory::{MrMemory, reap};
use crate::panics::{self, Panicked};
use vrdma_transport::{DeviceId, Engine};

/// Steps of a worker, as the log calls them.
pub mod step {
    /// Requests of a guest's channels.
    pub const REQUESTS: &str = "its requests";
    /// A command, once its session has read it.
    pub const COMMAND: &str = "its command";
    /// What the engine does by itself: turns of QPs, deadlines, flushes.
    pub const TURN: &str = "turns of its QPs";
    /// A packet from the wire, a netdev, or the local way of another worker.
    pub const PACKET: &str = "a packet to it";
    /// Packets that it sends.
    pub const TRANSMIT: &str = "packets of it";
    /// A message that waited for a look at its channels.
    pub const ANSWER: &str = "a look for its receives";
    /// QPs of a CQ that failed.
    pub const FAILED_CQ: &str = "its failed CQ";
}

/// Carries out a step of the engine, about the devices that it reaches and `of`. `None` if it
/// panicked: then these are empty, and to end ([`Outputs::broken`]).
#[inline]
pub fn contained<R>(
    step: &'static str,
    of: Option<DeviceId>,
    engine: &mut Engine<MrMemory>,
    outputs: &mut Outputs,
    carry_out: impl FnOnce(&mut Engine<MrMemory>, &mut Outputs) -> R,
) -> Option<R> {
    engine.begin_step();
    match panics::contain_step(step, || carry_out(engine, outputs)) {
        Ok(result) => Some(result),
        Err(panicked) => {
            panics::shared(|| break_off(of, engine, outputs, panicked));
            None
        }
    }
}

/// Empties the devices that a step had at hand. The process ends if it is not known which they are,
/// or if what devices share is not whole.
#[cold]
pub fn break_off(
    of: Option<DeviceId>,
    engine: &mut Engine<MrMemory>,
    outputs: &mut Outputs,
    panicked: Panicked,
) {
    let mut broken = engine.reached();
    broken.extend(of.filter(|id| !broken.contains(id)));
    if broken.is_empty() {
        panics::give_up(&panicked, &"it was about no guest");
    }
    for &id in &broken {
        // If somebody copies from them still, its guest is told nothing.
        let _ = outputs.device(id).loans.take_back();
        reap((engine.reset_device(id), outputs.device(id).reset()));
    }
    outputs.put_right();
    if let Err(error) = engine.check_after_panic() {
        panics::give_up(&panicked, &error);
    }
    outputs.broken.push((Broken::Panicked(panicked), broken));
}
