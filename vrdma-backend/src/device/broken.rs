//! Contains a panic of a step that works on devices. It resets these devices, and the others
//! continue (docs/design/panics.md).

use super::outputs::{Broken, Outputs};
use crate::memory::{MrMemory, reap};
use crate::panics::{self, Panicked};
use vrdma_transport::{DeviceId, Engine};

/// Names of a worker's steps, for the log.
pub mod step {
    /// Takes requests of a guest's channels.
    pub const REQUESTS: &str = "its requests";
    /// Executes a command that its session has read.
    pub const COMMAND: &str = "its command";
    /// Work that the engine starts itself: rounds of QPs, deadlines, flushes.
    pub const TURN: &str = "turns of its QPs";
    /// Handles a packet from the wire, a netdev, or the inter-worker ring.
    pub const PACKET: &str = "a packet to it";
    /// Sends its packets.
    pub const TRANSMIT: &str = "packets of it";
    /// Answers a message that waited until its channels were drained.
    pub const ANSWER: &str = "a look for its receives";
    /// Handles the QPs of a CQ that failed.
    pub const FAILED_CQ: &str = "its failed CQ";
}

/// Executes a step of the engine that concerns `of` and the devices that it reaches.
///
/// Returns `None` if it panicked. These devices are then empty, and have to end
/// ([`Outputs::broken`]).
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

/// Empties the devices that a step worked on.
///
/// The process ends if they are unknown, or if state that devices share is inconsistent.
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
        // If a copy from its memory is still in progress, nothing is reported to the guest.
        let _ = outputs.device(id).pin_gate.revoke();
        reap((engine.reset_device(id), outputs.device(id).reset()));
    }
    outputs.put_right();
    if let Err(error) = engine.check_after_panic() {
        panics::give_up(&panicked, &error);
    }
    outputs.broken.push((Broken::Panicked(panicked), broken));
}
