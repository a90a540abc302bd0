//! Who takes what comes in connections of our own TCP at once, straight from the frame: what is
//! taken is not kept.

use crate::streams::handle::Handle;
use vrdma_transport::{EarlyFpdu, PlacedFpdu};

/// See the module. What it does not take is kept, and read later.
pub trait Taker {
    /// Something is about to come in a connection: what belongs to it may be fetched ahead.
    fn fetch(&mut self, user: Handle);

    /// Takes bytes that are next, all before which were taken or read; how many.
    fn take(&mut self, user: Handle, bytes: &[u8]) -> usize;

    /// Places an FPDU that came beyond a hole, if it may be.
    fn place(&mut self, user: Handle, fpdu: &[u8]) -> EarlyFpdu;

    /// Takes an FPDU that was placed and is next; whether it did.
    fn take_placed(&mut self, user: Handle, placed: &PlacedFpdu) -> bool;
}

/// The user of a connection, if there is one that takes anything at once.
pub(super) struct Direct<'a>(pub Option<(Handle, &'a mut dyn Taker)>);

impl Direct<'_> {
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        self.0.as_mut().map_or(0, |(user, taker)| taker.take(*user, bytes))
    }

    pub fn place(&mut self, fpdu: &[u8]) -> EarlyFpdu {
        self.0.as_mut().map_or(EarlyFpdu::Keep, |(user, taker)| taker.place(*user, fpdu))
    }

    pub fn take_placed(&mut self, placed: &PlacedFpdu) -> bool {
        self.0.as_mut().is_some_and(|(user, taker)| taker.take_placed(*user, placed))
    }
}
