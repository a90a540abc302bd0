//! The turns of channels.

use vrdma_transport::DeviceId;

/// The turns of each guest's channels.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// By the device's number.
    guests: Vec<GuestTurns>,
}

/// The turns of a guest's channels.
#[derive(Debug, Clone)]
pub(super) struct GuestTurns {
    /// The position of the next channel among those of the guest.
    pub(super) next: usize,
    /// The guest's weight. It multiplies the requests of a turn.
    pub(super) weight: u32,
}

impl Turns {
    /// Returns the turns of a guest's channels. A new guest has weight 1.
    pub(super) fn of(&mut self, device: DeviceId) -> &mut GuestTurns {
        let index = device.0 as usize;
        if index >= self.guests.len() {
            self.guests.resize(index + 1, GuestTurns { next: 0, weight: 1 });
        }
        &mut self.guests[index]
    }
}
