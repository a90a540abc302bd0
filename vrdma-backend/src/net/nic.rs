//! The switch's view of the NIC.

use super::finish::Fill;
use crate::port;

/// The NIC, as the switch uses it.
pub trait SwitchUplink {
    /// Returns the NIC's offload that completes the checksum of a frame with this head, if it can.
    ///
    /// The checksum is described by
    /// [`VirtioOffload::Checksum`](crate::frames::VirtioOffload::Checksum).
    fn completes(&self, head: &[u8], start: u16, offset: u16) -> Option<port::Offload>;

    /// Returns for how many frames there is room now; `None` if the NIC drops frames.
    fn room(&mut self) -> Option<usize>;

    /// Sets whether the frames that follow go to other hosts only, and not to other workers'
    /// guests.
    fn set_limited(&mut self, _limited: bool) {}

    /// Sends a frame of `len` bytes, which `fill` writes. The NIC completes the checksum in `left`.
    ///
    /// # Errors
    /// There is no room, or no link. The frame is lost.
    fn transmit(&mut self, len: usize, left: Option<port::Offload>, fill: Fill<'_>) -> Result<(), Lost>;
}

/// The error that the uplink did not accept a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;
