//! Turns of channels.

use vrdma_transport::DeviceId;

/// Whose turn it is among the channels of each guest.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// By the device's number: the position of the next among the guest's channels.
    next: Vec<usize>,
}

impl Turns {
    /// The position of the next among the channels of a guest.
    pub(super) fn of(&mut self, device: DeviceId) -> &mut usize {
        let index = device.0 as usize;
        if index >= self.next.len() {
            self.next.resize(index + 1, 0);
        }
        &mut self.next[index]
    }
}
