//! One direction of a connection, or datagrams from one QP to another: what is posted, and what
//! must result.

use crate::world::World;
use vrdma_transport::*;

pub trait Flow {
    /// Posts what is due.
    fn act(&mut self, world: &mut World);

    /// Returns when it acts next by itself; `None` if it only waits.
    fn next(&self) -> Option<Instant>;

    /// Returns whether every request was posted and has ended.
    fn is_over(&self) -> bool;

    /// Takes this completion if it is its own. Returns whether it is.
    fn take(&mut self, world: &World, guest: usize, cq: CqId, completion: &Completion) -> bool;

    /// Compares everything with the model, after the flow has ended and the link is empty.
    fn check_end(&mut self, world: &World);

    /// Returns how many receives of this guest are left in a shared queue after both QPs went to
    /// ERR.
    ///
    /// All other receives have ended by then.
    fn receives_left(&self, guest: usize) -> u64;

    /// Returns the bytes of all messages.
    fn bytes(&self) -> u64;

    /// Returns whether it ended early.
    fn has_failed(&self) -> bool;

    /// Describes its state.
    fn status(&self, world: &World) -> String;
}
