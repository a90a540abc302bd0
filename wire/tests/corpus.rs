//! Replays the inputs that fuzzing kept, and the inputs of former crashes
//! (`testing/fuzz/README.md`).
//!
//! Shows: hostile-input.

#[path = "../../testing/fuzz/src/iwarp.rs"]
mod iwarp;
#[path = "../../testing/fuzz/src/packet.rs"]
mod packet;
#[path = "../../testing/fuzz/src/replay.rs"]
mod replay;

#[test]
fn packets() {
    replay::replay("packet", packet::packet);
}

#[test]
fn requests_and_replies() {
    replay::replay("mpa_set_up", iwarp::mpa_set_up);
}

#[test]
fn streams_of_fpdus() {
    replay::replay("fpdu", iwarp::fpdu);
}

#[test]
fn segments() {
    replay::replay("rdmap", iwarp::rdmap);
}
