//! Fuzzes the daemon by hostile guests and front-ends.
//!
//! It is compiled as a module of vrdma-backend, for its tests and for the fuzz targets, which call
//! one function each.
//!
//! Shows: hostile-input.

mod ethernet;
mod guest;
mod input;
mod lab;
mod rdma;
mod rings;
mod segments;
mod vhost_user;

pub use ethernet::ethernet;
pub use rdma::{connections, control, wqe};
pub use rings::rings;
pub use segments::segments;
pub use vhost_user::vhost_user;

#[cfg(test)]
#[path = "../../../testing/fuzz/src/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn controls() {
        replay("control", super::control);
    }

    #[test]
    fn all_connections() {
        replay("connections", super::connections);
    }

    #[test]
    fn wqes() {
        replay("wqe", super::wqe);
    }

    #[test]
    fn all_rings() {
        replay("rings", super::rings);
    }

    #[test]
    fn all_segments() {
        replay("segments", super::segments);
    }

    #[test]
    fn ethernets() {
        replay("ethernet", super::ethernet);
    }

    #[test]
    fn vhost_users() {
        replay("vhost_user", super::vhost_user);
    }
}
