//! The guests of a running daemon: they are added, changed and removed.
//!
//! [`manager`] is the thread that does so, and [`roster`] is how. [`change`] has what can be asked,
//! and why it is refused. [`difference`] compares two readings of the configuration, [`fence`] says
//! what the jail keeps from guests that come later, and [`sockets`] opens their sockets.
//! [`current`] is the configuration as it is.

mod change;
mod current;
mod difference;
mod fence;
mod manager;
mod roster;
mod sockets;

pub use change::{Change, ChangeAnswer, Changed, Refusal};
pub use current::CurrentConfig;
pub use manager::{GuestsHandle, Manager};
pub use roster::{Loader, Roster};
pub use sockets::{GuestSockets, guest_sockets, listener};
