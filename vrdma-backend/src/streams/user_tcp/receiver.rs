//! The interface to a user that takes payload directly from a received frame. Such payload is not
//! stored.

use crate::streams::handle::Handle;
use vrdma_transport::{EarlyFpdu, PlacedFpdu};

/// A user of connections that takes payload directly. What it does not take is kept to be read.
pub trait SegmentReceiver {
    /// Prefetches what belongs to a connection, because data of it is about to come.
    fn fetch(&mut self, user: Handle);

    /// Takes the next bytes in order, after all earlier ones were taken or read. Returns how many.
    fn take(&mut self, user: Handle, bytes: &[u8]) -> usize;

    /// Places an FPDU that came out of order, if that is allowed.
    fn place(&mut self, user: Handle, fpdu: &[u8]) -> EarlyFpdu;

    /// Takes an already placed FPDU that is next. Returns whether it did.
    fn take_placed(&mut self, user: Handle, placed: &PlacedFpdu) -> bool;
}

/// The user of a connection, if it takes payload directly.
pub(super) struct Direct<'a>(pub Option<(Handle, &'a mut dyn SegmentReceiver)>);

impl Direct<'_> {
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        self.0.as_mut().map_or(0, |(user, receiver)| receiver.take(*user, bytes))
    }

    pub fn place(&mut self, fpdu: &[u8]) -> EarlyFpdu {
        self.0.as_mut().map_or(EarlyFpdu::Keep, |(user, receiver)| receiver.place(*user, fpdu))
    }

    pub fn take_placed(&mut self, placed: &PlacedFpdu) -> bool {
        self.0.as_mut().is_some_and(|(user, receiver)| receiver.take_placed(*user, placed))
    }
}
