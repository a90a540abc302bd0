//! Commands about iWARP connections. `abi/src/control/cm.rs` documents their fields.

mod connect;
mod connection;
mod event;
mod fields;
mod listen;

pub use connect::CmConnect;
pub use connection::{CmAccept, CmDisconnect, CmReject, CmRelease};
pub use event::CmGetEvent;
pub use listen::{CmCloseListener, CmListen};
