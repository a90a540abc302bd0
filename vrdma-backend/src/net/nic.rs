//! The NIC, as the switch sees it.

use super::finish::Fill;
use crate::port;

/// The NIC, as the switch sees it.
pub trait SwitchUplink {
    /// How it would complete the checksum of a frame with this head
    /// ([`VirtioOffload::Checksum`](crate::frames::VirtioOffload::Checksum)) by itself, if it can.
    fn completes(&self, head: &[u8], start: u16, offset: u16) -> Option<port::Offload>;

    /// How many frames there is room for now; `None` if frames for it are lost.
    fn room(&mut self) -> Option<usize>;

    /// Whether the frames that follow are for other hosts alone, and not for guests of other
    /// workers.
    fn set_limited(&mut self, _limited: bool) {}

    /// Sends a frame of `len` bytes, which `fill` writes, all but the checksum in `left`.
    ///
    /// # Errors
    /// There is no room, or no link: the frame is lost.
    fn transmit(&mut self, len: usize, left: Option<port::Offload>, fill: Fill<'_>) -> Result<(), Lost>;
}

/// A frame that the uplink did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;
