//! The turns of channels.

use vrdma_transport::DeviceId;

/// Which channel of each guest has the next turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// For each device number: the position of the next channel among the guest's channels.
    next: Vec<usize>,
}

impl Turns {
    /// Returns the position of the next channel among a guest's channels.
    pub(super) fn of(&mut self, device: DeviceId) -> &mut usize {
        let index = device.0 as usize;
        if index >= self.next.len() {
            self.next.resize(index + 1, 0);
        }
        &mut self.next[index]
    }
}
