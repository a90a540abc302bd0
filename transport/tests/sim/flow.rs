//! One direction of a connection, or datagrams from one QP to another: what is posted, and what has
//! to come of it.

use crate::world::World;
use vrdma_transport::*;

pub trait Flow {
    /// Posts what is due.
    fn act(&mut self, world: &mut World);

    /// When it does something next by itself; `None` if it only waits.
    fn next(&self) -> Option<Instant>;

    /// Whether every request has been posted and has ended.
    fn is_over(&self) -> bool;

    /// Takes this completion if it is its own.
    fn take(&mut self, world: &World, guest: usize, cq: CqId, completion: &Completion) -> bool;

    /// It is over, and nothing is on the link any more: everything has to be as its model says.
    fn check_end(&mut self, world: &World);

    /// Both QPs went to ERR: every receive has ended by now, but for those of a shared queue that
    /// the QP has not taken. How many these are, if they are of this guest.
    fn receives_left(&self, guest: usize) -> u64;

    /// Bytes of all messages.
    fn bytes(&self) -> u64;

    /// It came to an early end.
    fn has_failed(&self) -> bool;

    /// How far it is, in words.
    fn status(&self, world: &World) -> String;
}
